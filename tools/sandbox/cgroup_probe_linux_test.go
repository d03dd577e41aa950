package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func TestGroupsThatAKillLeftOfAProbeGoWithTheNextOne(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "troupe-probe-1"), 0o700), os.Mkdir(filepath.Join(dir, "troupe-probe-17"), 0o700),
		os.MkdirAll(filepath.Join(dir, "troupe-probe-used", "by-somebody"), 0o700), os.Mkdir(filepath.Join(dir, "troupe-other"), 0o700)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 { // one takes away what another is about to
		all.Go(func() {
			for range 50 {
				if err := writable(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := []string{"troupe-other", "troupe-probe-used"}; !slices.Equal(names, want) {
		t.Errorf("left: %v", names)
	}
}
