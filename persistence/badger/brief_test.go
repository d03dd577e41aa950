package badger

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A process that does one thing and ends merges no tables, until there are many; what it wrote is read by the next.
func TestBriefProcessesLeaveTheTablesAlone(t *testing.T) {
	dir := t.TempDir()
	most := 0
	for n := range mergeFrom + 4 {
		s, err := Open(t.Context(), Options{Dir: dir, Ballast: -1, Brief: true})
		if err != nil {
			t.Fatal(err)
		}
		if merges := s.db.Opts().NumCompactors > 0; merges != (s.firstLevel >= mergeFrom) {
			t.Errorf("opening %d with %d tables: it merges: %v", n, s.firstLevel, merges)
		}
		most = max(most, s.firstLevel)
		j, err := persistence.OpenJournal(t.Context(), s, fmt.Sprint("wrk/", n), "ses", "me")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		r, err := messages.NewRecord(&messages.Panicked{Reason: "x"}, "")
		if err != nil {
			t.Fatal(err)
		}
		j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{Records: []*messages.Record{r}})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if most < mergeFrom {
		t.Errorf("there were never more than %d tables", most)
	}
	s, err := Open(t.Context(), Options{Dir: dir, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for n := range mergeFrom + 4 {
		found := 0
		if err := s.Read(t.Context(), fmt.Sprint("wrk/", n), 1, func(persistence.Entry) error { found++; return nil }); err != nil || found != 1 {
			t.Errorf("stream %d in %s: %d records, %v", n, filepath.Base(dir), found, err)
		}
	}
}
