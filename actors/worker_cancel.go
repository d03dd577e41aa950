package actors

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// cancel ends the open turn. Its asker hears when the end is durable and nothing runs any more.
func (w *Worker) cancel(c actor.Context, m *messages.CancelSession) {
	t := w.state.Turn()
	if m.GetOnly() && (t == nil || !byWords(t)) {
		w.cancelWords(c, m)
		return
	}
	w.endChildren(c)
	if t == nil {
		w.cancelStaged(c, m)
		return
	}
	w.interrupt(c)
	var facts []proto.Message
	if t.Cancelled == nil {
		facts = w.cancelFacts(author(m.GetBy()), cmp.Or(m.GetReason(), "cancelled"))
	}
	taken := w.takenBack(m)
	asked := proto.CloneOf(m)
	asked.WorkerId = w.id // should it be handed back
	unsent, n := w.unsent(m)
	w.cancels = append(w.cancels, canceller{asked, c.Sender(), &messages.Cancelled{Turns: 1, Inputs: int32(len(taken)), Messages: n}})
	if facts = slices.Concat(facts, taken, unsent); len(facts) > 0 {
		w.append(c, nil, func(c actor.Context) {
			w.allWithdrawn(c, taken)
			w.ground(c, unsent)
			w.settled(c)
		}, facts...)
	}
}

// canceller awaits the end of a cancelled turn.
type canceller struct {
	asked *messages.CancelSession
	pid   *actor.PID
	found *messages.Cancelled // what there was to cancel
}

// author is who cancels: nobody else may call himself a limit.
func author(by string) string {
	if by == "" || by == conversation.ByLimit || by == conversation.ByFailure || by == conversation.ByBudget {
		return "user"
	}
	return by
}

// byWords says whether a turn was begun by other agents alone.
func byWords(t *conversation.Turn) bool {
	return !slices.ContainsFunc(t.Inputs, func(in *conversation.Input) bool { return in.GetMail() == nil })
}

// cancelWords takes back what agents have written, and leaves the turn and the inputs of anybody else.
func (w *Worker) cancelWords(c actor.Context, m *messages.CancelSession) {
	asker, taken := c.Sender(), w.takenBack(m)
	unsent, n := w.unsent(m)
	reply := &messages.Cancelled{Inputs: int32(len(taken)), Messages: n, Jobs: w.svc.folders.jobsOf(w.id)}
	if len(taken)+len(unsent) == 0 {
		c.Respond(reply)
		return
	}
	w.append(c, asker, func(c actor.Context) {
		w.allWithdrawn(c, taken)
		w.ground(c, unsent)
		if asker != nil {
			c.Send(asker, reply)
		}
		if w.state.Turn() == nil && len(w.state.Staged()) == 0 && w.compacting == nil {
			w.giveBackAll(c)
			w.advance(c)
		}
	}, slices.Concat(taken, unsent)...)
}

// takenBack withdraws the inputs that wait for their turn, if that is wanted; else those that other agents have written, if that is.
func (w *Worker) takenBack(m *messages.CancelSession) []proto.Message {
	var facts []proto.Message
	for _, in := range w.state.Staged() {
		if !m.GetInputs() && (!m.GetWords() || in.GetMail() == nil) {
			continue
		}
		facts = append(facts, &messages.InputWithdrawn{InputId: in.GetInputId(), By: author(m.GetBy())})
	}
	return facts
}

func (w *Worker) allWithdrawn(c actor.Context, facts []proto.Message) {
	for _, f := range facts {
		if in, ok := f.(*messages.InputWithdrawn); ok {
			w.withdrawn(c, in.GetInputId())
		}
	}
}

// unsent takes back, when what waits or was written is taken back, the messages to others that have not arrived. A result of a child that was cancelled along with its
// parent is no message any more: it is taken note of and wakes nobody. n counts the messages.
func (w *Worker) unsent(m *messages.CancelSession) (facts []proto.Message, n int32) {
	if !m.GetInputs() && !m.GetWords() {
		return nil, 0
	}
	for _, out := range w.state.Outbox() {
		kind := out.GetMail().GetKind()
		if kind == messages.Mail_ENDED || kind == messages.Mail_RESULT && m.GetBy() != byParent {
			continue
		}
		facts = append(facts, &messages.OutboxAcked{MessageId: out.GetMessageId(), Refused: "the session was cancelled"})
		if kind == messages.Mail_RESULT {
			ended := proto.CloneOf(out)
			ended.Mail.Kind = messages.Mail_ENDED
			facts = append(facts, ended)
			continue
		}
		n++
	}
	return facts, n
}

// ground ends the flights of messages that were taken back.
func (w *Worker) ground(c actor.Context, unsent []proto.Message) {
	for _, fact := range unsent {
		back, ok := fact.(*messages.OutboxAcked)
		if !ok {
			continue
		}
		for to, f := range w.mail.flying {
			if f.message == back.GetMessageId() {
				f.cancel()
				delete(w.mail.flying, to)
			}
		}
	}
	if len(unsent) > 0 {
		w.post(c)
	}
}

// interrupt ends what runs for the turn, without deciding anything.
func (w *Worker) interrupt(c actor.Context) { w.endRunning(c, "") }

// halt is interrupt where nobody will hear what became of the calls: their executor notes it in its ledger.
func (w *Worker) halt(c actor.Context) {
	w.endRunning(c, haltReason)
	w.stopPost()
	w.cutTrace()
}

func (w *Worker) endRunning(c actor.Context, reason string) {
	w.purse.wall.Stop()
	if w.gen != nil && w.gen.cancel != nil {
		w.gen.cancel(context.Canceled)
	}
	if w.executor != nil && len(w.running) > 0 {
		c.Send(w.executor, &messages.CancelCalls{Reason: reason})
	}
}

// cancelFacts closes every call that has not started: after the cancel is durable it never will.
func (w *Worker) cancelFacts(by, reason string) []proto.Message {
	facts := []proto.Message{&messages.CancelRequested{By: by, Reason: w.svc.Redact.String(reason)}}
	for _, call := range w.state.Turn().OpenCalls() {
		if !w.running[call.Plan.GetExecId()] && !w.mustEnd(call) {
			facts = append(facts, w.closed(call, by)...)
		}
	}
	return facts
}

const (
	neverStarted = "Cancelled before it started."
	mayHaveRead  = "Cancelled. It may have run before a restart; it only reads."
)

// closed ends a call that is open, does not run, and never will: with its result, and before that with the end of its
// question, when it waits for an approval.
func (w *Worker) closed(call *conversation.Call, by string) []proto.Message {
	if facts := unanswered(call, by); facts != nil {
		return facts
	}
	return []proto.Message{w.leftOver(call)}
}

// leftOver is the result of such a call. One whose dispatch this activation has
// written, and not handed out, never started; what an earlier one dispatched may have.
func (w *Worker) leftOver(call *conversation.Call) *messages.ToolFinished {
	if call.Settled() {
		return conversation.ResultOf(call, call.Answer)
	}
	f := cancelledCall(call)
	_, lost := w.decided[call.Plan.GetExecId()]
	ran := call.InDoubt() || call.Redo() || call.Dispatched.GetAttempt() > 1 // an earlier attempt may have
	if !ran && !lost && !w.inherited[call.Plan.GetExecId()] {
		f.Status, f.Content, f.ErrorCode = messages.ToolFinished_CANCELLED, neverStarted, "cancelled"
	}
	if w.inherited[call.Plan.GetExecId()] && call.Dispatched == nil {
		f.Content = mayHaveRead
	}
	return f
}

// inherit notes the calls that an earlier activation may have started, and that have no result: those that it
// dispatched, and those that only read, which are not dispatched.
func (w *Worker) inherit() {
	w.inherited = nil
	t := w.state.Turn()
	if t == nil {
		return
	}
	for _, call := range t.OpenCalls() {
		if call.Dispatched == nil && !pure(call) {
			continue
		}
		if w.inherited == nil {
			w.inherited = make(map[string]bool)
		}
		w.inherited[call.Plan.GetExecId()] = true
	}
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
	w.dropGeneration(c, nil, nil)
	w.retry.Stop()
	w.advance(c)
}

// cancelStaged takes back the input that waits for its workspace, and with it the others if that is wanted.
func (w *Worker) cancelStaged(c actor.Context, m *messages.CancelSession) {
	asker, staged := c.Sender(), w.state.Staged()
	w.cancelCompaction(c)
	unsent, n := w.unsent(m)
	if len(staged) == 0 && len(unsent) > 0 {
		w.append(c, asker, func(c actor.Context) {
			w.ground(c, unsent)
			if asker != nil {
				c.Send(asker, &messages.Cancelled{Messages: n, Jobs: w.svc.folders.jobsOf(w.id)})
			}
			if w.closing.asked != nil || !w.leases.busy() {
				w.advance(c)
			}
		}, unsent...)
		return
	}
	if len(staged) == 0 {
		c.Respond(&messages.Cancelled{Jobs: w.svc.folders.jobsOf(w.id)})
		if !w.leases.busy() {
			w.advance(c)
		}
		return
	}
	taken := w.takenBack(m)
	if first := staged[0]; !m.GetInputs() && (!m.GetWords() || first.GetMail() == nil) { // it waits for its workspace, and counts as under way
		taken = append(taken, &messages.InputWithdrawn{InputId: first.GetInputId(), By: author(m.GetBy())})
	}
	w.append(c, asker, func(c actor.Context) {
		w.allWithdrawn(c, taken)
		w.ground(c, unsent)
		if asker != nil {
			c.Send(asker, &messages.Cancelled{Turns: 1, Inputs: int32(len(taken) - 1), Messages: n, Jobs: w.svc.folders.jobsOf(w.id)})
		}
		w.giveBackAll(c)
		w.advance(c)
	}, slices.Concat(taken, unsent)...)
}

// withdraw takes one staged input back.
func (w *Worker) withdraw(c actor.Context, m *messages.WithdrawInput) {
	turn, done, known := w.state.TurnOf(m.GetInputId())
	switch {
	case !known:
		c.Respond(messages.Fail(messages.CodeNotFound, fmt.Sprintf("input %s is not known here", m.GetInputId()), ""))
		return
	case turn != "" && !done && w.state.Turn().Inputs[0].GetInputId() != m.GetInputId():
		c.Respond(messages.Fail(messages.CodeCommitted, fmt.Sprintf("input %s has joined the open turn", m.GetInputId()), "cancel the turn instead"))
		return
	case turn != "" && !done && len(w.state.Turn().Inputs) > 1: // they would be lost with it
		c.Respond(messages.Fail(messages.CodeCommitted, fmt.Sprintf("other inputs have joined the turn of input %s", m.GetInputId()), "cancel the turn instead"))
		return
	case turn != "" && !done && w.state.Turn().Steps == 0 && !w.state.Turn().Program():
		w.withdrawRunning(c, m)
		return
	case turn != "" || done:
		c.Respond(messages.Fail(messages.CodeCommitted, fmt.Sprintf("input %s is committed: the model has answered it", m.GetInputId()), "cancel the turn instead"))
		return
	}
	w.takeBack(c, m.GetInputId(), m.GetBy(), c.Sender())
}

// takeBack withdraws an input that waits.
func (w *Worker) takeBack(c actor.Context, input, by string, asker *actor.PID) {
	w.append(c, asker, func(c actor.Context) {
		w.withdrawn(c, input)
		if asker != nil {
			c.Send(asker, &messages.Ack{})
		}
		if w.state.Turn() == nil && len(w.state.Staged()) == 0 {
			w.giveBackAll(c)
			w.advance(c)
		}
	}, &messages.InputWithdrawn{InputId: input, By: by})
}

// withdrawRunning takes back an input that the model has not answered yet: it was never committed
// (row 24), so its turn is aborted and the conversation does not know it.
func (w *Worker) withdrawRunning(c actor.Context, m *messages.WithdrawInput) {
	asker := c.Sender()
	w.interrupt(c)
	facts := w.cancelFacts("user", "the input was withdrawn")
	facts[0].(*messages.CancelRequested).Discard = true //nolint:forcetypeassert // it is the first
	w.append(c, asker, func(c actor.Context) {
		c.Send(asker, &messages.Ack{})
		w.settled(c)
	}, facts...)
}

// recallInput ends what an input has come to, if it is not over: it is taken back while it waits, and its turn is cancelled. Nobody is answered.
func (w *Worker) recallInput(c actor.Context, m *messages.RecallInput) {
	turn, done, known := w.state.TurnOf(m.GetInputId())
	switch {
	case !known || done:
	case turn != "":
		w.cancel(c, &messages.CancelSession{By: m.GetBy(), Reason: m.GetReason()})
	default:
		w.takeBack(c, m.GetInputId(), m.GetBy(), nil)
	}
}

func (w *Worker) withdrawn(c actor.Context, input string) {
	w.waiting.answer(input, func(pid *actor.PID) {
		c.Send(pid, messages.Fail(messages.CodeWithdrawn, fmt.Sprintf("input %s was withdrawn", input), ""))
	})
}
