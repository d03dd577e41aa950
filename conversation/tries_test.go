package conversation_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

func TestTheFoldTellsAStepsOwnFailuresFromItsWaits(t *testing.T) {
	j := newJournal()
	put := func(facts ...proto.Message) {
		t.Helper()
		for _, f := range facts {
			if err := j.write(f); err != nil {
				t.Fatalf("%T: %v", f, err)
			}
		}
	}
	put(&messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "one"}, &messages.TurnStarted{TurnId: "t1", InputIds: []string{"one"}})
	for _, x := range []struct {
		instead string
		failed  *messages.GenerationFailed
		want    conversation.Tries
	}{
		{"", &messages.GenerationFailed{Class: "rate_limited"}, conversation.Tries{Waits: 1}},
		{"", &messages.GenerationFailed{Class: "overloaded", NotMade: true}, conversation.Tries{Waits: 2}},
		{"", &messages.GenerationFailed{Class: "overloaded"}, conversation.Tries{Waits: 2}},
		{"own", &messages.GenerationFailed{Class: "auth"}, conversation.Tries{Waits: 2, Other: true}},
		{"", &messages.GenerationFailed{Class: "not_found"}, conversation.Tries{Waits: 2, Own: true}},
		{"own", &messages.GenerationFailed{Class: "overloaded"}, conversation.Tries{Waits: 2, Own: true, Other: true}},
		{"", &messages.GenerationFailed{Class: "timeout", Unanswered: true}, conversation.Tries{Waits: 2, Unanswered: 1, Own: true}},
		{"own", &messages.GenerationFailed{Class: "overloaded", Unanswered: true}, conversation.Tries{Waits: 2, Unanswered: 2, Own: true, Other: true}},
	} {
		x.failed.GenId = "g"
		put(&messages.GenerationStarted{GenId: "g", InsteadOf: x.instead}, &messages.Activated{}, x.failed)
		if got := j.s.Turn().Tries; got != x.want {
			t.Errorf("after %v: %+v, want %+v", x.failed, got, x.want)
		}
	}
	put(&messages.GenerationStarted{GenId: "h"}, &messages.GenerationCompleted{GenId: "h", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "exec"}}})
	if got := j.s.Turn().Tries; got != (conversation.Tries{}) {
		t.Errorf("the next step begins with %+v", got)
	}
}
