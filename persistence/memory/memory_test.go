package memory_test

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/persistence/persistencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	persistencetest.Run(t,
		func(t testing.TB) persistence.Store {
			s := memory.New()
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		func(t testing.TB, s persistence.Store) persistence.Store {
			again := s.(*memory.Store).Reopen()
			t.Cleanup(func() { _ = again.Close() })
			return again
		})
}

func TestCutLeavesWhatTheFirstAppendsMade(t *testing.T) {
	s, ctx := memory.New(), context.Background()
	defer s.Close()
	j, err := persistence.OpenJournal(ctx, s, "wrk/a", "s1", "test")
	if err != nil {
		t.Fatal(err)
	}
	const appends = 5
	for i := range appends {
		done := make(chan error, 1)
		j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{
			Records: []*messages.Record{{Body: []byte{byte(i)}}, {}},
			Index:   []persistence.IndexOp{{Key: fmt.Sprint("i", i)}},
		})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if s.Appends() != appends {
		t.Fatalf("%d appends, want %d", s.Appends(), appends)
	}
	for n := range appends + 1 {
		cut, err := s.Cut(n)
		if err != nil {
			t.Fatal(err)
		}
		head, err := cut.Head(ctx, "wrk/a")
		entries := 0
		indexErr := cut.Index(ctx, "", func(string, []byte) error { entries++; return nil })
		if err != nil || indexErr != nil || head != uint64(2*n) || entries != n {
			t.Errorf("cut after %d: head %d, %d index entries, %v, %v", n, head, entries, err, indexErr)
		}
		l, err := cut.Claim(ctx, "wrk/a", "test")
		if err != nil || l.Epoch <= j.Lease().Epoch {
			t.Errorf("claim after the cut: %+v, %v; the lease before had epoch %d", l, err, j.Lease().Epoch)
		}
		_ = cut.Close()
	}
	if _, err := s.Cut(appends + 1); err == nil {
		t.Error("a cut after more appends than there are was made")
	}
}

// TestAStoreThatWasReopenedLeavesItsContentAlone: who still holds a lease of the old one lets go of it while the new one is in use. The race detector looks on.
func TestAStoreThatWasReopenedLeavesItsContentAlone(t *testing.T) {
	old := memory.New()
	l, err := old.Claim(t.Context(), "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	again := old.Reopen()
	defer again.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		old.Release(l)
	}()
	if _, err := again.Claim(t.Context(), "wrk/a", "test"); err != nil {
		t.Error(err)
	}
	<-done
}
