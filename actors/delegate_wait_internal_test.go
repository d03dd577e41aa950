package actors

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// TestADelegationWaitsUntilItIsKnownWhetherThereIsAChild has a Session that is busy with a copy for as long as two questions may take, and then answers
// the third one; a call that is halted waits no longer.
func TestADelegationWaitsUntilItIsKnownWhetherThereIsAChild(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	asked := 0
	session, err := sys.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*messages.SpawnChild); ok && !m.GetAttach() { // else it says that it was cancelled
			if asked++; asked > 2 && m.GetExecId() == "exe_1" {
				c.Respond(&messages.ChildReady{WorkerId: "wrk_1"})
			}
		}
	}), root+"/ses_1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sys.Root.PoisonFuture(session).Wait() }()
	// Of the time for a question, 20 ms are left.
	r := &run{svc: &Services{Limits: Limits{Grace: 20*time.Millisecond - cancelWait}}, sys: sys, m: &messages.Execute{SessionId: "ses_1"}}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("cancelled")) // which it has to know as well
	ready, err := r.spawn(ctx, &messages.SpawnChild{ExecId: "exe_1"})
	if err != nil || ready.GetWorkerId() != "wrk_1" {
		t.Errorf("%v, %v", ready, err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(errHalted)
	if ready, err := r.spawn(ctx, &messages.SpawnChild{ExecId: "exe_2"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", ready, err)
	}
}
