package workspace

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// WriteOptions says how a file is written. The zero value writes into an existing directory,
// whatever was there.
type WriteOptions struct {
	Parents bool // make missing directories
	// Expect, when not nil, is the hex SHA-256 that the file must have right before it is replaced;
	// empty: nothing may be there. A process that does not go through the workspace can still write
	// between that look and the rename: no file system offers to compare and swap.
	Expect *string
	Limit  int64 // bytes; 0: MaxFile
	// ID, when not empty, is the caller's name for this one write: RemoveLeft finds by it what a
	// crash left of the write. Two writes at a time in one directory need different ones.
	ID string
}

// WriteFile replaces or makes a regular file as a whole: readers and crashes see the old content
// or the new one (W4). The mode of an existing file is kept, its owner is not; a new one gets
// 0666 without the process's umask. A file without write permission for its owner is refused.
func (w *Workspace) WriteFile(path string, data []byte, o WriteOptions) (*Info, error) {
	return w.WriteFrom(path, bytes.NewReader(data), o)
}

// WriteFrom is WriteFile with the content of a reader.
func (w *Workspace) WriteFrom(path string, from io.Reader, o WriteOptions) (*Info, error) {
	p, err := w.resolve(path, walk{op: writing, parents: o.Parents})
	if err != nil {
		return nil, err
	}
	defer p.close()
	perm := fs.FileMode(0)
	if p.info != nil {
		if err := w.replaceable(p, path); err != nil {
			return nil, err
		}
		perm = p.info.Mode().Perm()
	}
	temp, err := w.writeTemp(p, from, perm, o)
	if errors.Is(err, errTooLarge) {
		return nil, deny(string(writing), CodeTooLarge, visible(path), tooLarge(0, limitOr(o.Limit)))
	}
	if err != nil {
		return nil, failed(string(writing), visible(path), err)
	}
	err = w.unchanged(p, path, o.Expect)
	if err == nil {
		err = p.dir.Rename(temp, p.base)
	}
	if err != nil {
		_ = p.dir.Remove(temp) // the error that matters is the first
		return nil, failed(string(writing), visible(path), err)
	}
	return w.written(p, path)
}

func limitOr(limit int64) int64 {
	if limit <= 0 {
		return MaxFile
	}
	return limit
}

func (w *Workspace) written(p *place, path string) (*Info, error) {
	if err := syncDir(p.dir); err != nil {
		return nil, failed(string(writing), visible(path), err)
	}
	stat, err := p.dir.Lstat(p.base)
	if err != nil {
		return nil, failed(string(writing), visible(path), err)
	}
	info := infoOf(p.real, stat)
	return &info, nil
}

// replaceable refuses to write over what is no plain, writable file with one name.
func (w *Workspace) replaceable(p *place, path string) error {
	f, info, err := w.openPlace(p, writing, path)
	if err != nil {
		return err
	}
	_ = f.Close() // it was only looked at
	if info.Mode().Perm()&0o200 == 0 {
		return deny(string(writing), CodeDenied, visible(path), "the file is read-only")
	}
	return nil
}

// writeTemp writes the content beside its place and makes it durable. It leaves no file behind
// when it fails.
func (w *Workspace) writeTemp(p *place, from io.Reader, perm fs.FileMode, o WriteOptions) (string, error) {
	name := tempName(o.ID)
	if o.ID != "" {
		if err := p.dir.RemoveAll(name); err != nil { // the same write, cut off by a crash
			return "", err
		}
	}
	f, err := p.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	limit := limitOr(o.Limit)
	n, err := io.Copy(f, io.LimitReader(from, limit+1))
	if err == nil && n > limit {
		err = errTooLarge
	}
	if err == nil && perm != 0 {
		err = f.Chmod(perm) // permission bits alone: no setuid survives
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = p.dir.Remove(name) // the error that matters is the first
		return "", err
	}
	return name, nil
}

// tempName is the name of what is not there yet, or not there any more: with an id always the
// same, without one a new one.
func tempName(id string) string {
	if id == "" {
		id = rand.Text()
	}
	sum := sha256.Sum256([]byte(id))
	return TempPrefix + hex.EncodeToString(sum[:8])
}

// isTemp says whether a name is one that tempName makes. Others that begin so are somebody else's.
func isTemp(name string) bool {
	rest, ok := strings.CutPrefix(name, TempPrefix)
	b, err := hex.DecodeString(rest)
	return ok && err == nil && len(b) == 8
}

// unchanged looks again right before the rename.
func (w *Workspace) unchanged(p *place, path string, expect *string) error {
	now, err := p.dir.Lstat(p.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		now = nil
	case err != nil:
		return err
	}
	if (now == nil) != (p.info == nil) || now != nil && !os.SameFile(now, p.info) {
		return deny(string(writing), CodeChanged, visible(path), "it was replaced while it was written")
	}
	if expect == nil {
		return nil
	}
	sum := ""
	if now != nil {
		if sum, err = w.hashFile(p, path); err != nil {
			return err
		}
	}
	if sum != *expect {
		return deny(string(writing), CodeChanged, visible(path), "it has changed in the meantime")
	}
	return nil
}

func tooLarge(size, limit int64) string {
	if size <= 0 {
		return fmt.Sprintf("more than the limit of %d bytes", limit)
	}
	return fmt.Sprintf("%d bytes, the limit is %d", size, limit)
}

// Mkdir makes a directory, with its parents when told so. made is false when it was there.
func (w *Workspace) Mkdir(path string, parents bool) (info *Info, made bool, err error) {
	p, err := w.resolve(path, walk{op: making, parents: parents})
	if err != nil {
		return nil, false, err
	}
	defer p.close()
	if p.info == nil {
		err := p.dir.Mkdir(p.base, 0o777)
		if err == nil {
			err, made = syncDir(p.dir), true
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, false, failed(string(making), visible(path), err)
		}
	}
	stat, err := p.dir.Lstat(p.base)
	if err != nil {
		return nil, false, failed(string(making), visible(path), err)
	}
	if !stat.IsDir() {
		return nil, false, deny(string(making), CodeExists, visible(path), "a file with this name is already there")
	}
	at := infoOf(p.real, stat)
	return &at, made, nil
}
