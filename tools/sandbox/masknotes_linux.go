package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// kept is what a note says: whose folder it is, whether commands could write there, and which one it is. A note is a claim
// that a file makes, and a file may be forged: it counts for the folder that it describes alone.
type kept struct {
	Workspace string
	Aside     bool
	identity
}

// identity tells a folder from one that is made later in its place. Born is there because file
// systems give the number of a removed folder to the next one.
type identity struct {
	Device uint64 `json:",omitempty"`
	Inode  uint64 `json:",omitempty"` // 0: noted before the folder was made
	Born   int64  `json:",omitempty"` // nanoseconds since 1970; 0 where the file system does not say
}

func identify(dir string) (identity, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return identity{}, fmt.Errorf("%s is not a folder", dir)
	}
	is := identity{Device: uint64(st.Dev), Inode: st.Ino} //nolint:unconvert // it has other types elsewhere
	var x unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x)
	if err == nil && x.Mask&unix.STATX_BTIME != 0 {
		is.Born = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	return is, nil
}

// notes is the folder of notes. Commands do not see it.
func (o *Options) notes() string { return filepath.Join(o.CacheDir, notesFolder) }

// noteName is what the note of a workspace is called.
func noteName(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return hex.EncodeToString(sum[:12])
}

func (m *masks) open(workspace string) (*os.File, error) {
	if err := os.MkdirAll(m.notes, 0o700); err != nil {
		return nil, fmt.Errorf("note that it is ours: %w", err)
	}
	f, err := openNote(filepath.Join(m.notes, noteName(workspace)), os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("note that it is ours: %w", err)
	}
	return f, nil
}

// openNote follows no link: what it opens is written to and removed.
func openNote(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is no file: remove it", name))
	}
	return f, nil
}

// The locks are those of open files: unlike flock's, a shared one becomes exclusive, and the
// other way round, without a moment in between in which there is none.

// lock takes a note for its caller alone, without waiting, and says whether that could be. If not, the lock is what it was.
func lock(f *os.File) (bool, error) {
	err := setLock(f, unix.F_OFD_SETLK, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// share waits for who has the note alone.
func share(f *os.File) error { return setLock(f, unix.F_OFD_SETLKW, unix.F_RDLCK) }

// unlock does so even where a process that is being started has the file for a moment still.
func unlock(f *os.File) { _ = setLock(f, unix.F_OFD_SETLK, unix.F_UNLCK) }

func setLock(f *os.File, command int, kind int16) error {
	for {
		err := unix.FcntlFlock(f.Fd(), command, &unix.Flock_t{Type: kind, Whence: io.SeekStart})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// same tells whether the name of an open file still means it.
func same(f *os.File) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(was, is)
}

// write writes at the start in one go, and what is written later is longer: a kill leaves the one or the other.
func (k kept) write(f *os.File) error {
	text, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("note that it is ours: %w", err)
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return fmt.Errorf("note that it is ours: %w", err)
	}
	return nil
}

// read refuses a note under a name that is not its workspace's.
func read(f *os.File) (k kept, ok bool) {
	err := json.NewDecoder(io.NewSectionReader(f, 0, 1<<16)).Decode(&k)
	return k, err == nil && filepath.IsAbs(k.Workspace) && filepath.Base(f.Name()) == noteName(k.Workspace)
}

// tidy gives back the folder of a note, whose lock its caller has alone. It stays if somebody has put something into it meanwhile;
// aside: a command, so it is moved. A note that was written before the folder was made says nothing of what is in it.
func tidy(f *os.File) {
	k, ok := read(f)
	if !ok {
		return
	}
	dir := filepath.Join(k.Workspace, troupeFolder)
	is, err := identify(dir)
	if err != nil || k.Inode != 0 && is != k.identity {
		return
	}
	if err := unix.Rmdir(dir); err != nil && k.Aside && k.Inode != 0 && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Rename(dir, dir+"-by-a-command-"+rand.Text()[:8])
	}
}

// sweep gives back what killed processes left, wherever it is.
func (m *masks) sweep() {
	if info, err := os.Lstat(m.notes); err != nil || !info.IsDir() {
		return // a link leads to files that are no notes
	}
	notes, err := os.ReadDir(m.notes)
	if err != nil {
		return
	}
	for _, n := range notes {
		if b, err := hex.DecodeString(n.Name()); err != nil || len(b) != 12 {
			continue // not ours
		}
		f, err := openNote(filepath.Join(m.notes, n.Name()), 0)
		if err != nil {
			continue
		}
		if alone, err := lock(f); err == nil && alone && same(f) {
			tidy(f)
			_ = os.Remove(f.Name())
		}
		unlock(f)
		_ = f.Close()
	}
}
