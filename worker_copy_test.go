package troupe_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/tools"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// use calls a tool as the program, through one worker.
func use(ctx context.Context, t *testing.T, w *troupe.Worker, tool string, args map[string]any) string {
	t.Helper()
	r, err := w.Call(ctx, tool, args)
	if err != nil {
		t.Fatal(err)
	}
	return r.GetContent() + r.GetErrorCode()
}

// copiesIn counts the copies that lie in a data directory.
func copiesIn(t *testing.T, data string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(data, "copies", "*", "*", "tree"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestAWorkerWorksInACopyOfItsOwnWhichGoesWithIt(t *testing.T) {
	data, ctx := t.TempDir(), t.Context()
	dir := folder(t, map[string]string{"a": "1"})
	open := func() *troupe.Runtime {
		rt, err := troupe.New(ctx, troupe.Options{Model: echo(), DataDir: data, Agents: []troupe.Agent{{Name: "apart", Isolate: true}}})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	rt := open()
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := s.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	named, err := s.NewWorker(ctx, troupe.WorkerOptions{Agent: "apart"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := s.NewWorker(ctx, troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]*troupe.Worker{"asked": asked, "named": named, "plain": plain} {
		if got := use(ctx, t, w, "write_file", map[string]any{"path": name, "content": name}); !strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := content(t, dir, "plain"); got != "plain" {
		t.Errorf("who has no copy works in the folder: %s", got)
	}
	for _, name := range []string{"asked", "named"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("the folder was touched by %s", name)
		}
	}
	if got := use(ctx, t, named, "read_file", map[string]any{"path": "asked"}); !strings.Contains(got, "file_not_found") {
		t.Errorf("one sees the other's copy: %s", got)
	}
	if got := use(ctx, t, asked, "list_files", map[string]any{"workspace_id": filepath.Base(dir)}); !strings.Contains(got, "asked") || strings.Contains(got, "plain") {
		t.Errorf("by the folder's name it has another one: %s", got)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}

	rt = open() // it has its copy still
	if s, err = rt.Open(ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	them, err := s.Workers(ctx)
	if err != nil || len(them) != 4 || them[1].ID() != asked.ID() {
		t.Fatalf("%v %v", them, err)
	}
	asked = them[1]
	if got := use(ctx, t, asked, "read_file", map[string]any{"path": "asked"}); !strings.Contains(got, "asked") {
		t.Errorf("after a restart: %s", got)
	}
	_, err = s.Changes(ctx)
	wantCode(t, "the session's own", err, messages.CodeNoWorkspace)
	x, err := asked.Changes(ctx)
	if err != nil || len(x.GetFiles()) != 1 || x.GetFiles()[0].GetPath() != "asked" || x.GetFolder() != "local:"+dir {
		t.Fatalf("%v %v", x, err)
	}
	if x, err = asked.Apply(ctx); err != nil || !x.GetApplied() || content(t, dir, "asked") != "asked" {
		t.Errorf("%v %v", x, err)
	}
	all, err := s.Workspaces(ctx)
	if err != nil || len(all) != 4 || all[1].GetWorker() != asked.ID() || all[1].GetPrimary() || !all[0].GetPrimary() {
		t.Fatalf("%v %v", all, err)
	}
	wantCode(t, "detach it", s.Detach(ctx, all[1].GetUri()), messages.CodeBadRequest)
	if n := copiesIn(t, data); n != 2 {
		t.Errorf("%d copies", n)
	}
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: asked.ID()}}}); err != nil {
		t.Fatal(err)
	}
	all, err = s.Workspaces(ctx)
	if err != nil || len(all) != 3 { // the folder, the other's copy, home
		t.Errorf("%v %v", all, err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(data, "copies", s.ID(), "cpy_left", "tree"), 0o700); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	rt = open()
	defer rt.Close(ctx)
	if n := copiesIn(t, data); n != 1 {
		t.Errorf("%d copies after the worker has gone, and a restart", n)
	}
	first, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Agent: "apart"})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := first.Changes(ctx); err != nil || len(x.GetFiles()) != 0 {
		t.Errorf("the first agent of a session: %v %v", x, err)
	}
	bare, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bare.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	wantCode(t, "without a folder", err, messages.CodeBadRequest)
	if _, err := bare.NewWorker(ctx, troupe.WorkerOptions{Agent: "apart"}); err != nil {
		t.Errorf("an agent that works apart where there is nothing to work in: %v", err)
	}
}

func TestWhoIsDelegatedToWorksInACopyWhereItsProfileSaysSoAndAForkHasNone(t *testing.T) {
	ctx, dir := t.Context(), folder(t, map[string]string{"a": "1"})
	step := func(id, tool, args string) []*messages.ToolCall {
		return []*messages.ToolCall{{Id: id, Name: tool, Arguments: args}}
	}
	rt, err := troupe.New(ctx, troupe.Options{
		DataDir: t.TempDir(), Agents: []troupe.Agent{{Name: "apart", Isolate: true}}, Limits: troupe.Limits{Children: 4},
		Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
			last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
			switch {
			case last.Role == "tool":
				return "done", nil
			case strings.Contains(req.Prompt.System, "has delegated a task to you"):
				return "", step("c", "write_file", `{"path":"made","content":"by the child"}`)
			}
			return "", step("p", "delegate", `{"task":"make it","agent":"apart"}`)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(ctx, "go"); err != nil || r.Outcome != "done" {
		t.Fatalf("%+v %v", r, err)
	}
	them, err := s.Workers(ctx)
	if err != nil || len(them) != 2 {
		t.Fatalf("%v %v", them, err)
	}
	if got := content(t, dir, "made"); got == "by the child" {
		t.Error("the child worked in the folder")
	}
	if x, err := them[1].Apply(ctx); err != nil || len(x.GetFiles()) != 1 || content(t, dir, "made") != "by the child" {
		t.Errorf("%v %v", x, err)
	}
	f, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if them, err = f.Workers(ctx); err != nil || len(them) != 2 {
		t.Fatalf("%v %v", them, err)
	}
	if got := use(ctx, t, them[1], "read_file", map[string]any{"path": "a"}); strings.Contains(got, "\t1") {
		t.Errorf("in a fork it works in the folder itself: %s", got)
	}
	if got := reads(ctx, t, f, "a", ""); got != "1" {
		t.Errorf("the others of the fork: %s", got)
	}
}

// TestWhoLosesAWorkerKeepsTheLeasesOfOverlappingFolders: one session works in a folder, the other one below it, and a worker of that with a copy goes.
func TestWhoLosesAWorkerKeepsTheLeasesOfOverlappingFolders(t *testing.T) {
	in, door := make(chan string, 2), make(chan struct{})
	type hands struct {
		Who string `json:"who" desc:"Who works."`
	}
	hold := tool(t, "hold", messages.Effect_IDEMPOTENT, func(_ *tools.Context, a hands) (*tools.Result, error) {
		in <- a.Who
		<-door
		return &tools.Result{Content: "done"}, nil
	})
	ctx := t.Context()
	rt, err := troupe.New(ctx, troupe.Options{DataDir: t.TempDir(), Tools: []tools.Tool{hold}, Model: scripted(`
rules:
  - {match: '^(\w+)$', step: 0, reply: {tool_calls: [{name: hold, arguments: {who: '${1}'}}]}}
  - {reply: {text: Done.}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Close(context.WithoutCancel(ctx)) }()
	dir := folder(t, map[string]string{"sub/a": "1"})
	upper, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	lower, err := rt.Session(ctx, troupe.SessionOptions{Dir: filepath.Join(dir, "sub"), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	apart, err := lower.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: lower.ID(), Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: apart.ID()}}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { _, err := upper.Run(ctx, "upper"); done <- err }()
	if who := <-in; who != "upper" {
		t.Fatalf("%s works", who)
	}
	go func() { _, err := lower.Run(ctx, "lower"); done <- err }()
	for waits := false; !waits; {
		select {
		case who := <-in:
			t.Errorf("%s works beside the one in the folder above", who)
			waits = true
		case <-time.After(5 * time.Millisecond):
			all, err := rt.Ask(ctx, &messages.ListWorkers{SessionId: lower.ID()})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range all.(*messages.Workers).GetWorkers() {
				waits = waits || w.GetWaiting().GetKind() == "lease"
			}
		}
	}
	close(door)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
