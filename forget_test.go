package troupe_test

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func forget(session string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}}}
}

// TestASessionIsDeletedForGood: one in the middle of a turn, with a timer, a waiting input, a second worker and a
// home; one that was closed, as a crash between the closing and the deleting leaves it. What another session said stays.
func TestASessionIsDeletedForGood(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("a long prompt ", 8<<10)
	asked := make(chan struct{}, 8)
	open := func() (*troupe.Runtime, context.Context) {
		return runtimeOf(t, troupe.Options{DataDir: dir, Model: slowFor{"wait", asked}})
	}
	rt, ctx := open()
	wait := func() {
		t.Helper()
		select {
		case <-asked:
		case <-ctx.Done():
			t.Fatal("the model is not asked")
		}
	}
	ids := map[string]string{}
	for _, name := range []string{"busy", "closed", "other"} {
		s, err := rt.Session(ctx, troupe.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(ctx, long); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "homes", s.ID()), 0o700); err != nil {
			t.Fatal(err)
		}
		ids[name] = s.ID()
	}
	s, err := rt.Open(ctx, ids["busy"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewWorker(ctx, troupe.WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	ask[*messages.TimerView](t, rt, &messages.ToSession{SessionId: ids["busy"], Command: &messages.ToSession_SetTimer{SetTimer: &messages.SetTimer{
		DueUnixMs: time.Now().Add(time.Hour).UnixMilli(), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "wake"}}},
	}}})
	for range 2 {
		ask[*messages.InputReply](t, rt, submitTo(ids["busy"], "wait"))
	}
	wait()
	ask[*messages.Ack](t, rt, &messages.ToSession{SessionId: ids["closed"], Command: &messages.ToSession_Close{Close: &messages.CloseSession{}}})
	left := filepath.Join(dir, "homes", messages.NewID(messages.SessionPrefix)) // of a deletion that was cut off long ago
	young := filepath.Join(dir, "homes", messages.NewID(messages.SessionPrefix))
	for _, home := range []string{left, young} {
		if err := os.MkdirAll(home, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(left, time.Now(), time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}

	rt, ctx = open()
	ask[*messages.Inputs](t, rt, &messages.ToSession{SessionId: ids["busy"], Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{}}})
	wait() // the turn goes on
	for _, name := range []string{"busy", "closed"} {
		ask[*messages.Ack](t, rt, forget(ids[name]))
		_, err := rt.Ask(ctx, forget(ids[name]))
		wantCode(t, "deleted again", err, messages.CodeNotFound)
		if _, err := os.Stat(filepath.Join(dir, "homes", ids[name])); err == nil {
			t.Errorf("the home of %s is left", name)
		}
	}
	for home, want := range map[string]bool{left: false, young: true, filepath.Join(dir, "homes", ids["other"]): true} {
		if _, err := os.Stat(home); (err == nil) != want {
			t.Errorf("home %s: %v", home, err)
		}
	}
	if got := ask[*messages.Sessions](t, rt, &messages.ListSessions{}).GetSessions(); len(got) != 1 || got[0].GetId() != ids["other"] {
		t.Errorf("listed are %v", got)
	}
	shown := ask[*messages.Shown](t, rt, &messages.Show{Id: ids["other"]}).GetTurns()
	if len(shown) != 1 || shown[0].GetInput() != long { // its blob was that of the others, too
		t.Errorf("of the other %d turns are left", len(shown))
	}
	if v := ask[*messages.Verified](t, rt, &messages.Verify{}); len(v.GetFindings()) != 0 || v.GetStreams() != 2 {
		t.Errorf("verify: %v", v)
	}
}

// slowFor answers, but the prompt that it is told never.
type slowFor struct {
	prompt string
	asked  chan<- struct{}
}

func (m slowFor) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Event, error] {
	ms := r.Prompt.Messages
	if ms[len(ms)-1].Text != m.prompt {
		return echo().Stream(ctx, r)
	}
	return func(yield func(model.Event, error) bool) {
		m.asked <- struct{}{}
		<-ctx.Done()
		yield(model.Event{}, context.Cause(ctx))
	}
}
