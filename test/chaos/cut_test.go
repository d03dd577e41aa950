// Package chaos kills the runtime and looks at what comes back.
package chaos

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestEveryCutOfTheJournalRecovers walks the crash matrix: one turn with calls of every effect
// class is cut after each append, once before the append's answer was heard (nothing that it
// justifies has happened) and once after (it may have happened, and its record is lost). The next
// runtime on the same journal and folder must end the turn and keep rules R1 to R6.
func TestEveryCutOfTheJournalRecovers(t *testing.T) { everyCutOf(t, 8, newWorld, (*world).check) }

// everyCutOf does a world's work whole, then again and again: cut after each append, and taken up by another runtime. Of an append
// that was cut off, somebody has heard or nobody.
func everyCutOf(t *testing.T, least int, made func(*testing.T) *world, check func(*world, *testing.T, string)) {
	t.Helper()
	whole := made(t)
	appends := whole.run(t, &cutStore{Store: memory.New(), limit: 1 << 30})
	check(whole, t, "uncut")
	everyCut(t, appends, least, func(t *testing.T, n int, heard bool) {
		w, first := made(t), memory.New()
		done := w.run(t, &cutStore{Store: first, limit: n, heard: heard})
		if w.together {
			n = min(n, done)
		}
		after, err := first.Cut(n)
		if err != nil {
			t.Fatal(err)
		}
		w.run(t, &cutStore{Store: after, limit: 1 << 30})
		w.store = after
		check(w, t, "recovered")
	})
}

// everyCut cuts after each of so many appends, heard and not. With fewer than least of them the work is not what the test is about.
func everyCut(t *testing.T, appends, least int, cut func(t *testing.T, n int, heard bool)) {
	t.Helper()
	if appends < least {
		t.Fatalf("it took %d appends: it does not do what this test is about", appends)
	}
	for n := 0; n <= appends; n++ {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d of %d, heard=%v", n, appends, heard), func(t *testing.T) { cut(t, n, heard) })
		}
	}
}

// world is what survives a crash besides the journal: the folder, and the log of effects.
type world struct {
	dir, data string
	store     persistence.Store
	agents    []troupe.Agent
	until     func(*messages.SessionView) bool                      // goes on until then, though the prompt is answered
	together  bool                                                  // things happen at the same time, so that there may be fewer appends than in another run
	budget    *messages.Budget                                      // of the session; nil: none
	models    troupe.Models                                         // that the agents name; nil: the world answers every name
	script    func(*model.Request) (calls [][2]string, text string) // instead of the turn with calls of every class
	during    func(ctx context.Context, tool string)                // what a call of a tool does besides
	beside    func(context.Context, *troupe.Runtime) error          // what is done once the prompt is in, before the answer is waited for
	lives     int                                                   // runtimes so far

	mu      sync.Mutex
	effects map[string][]string // tool -> exec ids, in order
	result  *messages.TurnResult
	broken  []string // prompts that break the message invariant
	till    *messages.BudgetView
}

const (
	sessionID = "ses_cut"
	inputID   = "inp_cut"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), data: t.TempDir(), effects: make(map[string][]string)}
	if err := os.WriteFile(filepath.Join(w.dir, "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// run starts a runtime on the store, and sends the prompt as a client does that does not know whether
// it was heard: the same ids again. It ends when the turn is done or the store is cut off.
func (w *world) run(t *testing.T, store *cutStore) int {
	t.Helper()
	store.cut = make(chan struct{})
	w.lives++
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o := troupe.Options{Model: w, Store: store, DataDir: w.data, Tools: w.tools(t), Agents: w.agents}
	if w.models != nil {
		o.Model, o.Models = nil, w.models
	}
	rt, err := troupe.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.prompt(asking, rt) }()
	select {
	case err := <-done:
		if err != nil && store.limit > 1<<20 {
			t.Errorf("prompt: %v", err)
		}
	case <-store.cut:
	}
	stop()
	if err := rt.Close(ctx); err != nil {
		t.Fatalf("close: %v", err)
	}
	w.store = store
	return store.count
}

func (w *world) prompt(ctx context.Context, rt *troupe.Runtime) error {
	in := &messages.SubmitInput{InputId: inputID, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "do it"}}}}
	create := &messages.CreateSession{
		SessionId: sessionID, First: in,
		Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + w.dir, Trust: troupe.Full}}, Budget: w.budget,
	}
	if _, err := rt.Ask(ctx, create); err != nil {
		f, ok := err.(*troupe.Failure) //nolint:errorlint // Ask says so
		if !ok || f.GetCode() != messages.CodeAlreadyExists {
			return err
		}
		if _, err := rt.Ask(ctx, to(&messages.ToSession_Submit{Submit: in})); err != nil {
			return err
		}
	}
	if w.beside != nil {
		if err := w.beside(ctx, rt); err != nil {
			return err
		}
	}
	m, err := rt.Ask(ctx, to(&messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: inputID}}))
	if err != nil {
		return err
	}
	v, err := rt.Ask(ctx, to(&messages.ToSession_Describe{Describe: &messages.DescribeSession{}}))
	for err == nil && w.until != nil && !w.until(v.(*messages.SessionView)) { //nolint:forcetypeassert // the reply of DescribeSession
		select {
		case <-time.After(time.Millisecond): // of some of what is waited for there is no event
		case <-ctx.Done():
			return ctx.Err()
		}
		v, err = rt.Ask(ctx, to(&messages.ToSession_Describe{Describe: &messages.DescribeSession{}}))
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result = m.(*messages.TurnResult)            //nolint:forcetypeassert // the reply of AwaitTurn
	w.till = v.(*messages.SessionView).GetBudget() //nolint:forcetypeassert // the reply of DescribeSession
	return nil
}

func to[C any](cmd C) *messages.ToSession {
	m := &messages.ToSession{SessionId: sessionID}
	switch c := any(cmd).(type) {
	case *messages.ToSession_Submit:
		m.Command = c
	case *messages.ToSession_AwaitTurn:
		m.Command = c
	case *messages.ToSession_SpawnWorker:
		m.Command = c
	case *messages.ToSession_SetTimer:
		m.Command = c
	case *messages.ToSession_ListTimers:
		m.Command = c
	case *messages.ToSession_Describe:
		m.Command = c
	case *messages.ToSession_Close:
		m.Command = c
	case *messages.ToSession_Configure:
		m.Command = c
	}
	return m
}

// tools are one of every class; each writes what it did to the effect log.
func (w *world) tools(t *testing.T) []tools.Tool {
	t.Helper()
	type args struct {
		Name string `json:"name" desc:"what to log"`
	}
	var out []tools.Tool
	for name, effect := range map[string]messages.Effect_Class{
		"probe": messages.Effect_PURE, "charge": messages.Effect_AT_MOST_ONCE, "put": messages.Effect_IDEMPOTENT,
	} {
		spec := tools.Spec{Name: name, Description: "Logs an effect. Example: {\"name\": \"x\"}", Effect: effect}
		tool, err := tools.Func(spec, func(tc *tools.Context, a args) (*tools.Result, error) {
			if w.during != nil {
				w.during(tc.Signal, name)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.effects[name] = append(w.effects[name], tc.ExecID)
			return &tools.Result{Content: "did " + a.Name}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tool)
	}
	return out
}

// Stream is the model: which answer comes next is a function of the messages alone.
func (w *world) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	steps := 0
	for _, m := range req.Prompt.Messages {
		if m.Role == messages.Assistant {
			steps++
		}
	}
	w.mu.Lock()
	if why := broken(req.Prompt.Messages); why != "" {
		w.broken = append(w.broken, why)
	}
	w.mu.Unlock()
	if w.script != nil {
		calls, text := w.script(req)
		return said(calls, text)
	}
	answers := [][][2]string{
		{
			{"probe", `{"name":"p"}`}, {"read_file", `{"path":"a.txt"}`}, {"charge", `{"name":"c1"}`}, {"put", `{"name":"i1"}`},
		},
		{
			{"edit_file", `{"path":"a.txt","edits":[{"old_string":"one","new_string":"two"}]}`},
			{"edit_file", `{"path":"a.txt","edits":[{"old_string":"two","new_string":"three"}]}`},
			{"charge", `{"name":"c2"}`},
			{"nowhere", `{}`},
			{"charge", `{"nme":`},
		},
	}
	if steps >= len(answers) {
		return said(nil, "all done")
	}
	return said(answers[steps], "")
}

// said is an answer: calls, or a text.
func said(calls [][2]string, text string) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if len(calls) == 0 {
			_ = yield(model.Event{Kind: model.Text, Text: text}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		for i, c := range calls {
			// Providers repeat call ids: they must not matter.
			if !yield(model.Event{Kind: model.CallStart, Index: i, CallID: "call_0", Name: c[0]}, nil) ||
				!yield(model.Event{Kind: model.CallArgs, Index: i, Text: c[1]}, nil) {
				return
			}
		}
		yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}

// broken says how a prompt breaks R6: N tool messages, in order, after an assistant with N calls.
func broken(ms []*messages.Message) string {
	for i := 0; i < len(ms); i++ {
		if ms[i].Role == messages.ToolRole {
			return fmt.Sprintf("message %d is a result without a call", i)
		}
		for _, c := range ms[i].ToolCalls {
			i++
			if i >= len(ms) || ms[i].Role != messages.ToolRole || ms[i].ToolName != c.GetName() {
				return fmt.Sprintf("message %d is no result of %s", i, c.GetName())
			}
		}
	}
	return ""
}

// check holds the finished run to the rules.
func (w *world) check(t *testing.T, when string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "all done" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	for _, b := range w.broken {
		t.Errorf("%s: R6: %s", when, b)
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "a.txt"))
	if err != nil || string(b) != "three\n" {
		t.Errorf("%s: a.txt holds %q (%v)", when, b, err)
	}
	journal := w.journal(t)
	for tool, ids := range w.effects {
		seen := make(map[string]int)
		for _, id := range ids {
			seen[id]++
			if tool != "probe" && !journal.dispatched[id] {
				t.Errorf("%s: R4: %s ran as %s, which was never dispatched", when, tool, id)
			}
		}
		for id, n := range seen {
			if tool == "charge" && n > 1 {
				t.Errorf("%s: R3: %s ran %d times as %s", when, tool, n, id)
			}
		}
	}
	for id, f := range journal.finished {
		happened := false
		for _, ids := range w.effects {
			for _, e := range ids {
				happened = happened || e == id
			}
		}
		logged := f.GetTool() == "probe" || f.GetTool() == "charge" || f.GetTool() == "put"
		if logged && f.GetStatus() == messages.ToolFinished_OK && !happened {
			t.Errorf("%s: R5: %s %s is OK and never happened", when, f.GetTool(), id)
		}
	}
	if journal.inputs != 1 {
		t.Errorf("%s: R1: the input is in the journal %d times", when, journal.inputs)
	}
}

type journal struct {
	dispatched map[string]bool
	finished   map[string]*messages.ToolFinished
	inputs     int
}

// journal reads back what was written, and checks R2 on the way.
func (w *world) journal(t *testing.T) *journal {
	t.Helper()
	j := &journal{dispatched: make(map[string]bool), finished: make(map[string]*messages.ToolFinished)}
	var seq, epoch, cursor uint64
	read := func(e persistence.Entry) error {
		if e.Cursor != cursor+1 {
			t.Errorf("R2: cursor %d follows %d", e.Cursor, cursor)
		}
		cursor = e.Cursor
		f, err := messages.WorkerFactIn(e.Record)
		if e.Stream[:4] != "wrk/" || err != nil {
			return nil //nolint:nilerr // a record of the session's own stream
		}
		if e.Record.GetSeq() != seq+1 || e.Record.GetEpoch() < epoch {
			t.Errorf("R2: record %d of epoch %d follows %d of epoch %d", e.Record.GetSeq(), e.Record.GetEpoch(), seq, epoch)
		}
		seq, epoch = e.Record.GetSeq(), e.Record.GetEpoch()
		j.note(f)
		return nil
	}
	if err := w.store.ReadSession(context.Background(), sessionID, 0, read); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *journal) note(f proto.Message) {
	switch f := f.(type) {
	case *messages.ToolDispatched:
		j.dispatched[f.GetExecId()] = true
	case *messages.ToolFinished:
		j.finished[f.GetExecId()] = f
	case *messages.InputAccepted:
		j.inputs++
	}
}

// cutStore lets limit appends through and then loses everything, as a crash does. heard says
// whether the answer to the last one still came.
type cutStore struct {
	*memory.Store
	limit int
	heard bool

	mu    sync.Mutex
	count int
	cut   chan struct{}
	over  bool
}

// Enqueue passes, or loses, one append.
func (s *cutStore) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count >= s.limit {
		s.end()
		return
	}
	s.count++
	if s.count == s.limit && !s.heard {
		s.Store.Enqueue(func(persistence.Receipt, error) {}, b...)
		s.end()
		return
	}
	s.Store.Enqueue(done, b...)
}

func (s *cutStore) end() {
	if !s.over {
		s.over = true
		close(s.cut)
	}
}
