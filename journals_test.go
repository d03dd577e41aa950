package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/tools"
)

// writeJournals, set to a release (v1), writes the journals of the histories below as this version writes them. What
// a release has written is never written again.
const writeJournals = "TROUPE_TEST_WRITE_JOURNALS"

// replayed is what a history must read like in every later version.
type replayed struct {
	Workers int            `json:"workers"`
	State   string         `json:"state"`
	Turns   []replayedTurn `json:"turns"`
}

type replayedTurn struct {
	Input   string   `json:"input"`
	Text    string   `json:"text"`
	Outcome string   `json:"outcome"`
	Calls   []string `json:"calls,omitempty"`
}

// histories are the kinds of history that a release writes, by name.
func histories() map[string]func(t *testing.T, ctx context.Context, rt *troupe.Runtime, s *troupe.Session) {
	run := func(t *testing.T, ctx context.Context, w interface {
		Run(context.Context, string) (*troupe.Result, error)
	}, prompt string,
	) {
		t.Helper()
		if _, err := w.Run(ctx, prompt); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(*testing.T, context.Context, *troupe.Runtime, *troupe.Session){
		"plain": func(t *testing.T, ctx context.Context, _ *troupe.Runtime, s *troupe.Session) {
			run(t, ctx, s, "hello")
			run(t, ctx, s, "again")
		},
		"tools": func(t *testing.T, ctx context.Context, _ *troupe.Runtime, s *troupe.Session) {
			run(t, ctx, s, "use note")
			run(t, ctx, s, "use fail")
			run(t, ctx, s, "use unheard")
			if _, err := s.Call(ctx, "note", map[string]any{}); err != nil {
				t.Fatal(err)
			}
		},
		"long": func(t *testing.T, ctx context.Context, _ *troupe.Runtime, s *troupe.Session) {
			run(t, ctx, s, strings.Repeat("a long prompt ", 8<<10))
			for range 12 {
				run(t, ctx, s, "more")
			}
			if _, err := s.Compact(ctx); err != nil {
				t.Fatal(err)
			}
			run(t, ctx, s, "and after")
		},
		"workers": func(t *testing.T, ctx context.Context, rt *troupe.Runtime, s *troupe.Session) {
			run(t, ctx, s, "first of all")
			w, err := s.NewWorker(ctx, troupe.WorkerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			run(t, ctx, w, "beside it")
			if err := w.SetModel(ctx, "other"); err != nil {
				t.Fatal(err)
			}
			run(t, ctx, w, "with another model")
			if _, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"timers": func(t *testing.T, ctx context.Context, _ *troupe.Runtime, s *troupe.Session) {
			run(t, ctx, s, "hello")
			due := time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, text := range []string{"wake up", "not this one"} {
				timer, err := s.Remind(ctx, due, text, troupe.RemindOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if text == "not this one" {
					err = s.CancelTimer(ctx, timer.ID)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		},
		"cancelled": func(t *testing.T, ctx context.Context, _ *troupe.Runtime, s *troupe.Session) {
			for ev, err := range s.Stream(ctx, "use wait") {
				if err != nil {
					t.Fatal(err)
				}
				if ev.GetType() == "tool.dispatched" {
					if err := s.Cancel(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	}
}

// historian answers as the prompts of the histories ask.
func historian() say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		if name, ok := strings.CutPrefix(last.Text, "use "); ok && last.Role == messages.User {
			return "I use it.", []*messages.ToolCall{{Id: "c1", Name: name, Arguments: "{}"}}
		}
		return "You said: " + last.Text[:min(20, len(last.Text))], nil
	}
}

func historyTools(t *testing.T) []troupe.Tool {
	t.Helper()
	type none struct{}
	return []troupe.Tool{
		tool(t, "note", messages.Effect_AT_MOST_ONCE, func(*tools.Context, none) (*tools.Result, error) { return &tools.Result{Content: "noted"}, nil }),
		tool(t, "fail", messages.Effect_PURE, func(*tools.Context, none) (*tools.Result, error) {
			return nil, tools.Errorf("not_found", "there is none")
		}),
		tool(t, "wait", messages.Effect_AT_MOST_ONCE, func(tc *tools.Context, _ none) (*tools.Result, error) {
			<-tc.Signal.Done()
			return nil, tc.Signal.Err()
		}),
	}
}

func TestJournalsOfEveryReleaseAreReplayed(t *testing.T) {
	if release := os.Getenv(writeJournals); release != "" {
		writeHistories(t, filepath.Join("testdata", "journals", release))
	}
	files, err := filepath.Glob(filepath.Join("testdata", "journals", "*", "*.bak"))
	if err != nil || len(files) < len(histories()) {
		t.Fatalf("%d journals, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".bak"), func(t *testing.T) {
			dir := t.TempDir()
			_, err := badger.Restore(t.Context(), badger.Options{Dir: troupe.StoreDir(dir), Ballast: -1}, []string{file}, nil)
			if err != nil {
				t.Fatal(err)
			}
			rt, ctx := runtimeOf(t, troupe.Options{Model: historian(), DataDir: dir, Tools: historyTools(t), IgnoreTimers: true})
			got := readHistories(t, ctx, rt)
			b, err := os.ReadFile(strings.TrimSuffix(file, ".bak") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if string(b) != got {
				t.Errorf("it reads:\n%s\nand said when it was written:\n%s", got, b)
			}
			v, err := rt.Ask(ctx, &messages.Verify{})
			if err != nil || len(v.(*messages.Verified).GetFindings()) > 0 {
				t.Errorf("verify: %v, %v", v, err)
			}
			goOn(t, ctx, rt)
		})
	}
}

// goOn sends every session a prompt: what was written long ago can be continued.
func goOn(t *testing.T, ctx context.Context, rt *troupe.Runtime) { //nolint:revive // t comes first, as everywhere in tests
	t.Helper()
	for _, id := range sessionIDs(t, ctx, rt) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := s.Run(ctx, "go on"); err != nil || res.Text != "You said: go on" {
			t.Errorf("going on with %s: %v, %v", id, res, err)
		}
	}
}

func sessionIDs(t *testing.T, ctx context.Context, rt *troupe.Runtime) (ids []string) { //nolint:revive // t comes first, as everywhere in tests
	t.Helper()
	m, err := rt.Ask(ctx, &messages.ListSessions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.(*messages.Sessions).GetSessions() {
		ids = append(ids, s.GetId())
	}
	slices.Sort(ids)
	return ids
}

// readHistories is what a store's sessions read like, as JSON.
func readHistories(t *testing.T, ctx context.Context, rt *troupe.Runtime) string { //nolint:revive // t comes first, as everywhere in tests
	t.Helper()
	var all []replayed
	for _, id := range sessionIDs(t, ctx, rt) {
		m, err := rt.Ask(ctx, &messages.Show{Id: id})
		if err != nil {
			t.Fatal(err)
		}
		shown := m.(*messages.Shown)
		r := replayed{Workers: len(shown.GetSession().GetWorkers()), State: shown.GetSession().GetState()}
		for _, turn := range shown.GetTurns() {
			rt := replayedTurn{Input: turn.GetInput()[:min(80, len(turn.GetInput()))], Text: turn.GetText(), Outcome: turn.GetOutcome()}
			for _, c := range turn.GetToolCalls() {
				rt.Calls = append(rt.Calls, c.GetName()+" "+c.GetStatus())
			}
			r.Turns = append(r.Turns, rt)
		}
		all = append(all, r)
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// writeHistories writes those of a release that are not there yet.
func writeHistories(t *testing.T, dir string) {
	t.Helper()
	folder := filepath.Join(os.TempDir(), "troupe-journals", "folder")
	for name, history := range histories() {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path + ".bak"); err == nil {
			continue
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(folder, 0o755)); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(os.TempDir(), "troupe-journals", "data-"+name) // paths of a test's own say where it ran
		rt, ctx := runtimeOf(t, troupe.Options{Model: historian(), DataDir: data, Tools: historyTools(t), IgnoreTimers: true})
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder, Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		history(t, ctx, rt, s)
		text := readHistories(t, ctx, rt)
		f, err := os.Create(path + ".bak")
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(rt.Backup(ctx, f, nil), f.Close(), os.WriteFile(path+".json", []byte(text), 0o644), rt.Close(ctx))
		if err = errors.Join(err, os.RemoveAll(data)); err != nil {
			t.Fatal(err)
		}
	}
}

// A record of a newer release stops the conversation that it is in, and no other.
func TestARecordOfANewerReleaseStopsItsOwnConversationAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*messages.Record)
		stops  bool
	}{
		"an unknown fact":                     {func(r *messages.Record) { r.Type, r.Body = 999, []byte{0xba, 0x3e, 0} }, true},
		"a known fact with a newer meaning":   {func(r *messages.Record) { r.Schema = 99 }, true},
		"an unknown fact that may be skipped": {func(r *messages.Record) { r.Type, r.Body, r.Ignorable = 999, []byte{0xba, 0x3e, 0}, true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rt, ctx := runtimeOf(t, troupe.Options{Model: historian(), DataDir: dir})
			var ids, workers []string
			for range 2 {
				s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
				if err != nil {
					t.Fatal(err)
				}
				res, err := s.Run(ctx, "hello")
				if err != nil {
					t.Fatal(err)
				}
				ids, workers = append(ids, s.ID()), append(workers, res.Conversation)
			}
			if err := rt.Close(ctx); err != nil {
				t.Fatal(err)
			}
			seq := appendAsNewer(t, troupe.StoreDir(dir), workers[0], ids[0], c.change)

			rt, ctx = runtimeOf(t, troupe.Options{Model: historian(), DataDir: dir})
			for i, id := range ids {
				s, err := rt.Open(ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				res, err := s.Run(ctx, "go on")
				if i > 0 || !c.stops {
					if err != nil || res.Text != "You said: go on" {
						t.Errorf("session %d: %v, %v", i, res, err)
					}
					continue
				}
				wantCode(t, "a prompt", err, messages.CodeQuarantined)
				for _, part := range []string{workers[0], "record " + seq, "a newer one wrote it"} {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("%v does not say %q", err, part)
					}
				}
			}
		})
	}
}

// appendAsNewer writes one record as a newer release would, and returns its seq.
func appendAsNewer(t *testing.T, dir, worker, session string, change func(*messages.Record)) string {
	t.Helper()
	ctx := context.Background()
	s, err := badger.Open(ctx, badger.Options{Dir: dir, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := s.Claim(ctx, messages.WorkerStream(worker), "newer")
	if err != nil {
		t.Fatal(err)
	}
	r, err := messages.NewRecord(&messages.ConfigChanged{}, "")
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	r.RecordId = make([]byte, 16)
	if _, err := s.Append(ctx, persistence.Batch{Lease: l, Expect: l.Next, Session: session, Records: []*messages.Record{r}}); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(l.Next)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
