package troupe_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/tools"
)

func wantCode(t *testing.T, doing string, err error, code string) {
	t.Helper()
	var f *troupe.Failure
	if !errors.As(err, &f) || f.GetCode() != code {
		t.Errorf("%s: %v, want code %s", doing, err, code)
	}
}

func TestAFullDiskRefusesWhatIsNewLetsTurnsEndAndIsForgottenWhenThereIsRoom(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	dir := t.TempDir()
	store, err := badger.Open(t.Context(), badger.Options{
		Dir: troupe.StoreDir(dir), Ballast: -1, RefuseTurnsBelow: 1000, RefuseAppendsBelow: 100,
		FreeSpace: func(string) (uint64, error) { return free.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	type none struct{}
	fill := tool(t, "fill", messages.Effect_AT_MOST_ONCE, func(*tools.Context, none) (*tools.Result, error) {
		free.Store(999)
		return &tools.Result{Content: "the disk is full"}, nil
	})
	asks := say(func(req *model.Request) (string, []*messages.ToolCall) {
		if last := req.Prompt.Messages[len(req.Prompt.Messages)-1].Text; last == "fill it" {
			return "", []*messages.ToolCall{{Id: "c1", Name: "fill", Arguments: "{}"}}
		}
		return "done", nil
	})
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks, Tools: []troupe.Tool{fill}, Store: store, DataDir: dir})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Run(ctx, "fill it"); err != nil || res.Text != "done" {
		t.Fatalf("the turn that was begun before: %v, %v", res, err)
	}
	_, err = s.Run(ctx, "more")
	wantCode(t, "a new turn", err, messages.CodeFull)
	_, err = rt.Session(ctx, troupe.SessionOptions{})
	wantCode(t, "a new session", err, messages.CodeFull)
	_, err = s.Call(ctx, "fill", none{})
	wantCode(t, "a new call", err, messages.CodeFull)
	if h, err := s.History(ctx); err != nil || len(h.GetTurns()) != 1 {
		t.Errorf("reading on a full disk: %v, %v", h, err)
	}
	free.Store(1 << 30)
	if res, err := s.Run(ctx, "more"); err != nil || res.Text != "done" {
		t.Errorf("with room again: %v, %v", res, err)
	}
}

func TestAStoreInMemoryHasNoBackup(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	wantCode(t, "backup", rt.Backup(ctx, &bytes.Buffer{}, nil), messages.CodeBadRequest)
}

func TestAnIndexEntryThatLeadsNowhereIsFound(t *testing.T) {
	for key, want := range map[string]string{
		"ses/ses_1": "ses/ses_1", "wrk/ses_1/wrk_2": "wrk/wrk_2", "other/x": "",
	} {
		if got := troupe.NeededStream(key); got != want {
			t.Errorf("%s needs %q, want %q", key, got, want)
		}
	}
}

func TestSessionsOfWhichNothingIsLeftToDoAreDeletedForTheirAge(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	dir := t.TempDir()
	open := func(o troupe.Options) (*troupe.Runtime, context.Context) {
		t.Helper()
		o.Model, o.DataDir, o.Now = echo(), dir, clock
		return runtimeOf(t, o)
	}
	ids := map[string]string{}
	rt, ctx := open(troupe.Options{})
	begin := func(name string) *troupe.Session {
		t.Helper()
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(ctx, name); err != nil {
			t.Fatal(err)
		}
		ids[name] = s.ID()
		return s
	}
	begin("old")
	begin("closed")
	begin("waiting for a timer")
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: ids["closed"], Command: &messages.ToSession_Close{Close: &messages.CloseSession{}}}); err != nil {
		t.Fatal(err)
	}
	_, err := rt.Ask(ctx, &messages.ToSession{SessionId: ids["waiting for a timer"], Command: &messages.ToSession_SetTimer{SetTimer: &messages.SetTimer{
		DueUnixMs: clock().Add(1000 * 24 * time.Hour).UnixMilli(), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "wake"}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "homes", ids["old"])
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	now.Add(int64(20 * 24 * time.Hour / time.Second))
	begin("young")
	if gone, err := rt.Forget(ctx, clock().Add(-time.Hour)); err != nil || len(gone) > 1 {
		t.Errorf("what is in memory: %q, %v", gone, err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}

	rt, ctx = open(troupe.Options{Retention: 10 * 24 * time.Hour})
	left := func() (names []string) {
		t.Helper()
		m, err := rt.Ask(ctx, &messages.ListSessions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, id := range ids {
			for _, s := range m.(*messages.Sessions).GetSessions() {
				if s.GetId() == id {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		return names
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	homeLeft := func() bool { _, err := os.Stat(home); return err == nil }
	for slices.Contains(left(), "old") || homeLeft() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the old session, or its home, stays")
		}
	}
	if got := left(); !slices.Equal(got, []string{"waiting for a timer", "young"}) {
		t.Errorf("left are %q", got)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt, ctx = open(troupe.Options{})
	v, err := rt.Ask(ctx, &messages.Verify{})
	if err != nil || len(v.(*messages.Verified).GetFindings()) != 0 || v.(*messages.Verified).GetStreams() != 4 {
		t.Errorf("afterwards: %v, %v", v, err)
	}
}
