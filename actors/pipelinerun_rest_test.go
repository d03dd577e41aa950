package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

const asksAtTheEnd = `
steps:
  - {id: a, agent: default, prompt: x}
  - {id: ask, needs: [a], human: {message: 'Go on?', choices: [go, stop]}}
outputs: {said: "${{ steps.ask.output }}"}
`

// A run that waits for a person rests, also in the process after the one in which it asked, and the answer brings it back.
func TestARunThatWaitsForAPersonLeavesMemoryAndTheAnswerBringsItBack(t *testing.T) {
	o := actortest.Options{Store: stored(t), DataDir: t.TempDir(), IdleAfter: time.Millisecond, Model: actortest.Say("ok")}
	h := actortest.New(t, o)
	s, _, run := startRun(t, h, asksAtTheEnd)
	id := ""
	actortest.Until(t, "it asks", func() bool {
		if items := stepOf(h, s, run, "ask").GetItemViews(); len(items) == 1 {
			id = items[0].GetApprovalId()
		}
		return id != ""
	})
	asleep(t, h)
	h.Stop()
	h = actortest.New(t, o)
	actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{}) // as a server does at its start
	asleep(t, h)
	actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: run, ApprovalId: id, Decision: messages.Decision_REJECTED, Message: "stop"})
	if v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run}); v.GetState() != pipeline.Succeeded || v.GetOutputsJson() != `{"said":"stop"}` {
		t.Errorf("the run is %v", v)
	}
	asleep(t, h)
}

// Who waits for the end of a run keeps it in memory, and so does a question that has a time.
func TestARunThatSomebodyWaitsForStaysInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		asks  string
		rests bool
	}{"all the time": {"", true}, "a time": {", timeout: 1h, on_timeout: stop", false}} {
		t.Run(name, func(t *testing.T) {
			h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
			s, _, run := startRun(t, h, "steps: [{id: ask, human: {message: 'Go on?', choices: [go, stop]"+c.asks+"}}]\noutputs: {said: '${{ steps.ask.output }}'}\n")
			actortest.Until(t, "it asks", func() bool { return stepOf(h, s, run, "ask").GetState() == pipeline.Waiting })
			pid := actor.NewPID(h.Sys.Address(), h.Root.GetId()+"/"+s+"/"+run)
			idle := func() bool {
				v, err := act.Ask[*messages.Idleness](t.Context(), h.Sys, pid, &messages.ReportIdle{})
				if err != nil {
					t.Fatal(err)
				}
				return v.GetIdle()
			}
			if c.rests {
				actortest.Until(t, "it rests", idle) // the decision that nothing is to be done may be under way
			} else if idle() {
				t.Error("it would sleep through the end of its time")
			}
			ended := actortest.Later[*messages.RunView](h, s, &messages.AwaitRun{RunId: run})
			id := stepOf(h, s, run, "ask").GetItemViews()[0].GetApprovalId() // behind which the waiter is there
			if idle() {
				t.Error("it would leave who waits for it")
			}
			actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: run, ApprovalId: id, Message: "stop"})
			if got := <-ended; got.Err != nil || got.Reply.GetOutputsJson() != `{"said":"stop"}` {
				t.Errorf("the run is %v, %v", got.Reply, got.Err)
			}
			actortest.Until(t, "it is over, and rests", idle)
		})
	}
}

// Who mistypes a choice has not said yes.
func TestAnAnswerThatIsNoChoiceIsRefusedAndTheQuestionStays(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	for choices, c := range map[string]struct{ word, code, said string }{
		"[merge, hold, drop]": {"dorp", messages.CodeBadRequest, "drop"},
		"[yes, no]":           {"looks good", "", "yes"},
	} {
		s, _, run := startRun(t, h, "steps: [{id: ask, human: {message: 'Go on?', choices: "+choices+"}}]\noutputs: {said: '${{ steps.ask.output }}'}\n")
		id := ""
		actortest.Until(t, "it asks", func() bool {
			if items := stepOf(h, s, run, "ask").GetItemViews(); len(items) == 1 {
				id = items[0].GetApprovalId()
			}
			return id != ""
		})
		_, err := actortest.Try[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: run, ApprovalId: id, Decision: messages.Decision_APPROVED, Message: c.word})
		if actortest.Code(err) != c.code {
			t.Errorf("%s: %q is answered with %v", choices, c.word, err)
		}
		if c.code != "" {
			if !strings.Contains(err.Error(), `did you mean "drop"?`) {
				t.Errorf("nobody is told what was meant: %v", err)
			}
			actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: run, ApprovalId: id, Decision: messages.Decision_APPROVED, Message: "drop"})
		}
		if v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run}); v.GetOutputsJson() != `{"said":"`+c.said+`"}` {
			t.Errorf("%s: the run has %s", choices, v.GetOutputsJson())
		}
	}
}
