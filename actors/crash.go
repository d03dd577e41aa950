package actors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

const (
	// sweepTime bounds the clearing of one workspace. What is not reached stays until the next crash.
	sweepTime = 10 * time.Second
	// staleAfter is how long a temporary file has not been touched that nobody writes any more, in this process or another.
	staleAfter = 10 * time.Second
)

// runningFile lies in the data directory while a process works on it: one that finds it knows that the last one
// did not end in order.
func (s *Services) runningFile() string { return filepath.Join(s.DataDir, "running") }

// markRunning notes whether the last process crashed, and that this one runs.
func (s *Services) markRunning() error {
	_, err := os.Stat(s.runningFile())
	if s.crashed = err == nil; s.crashed {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for %s: %w", s.runningFile(), err)
	}
	if err := os.WriteFile(s.runningFile(), nil, 0o600); err != nil {
		return fmt.Errorf("note that this process runs: %w", err)
	}
	return nil
}

// unmarkRunning is the last thing of an orderly end.
func (s *Services) unmarkRunning() {
	if err := os.Remove(s.runningFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("the mark of a running process stays", "err", err)
	}
}

// sweep removes what a crash left of half-written files in a workspace, before the first effect of this process there
// and under its lease. It looks through the whole tree, and so only after a crash.
func (s *Services) sweep(ctx context.Context, g *messages.WorkspaceGrant) {
	if !s.crashed || !s.folders.sweeps(g.GetUri()) {
		return
	}
	ws, err := s.folders.handle(g)
	if err != nil {
		return // the call itself will say so
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	n, err := ws.RemoveStale(ctx, staleAfter, time.Now())
	if n > 0 || err != nil {
		s.Log.Info("cleared a workspace of what a crash left", "workspace", g.GetUri(), "count", n, "err", err)
	}
}
