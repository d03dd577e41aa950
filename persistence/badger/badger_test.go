package badger

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/persistencetest"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// openIn opens a store without ballast, which tests have no use for.
func openIn(t testing.TB, dir string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: dir, Ballast: -1}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestBadgerKeepsTheContract(t *testing.T) {
	persistencetest.Run(t,
		func(t testing.TB) persistence.Store { return openIn(t, t.TempDir()) },
		func(t testing.TB, s persistence.Store) persistence.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openIn(t, s.(*Store).opts.Dir)
		})
}

func runChild() bool { return false }
