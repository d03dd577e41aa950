package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

const secondCount = 60

// TestDamageToAnotherTableIsNewThoughItsKeysAreTheSame: what was made again since the first may be lost with it.
func TestDamageToAnotherTableIsNewThoughItsKeysAreTheSame(t *testing.T) {
	first := gap{File: "000001.sst", From: []byte("ises/1"), To: []byte("ises/9"), Filter: []byte{1}, Top: 7}
	second := first
	second.File, second.Top = "000002.sst", 70
	g := &gaps{Second: []gap{first}, Relisted: []string{"ses/"}, Accepted: true}
	if g.add([]gap{first}); len(g.Second) != 1 || g.Relisted == nil {
		t.Errorf("the same again: %+v", g)
	}
	if g.add([]gap{second}); len(g.Second) != 2 || g.Relisted != nil || g.Accepted {
		t.Errorf("another: %+v", g)
	}
}

// secondStore fills a store with listings, keys, timers and snapshots that take some blocks each.
func secondStore(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	gapStore(t, s)
	for i := range secondCount {
		stream := fmt.Sprintf("own/%02d", i)
		l := mustClaim(t, s, stream)
		value := []byte(noise(uint32(i), 400))
		_, err := s.Append(ctx, persistence.Batch{
			Lease: l, Expect: 1, Session: stream, Records: []*messages.Record{textRecord(stream, 1)},
			Keys:   []persistence.Key{{Name: fmt.Sprintf("in/%02d", i), Value: value}},
			Index:  []persistence.IndexOp{{Key: fmt.Sprintf("ses/%02d", i), Value: value}, {Key: fmt.Sprintf("tok/%02d", i), Value: value}},
			Timers: []persistence.TimerOp{{ID: fmt.Sprintf("t%02d", i), Due: time.Unix(int64(i), 0), Value: value}},
		})
		if err == nil {
			err = s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 1, State: value})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// secondDump asks for every secondary entry by itself.
func secondDump(s *Store) (got map[string]string, errs map[string]error) {
	ctx := context.Background()
	got, errs = map[string]string{}, map[string]error{}
	for i := range secondCount {
		for _, kind := range []string{"ses", "tok"} {
			key := fmt.Sprintf("%s/%02d", kind, i)
			errs["index "+key] = s.Index(ctx, key, func(k string, v []byte) error { got["index "+k] = string(v); return nil })
		}
		key := fmt.Sprintf("in/%02d", i)
		value, err := s.Lookup(ctx, key)
		got["key "+key], errs["key "+key] = string(value), err
		stream := fmt.Sprintf("own/%02d", i)
		snap, err := s.Snapshot(ctx, stream, 0)
		got["snapshot "+stream], errs["snapshot "+stream] = string(snap.GetState()), err
	}
	errs["timers"] = s.Due(ctx, time.Unix(1000, 0), func(tm persistence.Timer) error { got["timer "+tm.ID] = string(tm.Value); return nil })
	return got, errs
}

// TestADamagedBlockOfListingsKeysTimersOrSnapshotsLeavesTheStreamsWhole damages each such block in turn: what is there is right, what is missing is
// refused by name, and conversations are as they were. Listings are believed again once they were made anew; after a repair all is.
func TestADamagedBlockOfListingsKeysTimersOrSnapshotsLeavesTheStreamsWhole(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	secondStore(t, s)
	streams, _ := gapDump(s)
	want, errs := secondDump(s)
	for what, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, table := blocksOf(t, dir, nil)
	kinds, tried := map[byte]int{}, 0
	for i := range table.blocks {
		entries, err := table.block(i)
		if err != nil {
			t.Fatal(err)
		}
		kind := entries[0].key[0]
		if kind != entries[len(entries)-1].key[0] || strings.IndexByte("ikst", kind) < 0 {
			continue
		}
		if kinds[kind]++; kinds[kind] > 2 && testing.Short() {
			continue
		}
		tried++
		t.Run(fmt.Sprintf("%c %d", kind, i), func(t *testing.T) { trySecond(t, image(t, dir), i, entries, streams, want) })
	}
	if len(kinds) != 4 || tried < 8 {
		t.Errorf("%v is not what this is about", kinds)
	}
}

func trySecond(t *testing.T, dir string, block int, entries []tableEntry, streams, want map[string]string) {
	ctx := context.Background()
	path, table := blocksOf(t, dir, nil)
	spoil(t, path, table.blocks[block])
	s := openIn(t, dir)
	unharmed(t, s, streams)
	lost := map[string]bool{}
	for _, e := range entries {
		switch key := string(e.key[1 : len(e.key)-8]); e.key[0] {
		case tagIndex:
			lost["index "+key] = true
		case tagOnce:
			lost["key "+key] = true
		case tagTimer:
			lost["timer "+key] = true
		case tagSnapshot:
			name, _, _ := splitName(e.key[:len(e.key)-8])
			lost["snapshot "+name] = true
		}
	}
	got, errs := secondDump(s)
	for what, text := range want {
		err := errs[what]
		if strings.HasPrefix(what, "timer") {
			err = errs["timers"]
		}
		switch {
		case !lost[what] && got[what] != "" && got[what] != text:
			t.Errorf("%s is another", what)
		case lost[what] && got[what] != "":
			t.Errorf("%s was lost and is there", what)
		case lost[what] && strings.HasPrefix(what, "snapshot"):
			if !errors.Is(err, persistence.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
		case lost[what] && (!errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), "troupe repair")):
			t.Errorf("%s was lost: %v", what, err)
		}
	}
	if whole := s.Lost(); whole == nil {
		t.Error("nothing is said to be lost")
	}
	again := func(what, key string) { // whoever lost it must not be able to use it twice
		l := mustClaim(t, s, "again")
		_, err := s.Append(ctx, persistence.Batch{Lease: l, Expect: l.Next, Records: []*messages.Record{textRecord("again", l.Next)}, Keys: []persistence.Key{{Name: key}}})
		if lost[what] && !errors.Is(err, persistence.ErrCorrupt) || !lost[what] && got[what] != "" && !errors.Is(err, persistence.ErrDuplicate) {
			t.Errorf("%s used again: %v", what, err)
		}
	}
	for i := range secondCount {
		key := fmt.Sprintf("in/%02d", i)
		again("key "+key, key)
	}
	if all, err := s.Damage(ctx); err != nil || len(all) == 0 {
		t.Errorf("of the damage it says %v, %v", all, err)
	}
	relist(t, s, want)
	whole := block < len(table.blocks)-1 // all that the block held was made again; behind the last one deletions may have been noted
	for what := range lost {
		whole = whole && (strings.HasPrefix(what, "index ses") || strings.HasPrefix(what, "timer"))
	}
	check := func(s *Store) {
		t.Helper()
		if all, err := s.Damage(ctx); err != nil || (len(all) == 0) != whole {
			t.Errorf("made again: %v; of the damage it says %v, %v", whole, all, err)
		}
		got, errs := secondDump(s)
		for what, text := range want {
			if strings.HasPrefix(what, "index ses") && (errs[what] != nil || got[what] != text) {
				t.Errorf("made again, %s: %v", what, errs[what])
			}
			if lost[what] && strings.HasPrefix(what, "index tok") && !errors.Is(errs[what], persistence.ErrCorrupt) {
				t.Errorf("not made again, %s: %v", what, errs[what])
			}
		}
		if errs["timers"] != nil || s.Lost() != nil {
			t.Errorf("made again, timers: %v", errs["timers"])
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	check(s)
	if _, err := s.Backup(ctx, &bytes.Buffer{}, nil); err != nil {
		t.Errorf("backup: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(ctx, Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow}); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	unharmed(t, s, streams)
	for what, err := range func() map[string]error { _, errs := secondDump(s); return errs }() {
		if err != nil && !errors.Is(err, persistence.ErrNotFound) {
			t.Errorf("after the repair, %s: %v", what, err)
		}
	}
}

// relist puts again what the store says may be lost of the sessions' listing, and the timers.
func relist(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	ctx, lost := context.Background(), s.Lost()
	l := mustClaim(t, s, "relist")
	b := persistence.Batch{Lease: l, Expect: l.Next}
	for what, text := range maps.All(want) {
		kind, key, _ := strings.Cut(what, " ")
		switch {
		case kind == "index" && strings.HasPrefix(key, "ses/"):
			if gone, err := lost.Index(key); err != nil {
				t.Error(err)
			} else if gone {
				b.Index = append(b.Index, persistence.IndexOp{Key: key, Value: []byte(text)})
			}
		case kind == "timer":
			if gone, err := lost.Timer(key); err != nil {
				t.Error(err)
			} else if gone {
				b.Timers = append(b.Timers, persistence.TimerOp{ID: key, Due: time.Unix(1, 0), Value: []byte(text)})
			}
		}
	}
	if _, err := s.Append(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := s.Relisted(ctx, "ses/"); err != nil {
		t.Fatal(err)
	}
}
