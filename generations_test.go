package troupe_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// generations lists the ids of a session's generations as they were begun.
func generations(t *testing.T, store persistence.Store, session string) (ids []string) {
	t.Helper()
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		if g, ok := f.(*messages.GenerationStarted); ok {
			ids = append(ids, g.GetGenId())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestNoGenerationHasTheIdOfAnother: neither of its own conversation, which may have come from another store, where epochs
// were counted from one as well, nor of any other.
func TestNoGenerationHasTheIdOfAnother(t *testing.T) {
	a, b := newPlace(t, busy()), newPlace(t, busy())
	var sessions []string
	for range 4 {
		s, err := a.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		prompt(t, s, "here")
		prompt(t, s, "and here")
		sessions = append(sessions, s.ID())
	}
	seen := make(map[string]string)
	note := func(store persistence.Store, session string) {
		t.Helper()
		ids := generations(t, store, session)
		if len(ids) < 4 {
			t.Errorf("%d generations in %s", len(ids), session)
		}
		for _, id := range ids {
			if was := seen[id]; was != "" {
				t.Errorf("%s of %s is of %s, too", id, session, was)
			}
			seen[id] = session
		}
	}
	for _, id := range sessions {
		file := export(t, a, id)
		for _, in := range []*messages.Imported{load(t, b, file, &messages.ImportSession{}), load(t, b, file, &messages.ImportSession{NewId: true})} {
			s, err := b.Open(t.Context(), in.GetSession().GetId())
			if err != nil {
				t.Fatal(err)
			}
			prompt(t, s, "there")
			prompt(t, s, "and there")
			note(b.store, s.ID())
		}
	}
}
