package chaos

import (
	"context"
	"strings"
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
	errs := make(chan error, len(lanes))
	for _, l := range lanes {
		go func() { errs <- l.run(context.Background()) }()
	}
	for range lanes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i, l := range lanes {
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
		if (l.crowded > 0) != narrow(i) {
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
