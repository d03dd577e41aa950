package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfADeletionLeavesAllOrNothing cuts the deletion of a session after each append, before and after its answer was
// heard. The next start finds the session as it was, or has nothing of it. It is the one of a session whose turn waits for two
// approvals, with a timer, a second worker and a home.
func TestEveryCutOfADeletionLeavesAllOrNothing(t *testing.T) {
	whole := newRemoval(t)
	appends, done := whole.remove(1<<30, true)
	if !done || !whole.gone() {
		t.Fatalf("uncut, after %d appends, it is there", appends)
	}
	kept := 0
	everyCut(t, appends, 4, func(t *testing.T, n int, heard bool) {
		r := newRemoval(t)
		_, done := r.remove(n, heard)
		switch gone := r.gone(); {
		case !gone && done:
			t.Error("it was told to be deleted, and is there")
		case !gone:
			kept++
			r.goesOn()
		}
	})
	if kept == 0 {
		t.Error("no cut came before the deletion: this shows too little")
	}
}

// removal is a session in the middle of its work, and what is left of it.
type removal struct {
	*question
	t    *testing.T
	data string
}

func newRemoval(t *testing.T) *removal {
	t.Helper()
	r := &removal{question: newQuestion(t), t: t, data: t.TempDir()}
	r.live(func(ctx context.Context, rt *troupe.Runtime) {
		asked := make(chan error, 1)
		asking, stop := context.WithCancel(ctx)
		go func() { asked <- r.prompt(asking, rt) }()
		r.eventually(func() bool { return len(r.pending(ctx, rt)) == 2 })
		stop()
		if err := <-asked; err == nil {
			t.Error("the turn did not wait")
		}
		for _, m := range []*messages.ToSession{
			to(&messages.ToSession_SpawnWorker{SpawnWorker: &messages.SpawnWorker{}}),
			to(&messages.ToSession_SetTimer{SetTimer: &messages.SetTimer{
				DueUnixMs: time.Now().Add(time.Hour).UnixMilli(), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "wake"}}},
			}}),
		} {
			if _, err := rt.Ask(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := os.MkdirAll(r.home(), 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *removal) home() string { return filepath.Join(r.data, "homes", sessionID) }

func (r *removal) pending(ctx context.Context, rt *troupe.Runtime) []*troupe.Approval {
	all, err := rt.Approvals(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// live is a life that ends in order.
func (r *removal) live(with func(context.Context, *troupe.Runtime)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rt, err := troupe.New(ctx, troupe.Options{Model: writeTwice{}, Store: r.mem, DataDir: r.data})
	if err != nil {
		r.t.Fatal(err)
	}
	with(ctx, rt)
	if err := rt.Close(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.mem = r.mem.Reopen()
}

// remove deletes the session in a life that is cut after limit appends, and says how many there were and whether it was
// told to be done.
func (r *removal) remove(limit int, heard bool) (appends int, done bool) {
	r.t.Helper()
	options := func(s *cutStore) troupe.Options {
		return troupe.Options{Model: writeTwice{}, Store: &cutDelete{s}, DataDir: r.data}
	}
	nobody := func(context.Context, *troupe.Runtime) {}
	store := lifeUntilCut(r.t, r.mem, limit, heard, options, nobody, func(ctx context.Context, rt *troupe.Runtime) error {
		_, err := rt.Ask(ctx, to(&messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}}))
		done = err == nil
		return err
	})
	r.mem = r.mem.Reopen()
	return store.count, done
}

// cutDelete is a cutStore whose deletions count as appends.
type cutDelete struct{ *cutStore }

// Delete passes, or is lost.
func (s *cutDelete) Delete(ctx context.Context, all ...persistence.Deletion) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; s.count > s.limit {
		s.end()
		return persistence.ErrUnavailable
	}
	err := s.Store.Delete(ctx, all...)
	if s.count == s.limit {
		s.end()
	}
	return err
}

// gone begins the next life, and says whether the session is there no more; then nothing of it may be.
func (r *removal) gone() bool {
	r.t.Helper()
	gone := false
	r.live(func(ctx context.Context, rt *troupe.Runtime) {
		_, err := rt.Ask(ctx, to(&messages.ToSession_Describe{Describe: &messages.DescribeSession{}}))
		f, refused := err.(*troupe.Failure) //nolint:errorlint // Ask says so
		if gone = refused && f.GetCode() == messages.CodeNotFound; err != nil && !gone {
			r.t.Errorf("it is neither there nor gone: %v", err)
		}
	})
	if !gone {
		return false
	}
	ctx := context.Background()
	found := func(what string) error { r.t.Errorf("left behind: %s", what); return nil }
	for _, err := range []error{
		r.mem.Streams(ctx, "", found),
		r.mem.Index(ctx, "", func(key string, _ []byte) error { return found(key) }),
		r.mem.Due(ctx, time.Unix(1<<40, 0), func(t persistence.Timer) error { return found(t.ID) }),
	} {
		if err != nil {
			r.t.Error(err)
		}
	}
	if _, err := os.Stat(r.home()); err == nil {
		_ = found(r.home())
	}
	return true
}

// goesOn checks that a session which is there is whole: it works on as if nobody had wanted it to go.
func (r *removal) goesOn() {
	r.t.Helper()
	r.live(func(ctx context.Context, rt *troupe.Runtime) {
		m, err := rt.Ask(ctx, to(&messages.ToSession_Describe{Describe: &messages.DescribeSession{}}))
		if v, ok := m.(*messages.SessionView); err != nil || !ok || len(v.GetWorkers()) != 2 {
			r.t.Errorf("it has become %v, %v", m, err)
		}
		m, err = rt.Ask(ctx, to(&messages.ToSession_ListTimers{ListTimers: &messages.ListTimers{}}))
		if v, ok := m.(*messages.Timers); err != nil || !ok || len(v.GetTimers()) != 1 {
			r.t.Errorf("its timers are %v, %v", m, err)
		}
		for _, a := range r.pending(ctx, rt) {
			if err := rt.ResolveApproval(ctx, a.GetApprovalId(), troupe.Answer{Decision: troupe.Approved}); err != nil {
				r.t.Error(err)
			}
		}
		if err := r.prompt(ctx, rt); err != nil || r.result.GetOutcome() != messages.TurnCompleted_DONE {
			r.t.Errorf("its turn came to %v, %v", r.result, err)
		}
	})
	if _, err := os.Stat(r.home()); err != nil {
		r.t.Error("its home is gone")
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "yes.txt")); err != nil || !strings.Contains(string(b), "x") {
		r.t.Errorf("the approved call left %q, %v", b, err)
	}
}

func (r *removal) eventually(holds func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	bound := time.NewTimer(patience)
	defer bound.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-bound.C:
			r.t.Fatal("it never came to what this test is about")
		}
	}
}
