package troupetest

import (
	"errors"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestARefusedAppendIsNothingThatALifeLeaves has one that expects another record, and one that is kept.
func TestARefusedAppendIsNothingThatALifeLeaves(t *testing.T) {
	m := newMortal(t, memory.New(), 2)
	m.heard = true
	lease, err := m.Claim(t.Context(), "wrk/a", "test")
	if err != nil {
		t.Fatal(err)
	}
	b := persistence.Batch{Lease: lease, Expect: 7, Records: []*messages.Record{{Type: 1}}}
	if _, err := m.Append(t.Context(), b); !errors.Is(err, persistence.ErrConflict) {
		t.Fatalf("an append that expects another record: %v", err)
	}
	b.Expect = lease.Next
	if _, err := m.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	after, err := m.left()
	if err != nil {
		t.Fatal(err)
	}
	newMortal(t, after, everything)
	if head, err := after.Head(t.Context(), "wrk/a"); err != nil || head != 1 {
		t.Errorf("left are %d records, %v", head, err)
	}
}
