package troupe_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/troupe-dev/troupe"
)

// TestASessionCostsLittle holds what many idle sessions cost: allocations to open one, and bytes that it keeps. The bounds are some
// 15 % above what it took when they were set.
func TestASessionCostsLittle(t *testing.T) {
	const sessions = 300
	rt, err := troupe.New(t.Context(), troupe.Options{Model: echo(), DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	top := t.TempDir()
	kept := make([]*troupe.Session, 0, 2*sessions)
	for i := range sessions {
		for _, round := range []string{"warm", "cold"} {
			if err := os.Mkdir(filepath.Join(top, round+strconv.Itoa(i)), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func(round string) {
		for i := range sessions {
			s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: filepath.Join(top, round+strconv.Itoa(i)), Trust: troupe.Full})
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, s)
		}
	}
	open("warm")
	before := settled()
	open("cold")
	after := settled()
	allocs, live := (after.Mallocs-before.Mallocs)/sessions, (after.HeapAlloc-before.HeapAlloc)/sessions
	if allocs > 480 {
		t.Errorf("opening a session makes %d allocations", allocs)
	}
	if live > 14<<10 {
		t.Errorf("an idle session keeps %d bytes", live)
	}
	t.Logf("%d allocations, %d bytes", allocs, live)
	runtime.KeepAlive(kept)
}

func settled() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
