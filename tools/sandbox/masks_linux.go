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
// long as commands run there, and is removed after the last one.
type masks struct {
	mu   sync.Mutex
	made map[string]int // workspace -> commands that run there, if we made the folder
}

func (m *masks) take(workspace string) (release func(), err error) {
	dir := filepath.Join(workspace, ".troupe")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[workspace] == 0 {
		info, err := os.Lstat(dir)
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
		_ = os.Remove(dir) // stays if somebody has put something into it meanwhile
	}
}
