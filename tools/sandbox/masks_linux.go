package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// masks lends the folder .troupe of workspaces as a place to mount over: a command must neither
// read what is in it nor create it where it is missing. Where it is missing it exists for as
// long as commands run there, whichever processes they are of, and is removed after the last one,
// or by the next process where a kill came first.
type masks struct {
	// aside says that nothing can be mounted over the folder: one that is there already cannot be
	// hidden, and what a command has put into ours is moved away, where nobody heeds it.
	aside bool

	// notes is where each folder that is ours is noted while it is there: other processes, and those after a kill, know it by that.
	notes string

	mu   sync.Mutex
	made map[string]*lent // by workspace, those whose folder is ours
}

// lent is a folder that we made, this process or another one.
type lent struct {
	commands int      // of this process, that run there
	note     *os.File // locked, shared with the other processes that have commands there
}

// newMasks also removes what processes left that were killed.
func newMasks(o *Options) *masks {
	m := &masks{notes: o.notes(), made: map[string]*lent{}}
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
		note, err := m.borrow(workspace, dir)
		switch {
		case errors.Is(err, errTheirs):
			return func() {}, nil
		case err != nil:
			return nil, fmt.Errorf("hide %s: %w", dir, err)
		}
		m.made[workspace] = &lent{note: note}
	}
	m.made[workspace].commands++
	return func() { m.release(workspace) }, nil
}

func (m *masks) release(workspace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.made[workspace]
	if l.commands--; l.commands == 0 {
		delete(m.made, workspace)
		leave(l.note)
	}
}

var (
	// errTheirs: the workspace has a folder of its own, which is mounted over and stays.
	errTheirs = errors.New("the folder is the workspace's own")

	// errForgotten: while a note was waited for, its folder was given back.
	errForgotten = errors.New("the note says nothing any more")

	errAside = errors.New("landlock cannot hide the folder without namespaces: install bubblewrap, move the folder away, or, where you trust the project, set sandbox.exec: none")
)

// borrow returns the note of a workspace, locked as shared, when the folder is there and ours.
func (m *masks) borrow(workspace, dir string) (*os.File, error) {
	for {
		f, err := m.open(workspace)
		if err != nil {
			return nil, err
		}
		alone, err := lock(f)
		switch {
		case err != nil:
		case alone && !same(f):
			err = errForgotten
		case alone:
			if err = m.make(f, workspace, dir); err != nil {
				_ = os.Remove(f.Name())
			}
		default:
			err = m.join(f, workspace, dir)
		}
		if err == nil {
			return f, nil
		}
		unlock(f)
		_ = f.Close()
		if !errors.Is(err, errForgotten) {
			return nil, err
		}
	}
}

// make makes the folder. It has the note for itself: what the note says is of a process that was killed, whose folder is given back first.
func (m *masks) make(f *os.File, workspace, dir string) error {
	tidy(f)
	if err := m.own(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k := kept{Workspace: workspace, Aside: m.aside}
	if err := errors.Join(f.Truncate(0), k.write(f)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	is, err := identify(dir)
	if err == nil {
		k.identity = is
		err = k.write(f)
	}
	if err == nil {
		err = share(f)
	}
	if err != nil {
		_ = os.Remove(dir) // nothing has run there
	}
	return err
}

// own says what a folder that is not ours means, and fs.ErrNotExist where there is none.
func (m *masks) own(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is not a folder")
	case m.aside:
		return errAside
	}
	return errTheirs
}

// join shares the folder of another process that has commands there. Who has the note for himself has it for a moment and is waited for.
func (m *masks) join(f *os.File, workspace, dir string) error {
	if err := share(f); err != nil {
		return err
	}
	k, ok := read(f)
	if !same(f) || !ok || k.Workspace != workspace || k.Inode == 0 {
		return errForgotten
	}
	is, err := identify(dir)
	switch {
	case err == nil && is == k.identity && m.aside && !k.Aside:
		return fmt.Errorf("another process covers it for its commands, which cannot be done here: try again when they have ended: %w", errAside)
	case err == nil && is == k.identity:
		return nil
	}
	if err := m.own(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.New("somebody removed it while commands of another process run there: try again when they have ended")
}

// leave ends a process's part in a folder. The last one gives it back.
func leave(f *os.File) {
	defer f.Close()
	alone, err := lock(f)
	if err == nil && !alone {
		unlock(f) // of two that end at once, neither is let before the other: the later one is now
		alone, err = lock(f)
	}
	if err == nil && alone && same(f) {
		tidy(f)
		_ = os.Remove(f.Name())
	}
}
