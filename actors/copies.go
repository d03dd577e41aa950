package actors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

// Some workspaces are copies that a session has of its own: clones of repositories (kind git), and copies of folders to work in apart. They
// lie in the data directory, in a folder of their session, and have addresses of their own: SERVER:/copies/SESSION/COPY. The address
// that they were made of is their source, by which people and agents know them. Two sessions with one source share nothing, no lease either.
// A copy goes with its workspace; what a crash leaves of one goes at the next start.

// Cloner makes clones of git repositories; see package tools/gitclone. A nil one: they are refused. It is asked off the mailbox.
type Cloner interface {
	// Clone makes the clone of an address in dir, with the files in the folder "tree" of it: at a commit, or at what the address means
	// when that is "". It returns the commit.
	Clone(ctx context.Context, address, commit, dir string, grown func(bytes int64)) (string, error)
}

// copyTree is the folder of a copy's files.
const copyTree = "tree"

// copyPrefix begins the ids of copies.
const copyPrefix = "cpy_"

func copiesPath(svc *Services, session string) string {
	return filepath.Join(svc.DataDir, "copies", session)
}

// isCopy says whether a workspace is a copy that was made for its session.
func isCopy(a *messages.WorkspaceAttached) bool { return a.GetSource() != "" }

// known is how people and agents call the place of a workspace: a copy goes by what it was made of.
func known(g *messages.WorkspaceGrant) string {
	if g.GetSource() != "" {
		return g.GetSource()
	}
	return g.GetUri()
}

// make makes the copy that a workspace is to be, and says in a where it is. Not for a mailbox: it may take minutes.
func (s *Services) make(ctx context.Context, session string, a *messages.WorkspaceAttached, grown func(bytes int64)) *messages.Failure {
	if !isCopy(a) {
		return nil
	}
	id := messages.NewID(copyPrefix)
	dir := filepath.Join(copiesPath(s, session), id)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return messages.Fail(messages.CodeUnavailable, fmt.Sprintf("make the folder of copies: %v", err), "")
	}
	a.Uri = s.ServerName + ":/copies/" + session + "/" + id
	a.ClonePath = filepath.Join(dir, copyTree)
	if a.GetProjectDir() != "" {
		if err := s.Copies.Make(ctx, a.GetProjectDir(), dir); err != nil {
			return asFailure(err)
		}
		a.Path = a.GetClonePath()
		return nil
	}
	commit, err := s.Cloner.Clone(ctx, a.GetSource(), "", dir, grown)
	if err != nil {
		return asFailure(err)
	}
	a.Commit, a.Path = commit, filepath.Join(a.GetClonePath(), filepath.FromSlash(subdirOf(a)))
	return nil
}

// subdirOf is the folder of a repository that a workspace is.
func subdirOf(a *messages.WorkspaceAttached) string {
	addr, err := workspace.Parse(a.GetSource(), "")
	if err != nil {
		return ""
	}
	return addr.Subdir
}

// unmake removes a copy that came to nothing.
func (s *Services) unmake(a *messages.WorkspaceAttached) {
	if dir := filepath.Dir(a.GetClonePath()); a.GetClonePath() != "" && strings.HasPrefix(filepath.Base(dir), copyPrefix) {
		if err := os.RemoveAll(dir); err != nil {
			s.Log.Warn("a copy stays until the next start", "path", dir, "err", err)
		}
	}
}

func asFailure(err error) *messages.Failure {
	var f *messages.Failure
	if errors.As(err, &f) {
		return f
	}
	return messages.Fail(messages.CodeInternal, err.Error(), "")
}

// whileRunning gives a context that ends with the house.
func (s *Services) whileRunning(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// sweepCopies removes the copies that no session has: those of sessions that are no more, and what a crash cut off.
func (s *Services) sweepCopies(ctx context.Context) error {
	top := filepath.Join(s.DataDir, "copies")
	all, err := os.ReadDir(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the copies of sessions: %w", err)
	}
	var errs []error
	for _, e := range all {
		dir := filepath.Join(top, e.Name())
		has, err := s.copiesOf(ctx, e.Name())
		if err != nil { // whose journal cannot be read keeps what it has
			s.Log.Warn("the copies of a session are not looked at", "session", e.Name(), "err", err)
			continue
		}
		if len(has) == 0 {
			errs = append(errs, os.RemoveAll(dir))
			continue
		}
		inside, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, c := range inside {
			if !has[filepath.Join(dir, c.Name())] {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, c.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// factsOf folds the journal of a session, up to a cursor; 0: all of it.
func factsOf(ctx context.Context, store persistence.Store, session string, upto uint64) (facts sessionFacts, err error) {
	err = store.Read(ctx, messages.SessionStream(session), 1, func(e persistence.Entry) error {
		if upto != 0 && e.Cursor > upto {
			return errSurveyed
		}
		f, err := messages.SessionFactIn(e.Record)
		if err != nil {
			return err
		}
		return facts.apply(f, e.Record)
	})
	if err != nil && !errors.Is(err, persistence.ErrNotFound) && !errors.Is(err, errSurveyed) {
		return facts, fmt.Errorf("read session %s: %w", session, err)
	}
	return facts, nil
}

// LeftOut names the folders of which a session, or a worker of it, works in a copy: the files of those are in no export.
func LeftOut(ctx context.Context, store persistence.Store, session string, upto uint64) ([]string, error) {
	facts, err := factsOf(ctx, store, session, upto)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range facts.attached {
		if a.GetProjectDir() != "" && !slices.Contains(out, a.GetSource()) {
			out = append(out, a.GetSource())
		}
	}
	return out, nil
}

// copiesOf names the folders of the copies that a session has, by its journal.
func (s *Services) copiesOf(ctx context.Context, session string) (map[string]bool, error) {
	has := make(map[string]bool)
	if !messages.ValidID(messages.SessionPrefix, session) {
		return has, nil
	}
	facts, err := factsOf(ctx, s.Store, session, 0)
	if err != nil {
		return nil, err
	}
	if facts.closed {
		return has, nil
	}
	for _, a := range facts.attached {
		if isCopy(a) {
			has[filepath.Dir(a.GetClonePath())] = true
		}
	}
	return has, nil
}

// grownEach is how often at most it is told how a clone grows.
const grownEach = 500 * time.Millisecond
