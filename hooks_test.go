package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// systems collects the system prompt of every request.
type systems struct {
	mu   sync.Mutex
	seen []string
}

func (s *systems) model(then say) troupe.Model {
	return say(func(r *model.Request) (string, []*messages.ToolCall) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Prompt.System)
		s.mu.Unlock()
		return then(r)
	})
}

func (s *systems) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *systems) last() string {
	all := s.all()
	return all[len(all)-1]
}

func run(ctx context.Context, t *testing.T, s *troupe.Session, prompt string) *troupe.Result {
	t.Helper()
	res, err := s.Run(ctx, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestContextFilesStandInTheSystemPromptAsTheyAreWhenATurnBegins(t *testing.T) {
	var sys systems
	rt, ctx := runtimeOf(t, troupe.Options{
		Model:  sys.model(callOnce(call("read_file", `{"path":"AGENTS.md"}`))),
		Agents: []troupe.Agent{{Name: "own", Context: []string{"docs/style.md", "big.md", "link.md"}}, {Name: "none", Context: []string{}}},
	})
	dir := folder(t, map[string]string{"AGENTS.md": "Always run the tests.", "big.md": strings.Repeat("x", 40<<10)})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, s, "one")
	for i, p := range sys.all() {
		if strings.Count(p, "Always run the tests.") != 1 || strings.Contains(p, "not trusted") {
			t.Errorf("request %d has the system prompt %q", i, p)
		}
	}
	write(t, filepath.Join(dir, "AGENTS.md"), "Never run the tests.")
	run(ctx, t, s, "two")
	if p := sys.last(); !strings.Contains(p, "Never run the tests.") || strings.Contains(p, "Always") {
		t.Errorf("the next turn has the system prompt %q", p)
	}

	restricted, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, restricted, "three")
	if p := sys.last(); !strings.Contains(p, "Never run the tests.") || !strings.Contains(p, "not trusted") {
		t.Errorf("in an untrusted folder: %q", p)
	}

	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "the secret")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "docs"), 0o700), os.Symlink(outside, filepath.Join(dir, "link.md"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "docs/style.md"), "Tabs.")
	own, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Agent: "own", Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, own, "four")
	p := sys.last()
	if !strings.Contains(p, "Tabs.") || strings.Contains(p, "Never run") || strings.Contains(p, "xxxx") || strings.Contains(p, "the secret") {
		t.Errorf("with files of its own: %q", p)
	}
	for _, name := range []string{"big.md", "link.md"} {
		if _, after, ok := strings.Cut(p, "# "+name); !ok || !strings.Contains(after, "cannot be read") {
			t.Errorf("%s is not named: %q", name, p)
		}
	}
	none, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Agent: "none", Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, none, "five")
	if p := sys.last(); strings.Contains(p, "Never run") {
		t.Errorf("with none: %q", p)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHooksStandAroundEachTurn(t *testing.T) {
	var sys systems
	var mu sync.Mutex
	before := 0
	after := make(chan *messages.TurnResult, 8)
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: sys.model(callOnce(call("todo", `{"items":[]}`))),
		Hooks: troupe.Hooks{
			BeforeTurn: func(_ context.Context, turn troupe.Turn) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				before++
				if turn.Session == "" || turn.Worker == "" || turn.Turn == "" {
					return "", errors.New("the turn has no name")
				}
				return "It is Tuesday.", nil
			},
			AfterTurn: func(_ context.Context, turn troupe.Turn, r *messages.TurnResult) {
				if turn.Turn == r.GetTurnId() {
					after <- r
				}
			},
		},
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res := run(ctx, t, s, "what day is it?")
		if got := <-after; got.GetTurnId() != res.Turn || got.GetOutcome() != messages.TurnCompleted_DONE {
			t.Errorf("after the turn %s the hook was told of %v", res.Turn, got)
		}
	}
	if n := len(sys.all()); n != 4 || before != 2 {
		t.Errorf("%d requests, the hook before the turn was called %d times", n, before)
	}
	for i, p := range sys.all() {
		if strings.Count(p, "It is Tuesday.") != 1 {
			t.Errorf("request %d has the system prompt %q", i, p)
		}
	}
}

func TestAHookThatFailsEndsItsTurnAndNothingElse(t *testing.T) {
	for name, hook := range map[string]func() (string, error){
		"an error": func() (string, error) { return "", errors.New("no calendar") },
		"a panic":  func() (string, error) { panic("no calendar") },
	} {
		t.Run(name, func(t *testing.T) {
			fails := true
			rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce(), Hooks: troupe.Hooks{
				BeforeTurn: func(context.Context, troupe.Turn) (string, error) {
					if fails {
						return hook()
					}
					return "", nil
				},
				AfterTurn: func(context.Context, troupe.Turn, *messages.TurnResult) { panic("and after") },
			}})
			s, err := rt.Session(ctx, troupe.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if res := run(ctx, t, s, "go"); res.Outcome != "error" || !strings.Contains(res.Reason, "no calendar") {
				t.Errorf("the turn ended as %s: %s", res.Outcome, res.Reason)
			}
			fails = false
			if res := run(ctx, t, s, "again"); res.Outcome != "done" {
				t.Errorf("the next turn ended as %s: %s", res.Outcome, res.Reason)
			}
		})
	}
}

func TestHooksStandAroundEachCall(t *testing.T) {
	var mu sync.Mutex
	var told []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
	}
	dir := folder(t, map[string]string{"a.txt": "one", "b.txt": "two"})
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: callOnce(&messages.ToolCall{Id: "a", Name: "read_file", Arguments: `{"path":"a.txt"}`}, &messages.ToolCall{Id: "b", Name: "read_file", Arguments: `{"path":"b.txt"}`}),
		Hooks: troupe.Hooks{
			BeforeCall: func(_ context.Context, c troupe.Call, tc *tools.Context, args json.RawMessage) error {
				if c.Tool != "read_file" || c.ExecID == "" || tc.Workspace == nil || tc.WorkspaceID == "" {
					return errors.New("the call has no name")
				}
				if strings.Contains(string(args), "b.txt") {
					return errors.New("not that one")
				}
				return nil
			},
			AfterCall: func(_ context.Context, _ troupe.Call, _ *tools.Context, r *messages.ToolReply) {
				note(r.GetStatus().String())
			},
		},
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	res := run(ctx, t, s, "read both")
	if !strings.Contains(res.Text, "1\tone") || !strings.Contains(res.Text, "Access denied: a hook refused the call: not that one") || strings.Contains(res.Text, "two") {
		t.Errorf("the model was told %q", res.Text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || told[0] != "OK" {
		t.Errorf("the hook after calls was told of %v", told)
	}
	all, err := rt.Audit(ctx, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, e := range all {
		if e.GetKind() == "call" {
			said = append(said, e.GetDecision()+" by "+e.GetWhy())
		}
	}
	if got := strings.Join(said, ", "); got != "allowed by the workspace is trusted, denied by a hook refused it" {
		t.Errorf("the audit says %s", got)
	}
}
