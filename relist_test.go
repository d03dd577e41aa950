package troupe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// lossy is a store that has lost all of its index and its timers.
type lossy struct {
	*memory.Store
	made []string // what was made again
}

func (l *lossy) Lost() *persistence.Lost {
	all := func(string) (bool, error) { return true, nil }
	return &persistence.Lost{Index: all, Timer: all}
}

func (l *lossy) Relisted(_ context.Context, prefixes ...string) error {
	l.made = prefixes
	return nil
}

// listings are all entries of a store's index, readable, and its timers. When an entry was last written is left out.
func listings(t *testing.T, store persistence.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	kinds := map[string]func() proto.Message{
		"ses": func() proto.Message { return &messages.SessionView{} }, "wrk": func() proto.Message { return &messages.WorkerView{} },
		"apr": func() proto.Message { return &messages.ApprovalView{} }, "rul": func() proto.Message { return &messages.RuleView{} },
	}
	err := store.Index(t.Context(), "", func(key string, value []byte) error {
		kind, _, _ := strings.Cut(key, "/")
		text := string(value)
		if empty := kinds[kind]; empty != nil {
			m := empty()
			if err := proto.Unmarshal(value, m); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			switch v := m.(type) {
			case *messages.WorkerView:
				v.UpdatedAtUnixMs = 0
			case *messages.SessionView: // one that began without an input is called by its first from then on
				v.Title = ""
			}
			text = protojson.Format(m)
		}
		out[key] = strings.ReplaceAll(text, "  ", " ") // protojson changes its spaces from build to build
		return nil
	})
	if err == nil {
		err = store.Due(t.Context(), time.Unix(1<<40, 0), func(tm persistence.Timer) error {
			out[tm.ID] = tm.Due.UTC().Format(time.RFC3339)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestListingsAndTimersAreMadeAgainFromTheJournals loses all of them.
func TestListingsAndTimersAreMadeAgainFromTheJournals(t *testing.T) {
	store, data := memoryOf(t), t.TempDir()
	t.Cleanup(func() { _ = store.Close() })
	answers, asked := make(chan troupe.Decision, 1), make(chan bool, 1)
	rt, err := troupe.New(t.Context(), troupe.Options{Model: writesOnce{}, Store: store, DataDir: data, Approve: func(ctx context.Context, _ *troupe.Approval) troupe.Answer {
		asked <- true
		select {
		case d := <-answers:
			return troupe.Answer{Decision: d}
		case <-ctx.Done(): // it waits for another one
			return troupe.Answer{Decision: troupe.Rejected}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, decision := range []troupe.Decision{troupe.Approved, troupe.Rejected, 0} {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if decision == 0 { // it still waits
			go func() { _, _ = s.Run(ctx, "write it") }()
			<-asked
			continue
		}
		answers <- decision
		if r, err := s.Run(ctx, "write it"); err != nil || r.Outcome != "done" {
			t.Fatalf("%+v, %v", r, err)
		}
		<-asked
		if _, err := s.Remind(ctx, time.Now().Add(24*time.Hour), "tea", troupe.RemindOptions{ID: "tea"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	want := listings(t, store)
	var index, timers []string
	for key := range want {
		if strings.HasPrefix(key, "tmr/") {
			timers = append(timers, key)
		} else {
			index = append(index, key)
		}
	}
	if len(timers) != 2 || len(index) < 3*2+1+2 {
		t.Fatalf("%q is not what this is about", slices.Sorted(maps.Keys(want)))
	}
	if err := store.Delete(ctx, persistence.Deletion{Session: "none", Index: index, Timers: timers}); err != nil {
		t.Fatal(err)
	}
	l := &lossy{Store: store}
	if rt, err = troupe.New(ctx, troupe.Options{Model: writesOnce{}, Store: l, DataDir: data, Still: true}); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	got := listings(t, store)
	for key, text := range want {
		if got[key] != text {
			t.Errorf("%s is\n%s\ninstead of\n%s", key, got[key], text)
		}
	}
	for key := range got {
		if want[key] == "" && !strings.HasPrefix(key, "cpy/") { // whether one was imported is not in its journal: it may be
			t.Errorf("%s was not there before", key)
		}
	}
	if !slices.Contains(l.made, "ses/") || slices.Contains(l.made, "tok/") {
		t.Errorf("made again %q", l.made)
	}
}

// TestAFlippedBitAnywhereInATableLeavesTheOtherSessionsListed opens a data directory of some sessions with one bit flipped at many places: what is
// listed is right, or who asks is told.
func TestAFlippedBitAnywhereInATableLeavesTheOtherSessionsListed(t *testing.T) {
	ctx, data := t.Context(), t.TempDir()
	options := troupe.Options{Model: echo(), DataDir: data}
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
	want := sessionsOf(t, options)
	tables, err := filepath.Glob(filepath.Join(troupe.StoreDir(data), "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(err)
	}
	table := slices.MaxFunc(tables, func(a, b string) int { return int(sizeOf(t, a) - sizeOf(t, b)) })
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

var _ persistence.Relister = (*badger.Store)(nil)
