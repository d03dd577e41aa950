package chaos

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestEveryCutOfATurnThatAsksRecovers cuts a life in which a person answers two approvals after each append, once before
// the append's answer was heard and once after. Each answer counts once, nothing runs without it, and the turn ends.
func TestEveryCutOfATurnThatAsksRecovers(t *testing.T) {
	whole := newQuestion(t)
	appends := whole.live(t, 1<<30, true)
	whole.check(t, "uncut")
	everyCut(t, appends, 6, func(t *testing.T, n int, heard bool) {
		q := newQuestion(t)
		q.live(t, n, heard)
		q.live(t, 1<<30, true)
		q.check(t, "recovered")
	})
}

// TestEveryCutOfATurnWhoseCallIsEditedRecovers answers with other arguments than were asked about. They run, once, or nothing does; what was asked for never does,
// and the model is told of what ran.
func TestEveryCutOfATurnWhoseCallIsEditedRecovers(t *testing.T) {
	made := func() *question {
		q := newQuestion(t)
		q.edited = map[string]string{"call_0": `{"path":"other.txt","content":"edited"}`}
		return q
	}
	whole := made()
	appends := whole.live(t, 1<<30, true)
	whole.checkEdited(t, "uncut")
	everyCut(t, appends, 6, func(t *testing.T, n int, heard bool) {
		q := made()
		q.live(t, n, heard)
		q.live(t, 1<<30, true)
		q.checkEdited(t, "recovered")
	})
}

func (q *question) checkEdited(t *testing.T, when string) {
	t.Helper()
	q.checkAnswers(t, when)
	asked, answered := []byte(nil), false
	for _, f := range q.facts(t) {
		switch f := f.(type) {
		case *messages.ApprovalRequested:
			if f.GetCallId() == "call_0" {
				asked = f.GetArgsHash()
			}
		case *messages.ApprovalResolved:
			if f.GetDecision() != troupe.Approved {
				continue
			}
			answered = true
			if f.GetModifiedArgs() != q.edited["call_0"] || len(f.GetArgsHash()) == 0 || bytes.Equal(f.GetArgsHash(), asked) {
				t.Errorf("%s: asked about %x, resolved with %q, %x", when, asked, f.GetModifiedArgs(), f.GetArgsHash())
			}
		case *messages.ToolDispatched:
			if !answered {
				t.Errorf("%s: dispatched before the answer: %v", when, f)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(q.dir, "yes.txt")); err == nil {
		t.Errorf("%s: what was asked for ran, and not what was answered", when)
	}
	if b, err := os.ReadFile(filepath.Join(q.dir, "other.txt")); err != nil || string(b) != "edited" {
		t.Errorf("%s: the edited call left %q, %v", when, b, err)
	}
}

// question is a session in a Restricted folder whose turn asks for two approvals; one is given.
type question struct {
	*world
	mem *memory.Store

	scopes map[string]troupe.Scope // of the answers, by call; none: once
	edited map[string]string       // arguments of the answers, by call; none: those that were asked with
	model  troupe.Model            // nil: writeTwice

	mu   sync.Mutex
	said map[string]troupe.Decision // acknowledged answers
}

func newQuestion(t *testing.T) *question {
	t.Helper()
	return &question{world: newWorld(t), mem: memory.New(), said: make(map[string]troupe.Decision)}
}

func (q *question) live(t *testing.T, limit int, heard bool) int {
	t.Helper()
	if q.model == nil {
		q.model = writeTwice{}
	}
	store := lifeUntilCut(t, q.mem, limit, heard, func(s *cutStore) troupe.Options {
		return troupe.Options{Model: q.model, Store: s, DataDir: t.TempDir()}
	}, q.person, q.prompt)
	q.store, q.mem = store, q.mem.Reopen()
	return store.count
}

func (q *question) prompt(ctx context.Context, rt *troupe.Runtime) error {
	in := &messages.SubmitInput{InputId: inputID, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "do it"}}}}
	create := &messages.CreateSession{
		SessionId: sessionID, First: in, Ask: true, Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + q.dir, Trust: troupe.Restricted}},
	}
	if _, err := rt.Ask(ctx, create); err != nil {
		f, ok := err.(*troupe.Failure) //nolint:errorlint // Ask says so
		if !ok || f.GetCode() != messages.CodeAlreadyExists {
			return err
		}
		if _, err := rt.Ask(ctx, to(&messages.ToSession_Submit{Submit: in})); err != nil {
			return err
		}
	}
	m, err := rt.Ask(ctx, to(&messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: inputID}}))
	if err != nil {
		return err
	}
	q.world.mu.Lock()
	defer q.world.mu.Unlock()
	q.result = m.(*messages.TurnResult) //nolint:forcetypeassert // the reply of AwaitTurn
	return nil
}

// person answers whatever asks, until ctx ends: yes to call_0, and no to call_1.
func (q *question) person(ctx context.Context, rt *troupe.Runtime) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		all, _ := rt.Approvals(ctx) // an error is the end
		for _, a := range all {
			d := troupe.Approved
			if a.GetCallId() == "call_1" {
				d = troupe.Rejected
			}
			if rt.ResolveApproval(ctx, a.GetApprovalId(), troupe.Answer{Decision: d, Scope: q.scopes[a.GetCallId()], Arguments: q.edited[a.GetCallId()]}) == nil {
				q.mu.Lock()
				q.said[a.GetApprovalId()] = d
				q.mu.Unlock()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (q *question) check(t *testing.T, when string) {
	t.Helper()
	q.checkAnswers(t, when)
	if b, err := os.ReadFile(filepath.Join(q.dir, "yes.txt")); err != nil || string(b) != "x" {
		t.Errorf("%s: the approved call left %q, %v", when, b, err)
	}
}

// checkAnswers looks at everything but what the approved call has done.
func (q *question) checkAnswers(t *testing.T, when string) {
	t.Helper()
	asked, answers := map[string]int{}, map[string]troupe.Decision{}
	status := map[string]messages.ToolFinished_Status{}
	dispatched := map[string]bool{}
	for _, f := range q.facts(t) {
		switch f := f.(type) {
		case *messages.ApprovalRequested:
			asked[f.GetCallId()]++
		case *messages.ApprovalResolved:
			answers[f.GetApprovalId()] = f.GetDecision()
		case *messages.ToolDispatched:
			dispatched[f.GetExecId()] = true
		case *messages.ToolFinished:
			status[f.GetCallId()] = f.GetStatus()
			if dispatched[f.GetExecId()] == (f.GetStatus() == messages.ToolFinished_DENIED) {
				t.Errorf("%s: %v, dispatched %v", when, f, dispatched)
			}
		}
	}
	if q.result.GetOutcome() != messages.TurnCompleted_DONE || status["call_0"] != messages.ToolFinished_OK || status["call_1"] != messages.ToolFinished_DENIED {
		t.Errorf("%s: the turn ended as %v, the calls as %v", when, q.result, status)
	}
	if asked["call_0"] != 1 || asked["call_1"] != 1 || len(answers) != 2 {
		t.Errorf("%s: asked %v, answered %v", when, asked, answers)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, d := range q.said {
		if answers[id] != d {
			t.Errorf("%s: %s was acknowledged as %v and kept as %v", when, id, d, answers[id])
		}
	}
	if _, err := os.Stat(filepath.Join(q.dir, "no.txt")); err == nil {
		t.Errorf("%s: the rejected call ran", when)
	}
}

func (q *question) facts(t *testing.T) []proto.Message {
	t.Helper()
	var out []proto.Message
	err := q.mem.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if f, err := messages.WorkerFactIn(e.Record); err == nil && e.Stream[:4] == "wrk/" {
			out = append(out, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// writeTwice is a model that makes two calls at once, and is content with whatever comes of them.
type writeTwice struct{}

func (writeTwice) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	asked := false
	for _, m := range req.Prompt.Messages {
		asked = asked || m.Role == messages.Assistant
	}
	return func(yield func(model.Event, error) bool) {
		if asked {
			_ = yield(model.Event{Kind: model.Text, Text: "all done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		for i, name := range []string{"yes.txt", "no.txt"} {
			if !yield(model.Event{Kind: model.CallStart, Index: i, CallID: fmt.Sprintf("call_%d", i), Name: "write_file"}, nil) ||
				!yield(model.Event{Kind: model.CallArgs, Index: i, Text: fmt.Sprintf(`{"path":%q,"content":"x"}`, name)}, nil) {
				return
			}
		}
		yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}
