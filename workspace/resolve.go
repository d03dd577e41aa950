package workspace

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// maxLinks is how many links one path may lead through.
const maxLinks = 40

// place is a name in an opened directory: everything after the walk works on the pair, so that
// no later rename or link can lead the call elsewhere.
type place struct {
	dir  *os.Root    // holds base
	base string      // one component, or "." for the root itself
	real string      // from the root, links resolved, with slashes
	info fs.FileInfo // as of Lstat; nil: nothing is there
	own  bool        // dir is closed with the place
}

func (p *place) close() {
	if p.own {
		_ = p.dir.Close() // a directory handle: nothing is lost with it
	}
}

// walk tells resolve how to go.
type walk struct {
	op       access
	keepLink bool // the last component is taken as it is, a link included
	parents  bool // missing directories are made
}

// resolver walks a path component by component, holding a handle of each directory on the way.
// os.Root alone keeps the walk below the root; walking by ourselves also checks protected names
// after links (W2), and each directory that was entered is the one that was looked at.
type resolver struct {
	walk
	path  string
	stack []*os.Root // stack[0] is the workspace's own handle
	names []string   // names[i] led from stack[i] to stack[i+1]
	todo  []string
	links int
}

// resolve finds path. The caller closes the place.
func (f *folder) resolve(path string, how walk) (*place, error) {
	parts, mustDir, err := clean(how.op, path, f.names())
	if err != nil {
		return nil, err
	}
	root, err := f.base(how.op == writing || how.op == making)
	if err != nil {
		return nil, failed(string(how.op), visible(path), err)
	}
	r := &resolver{walk: how, path: path, stack: []*os.Root{root}, todo: parts}
	if mustDir {
		r.todo = append(r.todo, ".")
	}
	p, err := r.run()
	if err != nil {
		r.release(0)
		return nil, failed(string(how.op), visible(path), err)
	}
	r.release(len(r.stack) - 1)
	return p, nil
}

// release closes all handles but the workspace's own and the one at keep.
func (r *resolver) release(keep int) {
	for i := 1; i < len(r.stack); i++ {
		if i != keep {
			_ = r.stack[i].Close()
		}
	}
}

func (r *resolver) run() (*place, error) {
	for len(r.todo) > 0 {
		name := r.todo[0]
		r.todo = r.todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if err := r.up(); err != nil {
				return nil, err
			}
			continue
		}
		if err := guard(r.op, name, visible(r.path)); err != nil {
			return nil, err
		}
		p, err := r.step(name)
		if p != nil || err != nil {
			return p, err
		}
	}
	return r.here()
}

func (r *resolver) top() *os.Root { return r.stack[len(r.stack)-1] }

func (r *resolver) up() error {
	if len(r.names) == 0 {
		return r.outside()
	}
	_ = r.top().Close()
	r.stack = r.stack[:len(r.stack)-1]
	r.names = r.names[:len(r.names)-1]
	return nil
}

func (r *resolver) outside() error {
	return deny(string(r.op), CodeInvalidPath, visible(r.path), "the path leads out of the workspace")
}

// here ends a walk that ended inside a directory: its place is its own name in its parent.
func (r *resolver) here() (*place, error) {
	dir, base := r.top(), "."
	if n := len(r.names); n > 0 {
		_ = r.top().Close()
		r.stack = r.stack[:n]
		dir, base = r.top(), r.names[n-1]
	}
	info, err := dir.Lstat(base)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, deny(string(r.op), CodeChanged, visible(r.path), "it changed while it was looked up")
	}
	return &place{dir: dir, base: base, real: joined(r.names), info: info, own: len(r.stack) > 1}, nil
}

// last tells whether nothing but ".", which asks for a directory, remains.
func (r *resolver) last() (last, mustDir bool) {
	for _, part := range r.todo {
		if part != "." && part != "" {
			return false, false
		}
	}
	return true, len(r.todo) > 0
}

// step looks at one component: it enters a directory, splices a link, or ends the walk.
func (r *resolver) step(name string) (*place, error) {
	last, mustDir := r.last()
	info, err := r.top().Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !last {
			return nil, r.enterNew(name, err)
		}
		if mustDir && r.op != making {
			return nil, err
		}
		return r.end(name, nil), nil
	case err != nil:
		return nil, err
	case info.Mode().Type() == fs.ModeSymlink && (!last || mustDir || !r.keepLink):
		return nil, r.follow(name)
	case last && !mustDir:
		return r.end(name, info), nil
	case !info.IsDir():
		return nil, deny(string(r.op), CodeInvalidPath, visible(r.path), "a part of it is not a directory")
	}
	return nil, r.enter(name, info)
}

func (r *resolver) end(name string, info fs.FileInfo) *place {
	real := joined(append(r.names[:len(r.names):len(r.names)], name))
	return &place{dir: r.top(), base: name, real: real, info: info, own: len(r.stack) > 1}
}

// enter opens the directory that info describes, and no other.
func (r *resolver) enter(name string, info fs.FileInfo) error {
	next, err := openDir(r.top(), name, info)
	if err != nil {
		return err
	}
	r.stack = append(r.stack, next)
	r.names = append(r.names, name)
	return nil
}

// openDir opens a directory by its name and checks that it still is the one that info describes.
func openDir(parent *os.Root, name string, info fs.FileInfo) (*os.Root, error) {
	// The appended dot makes the name an inner component, which is opened as a directory or not at
	// all: a FIFO put there in the meantime would hold an ordinary open for ever.
	next, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	now, err := next.Stat(".")
	if err == nil && !os.SameFile(now, info) {
		err = deny("enter", CodeChanged, name, "the directory was replaced while it was looked up")
	}
	if err != nil {
		_ = next.Close()
		return nil, err
	}
	return next, nil
}

// enterNew makes a missing directory. A path that goes up again afterwards makes none: it would
// leave directories behind that nobody asked for.
func (r *resolver) enterNew(name string, missing error) error {
	if !r.parents {
		return missing
	}
	for _, part := range r.todo {
		if part == ".." {
			return missing
		}
	}
	if err := r.top().Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(r.top()); err != nil {
		return err
	}
	info, err := r.top().Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return deny(string(r.op), CodeChanged, visible(r.path), "it changed while it was looked up")
	}
	return r.enter(name, info)
}

// follow puts a link's target in the place of its name. An absolute target leaves the root by
// definition, also where it points back into it: another folder may stand there tomorrow.
func (r *resolver) follow(name string) error {
	if r.links++; r.links > maxLinks {
		return deny(string(r.op), CodeInvalidPath, visible(r.path), "its links lead in a circle")
	}
	target, err := r.top().Readlink(name)
	if err != nil {
		return err
	}
	target = hostSlashes(target)
	if rooted(target) || target == "" {
		return deny(string(r.op), CodeInvalidPath, visible(r.path), "a link in it leads out of the workspace")
	}
	parts := strings.Split(target, "/")
	for _, part := range parts {
		if part != ".." && part != "." && part != "" && !hostName(part) {
			return r.outside()
		}
	}
	if strings.HasSuffix(target, "/") {
		parts = append(parts, ".")
	}
	r.todo = append(parts, r.todo...)
	return nil
}
