package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
)

// TestAnOwnerKeepsWhatChangesSomethingAlone: reads may run again, and nobody settles them: kept, they would fill the ledger.
func TestAnOwnerKeepsWhatChangesSomethingAlone(t *testing.T) {
	const uri = "laptop:~/dev/monad"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := tools.OpenLedger(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	x, err := owner.New(owner.Options{Folders: map[string]string{uri: dir}, Trust: troupe.Full, Ledger: l})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for n, c := range []struct {
		tool, args string
		seen       tools.Seen
	}{
		{"read_file", `{"path":"a"}`, tools.NeverSeen},
		{"write_file", `{"path":"b","content":"x"}`, tools.Ended},
	} {
		exec := fmt.Sprint("exe_", n)
		r, err := x.Deliver(t.Context(), &messages.Execute{
			ExecId: exec, Attempt: 1, CallId: "c", Tool: c.tool, Arguments: c.args, Workspace: &messages.WorkspaceGrant{Uri: uri},
		}, nil)
		if err != nil || r.GetStatus() != messages.ToolFinished_OK {
			t.Fatalf("%s: %v %v", c.tool, r, err)
		}
		if seen, _, err := l.Look(exec, 1); err != nil || seen != c.seen {
			t.Errorf("%s: the ledger has seen %d, %v", c.tool, seen, err)
		}
	}
}

// listener is a connection that notes what it is told that is kept.
type listener struct {
	troupe.Owner
	settled chan string
}

func (l *listener) Settle(execID string, attempt uint32) {
	l.settled <- fmt.Sprint(execID, ".", attempt)
}

// TestWhatWasSettledWhileNoOwnerWasThereIsSaidToTheNext: else its ledger would keep that for ever, and be full once.
func TestWhatWasSettledWhileNoOwnerWasThereIsSaidToTheNext(t *testing.T) {
	const uri = "laptop:~/dev/monad"
	ctx := t.Context()
	rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Limits: troupe.Limits{Owner: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"write_file"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: uri}); err != nil {
		t.Fatal(err)
	}
	x := laptop(t, t.TempDir(), t.TempDir(), nil)
	deaf := &listener{&cable{Owner: x, after: make(chan struct{})}, make(chan string, 8)}
	_, leave := connect(t, rt, s, uri, deaf)
	go func() { <-deaf.Owner.(*cable).after; leave(false) }()
	r, err := s.Call(ctx, "write_file", map[string]any{"path": "n", "content": "x", "workspace_id": "laptop"})
	if err != nil || r.GetErrorCode() != "interrupted" {
		t.Fatalf("cut off after it ran: %v %v", r, err)
	}
	select {
	case what := <-deaf.settled:
		t.Fatalf("a connection that is over was told of %s", what)
	default:
	}
	for range 2 { // the first one may lose it, too
		next := &listener{x, make(chan string, 8)}
		_, leave = connect(t, rt, s, uri, next)
		select {
		case what := <-next.settled:
			if want := r.GetExecId() + ".1"; what != want {
				t.Errorf("settled %s, not %s", what, want)
			}
		default:
			t.Error("the next connection was told of nothing")
		}
		leave(false)
	}
	_, leave = connect(t, rt, s, uri, x)
	leave(true)
	last := &listener{x, make(chan string, 8)}
	connect(t, rt, s, uri, last)
	select {
	case what := <-last.settled:
		t.Errorf("an owner that began anew was told of %s", what)
	default:
	}
}
