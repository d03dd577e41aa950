package troupe_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/tools"
)

const canary = "sk-Canary-7f3a7f3a/7f3a+7f3a"

// seen collects texts from many goroutines.
type seen struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *seen) add(v ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(&s.b, v...)
}

// leaks fails the test when the canary stands in the texts, in any form that somebody can read back.
func (s *seen) leaks(t *testing.T, where string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.b.String()
	if text == "" {
		t.Errorf("%s: nothing was looked at", where)
	}
	bare := strings.Join(strings.Fields(text), "")
	for _, form := range []string{"Canary", "7f3a7f3a", hex.EncodeToString([]byte("Canary")), base64.RawStdEncoding.EncodeToString([]byte("sk-Canary-7f"))[1:]} {
		if i := strings.Index(bare, form); i >= 0 {
			t.Errorf("%s: %.300s", where, bare[max(0, i-150):])
		}
	}
}

// pieces is a model that answers in pieces of three bytes.
type pieces struct {
	say
	asked *seen
}

func (p pieces) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	for _, m := range req.Prompt.Messages {
		p.asked.add(m.Text, m.ToolCalls)
	}
	p.asked.add(req.Prompt.System)
	return func(yield func(model.Event, error) bool) {
		for ev, err := range p.say.Stream(ctx, req) {
			for ev.Kind == model.Text && ev.Text != "" {
				n := min(3, len(ev.Text))
				if !yield(model.Event{Kind: model.Text, Text: ev.Text[:n]}, nil) || !yield(model.Event{Kind: model.Reasoning, Text: ev.Text[:n]}, nil) {
					return
				}
				ev.Text = ev.Text[n:]
			}
			if (ev.Kind != model.Text || err != nil) && !yield(ev, err) {
				return
			}
		}
	}
}

// everyRecord is all that a store keeps of sessions and workers, as text.
func everyRecord(t *testing.T, s persistence.Store) *seen {
	t.Helper()
	all := &seen{}
	err := s.Streams(t.Context(), "", func(stream string) error {
		return s.Read(t.Context(), stream, 1, func(e persistence.Entry) error {
			read := messages.WorkerFactIn
			if strings.HasPrefix(stream, "ses/") {
				read = messages.SessionFactIn
			}
			m, err := read(e.Record)
			if err != nil {
				return err
			}
			all.add(prototext.Format(m))
			return nil
		})
	})
	if err == nil {
		err = s.Index(t.Context(), "", func(key string, value []byte) error {
			all.add(key, string(value))
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestASecretReachesNoJournalNoWatcherNoModelAndNoResult(t *testing.T) {
	var ran seen
	leaky := tool(t, "leaky", messages.Effect_AT_MOST_ONCE, func(tc *tools.Context, a struct {
		Text string `json:"text" desc:"Any text."`
	},
	) (*tools.Result, error) {
		ran.add("arguments:", a.Text)
		tc.Progress(&messages.Progress{Done: 1, Unit: "bytes", Text: "so far: " + canary})
		if a.Text == "fail" {
			return nil, tools.Errorf(tools.CodeInternalError, "the server said: %s", canary).With("header", "Bearer "+canary)
		}
		return &tools.Result{
			Content: "plain " + canary + " coded " + base64.StdEncoding.EncodeToString([]byte("user:"+canary)) + fmt.Sprintf(" bytes % x", canary),
			Details: map[string]any{"env": []string{"KEY=" + canary}}, Meta: map[string]any{"url": "http://h/<" + canary + ">"},
			Diff: "+" + canary,
		}, nil
	})
	secret := folder(t, map[string]string{"AGENTS.md": "The key is " + canary, ".env": strings.Repeat("x", 1990) + canary + "\nKEY=" + canary + "\n"})
	escaped := strings.ReplaceAll(canary, "C", `\u0043`)
	calls := []*messages.ToolCall{
		{Id: "1", Name: "leaky", Arguments: `{"text":"` + escaped + `"}`},
		{Id: "2", Name: "leaky", Arguments: `{"text":"fail"}`},
		{Id: "3", Name: "read_file", Arguments: `{"path":".env"}`},
		{Id: "4", Name: "grep", Arguments: `{"pattern":"xxx|KEY"}`},
		{Id: "5", Name: "write_file", Arguments: `{"path":"out.txt","content":"` + canary + `"}`},
		{Id: "6", Name: canary, Arguments: `{"broken": "` + canary},
	}
	asked, watched, store, data := &seen{}, &seen{}, memoryOf(t), t.TempDir()
	answer := say(func(req *model.Request) (string, []*messages.ToolCall) {
		if req.Prompt.Messages[len(req.Prompt.Messages)-1].Role == messages.User {
			return "I found " + canary + ", see.", calls
		}
		return "The key is " + canary, nil
	})
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: pieces{answer, asked}, Tools: []troupe.Tool{leaky}, Store: store, DataDir: data,
		Redact: config.NewRedactor(config.NewSecret(canary)),
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: secret, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	deltas := ""
	for ev, err := range s.Stream(ctx, "use the key "+canary+" please") {
		if err != nil {
			t.Fatal(err)
		}
		watched.add(prototext.Format(ev))
		if ev.GetType() == messages.EventTextDelta {
			deltas += ev.GetText()
		}
	}
	res, err := s.Wait(ctx)
	if err != nil || res.Text != "The key is [redacted]" {
		t.Errorf("the answer is %v, %v", res, err)
	}
	if deltas != "I found [redacted], see.The key is [redacted]" {
		t.Errorf("the deltas are %q", deltas)
	}
	called, err := s.Call(ctx, "leaky", map[string]any{"text": canary})
	if err != nil {
		t.Fatal(err)
	}
	watched.add(prototext.Format(called))
	if _, err := s.Remind(ctx, time.Now().Add(time.Hour), "use "+canary, troupe.RemindOptions{}); err != nil {
		t.Fatal(err)
	}
	watched.leaks(t, "what was watched and answered")
	asked.leaks(t, "what the model was sent")
	ran.leaks(t, "what the tools were given")
	everyRecord(t, store).leaks(t, "what was written down")
	written, err := os.ReadFile(filepath.Join(secret, "out.txt"))
	if err != nil || string(written) != "[redacted]" {
		t.Errorf("the file holds %q, %v", written, err)
	}
}

func TestAFailureThatRepeatsTheKeyIsWrittenWithoutIt(t *testing.T) {
	store := memoryOf(t)
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: failing{&model.Error{Class: model.Auth, Message: "bad key " + canary, Hint: "not " + canary}}, Store: store, DataDir: t.TempDir(),
		Redact: config.NewRedactor(config.NewSecret(canary)),
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(ctx, "go")
	if err != nil || res.Outcome != "error" || !strings.Contains(res.Reason, "bad key [redacted]") {
		t.Errorf("ended with %v, %v", res, err)
	}
	everyRecord(t, store).leaks(t, "what was written down")
}

type failing struct{ err error }

func (f failing) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if yield(model.Event{Kind: model.Text, Text: "half of it: " + canary[:14]}, nil) {
			yield(model.Event{}, f.err)
		}
	}
}

func TestAFileThatHoldsASecretIsNotOverwrittenByWhatWasShownOfIt(t *testing.T) {
	dir := folder(t, map[string]string{".env": "A=1\nKEY=" + canary + "\n"})
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: callOnce(call("write_file", `{"path":".env","content":"A=2\nKEY=[redacted]\n"}`),
			call("edit_file", `{"path":".env","edits":[{"old_string":"A=1","new_string":"A=2"}]}`)),
		Redact: config.NewRedactor(config.NewSecret(canary)),
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Call(ctx, "read_file", map[string]any{"path": ".env"}); err != nil || !strings.Contains(r.GetContent(), "KEY=[redacted]") {
		t.Fatalf("read %v, %v", r, err)
	}
	res, err := s.Run(ctx, "go")
	if err != nil || !strings.Contains(res.Text, "holds secrets") {
		t.Errorf("answered %v, %v", res, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, ".env")); string(text) != "A=2\nKEY="+canary+"\n" || err != nil {
		t.Errorf("the file holds %q, %v", text, err)
	}
}
