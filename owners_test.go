package troupe_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
	"github.com/troupe-dev/troupe/workspace"
)

// laptop is an owner of another machine, in this process.
func laptop(t *testing.T, ledger, dir string, allow func() bool) *owner.Owner {
	t.Helper()
	l, err := tools.OpenLedger(ledger, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	x, err := owner.New(owner.Options{Folders: map[string]string{"macbook-pro:~/dev/monad": dir, "laptop:~/dev/monad": dir}, Trust: troupe.Full, Ledger: l, Allow: func(context.Context, *messages.Execute, *workspace.Workspace) error {
		if allow != nil && !allow() {
			return tools.Errorf(tools.CodeUserRejected, "Operation rejected by user")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); _ = l.Close() })
	return x
}

func connect(t *testing.T, rt *troupe.Runtime, s *troupe.Session, uri string, x troupe.Owner) (uint64, func(bool)) {
	t.Helper()
	epoch, leave, err := rt.ConnectOwner(t.Context(), &messages.ConnectOwner{SessionId: s.ID(), Uri: uri, Client: "laptop"}, x)
	if err != nil {
		t.Fatal(err)
	}
	return epoch, leave
}

// cable is a connection that can be cut before the owner hears of a call, or before the server hears of its result.
type cable struct {
	*owner.Owner
	before, after chan struct{} // a call is at that place; nil: it passes
	heard         int
}

func (c *cable) Deliver(ctx context.Context, m *messages.Execute, p func(*messages.Progress)) (*messages.ToolReply, error) {
	if c.before != nil {
		close(c.before)
		<-ctx.Done()
		return nil, errors.New("cut")
	}
	c.heard++
	r, err := c.Owner.Deliver(ctx, m, p)
	if c.after != nil {
		close(c.after)
		<-ctx.Done()
		return r, err // too late: the epoch is over
	}
	return r, err
}

func TestACallTravelsToTheOwnerOfItsWorkspaceAndTheTurnGoesOn(t *testing.T) {
	ctx, dir, ledger := t.Context(), folder(t, map[string]string{"a": "there"}), t.TempDir()
	rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Limits: troupe.Limits{Owner: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"read_file", "write_file"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"MacBook-Pro:~/dev/monad", "macbook-pro:~/other"} {
		g, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: uri, Trust: troupe.Restricted})
		if err != nil || g.GetOwner() != "macbook-pro" || g.GetKind() != "client" || g.GetPath() != "" {
			t.Fatalf("%v %v", g, err)
		}
	}
	state := func() string {
		return ask[*messages.Workspaces](t, rt, &messages.ListWorkspaces{SessionId: s.ID()}).GetWorkspaces()[0].GetState()
	}
	if got := state(); got != "offline" {
		t.Errorf("before its owner is there it is %s", got)
	}
	if got := reads(ctx, t, s, "a", "macbook-pro"); got != "client_not_connected" {
		t.Errorf("before its owner is there: %s", got)
	}
	allowed := true
	x := laptop(t, ledger, dir, func() bool { return allowed })
	first, leave := connect(t, rt, s, "macbook-pro:~/dev/monad", x)
	if got := state(); got != "attached" {
		t.Errorf("then it is %s", got)
	}
	if got := reads(ctx, t, s, "a", "macbook-pro"); got != "there" {
		t.Errorf("connected: %s", got)
	}
	r, err := s.Call(ctx, "write_file", map[string]any{"path": "main.swift", "content": "x", "workspace_id": "macbook-pro"})
	if err != nil || r.GetErrorCode() != "" || content(t, dir, "main.swift") != "x" {
		t.Errorf("write: %v %v", r, err)
	}
	connect(t, rt, s, "macbook-pro:~/other", x)
	r, err = s.Call(ctx, "read_file", map[string]any{"path": "a", "workspace_id": "macbook-pro:~/other"})
	if err != nil || r.GetErrorCode() != "workspace_not_available" || r.GetContent() != "No active project" {
		t.Errorf("a folder that the owner does not share: %v %v", r, err)
	}
	allowed = false
	r, err = s.Call(ctx, "write_file", map[string]any{"path": "no", "content": "x", "workspace_id": "macbook-pro"})
	if err != nil || r.GetErrorCode() != "user_rejected" {
		t.Errorf("the owner's word: %v %v", r, err)
	}
	other := &messages.ConnectOwner{SessionId: s.ID(), Uri: "macbook-pro:~/dev/monad", Client: "another program"}
	_, _, err = rt.ConnectOwner(ctx, other, x)
	wantCode(t, "a place that is taken", err, messages.CodeConflict)
	if _, _, err := rt.ConnectOwner(ctx, &messages.ConnectOwner{SessionId: s.ID(), Uri: other.GetUri(), Client: "another program", Steal: true}, x); err != nil {
		t.Fatal(err)
	}
	other.Client = "" // who does not say who it is, is nobody's later connection, its own neither
	_, _, err = rt.ConnectOwner(ctx, other, x)
	wantCode(t, "a place that is taken, by nobody", err, messages.CodeConflict)
	nameless := &messages.ConnectOwner{SessionId: s.ID(), Uri: other.GetUri(), Steal: true}
	if _, _, err := rt.ConnectOwner(ctx, nameless, x); err != nil {
		t.Fatal(err)
	}
	_, _, err = rt.ConnectOwner(ctx, other, x)
	wantCode(t, "a place that nobody has taken", err, messages.CodeConflict)
	other.Client = "another program"
	other.Uri = "macbook-pro:~/nowhere"
	_, _, err = rt.ConnectOwner(ctx, other, x)
	wantCode(t, "what is not attached", err, messages.CodeNoWorkspace)
	other.Uri, other.Steal, other.TokenId = "macbook-pro:~/dev/monad", true, "tok_other"
	_, _, err = rt.ConnectOwner(ctx, other, x)
	wantCode(t, "a host of another token", err, messages.CodeDenied)
	other.TokenId = ""
	if second, _, err := rt.ConnectOwner(ctx, other, x); err != nil || second <= first {
		t.Errorf("stolen: epoch %d after %d, %v", second, first, err)
	}
	leave(true) // of an epoch that is over: it says nothing about the newer connection
	if got := state(); got != "attached" {
		t.Errorf("an old connection that leaves makes it %s", got)
	}
	other.Steal = false // one's own place is no theft
	_, leave, err = rt.ConnectOwner(ctx, other, x)
	if err != nil {
		t.Fatal(err)
	}
	leave(true)
	r, err = s.Call(ctx, "read_file", map[string]any{"path": "a", "workspace_id": "macbook-pro"})
	if err != nil || r.GetErrorCode() != "workspace_not_available" || r.GetContent() != "No active project" {
		t.Errorf("an owner that is gone: %v %v", r, err)
	}
}

func TestACallThatLosesItsConnectionIsDeliveredAgainAndRunsOnce(t *testing.T) {
	ctx := t.Context()
	for what, cut := range map[string]func(c *cable) chan struct{}{
		"before it was heard": func(c *cable) chan struct{} { c.before = make(chan struct{}); return c.before },
		"after it ran":        func(c *cable) chan struct{} { c.after = make(chan struct{}); return c.after },
	} {
		dir := folder(t, nil)
		rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Limits: troupe.Limits{Owner: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"create_directory", "write_file"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: "laptop:~/dev/monad"}); err != nil {
			t.Fatal(err)
		}
		runs := 0
		x := laptop(t, t.TempDir(), dir, func() bool { runs++; return true })
		broken := &cable{Owner: x}
		at := cut(broken)
		_, leave := connect(t, rt, s, "laptop:~/dev/monad", broken)
		done := make(chan *messages.ToolReply, 1)
		go func() {
			r, err := s.Call(ctx, "write_file", map[string]any{"path": "n", "content": "once", "workspace_id": "laptop"})
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		<-at
		leave(false)
		connect(t, rt, s, "laptop:~/dev/monad", x)
		if r := <-done; r.GetErrorCode() != "" || content(t, dir, "n") != "once" || runs != 1 {
			t.Errorf("cut %s: %v, it ran %d times", what, r, runs)
		}
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACallWhoseOwnerDoesNotComeBackIsNamedUnknown(t *testing.T) {
	ctx, dir, ledger := t.Context(), folder(t, nil), t.TempDir()
	rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Limits: troupe.Limits{Owner: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"read_file", "write_file"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: "laptop:~/dev/monad"}); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{"read_file": "client_not_connected", "write_file": "interrupted"} {
		broken := &cable{Owner: laptop(t, filepath.Join(ledger, tool), dir, nil), before: make(chan struct{})}
		_, leave := connect(t, rt, s, "laptop:~/dev/monad", broken)
		go func() { <-broken.before; leave(false) }()
		args := map[string]any{"path": "n", "workspace_id": "laptop"}
		if tool == "write_file" {
			args["content"] = "x"
		}
		r, err := s.Call(ctx, tool, args)
		if err != nil || r.GetErrorCode() != want {
			t.Errorf("%s: %v %v, want %s", tool, r, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "n")); err == nil {
		t.Error("it ran")
	}
	// What an owner began before its machine was switched off, it does not know either.
	l, err := tools.OpenLedger(filepath.Join(ledger, "off"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin("exe_1", 1); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	x := laptop(t, filepath.Join(ledger, "off"), dir, nil)
	m := &messages.Execute{ExecId: "exe_1", Attempt: 1, Tool: "write_file", Arguments: `{"path":"n","content":"x"}`, Workspace: &messages.WorkspaceGrant{Uri: "laptop:~/dev/monad"}}
	r, err := x.Deliver(ctx, m, nil)
	if err != nil || r.GetStatus() != messages.ToolFinished_INTERRUPTED_UNKNOWN || r.GetErrorCode() != "interrupted" {
		t.Errorf("%v %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "n")); err == nil {
		t.Error("what was begun before ran again")
	}
}
