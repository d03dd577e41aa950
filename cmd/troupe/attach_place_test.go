package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// placed is a place of a session, and what is said about it.
func placed(t *testing.T, steal bool) (s *sharing, said *strings.Builder) {
	t.Helper()
	said = &strings.Builder{}
	return &sharing{
		a: &app{err: said}, f: &attachFlags{session: "ses_1", steal: steal}, loaded: &config.Loaded{Dirs: config.Folders{State: t.TempDir()}},
		addr: &workspace.Address{Canonical: "local:/a"}, dir: "/a", uri: "lap:/a",
	}, said
}

// A place that is only cleared up is waited for, and whose it was before is asked for nothing: that process may be another by now.
func TestAPlaceThatIsClearedUpIsWaitedFor(t *testing.T) {
	for _, steal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, said := placed(t, steal)
			if err := os.MkdirAll(filepath.Dir(s.lockName()), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.lockName(), []byte("2147483647\n"), 0o600); err != nil { // of one that was killed
				t.Fatal(err)
			}
			clearing, err := lockPlace(s.lockName())
			if err != nil || clearing == nil {
				t.Fatal(clearing, err)
			}
			type claimed struct {
				l   *placeLock
				err error
			}
			got := make(chan claimed, 1)
			go func() {
				l, err := s.claim(t.Context())
				got <- claimed{l, err}
			}()
			synctest.Wait() // it has looked once
			clearing.release()
			x := <-got
			if x.err != nil || x.l == nil || said.Len() > 0 {
				t.Fatalf("steal %v: %v; it says %q", steal, x.err, said)
			}
			x.l.release()
		})
	}
}

// TestWhoseAPlaceWasIsAskedForNothing: a program that was killed stands there still when the next one has the lock and has not come to wipe that; its number is
// another process's by now.
func TestWhoseAPlaceWasIsAskedForNothing(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	bystander := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Skipf("there is no sleep here: %v", err)
	}
	go func() {
		_ = bystander.Wait() // it is killed, here or by who must not
		end()
	}()
	defer func() {
		_ = bystander.Process.Kill() // it may have ended, which is told
		<-ended.Done()
	}()
	s, said := placed(t, true)
	if err := os.MkdirAll(filepath.Dir(s.lockName()), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.lockName(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err = fmt.Fprintln(f, bystander.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.lockName()+saidSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if mine, err := lockFile(f); err != nil || !mine {
		t.Skipf("nothing is locked here: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*stealLook) // it looks more than once
	defer cancel()
	if _, err := s.claim(ctx); err == nil || said.Len() > 0 || ended.Err() != nil {
		t.Errorf("%v; it says %q, and who is no part of it ends: %v", err, said, ended.Err())
	}
	dead := &placeLock{file: f}
	if err := dead.of(t.Context(), bystander.Process.Pid); err != nil { // one that counts is asked
		t.Fatal(err)
	}
	if s.holder() != bystander.Process.Pid {
		t.Errorf("process %d has the place, and not %d", s.holder(), bystander.Process.Pid)
	}
	dead.release()
	if l, err := s.claim(t.Context()); err != nil || l == nil {
		t.Errorf("what is given back is not taken: %v", err)
	} else {
		l.release()
	}
}

func TestAPlaceThatIsNeverGivenBackIsWaitedForNoLongerThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := placed(t, false)
		l, err := lockPlace(s.lockName())
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		defer l.release()
		e := new(exitError)
		if _, err := s.claim(t.Context()); !errors.As(err, &e) || e.code != exitAgain || e.hint != "end that one" || !strings.Contains(e.what, s.lockName()) {
			t.Errorf("%+v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.claim(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// TestAnInterruptedAttachSaysSo, and nothing of a sandbox or a disk, wherever it is before it shares the folder.
func TestAnInterruptedAttachSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, _ := placed(t, false)
	s.loaded.Config, s.loaded.Dirs.Cache = &config.Config{}, t.TempDir()
	s.loaded.Config.Data.Dir = t.TempDir()
	if err := os.MkdirAll(filepath.Dir(s.lockName()), 0o700); err != nil {
		t.Fatal(err)
	}
	said, err := os.OpenFile(s.lockName()+saidSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	if mine, err := lockShared(said); err != nil || !mine {
		t.Fatal(mine, err)
	}
	for mode, exec := range map[string]string{"": "bwrap", tools.ModeContainer: "auto", "local": "auto"} {
		s.mode, s.loaded.Config.Sandbox.Exec, s.loaded.Config.Sandbox.Image = mode, exec, "none"
		_, err := s.sandbox(ctx)
		if e := classify(err); e.code != exitInterrupted || !errors.Is(err, context.Canceled) {
			t.Errorf("sandbox of mode %q: %d, %v", mode, e.code, err)
		}
	}
	l, err := s.claim(ctx)
	if l != nil {
		l.release()
		t.Skip("nothing is locked here")
	}
	if e := classify(err); e.code != exitInterrupted || !errors.Is(err, context.Canceled) {
		t.Errorf("place: %d, %v", e.code, err)
	}
}

// TestWhoEndsIsNotAskedToAgain: a second word would end it at once, and what it runs with it. Neither is one that another program has asked.
func TestWhoEndsIsNotAskedToAgain(t *testing.T) {
	for how, prepare := range map[string]func(*sharing, *placeLock) (undo func() error, err error){
		"it is about to end": func(_ *sharing, l *placeLock) (func() error, error) {
			l.ending()
			return func() error { return nil }, nil
		},
		"another one has asked": func(s *sharing, _ *placeLock) (func() error, error) {
			f, err := s.asking()
			if f == nil {
				return nil, errors.Join(err, errors.New("it is asked already"))
			}
			return f.Close, err
		},
	} {
		bystander := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := bystander.Start(); err != nil {
			t.Skipf("there is no sleep here: %v", err)
		}
		ended := make(chan struct{})
		go func() {
			_ = bystander.Wait() // it is killed, here or by who must not
			close(ended)
		}()
		s, said := placed(t, true)
		l, err := lockPlace(s.lockName())
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		if err := l.of(t.Context(), bystander.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if s.holder() != bystander.Process.Pid {
			l.release()
			t.Skip("nothing is locked here")
		}
		undo, err := prepare(s, l)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*stealLook) // it looks more than once
		if _, err := s.claim(ctx); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(said.String(), "troupe: asks") {
			t.Errorf("%s: %v: %s", how, err, said)
		}
		cancel()
		select {
		case <-ended:
			t.Errorf("%s: it was asked again", how)
		default:
		}
		l.release()
		if err := undo(); err != nil {
			t.Error(err)
		}
		if l, err := s.claim(t.Context()); err != nil || l == nil {
			t.Errorf("%s: what is given back is not taken: %v", how, err)
		} else {
			l.release()
		}
		_ = bystander.Process.Kill() // it may have ended, which is told
		<-ended
	}
}
