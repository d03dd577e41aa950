package chaos

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// taking are the ways in which something is taken from a parent while its child is at work: what is asked of the session, and the tools
// that nobody has after that.
var taking = map[string]*messages.ConfigureWorker{
	"its tools":     {Tools: []string{"delegate", "put"}, By: "user"},
	"what it is":    {Agent: "strict", By: "user"},
	"both together": {Agent: "strict", Tools: []string{"delegate", "put"}, By: "user"},
}

// TestEveryCutOfATurnWhoseParentIsNarrowedLeavesItsChildNoMore cuts a delegating turn after each append, in the middle of which a person takes
// something from the parent. Who was told that it is taken, or finds it in the journal, sees no call of parent or child begin with it.
func TestEveryCutOfATurnWhoseParentIsNarrowedLeavesItsChildNoMore(t *testing.T) {
	for name, take := range taking {
		t.Run(name, func(t *testing.T) {
			whole := newNarrowed(t, take)
			appends := whole.run(t, &cutStore{Store: memory.New(), limit: 1 << 30})
			whole.checkTaken(t, "uncut", 0)
			if n := len(whole.effects["charge"]); n > 0 {
				t.Errorf("the child charged %d times after the tool was taken", n)
			}
			everyCut(t, appends, 14, func(t *testing.T, n int, heard bool) {
				w, first := newNarrowed(t, take), memory.New()
				done := w.run(t, &cutStore{Store: first, limit: n, heard: heard})
				after, err := first.Cut(min(n, done))
				if err != nil {
					t.Fatal(err)
				}
				last := w.look(t, after)
				w.run(t, &cutStore{Store: after, limit: 1 << 30})
				w.store = after
				w.checkTaken(t, "recovered", last)
			})
		})
	}
}

// narrowed is a world where a person takes something from the parent while its child runs a call, which ends when that is acknowledged.
type narrowed struct {
	*world
	told atomic.Bool
	kept bool         // it was written down in the life before: nobody takes it again
	late atomic.Int32 // calls that began after somebody was told
}

func newNarrowed(t *testing.T, take *messages.ConfigureWorker) *narrowed {
	w := &narrowed{world: newWorld(t)}
	w.agents, w.together = []troupe.Agent{{}, {Name: "strict", Rules: []string{"deny charge", "deny write_file"}}}, true
	came, gone := make(chan struct{}, 16), make(chan struct{})
	w.during = func(ctx context.Context, tool string) {
		switch {
		case tool == "charge" && w.told.Load():
			w.late.Add(1)
		case tool == "put":
			select {
			case came <- struct{}{}:
			default:
			}
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
	}
	w.beside = func(ctx context.Context, rt *troupe.Runtime) error {
		if w.told.Load() {
			return nil
		}
		if w.kept {
			close(gone)
			return nil
		}
		if w.lives == 1 { // later on the call may have ended before
			select {
			case <-came:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		_, err := rt.Ask(ctx, to(&messages.ToSession_Configure{Configure: take}))
		if err == nil {
			w.told.Store(true)
			close(gone)
		}
		return err
	}
	w.script = func(req *model.Request) ([][2]string, string) {
		ms := req.Prompt.Messages
		child, last := strings.Contains(req.Prompt.System, "has delegated a task to you"), ms[len(ms)-1]
		switch {
		case child && len(ms) == 1: // two calls wait for the end of the first
			return [][2]string{{"put", `{"name":"p"}`}, {"charge", `{"name":"c"}`}, {"write_file", `{"path":"made.txt","content":"x"}`}}, ""
		case child && len(ms) < 6:
			return [][2]string{{"charge", `{"name":"c"}`}, {"write_file", `{"path":"made.txt","content":"x"}`}}, ""
		case child:
			return nil, "as far as I may"
		case last.Role != messages.ToolRole:
			return [][2]string{{"delegate", `{"task":"go"}`}}, ""
		}
		return nil, "all done"
	}
	return w
}

// look gives the number of the last record of a life, 0 when there is none, and notes whether something was taken in it.
func (w *narrowed) look(t *testing.T, s persistence.Store) (at uint64) {
	t.Helper()
	err := s.ReadSession(t.Context(), sessionID, 0, func(e persistence.Entry) error {
		at = e.Cursor
		f, err := messages.WorkerFactIn(e.Record)
		if _, taken := f.(*messages.ConfigChanged); err == nil && taken && strings.HasPrefix(e.Stream, "wrk/") {
			w.kept = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// checkTaken looks for calls that began with what was taken. before is the last record of the life before.
func (w *narrowed) checkTaken(t *testing.T, when string, before uint64) {
	t.Helper()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "all done" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	if n := w.late.Load(); n > 0 {
		t.Errorf("%s: %d calls ran after somebody was told that their tool is taken", when, n)
	}
	taken, exec := make(map[string]uint64), make(map[string]string)
	err := w.store.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		switch f := f.(type) {
		case *messages.ConfigChanged:
			if taken[e.Stream] == 0 {
				taken[e.Stream] = e.Cursor
			}
		case *messages.ToolPlanned:
			exec[f.GetExecId()] = f.GetTool()
		case *messages.ToolDispatched:
			if tool := exec[f.GetExecId()]; tool == "charge" || tool == "write_file" {
				if at := taken[e.Stream]; at > 0 {
					t.Errorf("%s: %s began at %d in %s, from which it was taken at %d", when, tool, e.Cursor, e.Stream, at)
				}
				for stream, at := range taken { // the parent's may be all that was written
					if e.Cursor > before && before > 0 && at <= before {
						t.Errorf("%s: %s began at %d in %s, though it was taken in %s at %d, a life before", when, tool, e.Cursor, e.Stream, stream, at)
					}
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(taken); n == 0 || n > 2 || before == 0 && w.lives == 1 && n != 2 {
		t.Errorf("%s: it is taken in %v", when, taken)
	}
	if n := len(w.effects["charge"]); n > 1 {
		t.Errorf("%s: R3: charge ran %d times", when, n)
	}
}
