package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Info describes what is at a path.
type Info struct {
	Path    string      // from the root, links resolved, with slashes
	Mode    fs.FileMode // type and permissions
	Size    int64       // bytes, of a regular file
	ModTime time.Time
}

// IsDir tells whether it is a directory.
func (i *Info) IsDir() bool { return i.Mode.IsDir() }

// File is the content of a regular file, as it was at one moment.
type File struct {
	Info
	Data   []byte
	SHA256 string // hex, of Data
}

// Sum is the hex SHA-256 by which contents are compared everywhere.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func infoOf(real string, info fs.FileInfo) Info {
	return Info{Path: real, Mode: info.Mode(), Size: info.Size(), ModTime: info.ModTime()}
}

// Stat describes what a path leads to. The last link is followed; see Lstat.
func (w *Workspace) Stat(path string) (*Info, error) { return w.stat(path, false) }

// Lstat describes what is at a path itself, a link included.
func (w *Workspace) Lstat(path string) (*Info, error) { return w.stat(path, true) }

func (w *Workspace) stat(path string, keepLink bool) (*Info, error) {
	p, err := w.resolve(path, walk{op: reading, keepLink: keepLink})
	if err != nil {
		return nil, err
	}
	defer p.close()
	if p.info == nil {
		return nil, failed(string(reading), visible(path), fs.ErrNotExist)
	}
	info := infoOf(p.real, p.info)
	return &info, nil
}

// ReadFile reads a whole regular file of at most limit bytes (0: MaxFile).
func (w *Workspace) ReadFile(path string, limit int64) (*File, error) {
	p, err := w.resolve(path, walk{op: reading})
	if err != nil {
		return nil, err
	}
	defer p.close()
	return w.readPlace(p, path, limit)
}

func (w *Workspace) readPlace(p *place, path string, limit int64) (*File, error) {
	f, info, err := w.openPlace(p, reading, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if limit <= 0 {
		limit = MaxFile
	}
	data, err := readAtMost(f, info.Size(), limit)
	if errors.Is(err, errTooLarge) {
		return nil, deny(string(reading), CodeTooLarge, visible(path), tooLarge(info.Size(), limit))
	}
	if err != nil {
		return nil, failed(string(reading), visible(path), err)
	}
	return &File{Info: infoOf(p.real, info), Data: data, SHA256: Sum(data)}, nil
}

// OpenFile opens a regular file for reading, of any size. The caller closes it.
func (w *Workspace) OpenFile(path string) (io.ReadSeekCloser, *Info, error) {
	p, err := w.resolve(path, walk{op: reading})
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	f, stat, err := w.openPlace(p, reading, path)
	if err != nil {
		return nil, nil, err
	}
	info := infoOf(p.real, stat)
	return readOnly{f}, &info, nil
}

// readOnly hides the host's path, which *os.File would tell.
type readOnly struct{ f *os.File }

func (r readOnly) Read(b []byte) (int, error)                { return r.f.Read(b) }
func (r readOnly) Seek(off int64, whence int) (int64, error) { return r.f.Seek(off, whence) }
func (r readOnly) Close() error                              { return r.f.Close() }

// openPlace opens the regular file that the walk found, and no other (W3, W5).
func (w *Workspace) openPlace(p *place, op access, path string) (*os.File, fs.FileInfo, error) {
	if err := regular(p.info, op, path); err != nil {
		return nil, nil, err
	}
	f, err := p.dir.OpenFile(p.base, openFlags, 0)
	if err != nil {
		return nil, nil, failed(string(op), visible(path), err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = failed(string(op), visible(path), err)
	case !os.SameFile(info, p.info):
		err = deny(string(op), CodeChanged, visible(path), "it was replaced while it was looked up")
	default:
		if err = regular(info, op, path); err == nil {
			err = w.oneName(links(f, info), op, path)
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// regular refuses everything that is not a regular file. nil: nothing is there.
func regular(info fs.FileInfo, op access, path string) error {
	switch {
	case info == nil:
		return failed(string(op), visible(path), fs.ErrNotExist)
	case info.IsDir():
		return deny(string(op), CodeInvalidPath, visible(path), "it is a directory")
	case !info.Mode().IsRegular():
		return deny(string(op), CodeInvalidPath, visible(path), "it is not a regular file")
	}
	return nil
}

// oneName is W5. A count of 0 means that the system does not tell: refused as well.
func (w *Workspace) oneName(count uint64, op access, path string) error {
	if w.Trust() == messages.Trust_FULL || count == 1 {
		return nil
	}
	return deny(string(op), CodeDenied, visible(path),
		"it has more than one hard link, and the workspace is Restricted")
}

var errTooLarge = errors.New("file too large")

// readAtMost reads everything; size is a hint that the file may belie.
func readAtMost(r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, errTooLarge
	}
	buf := make([]byte, 0, min(size, limit)+512)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, errTooLarge
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}
