// Package workcopy makes working copies of folders, says what was changed in one, and brings that back.
//
// A copy is made file by file, a repository's `.git` and what is not committed included: git is not run for it, whose
// configuration is a program. Links are copied as they are and not followed. Beside the files (`tree`) stands what they were (`base`), without
// `.git`: against that the copy is compared, and by it changes of both sides come together, three-way, line by line.
package workcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Folders of a copy.
const (
	TreeName = "tree"
	baseName = "base"
	planName = "apply"
)

// Bounds of a copy; see Options.
const (
	DefaultMaxBytes = 2 << 30
	DefaultMaxFiles = 500_000
)

// Options bound copies. The zero value works.
type Options struct {
	MaxBytes int64 // of the files of a folder; 0: DefaultMaxBytes
	MaxFiles int   // 0: DefaultMaxFiles
}

// Copies makes and compares copies. It is safe for concurrent use: of one copy it does one thing at a time, in order of asking, and refuses
// with code busy when too many wait.
type Copies struct {
	o     Options
	turns turns
}

// New makes Copies.
func New(o Options) *Copies {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	return &Copies{o: o}
}

// Make copies a folder to dir/tree, and what it is to dir/base. dir does not exist yet: it is there when the copy is whole.
// Errors about the folder are *messages.Failure.
func (c *Copies) Make(ctx context.Context, folder, dir string) error {
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(filepath.Dir(dir), 0o700)); err != nil {
		return asFailure("make room for a copy", err)
	}
	m := &making{ctx: ctx, o: &c.o}
	err := m.copy(folder, filepath.Join(part, TreeName), false)
	if err == nil { // of the copy: the folder may be changing
		m.bytes, m.files = 0, 0
		err = m.copy(filepath.Join(part, TreeName), filepath.Join(part, baseName), true)
	}
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err != nil {
		_ = os.RemoveAll(part) // else the next start removes it
		return asFailure("copy "+folder, err)
	}
	return nil
}

func asFailure(what string, err error) error {
	var f *messages.Failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, fs.ErrNotExist):
		return messages.Fail(messages.CodeNoWorkspace, what+": "+err.Error(), "")
	case errors.Is(err, fs.ErrPermission):
		return messages.Fail(messages.CodeDenied, what+": "+err.Error(), "")
	}
	return messages.Fail(messages.CodeUnavailable, what+": "+err.Error(), "")
}

// making is one copy under way.
type making struct {
	ctx   context.Context //nolint:containedctx // of one call
	o     *Options
	bytes int64
	files int
}

func (m *making) copy(from, to string, plain bool) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close() }() // each file in it was closed by itself
	return fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case m.ctx.Err() != nil:
			return m.ctx.Err()
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case skipped(name, d, plain):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return m.one(src, dst, name, d)
	})
}

// skipped says what is not copied: what is troupe's own, a `.git` that leads to another folder's repository, and for the base,
// which is compared, every `.git`.
func skipped(name string, d fs.DirEntry, plain bool) bool {
	base := path.Base(name)
	return strings.EqualFold(base, ".troupe") || strings.HasPrefix(base, workspace.TempPrefix) || strings.EqualFold(base, ".git") && (plain || !d.IsDir())
}

func (m *making) one(src, dst *os.Root, name string, d fs.DirEntry) error {
	if m.files++; m.files > m.o.MaxFiles {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the folder has more than %d files", m.o.MaxFiles), "work in it without --isolate")
	}
	switch {
	case d.IsDir():
		return dst.Mkdir(name, 0o700)
	case d.Type() == fs.ModeSymlink:
		target, err := src.Readlink(name)
		if err != nil {
			return err
		}
		return dst.Symlink(target, name)
	case !d.Type().IsRegular():
		return nil
	}
	n, err := copyFile(m.ctx, src, dst, name, m.o.MaxBytes-m.bytes)
	m.bytes += n
	if m.bytes > m.o.MaxBytes {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the folder is larger than %d MiB", m.o.MaxBytes>>20), "work in it without --isolate")
	}
	return err
}

// copyPiece is how many bytes are copied before it is looked again whether anybody still wants them.
const copyPiece = 16 << 20

// copyFile copies at most one byte more than most.
func copyFile(ctx context.Context, src, dst *os.Root, name string, most int64) (int64, error) {
	in, err := src.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, err
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for err == nil && n <= most {
		if err = ctx.Err(); err == nil {
			var k int64
			k, err = io.CopyN(out, in, min(copyPiece, most+1-n))
			n += k
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, errors.Join(err, out.Close())
}
