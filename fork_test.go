package troupe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence"
)

// served are scripted models, each behind an endpoint of its own, over real HTTP; the endpoints refuse
// what the strictest provider would.
type served struct {
	t      *testing.T
	models map[string]*openai.Model
	urls   map[string]string
}

func serveScripts(t *testing.T, scripts map[string]string) *served {
	t.Helper()
	s := &served{t: t, models: map[string]*openai.Model{}, urls: map[string]string{}}
	for name, text := range scripts {
		parsed, err := script.Parse(name+".yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(script.Handler(parsed, script.ServeOptions{}))
		t.Cleanup(srv.Close)
		m, err := openai.New(openai.Options{BaseURL: srv.URL + "/v1", MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		s.models[name], s.urls[name] = m, srv.URL
	}
	return s
}

func (s *served) Resolve(name string) (*troupe.ResolvedModel, error) {
	if name == "" {
		name = "first"
	}
	m := s.models[name]
	if m == nil {
		return nil, fmt.Errorf("model %q is not configured: did you mean first or second?", name)
	}
	return &troupe.ResolvedModel{Model: m, Provider: "http", Name: name}, nil
}

func (s *served) Providers() []string { return []string{"http"} }

// stats is what an endpoint counted.
func (s *served) stats(name string) script.Stats {
	s.t.Helper()
	res, err := http.Get(s.urls[name] + "/stats")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var out script.Stats
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// twoTurns is a session with calls side by side, one that fails, an edit, and a second turn.
const twoTurns = `
name: first
rules:
  - match: '^work'
    steps:
      - text: I look.
        tool_calls:
          - {name: read_file, arguments: {path: a.txt}}
          - {name: read_file, arguments: {path: none.txt}}
          - {name: write_file, arguments: {path: b.txt, content: b}}
      - tool_calls:
          - {name: edit_file, arguments: {path: a.txt, edits: [{old_string: one, new_string: two}]}}
      - text: All done.
  - match: '^more'
    steps:
      - tool_calls: [{name: list_files, arguments: {path: .}}]
      - text: That is all.
`

const other = `
name: second
rules:
  - match: '^next'
    steps:
      - tool_calls: [{name: list_files, arguments: {path: .}}]
      - text: 'The other one goes on.'
  - reply: {text: 'The other one answers ${user}.'}
`

func prompt(t *testing.T, s *troupe.Session, text string) *troupe.Result {
	t.Helper()
	r, err := s.Run(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// records are a session's, as the store has them.
func records(t *testing.T, store persistence.Store, session string) []*messages.Record {
	t.Helper()
	var out []*messages.Record
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if e.Cursor != uint64(len(out)+1) {
			t.Fatalf("cursor %d after %d", e.Cursor, len(out))
		}
		out = append(out, e.Record)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnotherModelGoesOnFromAnyRecord(t *testing.T) {
	m := serveScripts(t, map[string]string{"first": twoTurns, "second": other})
	store := memoryOf(t)
	t.Cleanup(func() { _ = store.Close() })
	rt, ctx := runtimeOf(t, troupe.Options{Models: m, Store: store, DataDir: t.TempDir()})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Model: "first"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"work", "more"} {
		if r := prompt(t, s, p); r.Outcome != "done" {
			t.Fatalf("%s: %+v", p, r)
		}
	}
	before := records(t, store, s.ID())
	if len(before) < 25 {
		t.Fatalf("%d records: the session does not do what this test is about", len(before))
	}
	for at := uint64(1); at <= uint64(len(before)); at++ {
		f, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{At: at, Model: "second"})
		if err != nil {
			t.Fatalf("fork at %d: %v", at, err)
		}
		checkClosed(t, store, s.ID(), f.ID(), at)
		res := prompt(t, f, "next")
		if res.Outcome != "done" || res.Text != "The other one goes on." {
			t.Errorf("fork at %d: the next turn ended as %s %s %q", at, res.Outcome, res.Reason, res.Text)
		}
		checkFork(t, store, rt, s.ID(), f, at)
	}
	if st := m.stats("second"); st.Refused != 0 || st.Unmatched != 0 {
		t.Errorf("a strict provider refused requests: %+v", st)
	}
	after := records(t, store, s.ID())
	if !slices.EqualFunc(before, after, func(a, b *messages.Record) bool { return proto.Equal(a, b) }) {
		t.Error("the original changed")
	}
}

// checkClosed holds a fork that has not run yet to this: no turn is open, and the calls that had no result at the record
// have the exact text of lost ones, those alone.
func checkClosed(t *testing.T, store persistence.Store, origin, fork string, at uint64) {
	t.Helper()
	open := map[string]bool{}
	fold := func(session string, upto uint64) (s *conversation.State, lost int) {
		s = &conversation.State{}
		err := store.ReadSession(t.Context(), session, 0, func(e persistence.Entry) error {
			if !strings.HasPrefix(e.Stream, "wrk/") || upto != 0 && e.Cursor > upto {
				return nil
			}
			if fact, err := messages.WorkerFactIn(e.Record); err == nil {
				if f, ok := fact.(*messages.ToolFinished); ok && f.GetContent() == conversation.InterruptedText {
					lost++
				}
			}
			return s.Apply(e.Record)
		})
		if err != nil {
			t.Fatal(err)
		}
		return s, lost
	}
	was, _ := fold(origin, at)
	if turn := was.Turn(); turn != nil {
		for _, c := range turn.OpenCalls() {
			open[c.Plan.GetExecId()] = true
		}
		if p, ok := was.Next(conversation.Limits{}).(conversation.Plan); ok {
			for range p.Calls {
				open[fmt.Sprint(len(open))] = true
			}
		}
	}
	is, lost := fold(fork, 0)
	if is.Turn() != nil || lost != len(open) {
		t.Errorf("fork at %d: %d calls closed where %d were open; open turn: %v", at, lost, len(open), is.Turn())
	}
}

// checkFork holds a fork to what it is: a session of its own that has the same records up to the fork, knows where
// it comes from, and has nothing open that was there.
func checkFork(t *testing.T, store persistence.Store, rt *troupe.Runtime, origin string, f *troupe.Session, at uint64) {
	t.Helper()
	was, is := records(t, store, origin), records(t, store, f.ID())
	said := map[string]bool{}
	for i := range was[:at] {
		if was[i].GetType() != is[i].GetType() || was[i].GetSeq() != is[i].GetSeq() {
			t.Fatalf("fork at %d: record %d is of type %d, in the original %d", at, i+1, is[i].GetType(), was[i].GetType())
		}
		if strings.Contains(string(is[i].GetBody()), origin) {
			t.Errorf("fork at %d: record %d names the original", at, i+1)
		}
	}
	m, err := rt.Ask(t.Context(), &messages.ListWorkers{SessionId: f.ID()})
	if err != nil || len(m.(*messages.Workers).GetWorkers()) != 1 {
		t.Fatalf("fork at %d: workers %v %v", at, m, err)
	}
	w := m.(*messages.Workers).GetWorkers()[0]
	if w.GetModel() != "second" || w.GetStaged() != 0 {
		t.Errorf("fork at %d: worker %v", at, w)
	}
	turns, err := f.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range turns.GetTurns() {
		for _, msg := range turn.GetMessages() {
			if msg.GetRole() == "user" {
				said[msg.GetContent()] = true
			}
		}
	}
	state := &conversation.State{}
	err = store.Read(t.Context(), messages.WorkerStream(w.GetId()), 1, func(e persistence.Entry) error {
		fact, err := messages.WorkerFactIn(e.Record)
		if err != nil {
			return err
		}
		switch x := fact.(type) {
		case *messages.InputAccepted:
			if text := conversation.InputText(x.GetParts()); !said[text] {
				t.Errorf("fork at %d: what was said is gone: %q", at, text)
			}
		case *messages.WorkerCreated:
			if x.GetOrigin().GetConversation() == "" || x.GetOrigin().GetConversation() == w.GetId() || x.GetOrigin().GetSeq() == 0 {
				t.Errorf("fork at %d: origin %v", at, x.GetOrigin())
			}
		}
		return state.Apply(e.Record)
	})
	if err != nil || state.Turn() != nil {
		t.Errorf("fork at %d: %v, open %v", at, err, state.Turn())
	}
}

func TestAForkKnowsTheFilesThatWereReadAndKeepsItsHome(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := say(func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		switch {
		case last.Role != messages.User:
			return last.Text, nil
		case last.Text == "read":
			return "", []*messages.ToolCall{call("read_file", `{"path":"a.txt"}`), call("write_file", `{"path":"note.txt","content":"kept","workspace_id":"home"}`)}
		case last.Text == "note":
			return "", []*messages.ToolCall{call("edit_file", `{"path":"note.txt","workspace_id":"home","edits":[{"old_string":"kept","new_string":"changed"}]}`)}
		}
		return "", []*messages.ToolCall{call("edit_file", `{"path":"a.txt","edits":[{"old_string":"one","new_string":"two"}]}`)}
	})
	data := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: m, Store: memoryOf(t), DataDir: data})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "read")
	f, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := rt.Fork(ctx, f.ID(), troupe.ForkOptions{}) // a fork of a fork, which never ran
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"edit", "note"} {
		r := prompt(t, again, p)
		if len(r.ToolCalls) != 1 || r.ToolCalls[0].GetStatus() != "ok" {
			t.Errorf("%s without reading again: %v %q", p, r.ToolCalls, r.Text)
		}
	}
	for id, want := range map[string]string{s.ID(): "kept", f.ID(): "kept", again.ID(): "changed"} {
		b, err := os.ReadFile(filepath.Join(data, "homes", id, "note.txt"))
		if err != nil || string(b) != want {
			t.Errorf("note of %s: %q %v", id, b, err)
		}
	}
}

func TestForksOfWhatIsNotThereAreRefusedWithTheRange(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := prompt(t, s, "hello")
	if r.Outcome != "done" {
		t.Fatal(r)
	}
	_, err = rt.Fork(ctx, s.ID(), troupe.ForkOptions{At: 1000})
	if f, ok := err.(*troupe.Failure); !ok || f.GetCode() != messages.CodeBadRequest || !strings.Contains(f.Error(), "from 1 to ") { //nolint:errorlint // Fork says so
		t.Errorf("beyond the head: %v", err)
	}
	for _, id := range []string{"ses_none", "", "nonsense", "../x"} {
		if _, err := rt.Fork(ctx, id, troupe.ForkOptions{}); !strings.Contains(fmt.Sprint(err), "no session") {
			t.Errorf("fork of %q: %v", id, err)
		}
	}
}
