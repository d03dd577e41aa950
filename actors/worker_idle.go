package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// idleness says whether this worker could leave memory: everything that it knows is in its journal, and
// nobody waits for anything. It is asked in turn, so that no append is under way.
func (w *Worker) idleness() *messages.Idleness {
	return &messages.Idleness{
		Idle:        w.state.Turn() == nil && len(w.state.Staged()) == 0 && !w.leases.busy() && len(w.running) == 0 && len(w.waiting) == 0 && w.compacting == nil && w.mailRests(),
		SinceUnixMs: w.state.At(), DueUnixMs: w.nextTimer(),
	}
}

// waitIdle answers when there is nothing to do.
func (w *Worker) waitIdle(c actor.Context) {
	if w.state.Turn() == nil && len(w.state.Staged()) == 0 && !w.leases.busy() && w.compacting == nil && w.mailRests() {
		c.Respond(&messages.Ack{})
		return
	}
	w.idlers = act.Await(c.ActorSystem(), w.idlers, c.Sender())
}

// asks says whether a message is one that a sender waits for.
func asks(msg any) bool {
	switch msg.(type) {
	case *messages.SubmitInput, *messages.RunInput, *messages.CallTool, *messages.AwaitTurn, *messages.CancelSession, *messages.ListInputs, *messages.WithdrawInput,
		*messages.DeliverMail, *messages.ReadHistory, *messages.ConfigureWorker, *messages.NarrowChild, *messages.DescribeWorker, *messages.WaitIdle, *messages.ReportIdle, *messages.ResolveCall, *messages.ResolveApproval,
		*messages.ReleaseWorker, *messages.SetTimer, *messages.CancelTimer, *messages.ListTimers, *messages.FireTimer, *messages.CompactHistory, *messages.DeleteWorker, *messages.SaveHistory:
		return true
	}
	return false
}
