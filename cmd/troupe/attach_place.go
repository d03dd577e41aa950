package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A place is a folder of this machine that is shared with one session. What ran there is remembered in one ledger and one set of notes about jobs, and those are of
// one program at a time: another one would take what runs in the first for cut off, and what began since for never seen (ADR 111).

// placeLock is held by the program that shares a place, until it ends, however it ends.
type placeLock struct{ file *os.File }

const (
	stealTime = 30 * time.Second       // for the program before to end what it runs, and itself
	stealLook = 100 * time.Millisecond // between two looks whether it has
	keptNotes = 30 * 24 * time.Hour    // of jobs, that no server has asked for
)

func (s *sharing) lockName() string { return s.ledgerDir() + ".lock" }

// lockPlace takes a lock; nil: another program has it. Whose it was before does not stand there any more: that process may be something else by now.
func lockPlace(name string) (*placeLock, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	mine, err := lockFile(f)
	if err == nil && mine {
		err = f.Truncate(0)
	}
	if err != nil || !mine {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return &placeLock{f}, nil
}

// of writes down whose the lock is, for who wants it.
func (l *placeLock) of(pid int) error {
	_, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n", pid), 0)
	return err
}

// release gives the place back. The file stays: without it two programs could each have one of that name.
func (l *placeLock) release() { _ = l.file.Close() } // what it says counts while it is locked

// claim takes the place, or says who has it. With --steal that one is asked to end, and waited for: its calls and its jobs end, and are told of, before any is given out here.
// Who has not written down yet that it is there is waited for, too: it may only be clearing up.
func (s *sharing) claim(ctx context.Context) (*placeLock, error) {
	asked := 0
	within, cancel := context.WithTimeout(ctx, stealTime)
	defer cancel()
	for {
		l, err := lockPlace(s.lockName())
		if err == nil && l != nil {
			err = l.of(os.Getpid())
		}
		if err != nil {
			return nil, &exitError{code: exitIO, what: fmt.Sprintf("%s cannot be shared: %v", visible(s.dir), err), err: err}
		}
		if l != nil {
			return l, nil
		}
		pid := s.holder()
		if !s.f.steal && pid > 0 {
			return nil, s.taken(pid, "end that one, or take its place with --steal")
		}
		if pid > 0 && pid != asked {
			asked = pid
			s.a.note("troupe: asks the program that shares %s to end (process %d)", visible(s.dir), pid)
			if p, err := os.FindProcess(pid); err != nil || askToEnd(p) != nil {
				return nil, s.taken(pid, "end that one: this program cannot")
			}
		}
		t := time.NewTimer(stealLook)
		select {
		case <-t.C:
		case <-within.Done():
			t.Stop()
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case asked == 0:
				return nil, s.taken(pid, "end that one")
			}
			return nil, s.taken(pid, fmt.Sprintf("it was asked to end and has not within %v; end it", stealTime))
		}
	}
}

// holder is the process that has the place, as it wrote down; 0 when it has not yet.
func (s *sharing) holder() int {
	b, err := os.ReadFile(s.lockName())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid == os.Getpid() {
		return 0
	}
	return max(pid, 0)
}

func (s *sharing) taken(pid int, hint string) error {
	which := "which process does not stand in " + visible(s.lockName())
	if pid > 0 {
		which = fmt.Sprintf("process %d", pid)
	}
	return &exitError{
		code: exitAgain, hint: hint,
		what: fmt.Sprintf("another program of this machine shares %s with session %s as %s (%s)", visible(s.dir), visible(s.f.session), visible(s.uri), which),
	}
}

// clearNotes forgets jobs that ended long ago and of which no server has asked since: it has given them up, or their session is no more. Those of a program that runs stay.
func (s *sharing) clearNotes(now time.Time) {
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(s.ledgerDir()), "*.jobs"))
	if err != nil {
		return // a name with a bracket: nothing is lost by leaving them
	}
	for _, dir := range dirs {
		if dir == s.jobsDir() { // that one is locked already
			clearOld(dir, now.Add(-keptNotes))
		} else if l, err := lockPlace(strings.TrimSuffix(dir, ".jobs") + ".lock"); err == nil && l != nil {
			clearOld(dir, now.Add(-keptNotes))
			l.release() // who shares that place next waits no longer than for this
		}
	}
}

// clearOld removes what was not written to since, and the folder if nothing else is in it.
func clearOld(dir string, since time.Time) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return // it is gone
	}
	for _, e := range all {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(since) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // tried again by the next one
		}
	}
	_ = os.Remove(dir) // fails where something is left
}
