package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// Remove removes a file, a link (never what it points to) or an empty directory.
func (w *Workspace) Remove(name string) (*Info, error) {
	p, err := w.removable(name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.dir.Remove(p.base); err != nil {
		if errors.Is(err, fs.ErrExist) { // the system's word for "not empty"
			return nil, deny(string(removing), CodeExists, visible(name), "the directory is not empty")
		}
		return nil, failed(string(removing), visible(name), err)
	}
	if err := syncDir(p.dir); err != nil {
		return nil, failed(string(removing), visible(name), err)
	}
	info := infoOf(p.real, p.info)
	return &info, nil
}

// RemoveTree removes a directory and all that is below it, without following links. It goes by one
// rename first: after a crash the directory is there as a whole, or not at all (what remains under
// the temporary name is swept by RemoveLeft, when id names the removal as WriteOptions.ID does, and
// by RemoveStale). A tree that holds a protected name, or that is too large to be looked through, is
// refused.
func (w *Workspace) RemoveTree(ctx context.Context, name, id string) (*Info, error) {
	p, err := w.removable(name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if !p.info.IsDir() {
		return nil, deny(string(removing), CodeInvalidPath, visible(name), "it is not a directory")
	}
	if err := w.unguarded(ctx, p, removing); err != nil {
		return nil, err
	}
	temp := tempName(id)
	if err := p.dir.Rename(p.base, temp); err != nil {
		return nil, failed(string(removing), visible(name), err)
	}
	if err := syncDir(p.dir); err != nil {
		return nil, failed(string(removing), visible(name), err)
	}
	info := infoOf(p.real, p.info)
	if err := p.dir.RemoveAll(temp); err != nil {
		return &info, failed(string(removing), visible(name), err)
	}
	return &info, nil
}

// RemoveLeft removes what a crash left of the write or removal of a path that id named. It must be
// over: nothing tells one that is still at work. Where nothing is left nothing happens.
func (w *Workspace) RemoveLeft(name, id string) error {
	p, err := w.resolve(name, walk{op: removing, keepLink: true})
	if CodeOf(err) == CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.dir.RemoveAll(tempName(id)); err != nil {
		return failed(string(removing), visible(name), err)
	}
	return nil
}

func (w *Workspace) removable(name string) (*place, error) {
	p, err := w.resolve(name, walk{op: removing, keepLink: true})
	if err != nil {
		return nil, err
	}
	switch {
	case p.info == nil:
		err = failed(string(removing), visible(name), fs.ErrNotExist)
	case p.base == ".":
		err = deny(string(removing), CodeInvalidPath, visible(name), "the workspace itself cannot be removed")
	default:
		return p, nil
	}
	p.close()
	return nil, err
}

// unguarded refuses a directory in which something protected lies.
func (w *Workspace) unguarded(ctx context.Context, p *place, op access) error {
	if !p.info.IsDir() {
		return nil
	}
	dir, err := openDir(p.dir, p.base, p.info)
	if err != nil {
		return failed(string(op), p.real, err)
	}
	defer dir.Close()
	t := &tour{w: w, ctx: ctx, all: true, left: MaxEntries}
	t.fn = func(e *Entry) error {
		if strings.HasPrefix(e.Name, TempPrefix) {
			return SkipDir // a crash left it: it goes with the rest
		}
		return guard(op, e.Name, e.Path)
	}
	err = t.dir(dir, p.real, 1)
	if err == nil && t.cut || errors.Is(err, Stop) {
		return deny(string(op), CodeTooLarge, p.real, "the directory is too deep or has too many entries")
	}
	return err
}

// MoveOptions says how something is moved.
type MoveOptions struct {
	Overwrite bool // replace a file that is there; a directory is never replaced
	Parents   bool // make the missing directories of the destination
}

// Rename moves a file, directory or link. Links are moved as they are, never followed; one with
// a relative target stays in its directory, because it would point elsewhere afterwards.
func (w *Workspace) Rename(ctx context.Context, source, destination string, o MoveOptions) (from, to *Info, err error) {
	src, err := w.resolve(source, walk{op: moving, keepLink: true})
	if err != nil {
		return nil, nil, err
	}
	defer src.close()
	if err := w.movable(ctx, src, source); err != nil {
		return nil, nil, err
	}
	dst, err := w.resolve(destination, walk{op: making, keepLink: true, parents: o.Parents})
	if err != nil {
		return nil, nil, err
	}
	defer dst.close()
	if err := fits(src, dst, destination, o.Overwrite); err != nil {
		return nil, nil, err
	}
	if err := w.move(src, dst); err != nil {
		return nil, nil, failed(string(moving), visible(destination), err)
	}
	for _, dir := range []*os.Root{dst.dir, src.dir} {
		if err := syncDir(dir); err != nil {
			return nil, nil, failed(string(moving), visible(destination), err)
		}
	}
	was, is := infoOf(src.real, src.info), infoOf(dst.real, src.info)
	return &was, &is, nil
}

func (w *Workspace) movable(ctx context.Context, src *place, source string) error {
	switch {
	case src.info == nil:
		return failed(string(moving), visible(source), fs.ErrNotExist)
	case src.base == ".":
		return deny(string(moving), CodeInvalidPath, visible(source), "the workspace itself cannot be moved")
	case !src.info.IsDir() && !src.info.Mode().IsRegular() && src.info.Mode().Type() != fs.ModeSymlink:
		return deny(string(moving), CodeInvalidPath, visible(source), "it is not a regular file or directory")
	}
	return w.unguarded(ctx, src, moving)
}

// fits holds the rules of what may stand at the destination.
func fits(src, dst *place, destination string, overwrite bool) error {
	refused := func(code, reason string) error {
		return deny(string(moving), code, visible(destination), reason)
	}
	switch {
	case src.real == dst.real:
		return refused(CodeExists, "source and destination are the same")
	case src.info.IsDir() && strings.HasPrefix(dst.real, src.real+"/"):
		return refused(CodeInvalidPath, "a directory cannot be moved into itself")
	case src.info.Mode().Type() == fs.ModeSymlink && path.Dir(src.real) != path.Dir(dst.real):
		return refused(CodeInvalidPath, "a link cannot be moved to another directory")
	case dst.info == nil:
		return nil
	case dst.info.IsDir():
		return refused(CodeExists, "a directory with this name is already there")
	case !overwrite:
		return refused(CodeExists, "a file with this name is already there (set overwrite to replace it)")
	case src.info.IsDir():
		return refused(CodeExists, "a directory cannot replace a file")
	case !dst.info.Mode().IsRegular() && dst.info.Mode().Type() != fs.ModeSymlink:
		return refused(CodeInvalidPath, "what is there is not a regular file")
	}
	return nil
}

// move renames between the two directory handles, after a last look at the source.
func (w *Workspace) move(src, dst *place) error {
	now, err := src.dir.Lstat(src.base)
	if err != nil {
		return err
	}
	if !os.SameFile(now, src.info) {
		return deny(string(moving), CodeChanged, src.real, "it was replaced while it was looked up")
	}
	root, err := w.base(false)
	if err != nil {
		return err
	}
	return renameBetween(root, src, dst)
}

// Hash names the state of what is at a path itself: empty when nothing is there, the SHA-256 of a
// file's content, of a link's target (unless follow is set), or of a directory's names, kinds and
// sizes. real is the name below the root. Unlike a read it is not subject to W5: no content leaves.
func (w *Workspace) Hash(ctx context.Context, name string, follow bool) (sum, real string, err error) {
	p, err := w.resolve(name, walk{op: reading, keepLink: !follow})
	if err != nil && CodeOf(err) == CodeNotFound {
		real, err = w.Rel(name)
		return "", real, err
	}
	if err != nil {
		return "", "", err
	}
	defer p.close()
	switch {
	case p.info == nil:
		return "", p.real, nil
	case p.info.IsDir():
		sum, err = w.hashDir(ctx, p)
	case p.info.Mode().Type() == fs.ModeSymlink:
		var target string
		target, err = p.dir.Readlink(p.base)
		sum = Sum([]byte("link " + target))
	case !p.info.Mode().IsRegular():
		sum = Sum([]byte("other " + p.info.Mode().Type().String()))
	default:
		sum, err = w.hashFile(p, name)
	}
	if err != nil {
		return "", "", failed(string(reading), visible(name), err)
	}
	return sum, p.real, nil
}

// hashFile streams: a file that is too large to be read can still be moved.
func (w *Workspace) hashFile(p *place, name string) (string, error) {
	free := &Workspace{folder: w.folder, trust: messages.Trust_FULL}
	f, _, err := free.openPlace(p, reading, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (w *Workspace) hashDir(ctx context.Context, p *place) (string, error) {
	dir, err := openDir(p.dir, p.base, p.info)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	h := sha256.New()
	t := &tour{w: w, ctx: ctx, all: true, left: MaxEntries}
	t.fn = func(e *Entry) error {
		size := e.Size
		if e.IsDir() {
			size = 0 // its own size differs between file systems
		}
		rel := strings.TrimPrefix(e.Path, p.real+"/") // the same wherever the tree is moved to
		fmt.Fprintf(h, "%q %s %d\n", rel, e.Mode.Type(), size)
		return nil
	}
	if err := t.dir(dir, p.real, 1); err != nil && !errors.Is(err, Stop) {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
