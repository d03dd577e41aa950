package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// Bounds of a walk, so that no tree, however deep or wide, takes a call or the process with it.
const (
	MaxDepth   = 100     // directories below the start; each one holds a descriptor while it is read
	MaxEntries = 200_000 // names looked at
	maxInDir   = 50_000  // names of one directory: they are sorted in memory
)

// SkipDir is returned by the function of a Walk to leave out what is below the entry.
var SkipDir = fs.SkipDir //nolint:gochecknoglobals // a sentinel

// Stop is returned by the function of a Walk to end it without an error.
var Stop = fs.SkipAll //nolint:gochecknoglobals // a sentinel

// Entry is one name met by a Walk. It is valid while the function runs.
type Entry struct {
	Info
	Name  string
	Depth int // 1 right below the start

	w    *Workspace
	dir  *os.Root
	stat fs.FileInfo
}

// ReadFile reads the entry as Workspace.ReadFile does. A link is not followed.
func (e *Entry) ReadFile(limit int64) (*File, error) {
	p := &place{dir: e.dir, base: e.Name, real: e.Path, info: e.stat}
	return e.w.readPlace(p, e.Path, limit)
}

// Walk calls fn for everything below the directory at path, in the order of names, a directory
// before what is in it. Links are entries and are never followed. `.troupe` and files being
// written are left out; `.git` is an entry that is not entered. What vanishes or cannot be opened
// in the meantime is left out. A folder that is made on first use is empty before that. cut tells that a bound of this package ended it early.
func (w *Workspace) Walk(ctx context.Context, path string, fn func(*Entry) error) (cut bool, err error) {
	if rel, err := w.Rel(path); err == nil && rel == "." && w.unmade() {
		return false, nil
	}
	p, err := w.resolve(path, walk{op: listing})
	if err != nil {
		return false, err
	}
	defer p.close()
	if p.info == nil {
		return false, failed(string(listing), visible(path), fs.ErrNotExist)
	}
	if !p.info.IsDir() {
		return false, deny(string(listing), CodeInvalidPath, visible(path), "it is not a directory")
	}
	dir, err := openDir(p.dir, p.base, p.info)
	if err != nil {
		return false, failed(string(listing), visible(path), err)
	}
	defer dir.Close()
	t := &tour{w: w, ctx: ctx, fn: fn, left: MaxEntries}
	err = t.dir(dir, p.real, 1)
	if errors.Is(err, Stop) {
		err = nil
	}
	return t.cut, err
}

// tour is one Walk under way. fn sees every name; all sees hidden ones too (for removal).
type tour struct {
	w    *Workspace
	ctx  context.Context //nolint:containedctx // lives as long as one call of Walk
	fn   func(*Entry) error
	all  bool
	left int
	cut  bool
}

func (t *tour) dir(dir *os.Root, real string, depth int) error {
	names, err := t.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ended(t.ctx); err != nil {
			return err
		}
		if t.left--; t.left < 0 {
			t.cut = true
			return Stop
		}
		if err := t.entry(dir, real, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) entry(dir *os.Root, real, name string, depth int) error {
	stat, err := dir.Lstat(name)
	if err != nil {
		return nil // it vanished: an entry less
	}
	path := name
	if real != "." {
		path = real + "/" + name
	}
	err = t.fn(&Entry{Info: infoOf(path, stat), Name: name, Depth: depth, w: t.w, dir: dir, stat: stat})
	if errors.Is(err, SkipDir) {
		return nil
	}
	if err != nil || !stat.IsDir() || !t.all && guard(writing, name, path) != nil {
		return err
	}
	if depth >= MaxDepth {
		t.cut = true
		return nil
	}
	sub, err := openDir(dir, name, stat)
	if err != nil {
		if t.all {
			return err
		}
		return nil // it vanished, was replaced or may not be read
	}
	defer sub.Close()
	return t.dir(sub, path, depth+1)
}

// names lists a directory in order.
func (t *tour) names(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, failed(string(listing), ".", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(maxInDir + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, failed(string(listing), ".", err)
	}
	if len(names) > maxInDir {
		t.cut = true
		names = names[:maxInDir]
	}
	if !t.all {
		names = slices.DeleteFunc(names, func(name string) bool {
			return guard(reading, name, name) != nil || strings.HasPrefix(name, TempPrefix)
		})
	}
	slices.Sort(names)
	return names, nil
}

// RemoveStale removes what crashes left of writes and removals: files and directories with names that this package
// gives to them (see TempPrefix) that are older than age. It gives their number. The owner of the workspace calls it
// once in a while, not each opening: it walks the whole tree.
func (w *Workspace) RemoveStale(ctx context.Context, age time.Duration, now time.Time) (int, error) {
	root, err := w.base(false)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, failed(string(removing), ".", err)
	}
	removed := 0
	t := &tour{w: w, ctx: ctx, all: true, left: MaxEntries}
	t.fn = func(e *Entry) error {
		if !isTemp(e.Name) {
			if e.IsDir() && guard(writing, e.Name, e.Path) != nil {
				return SkipDir
			}
			return nil
		}
		if now.Sub(e.ModTime) > age {
			if err := e.dir.RemoveAll(e.Name); err != nil {
				return failed(string(removing), e.Path, err)
			}
			removed++
		}
		return SkipDir
	}
	err = t.dir(root, ".", 1)
	if errors.Is(err, Stop) {
		err = nil
	}
	return removed, err
}
