package troupe_test

import (
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors/actortest"
)

func TestAReminderBecomesATurnAndCanBeTakenBack(t *testing.T) {
	clock := actortest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	store := memoryOf(t)
	t.Cleanup(func() { _ = store.Close() })
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Clock: clock, Store: store, DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := clock.Now().Add(2 * time.Hour)
	tea, err := s.Remind(ctx, at, "tea", troupe.RemindOptions{})
	if err != nil || tea.State != "set" || !tea.At.Equal(at) || tea.Text != "tea" || tea.SkipMissed {
		t.Fatalf("%+v %v", tea, err)
	}
	if _, err := s.Remind(ctx, at.Add(-time.Hour), "cake", troupe.RemindOptions{ID: "cake", SkipMissed: true}); err != nil {
		t.Fatal(err)
	}
	l, err := s.Timers(ctx)
	if err != nil || len(l) != 2 || l[0].ID != "cake" || !l[0].SkipMissed || l[1].ID != tea.ID {
		t.Errorf("%v %v", l, err)
	}
	if err := s.CancelTimer(ctx, "cake"); err != nil {
		t.Error(err)
	}
	if err := s.CancelTimer(ctx, "cake"); err == nil {
		t.Error("cancelled twice")
	}
	actortest.Until(t, "it has fired", func() bool {
		clock.Advance(30 * time.Second)
		l, err := s.Timers(ctx)
		return err != nil || len(l) == 0
	})
	r, err := s.Wait(ctx)
	if err != nil || r.Text != "you said tea" {
		t.Errorf("%+v %v", r, err)
	}
}
