package chaos

import (
	"context"
	"iter"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfATurnThatIsGivenWriteAccessRecovers cuts a life in which a person agrees to trust the folder after each append. It is
// raised once, by that answer and not before it, and what is planned after that is planned with it.
func TestEveryCutOfATurnThatIsGivenWriteAccessRecovers(t *testing.T) {
	made := func(t *testing.T) *question {
		q := newQuestion(t)
		q.model = asksAccess{}
		return q
	}
	whole := made(t)
	appends := whole.live(t, 1<<30, true)
	checkAccess(t, whole, "uncut")
	everyCut(t, appends, 6, func(t *testing.T, n int, heard bool) {
		q := made(t)
		q.live(t, n, heard)
		q.live(t, 1<<30, true)
		checkAccess(t, q, "recovered")
	})
}

func checkAccess(t *testing.T, q *question, when string) {
	t.Helper()
	approval, raised, asked := "", 0, 0
	status := map[string]messages.ToolFinished_Status{}
	err := q.mem.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if e.Stream[:4] == "ses/" {
			f, err := messages.SessionFactIn(e.Record)
			if f, ok := f.(*messages.TrustChanged); ok {
				raised++
				if approval == "" || f.GetApprovalId() != approval || f.GetTrust() != messages.Trust_FULL {
					t.Errorf("%s: %v after the answer to %q", when, f, approval)
				}
			}
			return err
		}
		f, err := messages.WorkerFactIn(e.Record)
		switch f := f.(type) {
		case *messages.ApprovalRequested:
			asked++
		case *messages.ApprovalResolved:
			approval = f.GetApprovalId()
		case *messages.ToolPlanned:
			if f.GetTool() == "write_file" && (raised != 1 || f.GetNeedsApproval()) {
				t.Errorf("%s: %v with %d changes of trust", when, f, raised)
			}
		case *messages.ToolFinished:
			status[f.GetTool()] = f.GetStatus()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ok := messages.ToolFinished_OK
	if raised != 1 || asked != 1 || status["request_write_access"] != ok || status["write_file"] != ok {
		t.Errorf("%s: raised %d times, asked %d times: %v, %v", when, raised, asked, status, q.result)
	}
}

// asksAccess is a model that asks for write access, and then writes.
type asksAccess struct{}

func (asksAccess) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	step := 0
	for _, m := range req.Prompt.Messages {
		if m.Role == messages.Assistant {
			step++
		}
	}
	return func(yield func(model.Event, error) bool) {
		calls := [][2]string{{"request_write_access", `{"reason":"to write"}`}, {"write_file", `{"path":"yes.txt","content":"x"}`}}
		if step >= len(calls) {
			_ = yield(model.Event{Kind: model.Text, Text: "all done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		_ = yield(model.Event{Kind: model.CallStart, CallID: "call_0", Name: calls[step][0]}, nil) &&
			yield(model.Event{Kind: model.CallArgs, Text: calls[step][1]}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}
