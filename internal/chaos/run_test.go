package chaos

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if Main() {
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1")) // it counts for a second
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	dir, err := MakeDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = dir
	began := time.Now()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed=%d %s approvals=%d in %v", o.Seed, r.Line(), r.Approvals, time.Since(began))
	for i, v := range r.Findings {
		if i < 20 {
			t.Error(v)
		}
	}
	return r
}

func TestNothingIsLostInsideOneProcess(t *testing.T) {
	for _, m := range []Mode{Never, Random, Every} {
		t.Run(string(m), func(t *testing.T) {
			turns := 24
			if testing.Short() {
				turns = 5
			}
			r := run(t, Options{Turns: turns, Mode: m, Seed: 1, InProcess: true, Parallel: 2})
			if r.Turns != turns || (r.Kills > 0) == (m == Never) {
				t.Errorf("the run does not do what this test is about: %s", r.Line())
			}
		})
	}
}

func TestNothingIsLostByProcessesThatAreKilled(t *testing.T) {
	for m, turns := range map[Mode]int{Random: 15, Every: 6} {
		t.Run(string(m), func(t *testing.T) {
			if testing.Short() {
				turns /= 3
			}
			r := run(t, Options{Turns: turns, Mode: m, Seed: 1, Parallel: 2, Sessions: 1})
			if r.Turns != turns || r.Kills == 0 {
				t.Errorf("the run does not do what this test is about: %s", r.Line())
			}
		})
	}
}
