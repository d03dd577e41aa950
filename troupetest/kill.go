package troupetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// Work is a program that EveryKill kills.
type Work struct {
	// Options are those of each of its runtimes. The store is EveryKill's; without DataDir the folder for everything else is the test's.
	Options troupe.Options
	// Do does all of it, from the start, and looks at what came of it. It is called again after a kill, so that what it begins has ids of its choosing
	// (SessionOptions.ID, Task.ID, RunOptions.ID, Worker.RunOnce): what was done is found under them. An error of a life that is killed counts for
	// nothing, one of the last life fails the test: give errors back, and call no t.Fatal, which fails it in any life.
	Do func(ctx context.Context, rt *troupe.Runtime) error
	// Check looks at the world after the last life: what was done there, and how often. nil: nothing is looked at.
	Check func(t *testing.T)
}

// EveryKill has a piece of work done once whole, and then once for every append to its journals, in a subtest each: after that append nothing is durable
// any more, its runtime ends, and a second one goes on with what the store has. Whether somebody has heard of that append is tried both ways. prepare
// makes the work and its world anew each time.
//
// It is a kill as the journals see it. What a tool does outside is done or not, as after kill -9, but no process is killed: a tool whose context ends
// may still clean up.
func EveryKill(t *testing.T, prepare func(t *testing.T) Work) {
	t.Helper()
	appends := 0
	whole := t.Run("whole", func(t *testing.T) {
		w := world(t, prepare)
		store := newMortal(t, memory.New(), everything)
		w.last(t, store)
		appends = store.count
	})
	if !whole {
		return
	}
	for n := 0; n <= appends; n++ {
		for _, heard := range []bool{false, true} {
			name := fmt.Sprintf("killed after %d of %d, unheard", n, appends)
			if heard {
				name = fmt.Sprintf("killed after %d of %d", n, appends)
			}
			t.Run(name, func(t *testing.T) {
				w := world(t, prepare)
				first := newMortal(t, memory.New(), n)
				first.heard = heard
				_ = w.life(t, first) // what it says counts for nothing
				after, err := first.left()
				if err != nil {
					t.Fatal(err)
				}
				w.last(t, newMortal(t, after, everything))
			})
		}
	}
}

var (
	errDead = errors.New("the process was killed here")
	errGone = errors.New("EveryKill: Do has not returned: it has to give its errors back, and not to end the test (t.Fatal)")
)

// everything is more appends than anybody makes.
const everything = 1 << 40

func world(t *testing.T, prepare func(t *testing.T) Work) *Work {
	t.Helper()
	w := prepare(t)
	switch {
	case w.Do == nil:
		t.Fatal("EveryKill: the work has no function Do")
	case w.Options.Store != nil:
		t.Fatal("EveryKill: Options.Store is set: the store is EveryKill's")
	}
	if w.Options.DataDir == "" {
		w.Options.DataDir = t.TempDir()
	}
	return &w
}

// life does the work until it is done, or the store is dead, which gives no error.
func (w *Work) life(t *testing.T, store *mortal) error {
	t.Helper()
	o := w.Options
	o.Store = store
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opened := make(chan error, 1)
	done := make(chan error, 1)
	var rt *troupe.Runtime
	go func() {
		var err error
		rt, err = troupe.New(ctx, o)
		opened <- err
		if err == nil {
			err = errGone
			defer func() { done <- err }()
			err = w.Do(ctx, rt)
		}
	}()
	select {
	case <-store.dead:
		stop()
	case err := <-opened:
		opened <- err
	}
	if err := <-opened; err != nil {
		return store.excuse(err)
	}
	var err error
	select {
	case err = <-done:
	case <-store.dead:
		stop()
		err = <-done
	}
	return errors.Join(store.excuse(err), closed(ctx, rt))
}

// last does the work in a life that nobody ends.
func (w *Work) last(t *testing.T, store *mortal) {
	t.Helper()
	if err := w.life(t, store); err != nil {
		t.Fatal(err)
	}
	if w.Check != nil {
		w.Check(t)
	}
}

// mortal is a store in memory that loses everything after a number of appends.
type mortal struct {
	*memory.Store
	limit int
	heard bool          // who made the last append hears of it
	dead  chan struct{} // closed when the first is lost

	mu    sync.Mutex
	count int
	over  bool
}

func newMortal(t *testing.T, s *memory.Store, limit int) *mortal {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &mortal{Store: s, limit: limit, dead: make(chan struct{})}
}

// Enqueue passes an append on, or loses it.
func (m *mortal) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count >= m.limit {
		m.end()
		return
	}
	m.count++
	if m.count == m.limit && !m.heard {
		done = func(persistence.Receipt, error) {}
		defer m.end()
	}
	m.Store.Enqueue(done, b...)
}

// Append is Enqueue for who waits. Nobody hears of what was lost.
func (m *mortal) Append(ctx context.Context, b ...persistence.Batch) (persistence.Receipt, error) {
	type answer struct {
		receipt persistence.Receipt
		err     error
	}
	answered := make(chan answer, 1)
	m.Enqueue(func(r persistence.Receipt, err error) { answered <- answer{r, err} }, b...)
	select {
	case a := <-answered:
		return a.receipt, a.err
	case <-m.dead:
		return persistence.Receipt{}, errDead
	case <-ctx.Done():
		return persistence.Receipt{}, fmt.Errorf("append: %w", ctx.Err())
	}
}

// left is a store with what was made durable. Appends that were refused are none of it, though they were counted.
func (m *mortal) left() (*memory.Store, error) {
	if err := m.Close(); err != nil { // which makes what is queued
		return nil, err
	}
	return m.Cut(m.Appends())
}

// excuse is no error where the store is dead: what was cut off fails.
func (m *mortal) excuse(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return nil
	}
	return err
}

func (m *mortal) end() {
	if !m.over {
		m.over = true
		close(m.dead)
	}
}
