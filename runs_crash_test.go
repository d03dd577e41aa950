package troupe_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// mortal is a store whose process ends after some appends: what comes then is neither made nor answered.
type mortal struct {
	persistence.Store
	left atomic.Int64
	end  sync.RWMutex // held by claims, so that none of the dead process takes anything over from the next one
	dead chan struct{}
}

func newMortal(s persistence.Store, appends int) *mortal {
	m := &mortal{Store: s, dead: make(chan struct{})}
	m.left.Store(int64(appends))
	return m
}

func (m *mortal) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	switch n := m.left.Add(-1); {
	case n == -1:
		m.end.Lock()
		close(m.dead)
		m.end.Unlock()
		return
	case n < 0:
		return
	}
	m.Store.Enqueue(done, b...)
}

func (m *mortal) Claim(ctx context.Context, stream, owner string) (persistence.Lease, error) {
	m.end.RLock()
	defer m.end.RUnlock()
	select {
	case <-m.dead:
		return persistence.Lease{}, persistence.ErrUnavailable
	default:
		return m.Store.Claim(ctx, stream, owner)
	}
}

// A process that ends after any append of a run loses nothing: the next one comes to the same outputs, and begins no attempt twice.
func TestARunCutAfterEveryAppendComesToTheSameOutputs(t *testing.T) {
	plan := planOf(t, flow)
	whole := memoryOf(t)
	want := finish(t, whole, func(ctx context.Context, rt *troupe.Runtime) (*troupe.Run, error) {
		return rt.RunPipeline(ctx, plan, troupe.RunOptions{})
	})
	for cut := 1; ; cut++ {
		store := memoryOf(t)
		run, died := dies(t, store, cut, plan, flowModel)
		if !died {
			t.Logf("%d appends", cut)
			return
		}
		got := finish(t, store, func(ctx context.Context, rt *troupe.Runtime) (*troupe.Run, error) { return rt.OpenRun(ctx, run.ID()) })
		if got != want {
			t.Errorf("cut after append %d: outputs %s, want %s", cut, got, want)
		}
		began(t, store, run.ID(), cut)
	}
}

// dies runs a plan in a process that ends after some appends. It is false when there were no more of them.
func dies(t *testing.T, store persistence.Store, appends int, plan *pipeline.Plan, answers func() troupe.Model) (run *troupe.Run, died bool) {
	t.Helper()
	m := newMortal(store, appends)
	rt, err := troupe.New(t.Context(), troupe.Options{Store: m, DataDir: t.TempDir(), Model: answers()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if run, err = rt.RunPipeline(ctx, plan, troupe.RunOptions{}); err != nil {
		t.Fatalf("cut %d: %v", appends, err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if v, err := run.Wait(ctx); err == nil && v.GetState() != "succeeded" {
			t.Errorf("cut %d: %v", appends, v)
		}
	}()
	select {
	case <-m.dead:
		died = true
	case <-over:
	}
	stop()
	<-over
	end, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 0)
	_ = rt.Close(end) // as much of it as a kill leaves
	cancel()
	return run, died
}

func finish(t *testing.T, store persistence.Store, open func(context.Context, *troupe.Runtime) (*troupe.Run, error)) string {
	t.Helper()
	return finishOf(t, store, flowModel, open)
}

func finishOf(t *testing.T, store persistence.Store, answers func() troupe.Model, open func(context.Context, *troupe.Runtime) (*troupe.Run, error)) string {
	t.Helper()
	rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: t.TempDir(), Model: answers()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	run, err := open(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := troupe.Outputs(v)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(out)
}

// began sees that no attempt began twice, and that no item ended twice.
func began(t *testing.T, store persistence.Store, run string, cut int) {
	t.Helper()
	seen := map[string]int{}
	err := store.Read(context.Background(), messages.RunStream(run), 1, func(e persistence.Entry) error {
		f, err := messages.RunFactIn(e.Record)
		switch f := f.(type) {
		case *messages.StepItemStarted:
			seen[fmt.Sprint("start ", f.GetStep(), f.GetIndex(), " attempt ", f.GetAttempt())]++
		case *messages.StepItemFinished:
			seen[fmt.Sprint("end ", f.GetStep(), f.GetIndex())]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range seen {
		if n > 1 {
			t.Errorf("cut after append %d: %s is written %d times", cut, what, n)
		}
	}
}
