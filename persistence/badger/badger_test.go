package badger

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/persistencetest"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	// An Open that fails half-way leaves goroutines of the database behind, and two tests make it
	// fail: TestClosedStoreLeavesNoGoroutine looks for those of a store that was open.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreAnyFunction("github.com/dgraph-io/badger/v4.(*DB).updateSize"),
		goleak.IgnoreAnyFunction("github.com/dgraph-io/badger/v4/y.(*WaterMark).process"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2.(*Cache[...]).processItems"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2.(*defaultPolicy[...]).processItems"),
	)
}

func TestClosedStoreLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "s", 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
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

func mustMarshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
