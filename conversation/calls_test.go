package conversation_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// TestEventsAndListsTellTheSameStateOfACall walks one call through every state and compares what its events say with
// what a listing shows at that moment.
func TestEventsAndListsTellTheSameStateOfACall(t *testing.T) {
	done := &messages.ToolFinished{ExecId: "exe_1", Status: messages.ToolFinished_OK}
	lost := &messages.ToolFinished{ExecId: "exe_1", Status: messages.ToolFinished_INTERRUPTED_UNKNOWN}
	for _, end := range []*messages.ToolFinished{done, lost} {
		var s conversation.State
		var p conversation.Projector
		seq := uint64(0)
		for _, f := range []proto.Message{
			&messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "one"}, &messages.TurnStarted{TurnId: "t", InputIds: []string{"one"}},
			&messages.GenerationStarted{GenId: "g"}, &messages.GenerationCompleted{GenId: "g", ToolCalls: []*messages.ToolCall{{Name: "exec"}}},
			&messages.ToolPlanned{ExecId: "exe_1", Tool: "exec", NeedsApproval: true},
			&messages.ApprovalRequested{ApprovalId: "apr_1", ExecId: "exe_1"},
			&messages.ApprovalResolved{ApprovalId: "apr_1", ExecId: "exe_1", Decision: messages.Decision_APPROVED},
			&messages.ToolDispatched{ExecId: "exe_1"}, &messages.CallDoubted{ExecId: "exe_1"},
			&messages.CallResolved{ExecId: "exe_1", Resolution: messages.CallResolved_RETRY}, &messages.ToolDispatched{ExecId: "exe_1", Attempt: 2}, end,
		} {
			seq++
			r := &messages.Record{Seq: seq, Epoch: 1}
			if err := s.ApplyFact(f, r); err != nil {
				t.Fatalf("%T: %v", f, err)
			}
			e := p.Project("ses_1", "wrk_1", f, r, seq)
			if e.GetExecId() == "" || e.GetState() == "" {
				continue
			}
			// The last call stays in AllCalls when the exchange is complete.
			call := s.Turn().AllCalls[0]
			want := map[string]string{
				messages.EventToolPlanned: "received", messages.EventApprovalRequested: "requested", messages.EventToolDispatched: "executing",
				messages.EventToolInDoubt: "in_doubt", messages.EventToolFinished: map[bool]string{true: "succeeded", false: "failed"}[end == done],
			}[e.GetType()]
			if e.GetState() != want || call.State() != want && e.GetType() != messages.EventToolPlanned || call.Listing("ses_1", "wrk_1", "t").GetState() != call.State() {
				t.Errorf("%s: the event says %q, the list %q, want %q", e.GetType(), e.GetState(), call.State(), want)
			}
		}
	}
}
