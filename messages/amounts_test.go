package messages_test

import (
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// 0 is no limit: what rounds to it would lift the one that somebody asked for.
func TestNoLimitBecomesNoneBecauseItIsSmall(t *testing.T) {
	for usd, want := range map[float64]int64{0: 0, 1e-300: 1, 0.00000049: 1, 0.0000005: 1, 0.0000014: 1, 0.1: 100_000, 1.234567: 1_234_567} {
		a, err := messages.AmountsJSON{USD: usd}.Proto()
		if err != nil || a.GetMicroUsd() != want {
			t.Errorf("$%g is a limit of %d millionths, not %d: %v", usd, a.GetMicroUsd(), want, err)
		}
	}
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, 500 * time.Microsecond: 1, 1999 * time.Microsecond: 1, time.Second: 1000, -1: -1, -time.Second: -1000} {
		if n := messages.WallMs(d); n != want {
			t.Errorf("%s is a limit of %d ms, not %d", d, n, want)
		}
	}
}
