package actors

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestAJournalThatDoesNotFoldIsNotHandedOver: its worker opens it by itself, and finds out.
func TestAJournalThatDoesNotFoldIsNotHandedOver(t *testing.T) {
	store := memory.New()
	defer store.Close()
	j, err := persistence.OpenJournal(t.Context(), store, messages.WorkerStream("wk_1"), "ses_1", "test")
	if err != nil {
		t.Fatal(err)
	}
	facts := []proto.Message{&messages.Suspended{}} // nothing was made that it could be of
	recs, err := records(facts)
	if err != nil {
		t.Fatal(err)
	}
	if o := bear(j, facts, recs, 1); o != nil {
		t.Errorf("%v is handed over", o.state)
	}
	if !errors.Is(j.Err(), persistence.ErrFenced) {
		t.Errorf("it is kept by nobody, and not released: %v", j.Err())
	}
}
