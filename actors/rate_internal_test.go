package actors

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNoMinuteHoldsMoreThanWasAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rate{most: rapid.Int64Range(1, 20).Draw(t, "most")}
		now := time.Unix(1_000_000, 0)
		var at []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
			wait := r.wait(now)
			if wait < 0 || wait > window {
				t.Fatalf("waits %s", wait)
			}
			if wait > 0 {
				if rapid.Bool().Draw(t, "patient") {
					now = now.Add(wait)
					if r.wait(now) != 0 {
						t.Fatalf("after its own wait of %s it waits again", wait)
					}
				} else {
					continue
				}
			}
			r.spend(now, 1)
			at = append(at, now)
			in := 0
			for _, a := range at {
				if now.Sub(a) < window {
					in++
				}
			}
			if int64(in) > r.most {
				t.Fatalf("%d in a minute, %d are allowed", in, r.most)
			}
		}
	})
}

func TestARateGoesOnWhenWhatWasSpentIsAMinuteOldAndWithoutALimitAtOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := rate{most: 100}
	r.spend(now, 250) // tokens are known afterwards, and may be more than there were
	r.spend(now.Add(time.Second), 30)
	if got := r.wait(now.Add(10 * time.Second)); got != 50*time.Second {
		t.Errorf("waits %s", got)
	}
	if got := r.wait(now.Add(-time.Hour)); got > window {
		t.Errorf("with the clock set back it waits %s", got)
	}
	if got := r.wait(now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later it waits %s", got)
	}
	if free := (rate{}); free.wait(now) != 0 {
		t.Error("without a limit it waits")
	}
}
