package chaos

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestNoCutThroughTheMakingOfAWorkersCopyLeavesHalfOfIt cuts a life after each append, before and after its answer was heard: an agent
// delegates to one that works in a copy of its own, a worker with a copy is added by a person, works, has its changes applied, and is deleted. The
// next life has each worker with its copy or neither, no worker at work in the folder instead, and no copy that is nobody's.
func TestNoCutThroughTheMakingOfAWorkersCopyLeavesHalfOfIt(t *testing.T) {
	whole := newApart(t)
	appends := whole.life(1<<30, true)
	whole.check(true)
	made := 0
	everyCut(t, appends, 12, func(t *testing.T, n int, heard bool) {
		a := newApart(t)
		a.life(n, heard)
		made += a.check(false)
	})
	if made == 0 {
		t.Error("no cut left a worker with its copy: this shows too little")
	}
}

// apart is what survives a cut: the journals, the data directory and the folder.
type apart struct {
	t         *testing.T
	mem       *memory.Store
	dir, data string
}

func newApart(t *testing.T) *apart {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &apart{t: t, mem: memory.New(), dir: dir, data: t.TempDir()}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *apart) options(store persistence.Store) troupe.Options {
	w := &world{script: func(req *model.Request) ([][2]string, string) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		switch {
		case last.Role == messages.ToolRole:
			return nil, "done"
		case len(req.Prompt.Messages) == 1 && last.Text == "delegate it":
			return [][2]string{{"delegate", `{"task":"make it","agent":"apart"}`}}, ""
		}
		return [][2]string{{"write_file", `{"path":"made","content":"apart"}`}}, ""
	}}
	return troupe.Options{Model: w, Store: store, DataDir: a.data, Agents: []troupe.Agent{{Name: "apart", Isolate: true}}, Limits: troupe.Limits{Children: 1}}
}

// life is one that is cut after limit appends. It says how many there were.
func (a *apart) life(limit int, heard bool) int {
	a.t.Helper()
	nobody := func(context.Context, *troupe.Runtime) {}
	store := lifeUntilCut(a.t, a.mem, limit, heard, func(s *cutStore) troupe.Options { return a.options(s) }, nobody, a.work)
	a.mem = a.mem.Reopen()
	return store.count
}

func (a *apart) work(ctx context.Context, rt *troupe.Runtime) error {
	create := &messages.CreateSession{SessionId: sessionID, Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + a.dir, Trust: troupe.Full}}}
	if _, err := rt.Ask(ctx, create); err != nil {
		return err
	}
	s, err := rt.Open(ctx, sessionID)
	if err != nil {
		return err
	}
	if _, err := s.Run(ctx, "delegate it"); err != nil {
		return err
	}
	w, err := s.NewWorker(ctx, troupe.WorkerOptions{Isolate: true})
	if err != nil {
		return err
	}
	if _, err := w.Run(ctx, "make it"); err != nil {
		return err
	}
	if _, err := w.Apply(ctx); err != nil {
		return err
	}
	return a.remove(ctx, rt, w)
}

func (a *apart) remove(ctx context.Context, rt *troupe.Runtime, w *troupe.Worker) error {
	_, err := rt.Ask(ctx, &messages.ToSession{SessionId: sessionID, Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: w.ID()}}})
	return err
}

// check begins the next life, and counts the workers that have a copy.
func (a *apart) check(uncut bool) (n int) {
	t, ctx := a.t, a.t.Context()
	rt, err := troupe.New(ctx, a.options(a.mem))
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Open(ctx, sessionID)
	if f, ok := err.(*troupe.Failure); ok && f.GetCode() == messages.CodeNotFound { //nolint:errorlint // Open says so
		if lie := a.lie(); len(lie) > 0 {
			t.Errorf("copies of a session that is not: %v", lie)
		}
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
		return 0
	}
	if err == nil {
		_, err = rt.Ask(ctx, &messages.ToSession{SessionId: sessionID, Command: &messages.ToSession_WaitIdle{WaitIdle: &messages.WaitIdle{}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Workspaces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	owners := make(map[string]bool)
	for _, g := range all {
		if g.GetWorker() == "" {
			continue
		}
		places, owners[g.GetWorker()] = append(places, filepath.Dir(g.GetClonePath())), true
		n++
	}
	slices.Sort(places)
	if lie := a.lie(); !slices.Equal(lie, places) {
		t.Errorf("copies lie at %v, and the workers have %v", lie, places)
	}
	them, err := s.Workers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range them {
		r, err := w.Call(ctx, "write_file", map[string]any{"path": "by-" + w.ID(), "content": "x"})
		if f, ok := err.(*troupe.Failure); ok && f.GetCode() == messages.CodeClosed && i == 2 { //nolint:errorlint // Call says so
			err = a.remove(ctx, rt, w) // its deletion was half done, and is finished by who asks again
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
			continue
		}
		if err != nil || r.GetErrorCode() != "" {
			t.Errorf("worker %d: %v %v", i, r, err)
		}
		_, err = os.Stat(filepath.Join(a.dir, "by-"+w.ID()))
		if inside := err == nil; inside == owners[w.ID()] || owners[w.ID()] != (i > 0) {
			t.Errorf("worker %d of %d has a copy: %v; it works in the folder: %v", i, len(them), owners[w.ID()], inside)
		}
	}
	if uncut && (n != 1 || len(them) != 2) {
		t.Errorf("uncut: %d copies, %d workers", n, len(them))
	}
	if _, err := rt.Ask(ctx, to(&messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}})); err != nil {
		t.Error(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if lie := a.lie(); len(lie) > 0 {
		t.Errorf("copies of a session that was deleted: %v", lie)
	}
	return n
}

// lie are the copies in the data directory.
func (a *apart) lie() []string {
	all, err := filepath.Glob(filepath.Join(a.data, "copies", "*", "*"))
	if err != nil {
		a.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
