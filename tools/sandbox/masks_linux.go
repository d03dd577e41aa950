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
	"sync"

	"golang.org/x/sys/unix"
)

// masks lends the folder .troupe of workspaces as a place to mount over: a command must neither
// read what is in it nor create it where it is missing. Where it is missing it exists for as
// long as commands run there, and is removed after the last one, or by the next process where a kill came first.
type masks struct {
	// aside says that nothing can be mounted over the folder: one that is there already cannot be
	// hidden, and what a command has put into ours is moved away, where nobody heeds it.
	aside bool

	// notes is where each folder that is ours is noted while it is there: one that a kill left is recognised by it.
	notes string

	mu   sync.Mutex
	made map[string]*lent // by workspace, those whose folder we made
}

// lent is a folder that we made.
type lent struct {
	commands int      // that run there
	note     *os.File // locked; nil when another process has it
}

// newMasks also removes what processes left that were killed.
func newMasks(o *Options) *masks {
	m := &masks{notes: filepath.Join(o.CacheDir, "masks"), made: map[string]*lent{}}
	m.sweep()
	return m
}

// troupeFolder is the name of that folder.
const troupeFolder = ".troupe"

func (m *masks) take(workspace string) (release func(), err error) {
	dir := filepath.Join(workspace, troupeFolder)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[workspace] == nil {
		note, err := m.claim(workspace)
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", dir, err)
		}
		theirs, err := m.make(workspace, dir, note)
		if err != nil || theirs {
			forget(note)
			return func() {}, err
		}
		m.made[workspace] = &lent{note: note}
	}
	m.made[workspace].commands++
	return func() { m.release(workspace, dir) }, nil
}

// make makes the folder. theirs says that the workspace has one of its own, which is mounted over and stays.
func (m *masks) make(workspace, dir string, note *os.File) (theirs bool, err error) {
	info, err := os.Lstat(dir)
	switch {
	case err == nil && info.IsDir() && m.aside:
		return false, fmt.Errorf("landlock cannot hide the folder %s without namespaces: install bubblewrap, move the folder away, or, where you trust the project, set sandbox.exec: none", dir)
	case err == nil && info.IsDir():
		return true, nil
	case err == nil:
		return false, fmt.Errorf("hide %s: it is not a folder", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("hide %s: %w", dir, err)
	}
	if err := m.write(note, workspace); err != nil {
		return false, fmt.Errorf("hide %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, fmt.Errorf("hide %s: %w", dir, err)
	}
	return false, nil
}

func (m *masks) release(workspace, dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.made[workspace]
	if l.commands--; l.commands == 0 {
		delete(m.made, workspace)
		giveBack(dir, m.aside)
		forget(l.note)
	}
}

// giveBack removes a folder that is ours. It stays if somebody has put something into it meanwhile; aside: a command, so it is moved.
func giveBack(dir string, aside bool) {
	if err := os.Remove(dir); err != nil && aside && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Rename(dir, dir+"-by-a-command-"+rand.Text()[:8])
	}
}

// kept is what a note says: whose folder it is, and whether commands could write there.
type kept struct {
	Workspace string
	Aside     bool
}

func (m *masks) write(note *os.File, workspace string) error {
	if note == nil {
		return nil
	}
	return json.NewEncoder(note).Encode(kept{workspace, m.aside})
}

// claim locks the note of a workspace, for as long as the folder is there. A note that says something and is not locked is that of a
// process that was killed: its folder is given back first. nil: a process that lives has it.
func (m *masks) claim(workspace string) (*os.File, error) {
	if err := os.MkdirAll(m.notes, 0o700); err != nil {
		return nil, fmt.Errorf("note that it is ours: %w", err)
	}
	sum := sha256.Sum256([]byte(workspace))
	name := filepath.Join(m.notes, hex.EncodeToString(sum[:12]))
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("note that it is ours: %w", err)
		}
		switch alive, err := locked(f, name); {
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("note that it is ours: %w", err)
		case alive:
			f.Close()
			return nil, nil //nolint:nilnil // nobody needs it then
		case !same(f, name): // it was forgotten while it was waited for
			f.Close()
			continue
		}
		tidy(f)
		return f, nil
	}
}

// locked tries to lock a note. alive: another process has it.
func locked(f *os.File, name string) (alive bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", name, err)
	}
	return false, nil
}

// same tells whether a name still means an open file.
func same(f *os.File, name string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(name)
	return err == nil && os.SameFile(was, is)
}

// tidy gives back the folder of a note that a killed process left, and empties the note.
func tidy(f *os.File) {
	var k kept
	if json.NewDecoder(io.LimitReader(f, 1<<16)).Decode(&k) == nil && filepath.IsAbs(k.Workspace) {
		giveBack(filepath.Join(k.Workspace, troupeFolder), k.Aside)
	}
	_ = f.Truncate(0)
	_, _ = f.Seek(0, io.SeekStart)
}

// forget removes a note, which unlocks it.
func forget(note *os.File) {
	if note != nil {
		_ = os.Remove(note.Name())
		_ = note.Close()
	}
}

// sweep gives back what killed processes left, wherever it is.
func (m *masks) sweep() {
	notes, err := os.ReadDir(m.notes)
	if err != nil {
		return // nothing was noted yet
	}
	for _, n := range notes {
		name := filepath.Join(m.notes, n.Name())
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if alive, err := locked(f, name); err != nil || alive || !same(f, name) {
			_ = f.Close()
			continue
		}
		tidy(f)
		forget(f)
	}
}
