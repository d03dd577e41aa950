package badger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// The database ends the process, panics in a goroutine of its own or quietly destroys what it
// cannot read: it cuts a log behind the first damaged entry, and removes every table that a cut
// list of tables does not name (inspect_list.go). So its files are looked at before it opens them. What is found damaged refuses the
// opening; what may be the trace of a crash is opened with the files set aside (aside.go).

// damage is what is wrong with one file of the database.
type damage struct {
	file   string
	what   string
	spans  []span // of keys that cannot be read, where they are known
	table  uint64 // whose blocks those are
	blocks int    // that it has
	// entries is how many stood in those that do not read.
	entries int
	filter  []byte // of the table's keys
	top     uint64 // its highest version
}

func (d damage) String() string {
	text := d.file + " is damaged: " + d.what
	if names := d.streams(); len(names) > 0 {
		text += "; it held records of " + strings.Join(names, ", ")
	}
	return text
}

// inspection is what was found in a database's directory.
type inspection struct {
	dir     string
	damaged []damage
	torn    []string        // what a crash may have left: why the files are set aside
	logs    map[string]scan // by name, those that end in something else than zeros
	tables  map[uint64]engine.TableManifest
	list    []byte // what it should be instead, when notes in it came to nothing
	listed  bool   // the list of tables reads: what it does not name is no part of the database
	keys    *keyring
}

// err names everything that is damaged, nil when nothing is.
func (in *inspection) err() error {
	errs := make([]error, 0, len(in.damaged))
	for _, d := range in.damaged {
		errs = append(errs, fmt.Errorf("%s: %w", d, persistence.ErrCorrupt))
	}
	return errors.Join(errs...)
}

// The database's own files.
const (
	manifestFile = "MANIFEST"
	registryFile = "KEYREGISTRY"
	discardFile  = "DISCARD"
	tableSuffix  = ".sst"
	logSuffix    = ".mem"
	valueSuffix  = ".vlog"
)

// inspect looks at the files of a database without changing anything. An error means that
// they could not be looked at, or that the key is not theirs.
func inspect(dir string, key []byte) (*inspection, error) {
	in := &inspection{dir: dir, logs: map[string]scan{}, tables: map[uint64]engine.TableManifest{}, keys: &keyring{}}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the database: %w: %w", persistence.ErrUnavailable, err)
	}
	keys, err := in.registry(key)
	if err != nil {
		return nil, err
	}
	in.keys = keys
	onDisk := map[uint64]bool{}
	for _, e := range entries {
		name := e.Name()
		if n := formatOf(e); n > 0 {
			if err := checkFormat(n); err != nil {
				return nil, err
			}
			continue
		}
		switch filepath.Ext(name) {
		case tableSuffix:
			id, err := strconv.ParseUint(strings.TrimSuffix(name, tableSuffix), 10, 64)
			if err != nil {
				in.found(name, "no table has this name")
				continue
			}
			onDisk[id] = true
		case logSuffix:
			err = in.log(name, keys)
		case valueSuffix:
			err = in.values(name, keys)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w: %w", name, persistence.ErrUnavailable, err)
		}
	}
	if key != nil && keys.registry == nil && len(onDisk) > 0 && len(in.damaged) == 0 {
		in.found(registryFile, "it is missing")
	}
	if err := in.manifest(onDisk); err != nil {
		return nil, err
	}
	top, err := in.checkTables(onDisk, keys)
	if err != nil {
		return nil, err
	}
	if err := in.row(); err != nil {
		return nil, fmt.Errorf("look at how the logs follow one another: %w: %w", persistence.ErrUnavailable, err)
	}
	if err := in.lostEnd(onDisk, top); err != nil {
		return nil, fmt.Errorf("look for what is not listed: %w: %w", persistence.ErrUnavailable, err)
	}
	return in, in.discard()
}

func (in *inspection) found(file, format string, args ...any) {
	in.damaged = append(in.damaged, damage{file: file, what: fmt.Sprintf(format, args...)})
}

// manifest reads the list of tables.
func (in *inspection) manifest(onDisk map[uint64]bool) error {
	f, err := os.Open(filepath.Join(in.dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		if len(onDisk) > 0 {
			in.found(manifestFile, "it is missing, and there are %d tables", len(onDisk))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", manifestFile, persistence.ErrUnavailable, err)
	}
	defer f.Close()
	var list engine.Manifest
	var end int64
	err = caught(func() (err error) {
		list, end, err = engine.ReplayManifestFile(f, 0, engine.DefaultOptions(in.dir).WithLogger(nil))
		return err
	})
	if err != nil {
		in.found(manifestFile, "%v", err)
		return nil
	}
	in.tables, in.listed = list.Tables, true
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", manifestFile, persistence.ErrUnavailable, err)
	}
	if end < info.Size() { // what stood there may have named tables
		in.listed = false
		in.torn = append(in.torn, manifestFile+" ends in an entry that is not whole")
	}
	if err := in.undone(onDisk); err != nil {
		return fmt.Errorf("read %s: %w: %w", manifestFile, persistence.ErrUnavailable, err)
	}
	for id := range onDisk {
		if _, named := in.tables[id]; !named {
			in.torn = append(in.torn, fmt.Sprintf("table %d is not listed", id))
		}
	}
	return nil
}

func zeros(b []byte) bool {
	return len(bytes.TrimLeft(b, "\x00")) == 0
}

// checkTables reads every table that is listed, block by block, and gives the highest version in any.
func (in *inspection) checkTables(onDisk map[uint64]bool, keys *keyring) (top uint64, err error) {
	ids, begins := make([]uint64, 0, len(in.tables)), map[uint64][]byte{}
	for id := range in.tables {
		if !onDisk[id] {
			in.found(tableName(id), "it is missing")
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t, d, err := checkTable(filepath.Join(in.dir, tableName(id)), id, in.tables[id], keys)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w: %w", tableName(id), persistence.ErrUnavailable, err)
		}
		if d != nil {
			in.damaged = append(in.damaged, *d)
		}
		top = max(top, t.top)
		begins[id] = t.first
	}
	in.ends(begins)
	return top, nil
}

// ends finds where the spans end that reach to the end of a table: a table of any level but the first ends before
// the next one of its level begins.
func (in *inspection) ends(begins map[uint64][]byte) {
	next := func(level uint8, after []byte) (to []byte) {
		for id, m := range in.tables {
			begin := begins[id]
			switch {
			case m.Level != level:
			case begin == nil:
				return nil // nobody knows where that one begins
			case bytes.Compare(begin, after) > 0 && (to == nil || bytes.Compare(begin, to) < 0):
				to = begin
			}
		}
		return to
	}
	for _, d := range in.damaged {
		for i := range d.spans {
			if level := in.tables[d.table].Level; d.spans[i].to == nil && level > 0 {
				d.spans[i].to = next(level, d.spans[i].from)
			}
		}
	}
}

func tableName(id uint64) string { return fmt.Sprintf("%06d%s", id, tableSuffix) }

// values looks at a file of the database's log of long values, which we never use: it holds a
// header and nothing else. One that holds more is damaged, and nothing is lost with it.
func (in *inspection) values(name string, keys *keyring) error {
	b, err := os.ReadFile(filepath.Join(in.dir, name))
	if err != nil {
		return err
	}
	if !keys.header(b) || len(b) > logHeader && !zeros(b[logHeader:]) {
		in.torn = append(in.torn, name+" is not empty")
		in.logs[name] = scan{}
	}
	return nil
}

// discard looks at the counts of what could be freed in those files: always zero.
func (in *inspection) discard() error {
	b, err := os.ReadFile(filepath.Join(in.dir, discardFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", discardFile, persistence.ErrUnavailable, err)
	}
	if !zeros(b) {
		in.torn = append(in.torn, discardFile+" is not empty")
		in.logs[discardFile] = scan{}
	}
	return nil
}

// caught makes an error of a panic of the database.
func caught(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the database panics: %v", persistence.ErrCorrupt, p)
		}
	}()
	return fn()
}
