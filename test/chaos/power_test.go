package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestPowerCutsLoseNothingThatWasAcknowledged takes the power from under a store that is written to, again
// and again: mostly between two checks, sometimes several times in a row, sometimes while it opens. TROUPE_CHAOS_CUTS
// is how many cuts (make powercut), and TROUPE_CHAOS_SEED repeats a run, as far as processes can be repeated.
func TestPowerCutsLoseNothingThatWasAcknowledged(t *testing.T) {
	cuts := number(t, "TROUPE_CHAOS_CUTS", 5)
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	d := newCutDisk(t, 2048)
	var s struckStore
	appends := 0
	for cut := range cuts {
		if cut%10 == 0 {
			s = struckStore{dir: fmt.Sprint(d.dir, "/store", cut), acked: map[string]uint64{}}
		}
		appends += s.write(t, d, rng)
		d.restore([]string{"", ",data=writeback,commit=1"}[rng.IntN(2)])
		if cut%10 != 9 && cut < cuts-1 && rng.IntN(3) == 0 {
			continue // cut again before anybody has repaired anything
		}
		lost, records := losses(s.dir, s.acked)
		for _, l := range lost {
			t.Errorf("after cut %d: %s", cut+1, l)
		}
		if len(lost) > 0 {
			t.FailNow()
		}
		t.Logf("cut %d: %d appends were acknowledged so far, the store holds %d records", cut+1, appends, records)
	}
	if appends < 20*cuts {
		t.Errorf("%d appends in %d cuts show too little", appends, cuts)
	}
}

// TestPowerCutsAreNoticedOnADiskThatLies is the proof that the test above can fail: the same writer, the same cut
// and the same check, and every sync is a success that does nothing.
func TestPowerCutsAreNoticedOnADiskThatLies(t *testing.T) {
	d := newCutDisk(t, 1024)
	acked := map[string]uint64{}
	dir := d.dir + "/store"
	w := startWriter(t, dir, acked)
	w.await(100)
	w.cut(d, logFlushed)
	d.restore("")
	if lost, records := losses(dir, acked); len(lost) > 0 {
		t.Fatalf("on an honest disk with %d records: %q", records, lost)
	}
	w = startWriter(t, dir, acked, fmt.Sprint(writerSyncs, "=lie"))
	w.await(200)
	w.cut(d, logFlushed)
	d.restore("")
	lost, records := losses(dir, acked)
	if len(lost) == 0 {
		t.Fatalf("nothing is missed on a disk that lies: %d appends, %d records", w.count, records)
	}
	t.Logf("%d appends on a disk that lies, and then: %.300q", w.count, lost)
}

// struckStore is a store whose disk loses power, and what was acknowledged by it.
type struckStore struct {
	dir   string
	acked map[string]uint64
}

// write writes to the store until the power is cut, and counts the appends that were acknowledged.
func (s *struckStore) write(t *testing.T, d *cutDisk, rng *rand.Rand) int {
	t.Helper()
	w := startWriter(t, s.dir, s.acked)
	switch rng.IntN(8) {
	case 0: // perhaps before it is open
		<-time.After(time.Duration(rng.IntN(120)) * time.Millisecond)
	case 1:
		w.await(3000) // the table in memory is full, and another log begins
	default:
		w.await(1 + rng.IntN(400))
	}
	if rng.IntN(2) == 0 {
		d.writeSome(rng)
	}
	how := []int{logFlushed, logDropped}[rng.IntN(2)]
	if rng.IntN(2) == 0 {
		w.cut(d, how)
	} else {
		w.stopAndCut(d, how)
	}
	return w.count
}
