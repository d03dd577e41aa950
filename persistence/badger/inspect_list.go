package badger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/y"
)

// A list of tables that has lost its end reads like one that a crash kept from being written: the database
// removes the tables that it does not name. What a crash leaves is no loss, in each case:
//
//   - A table that a log was written to, not listed yet: the log is removed after that, so it is there.
//   - Tables that a compaction made, not listed yet: each of their entries is in a listed table.
//   - Tables that a compaction replaced, not removed yet: the newest version of the count of commits, which is
//     written with everything else and never removed, is in a listed table.
//
// So a value in a table that is not listed, with a version above all listed tables and in no log, was lost by the list.
// What the list lost is its end, and the last table in that has the highest versions of all, or the tables that it was made of
// are listed and gone. Removals do not count: a compaction drops the newest of them for good.

// lostEnd looks whether tables that are not listed should be. top is the highest version in a listed table.
func (in *inspection) lostEnd(onDisk map[uint64]bool, top uint64) error {
	if slices.ContainsFunc(in.damaged, func(d damage) bool { return len(d.spans) == 0 }) {
		return nil // it is refused for what is known better
	}
	var logs []versions
	var lost []string
	for id := range onDisk {
		if _, listed := in.tables[id]; listed {
			continue
		}
		path := filepath.Join(in.dir, tableName(id))
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		t := in.guessTable(b)
		if t == nil || t.top <= top {
			continue // not written to its end, or as old as what is listed
		}
		if logs == nil {
			if logs, err = in.logVersions(); err != nil {
				return err
			}
		}
		if !t.heldBy(logs, top) {
			lost = append(lost, tableName(id))
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		in.listed = false // a repair reads the others too
		in.found(manifestFile, "it has lost its end: it does not name %s, and no log holds what is in there", strings.Join(lost, ", "))
	}
	return nil
}

// guessTable reads a table of which the list says nothing; nil: it is not one.
func (in *inspection) guessTable(b []byte) *tableFile {
	for _, m := range in.guesses() {
		t, err := readTable(b, m, in.keys)
		if err != nil || len(t.blocks) == 0 {
			continue
		}
		if _, err := t.block(0); err == nil { // else it has another key
			return t
		}
	}
	return nil
}

// guesses are what the list may have said about a table.
func (in *inspection) guesses() []engine.TableManifest {
	out := []engine.TableManifest{{Compression: options.Snappy}}
	for _, id := range in.keys.ids() {
		out = append(out, engine.TableManifest{Compression: options.Snappy, KeyID: id})
	}
	return out
}

// versions are those from one to another, both included.
type versions struct{ from, to uint64 }

// heldBy says whether each value above a version is in a log too. A log is written to one table, and a
// transaction to one log.
func (t *tableFile) heldBy(logs []versions, above uint64) bool {
	for i := range t.blocks {
		entries, err := t.block(i)
		if err != nil {
			return false
		}
		for _, e := range entries {
			v := y.ParseTs(e.key)
			in := func(l versions) bool { return l.from <= v && v <= l.to }
			if v > above && e.value.Meta&metaDelete == 0 && !slices.ContainsFunc(logs, in) {
				return false
			}
		}
	}
	return true
}

// logVersions are the versions in each log, as far as it reads.
func (in *inspection) logVersions() ([]versions, error) {
	var out []versions
	for _, name := range in.logNames() {
		l, err := in.versionsOf(name)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}
