package troupe_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// withCopies is a session that works in a copy, and a worker of it that works in a copy of that.
func withCopies(t *testing.T, p *place) (*troupe.Session, *troupe.Worker) {
	t.Helper()
	ctx := t.Context()
	s, err := p.Session(ctx, troupe.SessionOptions{Dir: folder(t, map[string]string{"a": "1"}), Trust: troupe.Full, Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []*troupe.Worker{s.Worker, w} {
		use(ctx, t, one, "write_file", map[string]any{"path": "made", "content": "in a copy"})
	}
	return s, w
}

// holdsTogether checks that the copies of a session refer to what is its own, and to nothing of another one.
func holdsTogether(ctx context.Context, t *testing.T, s *troupe.Session, other string) {
	t.Helper()
	all, err := s.Workspaces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	them, err := s.Workers(ctx)
	if err != nil || len(them) != 2 {
		t.Fatalf("%v %v", them, err)
	}
	copies, whose := map[string]string{}, 0
	for _, g := range all {
		if g.GetProjectDir() != "" {
			copies[g.GetUri()] = g.GetPath()
		}
	}
	for _, g := range all {
		if other != "" && strings.Contains(g.String(), other) {
			t.Errorf("it names the other session: %v", g)
		}
		switch dir, ofCopy := copies[g.GetSource()]; {
		case g.GetProjectDir() == "" || g.GetWorker() == "":
		case g.GetWorker() != them[1].ID() || !ofCopy || g.GetProjectDir() != dir:
			t.Errorf("the worker's copy: %v", g)
		default:
			whose++
		}
	}
	if whose != 1 || len(copies) != 2 {
		t.Errorf("%d copies, %d of the worker: %v", len(copies), whose, all)
	}
	for i, w := range them {
		if got := use(ctx, t, w, "read_file", map[string]any{"path": "a"}); !strings.Contains(got, "stays behind") {
			t.Errorf("worker %d: %s", i, got)
		}
		if _, err := w.Changes(ctx); failureCode(err) != messages.CodeNoWorkspace {
			t.Errorf("worker %d: %v", i, err)
		}
	}
}

func TestForksAndImportsOfSessionsWithCopiesReferToTheirOwn(t *testing.T) {
	ctx, a, b := t.Context(), newPlace(t, echo()), newPlace(t, echo())
	s, w := withCopies(t, a)
	f, err := a.Fork(ctx, s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holdsTogether(ctx, t, f, s.ID())
	file := export(t, a, s.ID())
	changes, err := s.Changes(ctx)
	if first, _, _ := strings.Cut(file, "\n"); err != nil || !strings.Contains(first, `"left_out":["`+changes.GetFolder()+`","`) {
		t.Errorf("the first line does not name what is left out: %s, %v", first, err)
	}
	for _, fresh := range []bool{false, true} {
		in := load(t, b, file, &messages.ImportSession{NewId: fresh, KeepTrust: true})
		other := ""
		if fresh {
			other = s.ID()
		}
		i, err := b.Open(ctx, in.GetSession().GetId())
		if err != nil {
			t.Fatal(err)
		}
		holdsTogether(ctx, t, i, other)
		if fresh {
			ask[*messages.Ack](t, b.Runtime, forget(i.ID()))
		}
	}
	them, err := f.Workers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask[*messages.Ack](t, a.Runtime, &messages.ToSession{SessionId: f.ID(), Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: them[1].ID()}}})
	ask[*messages.Ack](t, a.Runtime, forget(f.ID()))
	if got := use(ctx, t, w, "read_file", map[string]any{"path": "made"}); !strings.Contains(got, "in a copy") {
		t.Errorf("the original, when its fork has gone: %s", got)
	}
	if x, err := w.Apply(ctx); failureCode(err) != "conflict" { // both have made the file, with the same content
		if err != nil || len(x.GetFiles()) != 1 {
			t.Errorf("%v %v", x, err)
		}
	}
}

// TestCopiesThatAFileMakesUpAreNotImported: what names no worker of its own, no copy of its own, or a folder under another name.
func TestCopiesThatAFileMakesUpAreNotImported(t *testing.T) {
	a, b := newPlace(t, echo()), newPlace(t, echo())
	s, w := withCopies(t, a)
	file := export(t, a, s.ID())
	for what, c := range map[string][2]string{
		"nobody's":                   {`"worker":"` + w.ID(), `"worker":"wrk_nobody`},
		"of another session":         {`"uri":"troupe:/copies/` + s.ID(), `"uri":"troupe:/copies/ses_other`},
		"of a folder by two names":   {`"project_dir":"/`, `"project_dir":"/etc/`},
		"out of the place of copies": {`"uri":"troupe:/copies/` + s.ID() + `/cpy_`, `"uri":"troupe:/copies/` + s.ID() + `/x`},
		"of nothing that is there":   {`"source":"troupe:/copies/`, `"source":"troupe:/sessions/`},
		"of a commit":                {`"project_dir":`, `"commit":"` + strings.Repeat("a", 40) + `","project_dir":`},
	} {
		forged := forge(t, file, func(_ int, line string) string { return strings.ReplaceAll(line, c[0], c[1]) })
		if forged == file {
			t.Fatalf("%s: nothing was forged", what)
		}
		if _, err := b.ImportSession(t.Context(), strings.NewReader(forged), &messages.ImportSession{}); failureCode(err) != messages.CodeBadRequest || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAWorkerGoesThoughItsCopyIsWhatAnothersWasMadeOf: the other one's changes are seen still, and go nowhere.
func TestAWorkerGoesThoughItsCopyIsWhatAnothersWasMadeOf(t *testing.T) {
	ctx, data := t.Context(), t.TempDir()
	step := func(id, tool, args string) []*messages.ToolCall {
		return []*messages.ToolCall{{Id: id, Name: tool, Arguments: args}}
	}
	rt, err := troupe.New(ctx, troupe.Options{
		DataDir: data, Agents: []troupe.Agent{{Name: "apart", Isolate: true}}, Limits: troupe.Limits{Children: 4},
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
	defer func() { _ = rt.Close(context.WithoutCancel(ctx)) }()
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, map[string]string{"a": "1"}), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	parent, err := s.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := parent.Run(ctx, "go"); err != nil || r.Outcome != "done" {
		t.Fatalf("%+v %v", r, err)
	}
	them, err := s.Workers(ctx)
	if err != nil || len(them) != 3 {
		t.Fatalf("%v %v", them, err)
	}
	child := them[2]
	x, err := child.Changes(ctx)
	if err != nil || len(x.GetFiles()) != 1 || x.GetFiles()[0].GetConflict() != "" {
		t.Fatalf("%v %v", x, err)
	}
	of := x.GetFolder()
	remove := func(w *troupe.Worker) {
		t.Helper()
		ask[*messages.Ack](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: w.ID()}}})
	}
	remove(parent)
	appearsNot(ctx, t, filepath.Join(data, "copies", s.ID(), filepath.Base(of)))
	x, err = child.Changes(ctx)
	if err != nil || len(x.GetFiles()) != 1 || !strings.Contains(x.GetFiles()[0].GetConflict(), "not there any more") {
		t.Errorf("%v %v", x, err)
	}
	if _, err := child.Apply(ctx); failureCode(err) != messages.CodeNoWorkspace {
		t.Errorf("%v", err)
	}
	if got := use(ctx, t, child, "read_file", map[string]any{"path": "made"}); !strings.Contains(got, "by the child") {
		t.Errorf("it works on: %s", got)
	}
	remove(child)
	ask[*messages.Ack](t, rt, forget(s.ID()))
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if left := copies(t, data); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// appearsNot waits until a folder is gone.
func appearsNot(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	for _, err := os.Stat(path); err == nil; _, err = os.Stat(path) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is still there", path)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
