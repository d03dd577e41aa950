package troupe_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// twelve is a data directory of as many sessions: how it is opened, its largest table, and what is listed.
func twelve(t *testing.T) (options troupe.Options, table string, want map[string]*messages.SessionView) {
	t.Helper()
	ctx, data := t.Context(), t.TempDir()
	options = troupe.Options{Model: echo(), DataDir: data}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		s, err := rt.Session(ctx, troupe.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(ctx, fmt.Sprintf("question %d %s", i, strings.Repeat("and more ", 20))); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	want = sessionsOf(t, options)
	tables, err := filepath.Glob(filepath.Join(troupe.StoreDir(data), "db", "*.sst"))
	tables = slices.DeleteFunc(tables, func(path string) bool { // a folder that says the store's format
		info, err := os.Stat(path)
		return err != nil || info.IsDir()
	})
	if err != nil || len(tables) == 0 {
		t.Fatal(err)
	}
	table = slices.MaxFunc(tables, func(a, b string) int { return int(sizeOf(t, a) - sizeOf(t, b)) })
	return options, table, want
}

// toldOf complains of sessions and workers that are missing in a list, and that nobody is told of.
func toldOf(t *testing.T, rt *troupe.Runtime, where string, want map[string]*messages.SessionView, got []*messages.SessionView) {
	t.Helper()
	told := map[string]bool{}
	for _, f := range ask[*messages.Damage](t, rt, &messages.ListDamage{}).GetFindings() {
		told[f.GetStream()] = true
	}
	there := map[string]bool{}
	for _, v := range got {
		there["ses/"+v.GetId()] = true
		for _, w := range v.GetWorkers() {
			there["wrk/"+w.GetId()] = true
		}
	}
	for id, v := range want {
		names := []string{"ses/" + id}
		for _, w := range v.GetWorkers() {
			if there["ses/"+id] && !told["ses/"+id] { // who hears of a session looks at its workers, too
				names = append(names, "wrk/"+w.GetId())
			}
		}
		for _, name := range names {
			if !there[name] && !told[name] {
				t.Errorf("%s: %s is not listed, and nobody is told: %v", where, name, told)
			}
		}
	}
}

// TestWhoListsWhatADamagedStoreHasLeftIsToldWhatIsMissing flips a bit in the records of sessions and one in the listings, so that neither can be made
// again from the other.
func TestWhoListsWhatADamagedStoreHasLeftIsToldWhatIsMissing(t *testing.T) {
	options, table, want := twelve(t)
	size, short := sizeOf(t, table), 0
	for _, records := range []int64{10, 20, 30} {
		for _, listings := range []int64{68, 77} {
			o := options
			o.DataDir = t.TempDir()
			if err := os.CopyFS(o.DataDir, os.DirFS(options.DataDir)); err != nil {
				t.Fatal(err)
			}
			for _, percent := range []int64{records, listings} {
				flip(t, strings.Replace(table, options.DataDir, o.DataDir, 1), size*percent/100)
			}
			for _, opening := range []string{"first", "second"} { // what was made again then is believed
				rt, err := troupe.New(t.Context(), o)
				if errors.Is(err, persistence.ErrCorrupt) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got := ask[*messages.Sessions](t, rt, &messages.ListSessions{}).GetSessions()
				if len(got) < len(want) {
					short++
				}
				toldOf(t, rt, fmt.Sprintf("%d%% and %d%%, %s opening", records, listings, opening), want, got)
				if err := rt.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if short == 0 {
		t.Error("all sessions were always listed: this shows nothing")
	}
}

// TestAFlippedBitAnywhereInATableLeavesTheOtherSessionsListed opens a data directory of some sessions with one bit flipped at many places: what is
// listed is right, or who asks is told.
func TestAFlippedBitAnywhereInATableLeavesTheOtherSessionsListed(t *testing.T) {
	ctx := t.Context()
	options, table, want := twelve(t)
	data := options.DataDir
	step := int64(1999)
	if testing.Short() {
		step *= 5
	}
	outcomes := map[string]int{}
	for at := int64(100); at < sizeOf(t, table); at += step {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
		flip(t, strings.Replace(table, data, dir, 1), at)
		o := options
		o.DataDir = dir
		rt, err := troupe.New(ctx, o)
		if err != nil {
			if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(table)) {
				t.Errorf("byte %d: %v", at, err)
			}
			outcomes["refused"]++
			continue
		}
		got := ask[*messages.Sessions](t, rt, &messages.ListSessions{}).GetSessions()
		outcomes[fmt.Sprintf("%d of %d listed", len(got), len(want))]++
		for _, v := range got {
			if w := want[v.GetId()]; w == nil || w.GetTitle() != "" && w.GetTitle() != v.GetTitle() || len(v.GetWorkers()) != len(w.GetWorkers()) {
				t.Errorf("byte %d: %v instead of %v", at, v, w)
			}
		}
		if len(got) < len(want)-3 { // a block of this size holds no more
			t.Errorf("byte %d: %d sessions of %d", at, len(got), len(want))
		}
		toldOf(t, rt, fmt.Sprintf("byte %d", at), want, got)
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Logf("what came of the flips: %v", outcomes)
	if outcomes[fmt.Sprintf("%d of %d listed", len(want), len(want))] == 0 {
		t.Error("it never listed all of them")
	}
}

func sessionsOf(t *testing.T, o troupe.Options) map[string]*messages.SessionView {
	t.Helper()
	rt, err := troupe.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := ask[*messages.Sessions](t, rt, &messages.ListSessions{})
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := map[string]*messages.SessionView{}
	for _, v := range all.GetSessions() {
		out[v.GetId()] = v
	}
	return out
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 8
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
