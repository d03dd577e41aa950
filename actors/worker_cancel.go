package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// cancel ends the open turn. Its asker hears when the end is durable and nothing runs any more.
func (w *Worker) cancel(c actor.Context, m *messages.CancelSession) {
	t := w.state.Turn()
	if t == nil {
		w.cancelStaged(c, m)
		return
	}
	w.cancels = append(w.cancels, c.Sender())
	w.interrupt(c)
	if t.Cancelled != nil {
		return
	}
	by, reason := m.GetBy(), m.GetReason()
	if by == "" || by == conversation.ByLimit {
		by = "user"
	}
	if reason == "" {
		reason = "cancelled"
	}
	w.append(c, nil, w.settled, w.cancelFacts(by, reason)...)
}

// interrupt ends what runs for the turn, without deciding anything.
func (w *Worker) interrupt(c actor.Context) { w.endRunning(c, "") }

// halt is interrupt where nobody will hear what became of the calls: their executor notes it in its ledger.
func (w *Worker) halt(c actor.Context) { w.endRunning(c, haltReason) }

func (w *Worker) endRunning(c actor.Context, reason string) {
	if w.gen != nil && w.gen.cancel != nil {
		w.gen.cancel(context.Canceled)
	}
	if w.executor != nil && len(w.running) > 0 {
		c.Send(w.executor, &messages.CancelCalls{Reason: reason})
	}
}

// cancelFacts closes every call that has not started: after the cancel is durable it never will.
func (w *Worker) cancelFacts(by, reason string) []proto.Message {
	facts := []proto.Message{&messages.CancelRequested{By: by, Reason: reason}}
	for _, call := range w.state.Turn().OpenCalls() {
		if !w.running[call.Plan.GetExecId()] {
			facts = append(facts, w.closed(call))
		}
	}
	return facts
}

const neverStarted = "Cancelled before it started."

// closed is the result of a call that is open, does not run, and never will. When this activation has
// written its dispatch, and not handed it out, it never started.
func (w *Worker) closed(call *conversation.Call) *messages.ToolFinished {
	if call.Settled() {
		return conversation.ResultOf(call, call.Answer)
	}
	f := cancelledCall(call)
	_, recovered := w.decided[call.Plan.GetExecId()]
	ran := call.InDoubt() || call.Redo() || call.Dispatched.GetAttempt() > 1 // an earlier attempt may have
	if w.activated && !recovered && !ran {
		f.Status, f.Content, f.ErrorCode = messages.ToolFinished_CANCELLED, neverStarted, "cancelled"
	}
	return f
}

// cancelledCall is the result of a call that is given up, by what the journal says of it.
func cancelledCall(call *conversation.Call) *messages.ToolFinished {
	f := &messages.ToolFinished{
		ExecId: call.Plan.GetExecId(), CallId: call.Plan.GetCallId(), Tool: call.Name,
		Status: messages.ToolFinished_CANCELLED, Content: neverStarted, ErrorCode: "cancelled",
	}
	if call.Dispatched != nil {
		f.Status, f.Content, f.ErrorCode = messages.ToolFinished_INTERRUPTED_UNKNOWN, conversation.InterruptedText, "interrupted"
	}
	return f
}

// settled goes on after a cancel was written: at once when nothing runs, else when that has ended.
func (w *Worker) settled(c actor.Context) {
	if w.gen != nil && w.gen.cancel != nil || len(w.running) > 0 {
		return
	}
	w.dropCompaction(c)
	w.dropGeneration(c, nil)
	w.retry.Stop()
	w.advance(c)
}

// cancelStaged withdraws the inputs that wait for their workspace.
func (w *Worker) cancelStaged(c actor.Context, m *messages.CancelSession) {
	asker := c.Sender()
	w.cancelCompaction(c)
	var facts []proto.Message
	for _, in := range w.state.Staged() {
		facts = append(facts, &messages.InputWithdrawn{InputId: in.GetInputId(), By: m.GetBy()})
	}
	if len(facts) == 0 {
		c.Respond(&messages.Cancelled{})
		if !w.leases.busy() {
			w.advance(c)
		}
		return
	}
	w.append(c, asker, func(c actor.Context) {
		for _, f := range facts {
			w.withdrawn(c, f.(*messages.InputWithdrawn).GetInputId())
		}
		c.Send(asker, &messages.Cancelled{Turns: int32(len(facts))})
		w.giveBackAll(c)
		w.advance(c)
	}, facts...)
}

// withdraw takes one staged input back.
func (w *Worker) withdraw(c actor.Context, m *messages.WithdrawInput) {
	turn, done, known := w.state.TurnOf(m.GetInputId())
	switch {
	case !known:
		c.Respond(messages.Fail(messages.CodeNotFound, fmt.Sprintf("input %s is not known here", m.GetInputId()), ""))
		return
	case turn != "" && !done && w.state.Turn().Steps == 0 && !w.state.Turn().Program():
		w.withdrawRunning(c, m)
		return
	case turn != "" || done:
		c.Respond(messages.Fail(messages.CodeCommitted, fmt.Sprintf("input %s is committed: the model has answered it", m.GetInputId()), "cancel the turn instead"))
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		w.withdrawn(c, m.GetInputId())
		c.Send(asker, &messages.Ack{})
		if w.state.Turn() == nil && len(w.state.Staged()) == 0 {
			w.giveBackAll(c)
			w.advance(c)
		}
	}, &messages.InputWithdrawn{InputId: m.GetInputId(), By: m.GetBy()})
}

// withdrawRunning takes back an input that the model has not answered yet: it was never committed
// (row 24), so its turn is aborted and the conversation does not know it.
func (w *Worker) withdrawRunning(c actor.Context, m *messages.WithdrawInput) {
	asker := c.Sender()
	w.interrupt(c)
	w.append(c, asker, func(c actor.Context) {
		c.Send(asker, &messages.Ack{})
		w.settled(c)
	}, w.cancelFacts("user", "the input was withdrawn")...)
}

func (w *Worker) withdrawn(c actor.Context, input string) {
	for _, pid := range w.waiting[input] {
		c.Send(pid, messages.Fail(messages.CodeWithdrawn, fmt.Sprintf("input %s was withdrawn", input), ""))
	}
	delete(w.waiting, input)
}
