package chaos

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestLanesAreOfEveryManner makes a run in this process, and looks for what the lanes are to meet: a model that stands in for another one, a house that has no
// room, and one that comes back to who has looked away.
func TestLanesAreOfEveryManner(t *testing.T) {
	dir, err := MakeDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Turns: 48, Mode: Random, Seed: 7, InProcess: true, Parallel: 2, Sessions: 3}.withDefaults()
	lanes, stop, err := prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	errs := make([]error, len(lanes))
	var running sync.WaitGroup
	for i, l := range lanes {
		running.Go(func() {
			if errs[i] = l.run(ctx); errs[i] != nil {
				cancel(errs[i]) // the others end, too
			}
		})
	}
	running.Wait()
	if err := errors.Join(errors.Join(errs...), stop()); err != nil {
		t.Fatal(err)
	}
	for i, l := range lanes {
		if crowds(t, l) != narrow(i) {
			t.Errorf("lane %d has room beside what is watched: %v", i, narrow(i))
		}
		h, err := l.history(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if found := Check(h); len(found) > 0 {
			t.Errorf("%s", lines(found))
		}
		others := find(h, func(f *messages.GenerationCompleted) bool {
			return f.GetInsteadOf() == ownModel && f.GetModel() == otherModel
		})
		t.Logf("lane %d: %d answers of another model, %d times without room, %d kills", i, len(others), l.crowded, l.kills)
		if (len(others) > 0) != standsIn(i) {
			t.Errorf("lane %d: %d answers are of the other model", i, len(others))
		}
		if l.crowded > 0 && !narrow(i) { // how often a narrow one is depends on who is there when
			t.Errorf("lane %d was without room %d times", i, l.crowded)
		}
		if narrow(i) && l.files.Room != 2 || !narrow(i) && l.files.Room != 0 {
			t.Errorf("lane %d has room for %d", i, l.files.Room)
		}
		for _, q := range h.Requests {
			if !strings.HasPrefix(q.Model, ownModel) {
				t.Fatalf("a request to %q", q.Model)
			}
		}
	}
}

// crowds says whether another life of a lane refuses its last session for want of room, while all others are watched.
func crowds(t *testing.T, l *lane) bool {
	t.Helper()
	c := l.files
	c.Mode, c.Life = Never, l.lives
	now, err := l.host.Begin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
		if err := l.bury(t.Context(), now); err != nil {
			t.Error(err)
		}
	}()
	last := len(l.sessions) - 1
	for _, s := range l.sessions[:last] {
		shown := make(chan error, 1) // what comes first: an event, or that there is none
		watching.Go(func() {
			for _, err := range now.Events(ctx, s.id, 0) {
				select {
				case shown <- err:
				default: // only the first one counts
				}
			}
		})
		if err := <-shown; err != nil {
			t.Fatalf("watch %s: %v", s.id, err)
		}
	}
	_, err = now.Ask(ctx, l.sessions[last].to(&messages.AwaitTurn{}))
	var refused *messages.Failure
	if err != nil && (!errors.As(err, &refused) || !full(refused)) {
		t.Fatal(err)
	}
	return err != nil
}
