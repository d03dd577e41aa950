package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// blockWith is the block of a store's only table that holds one entry, whose key begins with some bytes.
func blockWith(t *testing.T, dir string, begin []byte) (path string, place blockPlace) {
	t.Helper()
	path, table := blocksOf(t, dir, nil)
	for i := range table.blocks {
		if entries, err := table.block(i); err != nil || len(entries) == 1 && bytes.HasPrefix(entries[0].key, begin) {
			return path, table.blocks[i]
		}
	}
	t.Fatalf("no block holds nothing but %x", begin)
	return "", blockPlace{}
}

// TestADamagedBlockOfABodyRefusesTheRecordThatHasIt damages the blocks of bodies, and of parts of bodies.
func TestADamagedBlockOfABodyRefusesTheRecordThatHasIt(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := openIn(t, dir)
	gapStore(t, s)
	bodies := map[string][]byte{"wrk/big": []byte(noise(1, 100<<10)), "wrk/cut": []byte(noise(2, 1200<<10))}
	for stream, body := range bodies {
		l, err := s.Claim(ctx, stream, "test")
		if err != nil {
			t.Fatal(err)
		}
		b := persistence.Batch{Lease: l, Expect: 1, Session: stream, Records: []*messages.Record{textRecord(stream, 1)}}
		_, err = s.Append(ctx, b)
		b.Expect, b.Records = 2, []*messages.Record{{RecordId: make([]byte, 16), Type: 1, Body: body}}
		if err == nil {
			_, err = s.Append(ctx, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want, _ := gapDump(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for stream, begin := range map[string]string{"wrk/big": "b", "wrk/cut": "pb"} {
		t.Run(begin, func(t *testing.T) {
			dir := image(t, dir)
			hash := sha256.Sum256(bodies[stream])
			path, place := blockWith(t, dir, append([]byte(begin), hash[:]...))
			spoil(t, path, place)
			s := openIn(t, dir)
			seen := 0
			err := s.Read(ctx, stream, 1, func(persistence.Entry) error { seen++; return nil })
			if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), stream+" seq 2") || seen != 1 {
				t.Errorf("%d records, then %v", seen, err)
			}
			if _, err := s.Blob(ctx, hash); !errors.Is(err, persistence.ErrCorrupt) {
				t.Errorf("the body: %v", err)
			}
			for other, body := range bodies {
				if other == stream {
					continue
				}
				if b, err := s.Blob(ctx, sha256.Sum256(body)); err != nil || !bytes.Equal(b, body) {
					t.Errorf("another body: %v", err)
				}
			}
			if _, err := s.Backup(ctx, &bytes.Buffer{}, nil); !errors.Is(err, persistence.ErrCorrupt) {
				t.Errorf("backup: %v", err)
			}
			unharmed(t, s, want)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := Repair(ctx, Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow})
			if err != nil {
				t.Fatal(err)
			}
			wantLost(t, r, stream+" 2-2")
			s = openIn(t, dir)
			if f := findings(t, s); len(f) > 0 {
				t.Errorf("the repaired store has findings %+v", f)
			}
		})
	}
}

// TestStreamsThatNoSessionCountsAreRefusedWhereABlockMayHaveHeldThem has nothing that tells what was in the block.
func TestStreamsThatNoSessionCountsAreRefusedWhereABlockMayHaveHeldThem(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := openIn(t, dir)
	gapStore(t, s)
	for _, stream := range []string{"own/1", "own/2", "own/3"} {
		l, err := s.Claim(ctx, stream, "test")
		if err != nil {
			t.Fatal(err)
		}
		b := persistence.Batch{Lease: l, Expect: 1}
		for range 12 {
			r := textRecord(stream, b.Expect)
			r.TurnId = noise(uint32(b.Expect), 1000)
			b.Records = []*messages.Record{r}
			if _, err := s.Append(ctx, b); err != nil {
				t.Fatal(err)
			}
			b.Expect++
		}
	}
	want, _ := gapDump(s)
	delete(want, "streams")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path, table := blocksOf(t, dir, nil)
	block, refused := -1, []string(nil)
	for i := range table.blocks {
		sp := table.span(i)
		if names, _ := touched(t, table, i); len(names) == 1 && names[0] == "own/2" && strings.Contains(string(sp.to), "own/2") {
			block, refused = i, names
		}
	}
	if block < 0 {
		t.Fatal("no block is of one of the streams alone")
	}
	spoil(t, path, table.blocks[block])
	s = openIn(t, dir)
	for _, stream := range []string{"own/1", "own/2", "own/3"} {
		_, err := s.Claim(ctx, stream, "test")
		if (stream == refused[0]) != errors.Is(err, persistence.ErrCorrupt) || err != nil && !strings.Contains(err.Error(), stream) {
			t.Errorf("claim of %s: %v", stream, err)
		}
	}
	if _, err := s.Claim(ctx, "own/4", "test"); err != nil {
		t.Errorf("claim of a new one: %v", err)
	}
	unharmed(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Repair(ctx, Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil || len(r.Lost) != 1 || r.Lost[0].Stream != refused[0] || r.Lost[0].To < 8 {
		t.Errorf("repair: %+v, %v", r, err)
	}
	if f := findings(t, openIn(t, dir)); len(f) > 0 {
		t.Errorf("the repaired store has findings %+v", f)
	}
}

// TestWhatWasDeletedDoesNotComeBackWithoutTheBlockThatSaysSo damages every block of a table of removals, behind one
// that still holds what was removed.
func TestWhatWasDeletedDoesNotComeBackWithoutTheBlockThatSaysSo(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := openIn(t, dir)
	gapStore(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir, func(o *Options) { o.Brief = true })
	for _, session := range []string{"s02", "s03", "s04", "s05"} {
		if err := s.Delete(ctx, persistence.Deletion{Session: session}); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(t, s, "wrk/zz", "szz", 40) // so that the table has blocks besides
	want, _ := gapDump(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := inspect(filepath.Join(dir, "db"), nil)
	if err != nil || len(in.tables) != 2 {
		t.Fatalf("%d tables, %v", len(in.tables), err)
	}
	opened := 0
	for id, m := range in.tables {
		for i := 0; ; i++ {
			dir := image(t, dir)
			path := filepath.Join(dir, "db", tableName(id))
			b, err := readFiles(filepath.Join(dir, "db"))
			if err != nil {
				t.Fatal(err)
			}
			table, err := readTable(b.content[tableName(id)], m, in.keys)
			if err != nil {
				t.Fatal(err)
			}
			if i == len(table.blocks) {
				break
			}
			spoil(t, path, table.blocks[i])
			s, err := Open(ctx, Options{Dir: dir, Ballast: -1, Brief: true})
			if err != nil {
				if !errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), tableName(id)) {
					t.Errorf("block %d of %s: %v", i, tableName(id), err)
				}
				continue
			}
			opened++
			got, errs := gapDump(s)
			for what, text := range want {
				if what != "streams" && errs[what] == nil && got[what] != text {
					t.Errorf("block %d of %s: %s is %d bytes, not %d", i, tableName(id), what, len(got[what]), len(text))
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if opened == 0 {
		t.Error("it never opened")
	}
}

// entriesAt are those of a block.
func entriesAt(t *testing.T, table *tableFile, at blockPlace) []tableEntry {
	t.Helper()
	i := slices.IndexFunc(table.blocks, func(p blockPlace) bool { return p.off == at.off })
	entries, err := table.block(i)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestDamageIsAddedToDamage damages a second block of the same table after an opening without the first.
func TestDamageIsAddedToDamage(t *testing.T) {
	dir, want := closedGapStore(t)
	path, block, names := recordBlock(t, dir, 3)
	_, again, more := recordBlock(t, dir, lastBlock) // which stays where it is
	_, table := blocksOf(t, dir, nil)
	held := len(entriesAt(t, table, again))
	spoil(t, path, block)
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, path, again)
	in, err := inspect(filepath.Join(dir, "db"), nil)
	if err != nil || len(in.damaged) != 1 || in.damaged[0].entries != held {
		t.Errorf("the second block held %d entries, found %+v, %v", held, in.damaged, err)
	}
	both := slices.Compact(slices.Sorted(slices.Values(append(names, more...))))
	if len(both) < 2 {
		t.Fatalf("%q and %q", names, more)
	}
	s := openIn(t, dir)
	wantGap(t, s, want, both)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(path + damagedSuffix + ".2"); err != nil || len(kept) != len(b) {
		t.Errorf("the table that was damaged again is not kept: %v", err)
	}
	wantGap(t, openIn(t, dir), want, both)
}

// unharmed looks whether what is wanted can be read as it was.
func unharmed(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got, errs := gapDump(s)
	for what, text := range want {
		if errs[what] != nil || got[what] != text {
			t.Errorf("%s: %v", what, errs[what])
		}
	}
}
