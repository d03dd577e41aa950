package workcopy_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// TestWhoLooksDuringAnApplyWaitsForItsEnd: what is under way is neither taken for something that a kill has cut off nor seen half done.
func TestWhoLooksDuringAnApplyWaitsForItsEnd(t *testing.T) {
	files, changes := make(map[string]string), make(map[string]string)
	for i := range 40 {
		name := fmt.Sprintf("d%d/f%d", i%5, i)
		files[name], changes[name] = "old", "new"
	}
	c, folder, dir, tree := newCopy(t, files)
	for round := range 4 {
		for name := range changes {
			changes[name] = fmt.Sprintf("new in round %d\n", round)
		}
		write(t, changes, tree)
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				if i%4 == 3 {
					if x, err := c.Apply(t.Context(), folder, dir); err != nil || !x.GetApplied() {
						t.Errorf("apply: %v %v", x, err)
					}
					return
				}
				x, err := c.Changes(t.Context(), folder, dir)
				if err != nil || len(x.GetFiles()) != 0 && len(x.GetFiles()) != len(changes) {
					t.Errorf("diff: %d files, %v", len(x.GetFiles()), err)
				}
			})
		}
		all.Wait()
		if got, want := state(t, folder), state(t, tree); got != want {
			t.Fatalf("%s instead of %s", got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "apply*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhoCannotWaitForACopyIsToldThatItIsBusy(t *testing.T) {
	c, folder, dir, _ := newCopy(t, map[string]string{"a": "1"})
	done, err := c.Hold(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error)
	for range 20 { // four more than may wait
		go func() { _, err := c.Changes(ctx, folder, dir); answers <- err }()
	}
	for range 4 {
		if err := <-answers; codeOf(err) != "busy" {
			t.Error(err)
		}
	}
	if _, err := c.Changes(t.Context(), folder, dir+"2"); codeOf(err) == "busy" {
		t.Errorf("another copy: %v", err)
	}
	cancel()
	for range 16 {
		if err := <-answers; codeOf(err) != "busy" {
			t.Error(err)
		}
	}
	done()
	if x, err := c.Changes(t.Context(), folder, dir); err != nil || len(x.GetFiles()) != 0 {
		t.Errorf("afterwards: %v %v", x, err)
	}
	if n := c.Known(); n != 0 {
		t.Errorf("%d copies are kept in mind", n)
	}
}
