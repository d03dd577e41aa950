package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// masks lends the folder .troupe of workspaces as a place to mount over: a command must neither
// read what is in it nor create it where it is missing. Where it is missing it exists for as
// long as commands run there, and is removed after the last one.
type masks struct {
	// aside says that nothing can be mounted over the folder: one that is there already cannot be
	// hidden, and what a command has put into ours is moved away, where nobody heeds it.
	aside bool

	mu   sync.Mutex
	made map[string]int // workspace -> commands that run there, if we made the folder
}

// troupeFolder is the name of that folder.
const troupeFolder = ".troupe"

func (m *masks) take(workspace string) (release func(), err error) {
	dir := filepath.Join(workspace, troupeFolder)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[workspace] == 0 {
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() && m.aside {
			return nil, fmt.Errorf("landlock cannot hide the folder %s without namespaces: install bubblewrap, move the folder away, or, where you trust the project, set sandbox.exec: none", dir)
		}
		if err == nil && info.IsDir() {
			return func() {}, nil
		}
		if err == nil {
			return nil, fmt.Errorf("hide %s: it is not a folder", dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("hide %s: %w", dir, err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	m.made[workspace]++
	return func() { m.release(workspace, dir) }, nil
}

func (m *masks) release(workspace, dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[workspace]--; m.made[workspace] == 0 {
		delete(m.made, workspace)
		// It stays if somebody has put something into it meanwhile.
		if err := os.Remove(dir); err != nil && m.aside {
			_ = os.Rename(dir, dir+"-by-a-command-"+rand.Text()[:8])
		}
	}
}
