package workcopy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

const (
	maxDiffed  = 1 << 20   // bytes of a file that is shown or merged
	maxDiffs   = 256 << 10 // bytes of all that is shown
	maxChanged = 10_000
)

// entry is a file or link, as far as it is compared.
type entry struct {
	link string      // its target; "": a file
	sum  string      // of a file
	mode fs.FileMode // permissions
	size int64
}

func (e *entry) same(o *entry) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.link == o.link && e.sum == o.sum && e.mode&0o100 == o.mode&0o100
}

// side is one of the three folders that are compared.
type side struct {
	root *os.Root
	all  map[string]*entry
}

func open(dir string) (*side, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &side{root: root, all: make(map[string]*entry)}, nil
}

// read looks at all files of a side.
func (s *side) read(ctx context.Context) error {
	return fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist), name == ".":
			return nil
		case err != nil:
			return err
		case skipped(name, d, true) && d.IsDir():
			return fs.SkipDir
		case skipped(name, d, true), d.IsDir():
			return nil
		}
		e, err := s.entry(name)
		if e != nil {
			s.all[name] = e
		}
		return err
	})
}

// entry looks at one name; nil: there is nothing that can be compared.
func (s *side) entry(name string) (*entry, error) {
	info, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // nothing is there
	case err != nil:
		return nil, err
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := s.root.Readlink(name)
		return &entry{link: "-> " + target}, err
	case !info.Mode().IsRegular():
		return nil, nil //nolint:nilnil // a folder, a pipe
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return &entry{sum: hex.EncodeToString(hash.Sum(nil)), mode: info.Mode().Perm(), size: info.Size()}, err
}

// text reads a file that may be shown or merged; ok tells whether it may. Where nothing is, the text is empty.
func (s *side) text(name string, e *entry) (text string, ok bool) {
	switch {
	case e == nil:
		return "", true
	case e.link != "" || e.size > maxDiffed:
		return "", false
	}
	data, err := s.bytes(name)
	return string(data), err == nil && !strings.Contains(string(data), "\x00")
}

func (s *side) bytes(name string) ([]byte, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(f)
}

func (s *side) close() {
	if s != nil {
		_ = s.root.Close() // a folder's handle: nothing is lost
	}
}

// comparison is the three sides of a copy.
type comparison struct {
	folder     *side // nil: it is not there any more
	tree, base *side
}

func (c *comparison) close() { c.folder.close(); c.tree.close(); c.base.close() }

// compare opens and reads the sides. The folder is looked at where the other two differ, and only there.
func compare(ctx context.Context, folder, dir string) (*comparison, error) {
	c := &comparison{}
	var err error
	if c.folder, err = open(folder); errors.Is(err, fs.ErrNotExist) {
		c.folder, err = nil, nil // what was changed can be seen still
	}
	if err == nil {
		if c.tree, err = open(filepath.Join(dir, TreeName)); err == nil {
			c.base, err = open(filepath.Join(dir, baseName))
		}
	}
	if err == nil {
		err = errors.Join(c.tree.read(ctx), c.base.read(ctx))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// step is what is to be done with one name, and what was there.
type step struct {
	*messages.FileChange
	name             string
	base, tree, here *entry
	merged           []byte // instead of the copy's content
	done             bool   // the folder has it already
}

// steps lists what differs, in the order of names, and how it goes into the folder.
func (c *comparison) steps() ([]*step, error) {
	names := maps.Clone(c.tree.all)
	maps.Copy(names, c.base.all)
	var out []*step
	shown := 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s := &step{name: name, base: c.base.all[name], tree: c.tree.all[name], FileChange: &messages.FileChange{Path: name, State: "changed"}}
		if s.base.same(s.tree) {
			continue
		}
		if len(out) == maxChanged {
			return nil, messages.Fail(messages.CodeTooLarge, fmt.Sprintf("more than %d files were changed", maxChanged), "")
		}
		switch {
		case s.base == nil:
			s.State = "added"
		case s.tree == nil:
			s.State = "deleted"
		}
		was, old := c.base.text(name, s.base)
		now, fresh := c.tree.text(name, s.tree)
		if old && fresh && shown < maxDiffs {
			s.Diff = tools.Diff(name, was, now)
			shown += len(s.GetDiff())
		}
		if err := c.place(s, was, now, old && fresh); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// leadsOut says whether a link may lead out of the folder: it is absolute, goes above it, or goes through another link, from where the way is
// another one than it reads.
func (c *comparison) leadsOut(name, target string) bool {
	if path.IsAbs(target) || filepath.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		return true
	}
	at := path.Dir(name)
	for _, part := range strings.Split(target, "/") {
		for _, s := range []*side{c.tree, c.folder} {
			if info, err := s.root.Lstat(at); err == nil && !info.IsDir() {
				return true
			}
		}
		if at = path.Join(at, part); !filepath.IsLocal(at) {
			return true
		}
	}
	return false
}

// place says how a change goes into the folder.
func (c *comparison) place(s *step, was, now string, text bool) error {
	if c.folder == nil {
		s.Conflict = "the folder is not there any more"
		return nil
	}
	for dir := path.Dir(s.name); dir != "."; dir = path.Dir(dir) {
		if info, err := c.folder.root.Lstat(dir); err == nil && !info.IsDir() {
			s.Conflict = dir + " is no folder there"
			return nil
		}
	}
	if s.tree != nil && s.tree.link != "" && c.leadsOut(s.name, strings.TrimPrefix(s.tree.link, "-> ")) {
		s.Conflict = "it is a link that leads out of the folder"
		return nil
	}
	info, err := c.folder.root.Lstat(s.name)
	if err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		s.Conflict = "it is no file there"
		return nil
	}
	if s.here, err = c.folder.entry(s.name); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	switch {
	case s.here.same(s.tree):
		s.done = true
	case s.here.same(s.base):
	case s.here == nil:
		s.Conflict = "it was deleted there"
	case s.base == nil:
		s.Conflict = "it was made there, too, with other content"
	case s.tree == nil:
		s.Conflict = "it was changed there, and deleted here"
	default:
		theirs, ok := c.folder.text(s.name, s.here)
		merged, fits := tools.Merge(was, theirs, now)
		if !text || !ok || !fits {
			s.Conflict = "it was changed there, too, in the same places"
			return nil
		}
		s.merged, s.Merged = []byte(merged), true
	}
	return nil
}

// Changes says what was changed in the copy dir of a folder since it was made, or brought back last.
func (c *Copies) Changes(ctx context.Context, folder, dir string) (*messages.Changes, error) {
	done, err := c.turns.take(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := resume(folder, dir); err != nil {
		return nil, asFailure("finish what was being applied to "+folder, err)
	}
	x, err := compare(ctx, folder, dir)
	if err != nil {
		return nil, asFailure("compare the copy with "+folder, err)
	}
	defer x.close()
	all, err := x.steps()
	if err != nil {
		return nil, asFailure("compare the copy with "+folder, err)
	}
	return told(all, filepath.Join(dir, TreeName)), nil
}

func told(all []*step, tree string) *messages.Changes {
	out := &messages.Changes{Copy: tree}
	for _, s := range all {
		out.Files = append(out.Files, s.FileChange)
	}
	return out
}
