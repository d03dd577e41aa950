package troupe_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func TestAProgramAnswersApprovals(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		answer  troupe.Answer
		outcome string
		runs    bool
	}{
		"yes":    {troupe.Answer{Decision: troupe.Approved}, "done", true},
		"no":     {troupe.Answer{Decision: troupe.Rejected, Message: "why?"}, "done", false},
		"cancel": {troupe.Answer{Decision: troupe.Cancelled}, "aborted", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, asked := t.TempDir(), make(chan *troupe.Approval, 8)
			rt, err := troupe.New(ctx, troupe.Options{Model: writesOnce{}, Approve: func(_ context.Context, a *troupe.Approval) troupe.Answer {
				asked <- a
				return c.answer
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(ctx)
			s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Run(ctx, "go")
			if err != nil || r.Outcome != c.outcome {
				t.Fatalf("%v %v", r, err)
			}
			a := <-asked
			if a.GetTool() != "write_file" || a.GetKind() != "diff" {
				t.Errorf("asked %v", a)
			}
			if _, err := os.Stat(filepath.Join(dir, "a")); (err == nil) != c.runs {
				t.Errorf("%v", err)
			}
			if all, err := rt.Approvals(ctx); err != nil || len(all) != 0 || len(asked) != 0 {
				t.Errorf("%v %v, asked %d more", all, err, len(asked))
			}
			wantCode(t, "answered twice", rt.ResolveApproval(ctx, a.GetApprovalId(), c.answer), messages.CodeResolved)
			ask[*messages.Ack](t, rt, forget(s.ID()))
			wantCode(t, "of a session that is gone", rt.ResolveApproval(ctx, a.GetApprovalId(), c.answer), messages.CodeNotFound)
		})
	}
}

func TestAnApprovalThatTheProgramDoesNotAnswerEndsWithTheRuntime(t *testing.T) {
	ctx := t.Context()
	asked := make(chan string, 1)
	rt, err := troupe.New(ctx, troupe.Options{Model: writesOnce{}, Approve: func(ctx context.Context, a *troupe.Approval) troupe.Answer {
		asked <- a.GetApprovalId()
		<-ctx.Done()
		return troupe.Answer{Decision: troupe.Approved} // too late
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = s.Run(ctx, "go") }()
	id := <-asked
	if all, err := rt.Approvals(ctx); err != nil || len(all) != 1 || all[0].GetApprovalId() != id {
		t.Errorf("%v %v", all, err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("it ran")
	}
}

// writesOnce is a model that writes one file, and is content with whatever comes of it.
type writesOnce struct{}

func (writesOnce) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	asked := false
	for _, m := range req.Prompt.Messages {
		asked = asked || m.Role == messages.Assistant
	}
	return func(yield func(model.Event, error) bool) {
		if asked {
			_ = yield(model.Event{Kind: model.Text, Text: "done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		_ = yield(model.Event{Kind: model.CallStart, CallID: "c", Name: "write_file"}, nil) &&
			yield(model.Event{Kind: model.CallArgs, Text: `{"path":"a","content":"x"}`}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}
