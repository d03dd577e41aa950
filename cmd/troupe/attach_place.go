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
type placeLock struct {
	file *os.File
	said *os.File // locked for as long as what stands in file is this program; nil: it does not stand there
}

const (
	stealTime = 30 * time.Second       // for the program before to end what it runs, and itself
	stealLook = 100 * time.Millisecond // between two looks whether it has
	sayLook   = time.Millisecond       // between two tries to say whose a place is
	keptNotes = 30 * 24 * time.Hour    // of jobs, that no server has asked for
)

// Suffixes of the files beside a lock.
const (
	saidSuffix  = ".said"  // locked while what stands in the lock counts
	stealSuffix = ".steal" // locked by the one that asks for the place: a second word would cut off what ends in order
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
	return &placeLock{file: f}, nil
}

// of writes down whose the lock is, for who wants it, and says then that it counts: what is read there before is another program's, which may be a process of anybody's by now.
// Who looks whether it counts keeps that from being said for a moment.
func (l *placeLock) of(ctx context.Context, pid int) error {
	if _, err := l.file.WriteAt(fmt.Appendf(nil, "%d\n", pid), 0); err != nil {
		return err
	}
	said, err := os.OpenFile(l.file.Name()+saidSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, stealTime)
	defer cancel()
	for {
		mine, err := lockFile(said)
		if mine {
			l.said = said
			return nil
		}
		if err == nil {
			err = pauseIn(within, sayLook)
		}
		if err != nil {
			_ = said.Close() // nothing was written
			return err
		}
	}
}

// pauseIn waits a while.
func pauseIn(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ending says that the program is about to give the place back: it is waited for, and not asked again.
func (l *placeLock) ending() {
	if l.said != nil {
		_ = l.said.Close() // what stands there counts no longer; it may be closed already
	}
}

// release gives the place back. The files stay: without them two programs could each have one of that name.
func (l *placeLock) release() {
	l.ending()
	_ = l.file.Close() // nothing was written that could be lost
}

// asking is who may ask the program that has the place to end; nil: another one has asked it.
func (s *sharing) asking() (*os.File, error) {
	f, err := os.OpenFile(s.lockName()+stealSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	mine, err := lockFile(f)
	if err != nil || !mine {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// claim takes the place, or says who has it. With --steal that one is asked to end, and waited for: its calls and its jobs end, and are told of, before any is given out here.
// Who has not written down yet that it is there is waited for, too: it may only be clearing up.
func (s *sharing) claim(ctx context.Context) (*placeLock, error) {
	asked := 0
	within, cancel := context.WithTimeout(ctx, stealTime)
	defer cancel()
	for {
		l, err := lockPlace(s.lockName())
		if err == nil && l != nil {
			if err = l.of(ctx, os.Getpid()); err != nil {
				l.release()
			}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, &exitError{code: exitIO, what: fmt.Sprintf("%s cannot be shared: %v", visible(s.dir), err), err: err}
		case l != nil:
			return l, nil
		}
		pid := s.holder()
		if asked > 0 && pid > 0 && pid != asked {
			return nil, s.taken(pid, "it has taken the place first, of the one that was asked to end (process "+strconv.Itoa(asked)+"); take it again with --steal")
		}
		if !s.f.steal && pid > 0 {
			return nil, s.taken(pid, "end that one, or take its place with --steal")
		}
		if pid > 0 && pid != asked {
			again, done, err := s.ask(pid)
			if err != nil {
				return nil, err
			}
			if again {
				continue // it has ended meanwhile, and the process may be another one
			}
			defer done() // once: from then on nobody else is asked
			asked = pid
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
			return nil, s.taken(asked, fmt.Sprintf("it was asked to end and has not within %v; end it", stealTime))
		}
	}
}

// ask asks the program that has the place to end, unless another one has: that is waited for likewise. done is for when the place is taken, or given up.
func (s *sharing) ask(pid int) (again bool, done func(), err error) {
	f, err := s.asking()
	if err != nil {
		return false, nil, &exitError{code: exitIO, what: fmt.Sprintf("%s cannot be shared: %v", visible(s.dir), err), err: err}
	}
	if f == nil {
		s.a.note("troupe: waits for the program that shares %s to end (process %d): another one has asked it to", visible(s.dir), pid)
		return false, func() {}, nil
	}
	p, err := os.FindProcess(pid)
	if s.holder() != pid {
		_ = f.Close() // nothing was written
		return true, nil, nil
	}
	s.a.note("troupe: asks the program that shares %s to end (process %d)", visible(s.dir), pid)
	if err != nil || askToEnd(p) != nil {
		_ = f.Close() // nothing was written
		return false, nil, s.taken(pid, "end that one: this program cannot")
	}
	return false, func() { _ = f.Close() }, nil
}

// holder is the process that has the place, as it wrote down; 0 when it has not yet.
func (s *sharing) holder() int {
	said, err := os.Open(s.lockName() + saidSuffix)
	if err != nil {
		return 0
	}
	defer func() { _ = said.Close() }() // nothing is written, and the lock goes with it
	if free, err := lockShared(said); err != nil || free {
		return 0 // what stands there is of one that was killed
	}
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
