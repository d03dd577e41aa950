package troupe_test

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

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
