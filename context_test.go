package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestMain: the actor library counts dead letters in a goroutine that ends by itself after a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// say is a model in the test's hands: what comes next is a function of the prompt alone.
type say func(req *model.Request) (text string, calls []*messages.ToolCall)

func (s say) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	text, calls := s(req)
	return func(yield func(model.Event, error) bool) {
		if text != "" && !yield(model.Event{Kind: model.Text, Text: text}, nil) {
			return
		}
		for i, c := range calls {
			if !yield(model.Event{Kind: model.CallStart, Index: i, CallID: c.GetId(), Name: c.GetName()}, nil) ||
				!yield(model.Event{Kind: model.CallArgs, Index: i, Text: c.GetArguments()}, nil) {
				return
			}
		}
		reason := "stop"
		if len(calls) > 0 {
			reason = "tool_calls"
		}
		_ = yield(model.Event{Kind: model.UsageSeen, Usage: &messages.Usage{InputTokens: 10, OutputTokens: 2}}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: reason, Meta: model.Meta{RequestID: "req_1", Model: "m-1", Attempts: 1}}, nil)
	}
}

// callOnce asks for the calls first and then reports the results.
func callOnce(calls ...*messages.ToolCall) say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		if last.Role == messages.User {
			return "", calls
		}
		var b strings.Builder
		for _, m := range req.Prompt.Messages {
			if m.Role == messages.ToolRole {
				b.WriteString(m.Text + "\n")
			}
		}
		return strings.TrimRight(b.String(), "\n"), nil
	}
}

func call(name, args string) *messages.ToolCall {
	return &messages.ToolCall{Id: "c_" + name, Name: name, Arguments: args}
}

// memoryOf is a store in memory that ends with the test.
func memoryOf(t testing.TB) *memory.Store {
	t.Helper()
	s := memory.New()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func runtimeOf(t *testing.T, o troupe.Options) (*troupe.Runtime, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // what hangs ends with the limit of go test, which shows where
	if o.Store == nil && o.DataDir == "" {
		o.Store, o.DataDir = memoryOf(t), t.TempDir()
	}
	rt, err := troupe.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		cancel()
	})
	return rt, ctx
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tool[A any](t *testing.T, name string, effect messages.Effect_Class, fn func(*tools.Context, A) (*tools.Result, error)) tools.Tool {
	t.Helper()
	made, err := tools.Func(tools.Spec{Name: name, Description: "For a test. Example: {}", Effect: effect}, fn)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestAToolSeesTheWholeContextOfItsCallAndItsTemporaryFolderIsGoneAfterwards(t *testing.T) {
	var got tools.Context
	var tempWasThere bool
	look := tool(t, "look", messages.Effect_AT_MOST_ONCE, func(tc *tools.Context, _ struct{}) (*tools.Result, error) {
		got = *tc
		info, err := os.Stat(tc.ToolTempDir)
		tempWasThere = err == nil && info.IsDir()
		return &tools.Result{Content: "seen"}, nil
	})
	type key struct{}
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: callOnce(call("look", "")), Tools: []troupe.Tool{look},
		Reach:       []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		ToolContext: func(_ context.Context, c troupe.Call) (map[any]any, error) { return map[any]any{key{}: c.Tool}, nil },
	})
	dir := folder(t, nil)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(ctx, "look")
	if err != nil || res.Text != "seen" {
		t.Fatalf("run: %v, %v", res, err)
	}
	switch {
	case got.Signal == nil || got.Signal.Err() == nil:
		t.Error("the signal must be there and have ended with the call")
	case got.Agent != "default" || got.Workspace == nil || got.WorkspaceInfo.GetProjectDir() != dir || got.WorkspaceInfo.GetMode() != "local":
		t.Errorf("agent %q, workspace %v, info %v", got.Agent, got.Workspace, got.WorkspaceInfo)
	case !strings.Contains(strings.Join(got.ProcessEnv, "\n"), "PATH="):
		t.Errorf("environment %v", got.ProcessEnv)
	case len(got.Reach) != 1 || got.Reach[0].String() != "10.1.0.0/16":
		t.Errorf("reach %v", got.Reach)
	case got.Values[key{}] != "look":
		t.Errorf("values of the program %v", got.Values)
	case got.ExecID != res.ToolCalls[0].GetExecId() || filepath.Base(got.ToolTempDir) != got.ExecID:
		t.Errorf("temporary folder %q of call %s", got.ToolTempDir, got.ExecID)
	case !tempWasThere:
		t.Error("the temporary folder was not there during the call")
	}
	if _, err := os.Stat(got.ToolTempDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

func TestLeftoversOfACrashAreRemovedAtTheStart(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, "tmp", "exe_left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	runtimeOf(t, troupe.Options{Model: callOnce(), Store: memoryOf(t), DataDir: data})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a call's temporary folder outlived the crash: %v", err)
	}
}

func TestASessionWithoutAFolderRunsPlainToolsAndItsOwnWorkspaceKeepsNotes(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce(
		call("todo", `{"items":[{"content":"x","status":"pending"}]}`), call("write_file", `{"path":"notes.md","content":"remember\n"}`),
	)})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(ctx, "note it")
	if err != nil || res.Outcome != "done" {
		t.Fatalf("run: %v, %v", res, err)
	}
	for _, c := range res.ToolCalls {
		if c.GetStatus() != "ok" {
			t.Errorf("%s: %s: %s", c.GetName(), c.GetStatus(), c.GetContent())
		}
	}
	r, err := s.Call(ctx, "read_file", map[string]any{"path": "notes.md"})
	if err != nil || !strings.Contains(r.GetContent(), "remember") {
		t.Errorf("the note is gone: %v, %v", r, err)
	}
}

func TestTheFolderIsPrimaryAndHomeIsReachedByName(t *testing.T) {
	var system string
	var mu sync.Mutex
	ask := callOnce(call("write_file", `{"path":"a.txt","content":"in the folder\n"}`), call("write_file", `{"path":"a.txt","content":"at home\n","workspace_id":"home"}`))
	rt, ctx := runtimeOf(t, troupe.Options{Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
		mu.Lock()
		system = req.Prompt.System
		mu.Unlock()
		return ask(req)
	})})
	dir := folder(t, nil)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "write"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	if err != nil || string(b) != "in the folder\n" {
		t.Errorf("the folder holds %q (%v)", b, err)
	}
	r, err := s.Call(ctx, "read_file", map[string]any{"path": "a.txt", "workspace_id": "troupe:/sessions/" + s.ID()})
	if err != nil || !strings.Contains(r.GetContent(), "at home") {
		t.Errorf("home by its address: %v, %v", r, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"local:" + dir, "troupe:/sessions/" + s.ID(), "home", "primary", "full"} {
		if !strings.Contains(system, want) {
			t.Errorf("the system prompt does not name %q:\n%s", want, system)
		}
	}
	r, err = s.Call(ctx, "read_file", map[string]any{"path": "a.txt", "workspace_id": "elsewhere"})
	if err != nil || r.GetErrorCode() != "workspace_not_found" {
		t.Errorf("a workspace that is not there: %v, %v", r, err)
	}
}

func TestAChangeFromOutsideIsCaughtByItsHash(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "one\n"})
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(ctx, "read_file", map[string]any{"path": "a.txt"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("somebody else's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := s.Call(ctx, "write_file", map[string]any{"path": "a.txt", "content": "mine\n"})
	if err != nil || r.GetErrorCode() != "concurrent_modification" || !strings.Contains(r.GetContent(), "has been modified since it was last read") {
		t.Errorf("write over a change from outside: %v, %v", r, err)
	}
}

func TestTheUnexpectedIsWordedGenerallyAndTracedInTheLog(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	boom := tool(t, "boom", messages.Effect_PURE, func(*tools.Context, struct{}) (*tools.Result, error) { panic("secret detail") })
	odd := tool(t, "odd", messages.Effect_PURE, func(*tools.Context, struct{}) (*tools.Result, error) { return nil, errors.New("odd thing") })
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: callOnce(call("boom", "{}"), call("odd", "{}"), call("nowhere", "{}")), Tools: []troupe.Tool{boom, odd},
		Logger: slog.New(slog.NewTextHandler(&locked{b: &log, mu: &mu}, nil)),
	})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(ctx, "try")
	if err != nil || res.Outcome != "done" {
		t.Fatalf("run: %v, %v", res, err)
	}
	want := []string{"Unexpected error: the tool crashed", "Unexpected error: odd thing", "Tool 'nowhere' not found"}
	for i, c := range res.ToolCalls {
		if c.GetContent() != want[i] {
			t.Errorf("%s answers %q, want %q", c.GetName(), c.GetContent(), want[i])
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "secret detail") || !strings.Contains(log.String(), "stack=") {
		t.Errorf("the log does not trace the crash:\n%s", log.String())
	}
}

type locked struct {
	b  *strings.Builder
	mu *sync.Mutex
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestTasksChainByValueAndKeepTheirLineage(t *testing.T) {
	count := say(func(req *model.Request) (string, []*messages.ToolCall) {
		return fmt.Sprintf("I have heard %d messages", len(req.Prompt.Messages)), nil
	})
	rt, ctx := runtimeOf(t, troupe.Options{Model: count})
	first, err := rt.Do(ctx, troupe.Task{Prompt: "one"})
	if err != nil || first.FinalResponse != "I have heard 1 messages" {
		t.Fatalf("first task: %+v, %v", first, err)
	}
	for _, branch := range []string{"two", "another two"} { // neither sees the other
		next, err := rt.Do(ctx, troupe.Task{Prompt: branch, Conversation: first.Conversation})
		if err != nil || next.FinalResponse != "I have heard 3 messages" {
			t.Errorf("%s: %+v, %v", branch, next, err)
		}
		if next.Conversation.ID == first.Conversation.ID || len(next.Conversation.Turns) != 2 {
			t.Errorf("%s: conversation %s with %d turns", branch, next.Conversation.ID, len(next.Conversation.Turns))
		}
	}
	if len(first.Conversation.Turns) != 1 {
		t.Errorf("a later task changed the first one's conversation: %d turns", len(first.Conversation.Turns))
	}
}

func TestFurtherWorkersHaveConversationsOfTheirOwn(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
		return fmt.Sprint(len(req.Prompt.Messages)), nil
	})})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "to the first"); err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWorker(ctx, troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.Run(ctx, "to the second")
	if err != nil || res.Text != "1" || res.Conversation != w.ID() {
		t.Errorf("the second worker: %+v, %v", res, err)
	}
	if _, err := s.NewWorker(ctx, troupe.WorkerOptions{Agent: "nobody"}); err == nil || !strings.Contains(err.Error(), `agent "nobody" is not configured`) {
		t.Errorf("a worker of an unknown agent: %v", err)
	}
	all, err := s.Workers(ctx)
	if err != nil || len(all) != 2 {
		t.Errorf("%d workers, %v: nothing half-built may remain", len(all), err)
	}
}

func TestAMissingProfileIsNamedAndBlocksOnlyWhatNeedsIt(t *testing.T) {
	store, data := memoryOf(t), t.TempDir()
	with := troupe.Options{Model: callOnce(), Store: store, DataDir: data, Agents: []troupe.Agent{{Name: "reviewer", System: "You review."}}}
	ctx := t.Context()
	rt, err := troupe.New(ctx, with)
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{Agent: "reviewer"})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	after, ctx := runtimeOf(t, troupe.Options{Model: say(func(*model.Request) (string, []*messages.ToolCall) { return "here", nil }), Store: again, DataDir: data})
	s, err = after.Open(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run(ctx, "review")
	if err != nil || res.Outcome != "error" || !strings.Contains(res.Reason, `agent "reviewer" is not configured`) {
		t.Errorf("a turn of the missing agent: %+v, %v", res, err)
	}
	if h, err := s.History(ctx); err != nil || h.GetWorkerId() == "" {
		t.Errorf("its history must still be readable: %v, %v", h, err)
	}
	other, err := after.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := other.Run(ctx, "hello"); err != nil || res.Text != "here" {
		t.Errorf("another agent: %+v, %v", res, err)
	}
}

func TestATurnKeepsWhatItWasAnsweredWithAndSessionsAreFoundByFolder(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: say(func(*model.Request) (string, []*messages.ToolCall) { return "yes", nil })})
	dir := folder(t, nil)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "well?"); err != nil {
		t.Fatal(err)
	}
	m, err := rt.Ask(ctx, &messages.Show{Id: s.ID()})
	if err != nil {
		t.Fatal(err)
	}
	gens := m.(*messages.Shown).GetTurns()[0].GetGenerations()
	g := gens[0]
	if g.GetModel() != "m-1" || g.GetProviderRequestId() != "req_1" || g.GetAttempts() != 1 || g.GetUsage().GetInputTokens() != 10 || g.GetTiming().GetStartedAtUnixMs() == 0 {
		t.Errorf("generation %v", g)
	}
	m, err = rt.Ask(ctx, &messages.ListSessions{Folder: "local:" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if found := m.(*messages.Sessions).GetSessions(); len(found) != 1 || found[0].GetId() != s.ID() || found[0].GetState() != "inactive" {
		t.Errorf("sessions of the folder: %v", found)
	}
}

// TestWhatAToolMayKnowOfItsWorkspaceHasTheAgreedNames: acceptance row 5.
func TestWhatAToolMayKnowOfItsWorkspaceHasTheAgreedNames(t *testing.T) {
	var got *messages.WorkspaceInfo
	look := tool(t, "look", messages.Effect_PURE, func(tc *tools.Context, _ struct{}) (*tools.Result, error) {
		got = tc.WorkspaceInfo
		return &tools.Result{}, nil
	})
	dir, data := folder(t, nil), t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Tools: []troupe.Tool{look}, Store: memoryOf(t), DataDir: data})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for where, path := range map[string]string{"": dir, "home": filepath.Join(data, "homes", s.ID())} {
		if r, err := s.Call(ctx, "look", map[string]any{"workspace_id": where}); err != nil || r.GetErrorCode() != "" {
			t.Fatal(r, err)
		}
		raw, err := protojson.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]string
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"mode": "local", "workingDirectory": path, "projectDir": path, "clonePath": path}
		if !maps.Equal(fields, want) {
			t.Errorf("%q: %v instead of %v", where, fields, want)
		}
	}
	if f := got.ProtoReflect().Descriptor().Fields(); f.Len() != 5 || f.ByJSONName("containerId") == nil {
		t.Errorf("%d fields", f.Len())
	}
}
