package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestAWorkerThatStopsKeepsItsJournalUntilWhatIsWrittenOfItIs: a snapshot that is under way, whether it leaves one more or not.
func TestAWorkerThatStopsKeepsItsJournalUntilWhatIsWrittenOfItIs(t *testing.T) {
	for name, tail := range map[string]int{"too short for one more": 0, "long enough for one more": snapshotRecords} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			t.Cleanup(func() { _ = store.Close() })
			svc := &Services{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), pool: act.NewPool(), running: &sync.WaitGroup{}}
			t.Cleanup(svc.pool.Close)
			journal, err := persistence.OpenJournal(context.Background(), store, messages.WorkerStream("w"), "", "test")
			if err != nil {
				t.Fatal(err)
			}
			w := newWorker(svc)
			n := &snapshots{records: tail}
			w.journal, w.state, w.snaps = journal, conversation.Live(), n
			n.writing.Store(true)
			w.lastSnapshot(nil)
			w.release()
			svc.running.Wait()
			if err := journal.Err(); err != nil {
				t.Errorf("before the one that is under way is written: %v", err)
			}
			n.written()
			if err := journal.Err(); !errors.Is(err, persistence.ErrFenced) {
				t.Errorf("once it is written the journal is not given back: %v", err)
			}
		})
	}
}
