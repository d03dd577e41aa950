package actors_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// slowly makes copies when its gate is opened. deaf: it does not hear that nobody wants them any more.
type slowly struct {
	gate *actortest.Gate
	deaf bool
}

func (s slowly) Make(ctx context.Context, folder, dir string) error {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if err := s.gate.Pass(ctx); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "tree"), os.DirFS(folder))
}

func (slowly) Changes(context.Context, string, string) (*messages.Changes, error) {
	return &messages.Changes{}, nil
}

func (slowly) Apply(context.Context, string, string) (*messages.Changes, error) {
	return nil, errors.New("not of this test")
}

// copied lists the copies that lie in a data directory.
func copied(t *testing.T, data string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(data, "copies", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func inFolder(t *testing.T) *messages.CreateSession {
	return &messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL, Name: "work"}}}
}

func TestASessionGoesOnWhileACopyIsMadeForAWorker(t *testing.T) {
	gate, data := actortest.NewGate(), t.TempDir()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), DataDir: data, Copies: slowly{gate: gate}, Limits: actors.Limits{Workers: 3}})
	s, _ := h.Create(inFolder(t))
	spawned := actortest.Later[*messages.WorkerView](h, s, &messages.SpawnWorker{Isolate: true})
	actortest.Wait(t, "the making", gate.Came)
	attach(h, s, space(t.TempDir(), "other"))
	detach(h, s, "other")
	actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.SpawnWorker{Isolate: true}); actortest.Code(err) != messages.CodeBusy {
		t.Errorf("who is about to come does not count for the limit: %v", err)
	}
	if n := len(workers(h, s)); n != 2 {
		t.Errorf("%d workers", n)
	}
	gate.Open()
	w := actortest.Wait(t, "the worker", spawned)
	if w.Err != nil {
		t.Fatal(w.Err)
	}
	for _, g := range actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{}).GetWorkspaces() {
		if g.GetWorker() != "" && (g.GetWorker() != w.Reply.GetId() || g.GetTrust() != messages.Trust_FULL || g.GetName() != "work") {
			t.Errorf("the copy is not as the folder is now: %v", g)
		}
	}
	if got := copied(t, data); len(got) != 1 {
		t.Errorf("copies: %v", got)
	}
}

func TestNobodysCopyIsMadeNoFurtherAndLeavesNothing(t *testing.T) {
	forget := &messages.CloseSession{Forget: true}
	for name, end := range map[string]func(h *actortest.House, s string){
		"deleted": func(h *actortest.House, s string) { actortest.Ask[*messages.Ack](h, s, forget) },
		"closed":  func(h *actortest.House, s string) { actortest.Ask[*messages.Ack](h, s, &messages.CloseSession{}) },
		"cancel": func(h *actortest.House, s string) {
			actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{})
		},
		"stopped":  func(h *actortest.House, _ string) { h.Stop() },
		"detached": nil,
	} {
		for _, deaf := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				gate, data := actortest.NewGate(), t.TempDir()
				h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), DataDir: data, Copies: slowly{gate, deaf}})
				s, _ := h.Create(inFolder(t))
				spawned := actortest.Later[*messages.WorkerView](h, s, &messages.SpawnWorker{Isolate: true})
				actortest.Wait(t, "the making", gate.Came)
				switch {
				case end == nil:
					detach(h, s, "work")
					gate.Open()
				case deaf && name == "stopped": // it waits for what it began
					time.AfterFunc(10*time.Millisecond, gate.Open)
					end(h, s)
				default:
					end(h, s)
				}
				if got := actortest.Wait(t, "the answer", spawned); got.Err == nil {
					t.Errorf("there is a worker: %v", got.Reply)
				}
				if deaf && end != nil && name != "stopped" {
					gate.Open()
				}
				h.Stop()
				if left := copied(t, data); len(left) != 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

func TestACancelledCallHasNoCopyMadeForItsChild(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		gate, data := actortest.NewGate(), t.TempDir()
		h := actortest.New(t, actortest.Options{
			Model: family(actortest.Say("never"), delegate("1", "x", `,"agent":"apart"`)), DataDir: data,
			Copies: slowly{gate, deaf}, Agents: []actors.Agent{{Name: "apart", Isolate: true}},
		})
		s, w := h.Create(inFolder(t))
		submit(h, s, "go")
		actortest.Wait(t, "the making", gate.Came)
		if c := actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: w, By: "user"}); c.GetTurns() != 1 {
			t.Errorf("%v", c)
		}
		if f := finishedCalls(h, w); len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_CANCELLED || !strings.Contains(f[0].GetContent(), "before it started") {
			t.Errorf("the call ended as %v", f)
		}
		if n := len(workers(h, s)); n != 1 {
			t.Errorf("%d workers", n)
		}
		gate.Open()
		h.Stop()
		if left := copied(t, data); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestASessionThatIsDeletedWhileItIsMadeHasNoCopy(t *testing.T) {
	gate, data := actortest.NewGate(), t.TempDir()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), DataDir: data, Copies: slowly{gate: gate}})
	m := inFolder(t)
	m.SessionId, m.Workspaces[0].Isolate = messages.NewID(messages.SessionPrefix), true
	created := actortest.Later[*messages.SessionView](h, "", m)
	actortest.Wait(t, "the making", gate.Came)
	_, err := actortest.Try[*messages.Ack](h, m.GetSessionId(), &messages.CloseSession{Forget: true})
	if got := actortest.Wait(t, "the session", created); got.Err == nil {
		t.Errorf("%v, and its deletion %v", got.Reply, err)
	}
	h.Stop()
	if left := copied(t, data); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCopiesUnderWayCountForTheBoundOfWorkspaces: what is one too many is refused before anything is made for it.
func TestCopiesUnderWayCountForTheBoundOfWorkspaces(t *testing.T) {
	gate, data := actortest.NewGate(), t.TempDir()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), DataDir: data, Copies: slowly{gate: gate}})
	s, _ := h.Create(inFolder(t)) // two, with its own
	attachCopy := func() *messages.AttachWorkspace {
		return &messages.AttachWorkspace{Workspace: &messages.WorkspaceSpec{Uri: "local:" + t.TempDir(), Isolate: true}}
	}
	under := make([]<-chan actortest.Answer[*messages.WorkspaceGrant], 30)
	for i := range under {
		under[i] = actortest.Later[*messages.WorkspaceGrant](h, s, attachCopy())
		actortest.Wait(t, "the making", gate.Came)
	}
	if _, err := actortest.Try[*messages.WorkspaceGrant](h, s, attachCopy()); actortest.Code(err) != messages.CodeBadRequest || !strings.Contains(err.Error(), "30 more are being made") {
		t.Errorf("one more: %v", err)
	}
	if _, err := actortest.Try[*messages.WorkspaceGrant](h, s, &messages.AttachWorkspace{Workspace: space(t.TempDir(), "plain")}); actortest.Code(err) != messages.CodeBadRequest || !strings.Contains(err.Error(), "30 more are being made") {
		t.Errorf("a folder in the place of a copy that is being made: %v", err)
	}
	gate.Open()
	for _, one := range under {
		if a := actortest.Wait(t, "the copy", one); a.Err != nil {
			t.Error(a.Err)
		}
	}
	if got := copied(t, data); len(got) != 30 {
		t.Errorf("%d copies", len(got))
	}
}

// TestCopiesOfWorkersTakeNobodyElsesPlace: no turn but their worker's takes their leases.
func TestCopiesOfWorkersTakeNobodyElsesPlace(t *testing.T) {
	gate := actortest.NewGate()
	gate.Open()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), DataDir: t.TempDir(), Copies: slowly{gate: gate}})
	s, _ := h.Create(inFolder(t))
	for range 30 {
		actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Isolate: true})
	}
	if g := attach(h, s, space(t.TempDir(), "other")); g.GetName() != "other" {
		t.Errorf("%v", g)
	}
}

// TestAnAuditSaysWhoseCopyCameAndWent: a worker's own copy goes with it.
func TestAnAuditSaysWhoseCopyCameAndWent(t *testing.T) {
	gate, store := actortest.NewGate(), stored(t)
	gate.Open()
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok"), Store: store, DataDir: t.TempDir(), Copies: slowly{gate: gate}})
	s, _ := h.Create(inFolder(t))
	w := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Isolate: true}).GetId()
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: w})
	all, err := actors.Audit(t.Context(), store, s)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range all.GetEntries() {
		if e.GetWorkerId() == w {
			told = append(told, e.GetKind()+" "+e.GetWhat()+" "+e.GetDecision()+" "+e.GetWhy())
		}
	}
	if got := strings.Join(told, "; "); got != "trust full set attached; trust full revoked its worker ended" {
		t.Errorf("%s", got)
	}
}
