package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/troupe-dev/troupe/config"
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
