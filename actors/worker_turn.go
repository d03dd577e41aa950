package actors

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// staging is an accepted input whose record is not written yet.
type staging struct {
	fact  *messages.InputAccepted
	asker *actor.PID
	run   bool // the asker waits for the turn and not for the acceptance
}

func (s *staging) askerOrNil() *actor.PID {
	if s == nil {
		return nil
	}
	return s.asker
}

// wallTimeUp ends a turn that takes too long.
type wallTimeUp struct {
	gen  uint64
	turn string
}

// submit accepts an input: durably, then with an answer (I1).
func (w *Worker) submit(c actor.Context, m *messages.SubmitInput, run bool) {
	w.accept(c, &messages.InputAccepted{
		InputId: m.GetInputId(), Mode: m.GetMode(), Origin: m.GetOrigin(), From: m.GetFrom(), Parts: m.GetParts(), People: m.GetPeople(),
		Traceparent: m.GetTraceparent(),
	}, run)
}

// submitCall accepts a program's tool call (row 90): a turn of its own, without a model. Its
// asker gets the result when the turn is done.
func (w *Worker) submitCall(c actor.Context, m *messages.CallTool) {
	w.accept(c, &messages.InputAccepted{
		InputId: m.GetCallId(), Origin: messages.InputAccepted_SYSTEM,
		Call:             &messages.ToolCall{Id: m.GetCallId(), Name: m.GetTool(), Arguments: m.GetArguments()},
		RequiresApproval: m.GetRequiresApproval(), ApprovalMs: m.GetApprovalMs(), Traceparent: m.GetTraceparent(),
	}, true)
}

// accept answers once the input is durable or, with run, once its turn is done.
func (w *Worker) accept(c actor.Context, f *messages.InputAccepted, run bool) {
	f.ContentHash = conversation.ContentHash(f.GetParts(), f.GetCall()) // of what was sent: it stays the same when a secret is learnt
	f.Parts, f.Call = w.svc.cleanParts(f.GetParts()), w.svc.cleanCall(f.GetCall())
	if f.GetInputId() == "" {
		f.InputId = messages.NewID(messages.InputPrefix)
	}
	if cursor, same, known := w.state.Answer(f.GetInputId(), f.GetContentHash()); known {
		if !same {
			c.Respond(messages.Fail(messages.CodeConflict, fmt.Sprintf("input %s was accepted with other content", f.GetInputId()), "use a new input id"))
			return
		}
		if run {
			w.await(c, &messages.AwaitTurn{InputId: f.GetInputId()})
			return
		}
		c.Respond(&messages.InputReply{InputId: f.GetInputId(), Seq: cursor, SessionId: w.session, WorkerId: w.id, Duplicate: true})
		return
	}
	if fail := w.refuse(f); fail != nil {
		c.Respond(fail)
		return
	}
	w.traceAccept(f)
	st := &staging{f, c.Sender(), run}
	if f.GetMode() == messages.InputAccepted_INTERRUPT && w.state.Turn() != nil {
		w.interruptFor(c, st)
		return
	}
	if w.state.Turn() == nil && len(w.state.Staged()) == 0 && !w.leases.busy() && w.compacting == nil && !w.svc.Still && w.closing.asked == nil {
		if w.tight(f) != nil { // it is accepted before the history makes room for it
			w.append(c, st.asker, func(c actor.Context) {
				w.answerInput(c, st)
				w.advance(c)
			}, f)
			return
		}
		w.leases.staging = st
		w.lease(c, func(c actor.Context) { w.begin(c, f) })
		return
	}
	w.stage(c, st)
}

// refuse says why an input cannot be taken, nil when it can.
func (w *Worker) refuse(f *messages.InputAccepted) *messages.Failure {
	mode := f.GetMode()
	busy := w.state.Turn() != nil || len(w.state.Staged()) > 0 || w.leases.busy() || w.compacting != nil
	switch {
	case w.state.Closed():
		return messages.Fail(messages.CodeClosed, "the worker was deleted", "")
	case f.GetCall() == nil && strings.TrimSpace(conversation.InputText(f.GetParts())) == "":
		return messages.Fail(messages.CodeBadRequest, "the input is empty", "say what the agent should do")
	case f.GetCall() != nil && f.GetCall().GetName() == "":
		return messages.Fail(messages.CodeBadRequest, "the call names no tool", "")
	case f.GetInputId() != "" && len(f.GetInputId()) > 128:
		return messages.Fail(messages.CodeBadRequest, "the input id is longer than 128 bytes", "")
	case mode == messages.InputAccepted_REJECT && busy:
		return messages.Fail(messages.CodeBusy, "a turn is open", "wait for it, or use mode queue")
	case f.GetMail().GetKind() == messages.Mail_RESULT: // it was asked for, and there are no more than children
		return nil
	}
	return w.full()
}

// stage writes an accepted input down and answers; its turn comes later.
func (w *Worker) stage(c actor.Context, st *staging) {
	w.append(c, st.asker, func(c actor.Context) { w.answerInput(c, st) }, st.fact)
}

// answerInput answers the acceptance, or notes who waits for the turn.
func (w *Worker) answerInput(c actor.Context, st *staging) {
	if st.askerOrNil() == nil {
		return
	}
	id := st.fact.GetInputId()
	if st.run {
		w.waiting.add(c.ActorSystem(), id, st.asker)
		return
	}
	cursor, _, _ := w.state.Answer(id, nil)
	c.Send(st.asker, &messages.InputReply{InputId: id, Seq: cursor, SessionId: w.session, WorkerId: w.id})
}

// interruptFor cancels the open turn and queues the input that wants its place.
func (w *Worker) interruptFor(c actor.Context, st *staging) {
	w.interrupt(c)
	facts := append([]proto.Message{st.fact}, w.cancelFacts("user", "another input interrupts")...)
	w.append(c, st.asker, func(c actor.Context) {
		w.answerInput(c, st)
		w.settled(c)
	}, facts...)
}

// begin opens the turn of an input: with the input's own record when it was not written yet.
func (w *Worker) begin(c actor.Context, f *messages.InputAccepted) {
	facts := []proto.Message{}
	st := w.leases.staging
	if st != nil {
		facts, w.leases.staging = append(facts, st.fact), nil
	}
	turn := messages.NewID(messages.TurnPrefix)
	w.phase = stateWorking
	facts = append(facts, &messages.TurnStarted{TurnId: turn, InputIds: []string{f.GetInputId()}, Leases: w.leases.held})
	tokens := w.state.Tokens() + conversation.InputTokens(f)
	asks := f.GetCall() == nil && !w.exceeds(tokens) && !w.budgeted()
	if asks {
		w.prompt = w.state.Preview(f, w.systemPrompt())
		facts = append(facts, w.generationStarted(1, 1, w.prompt.Hash, tokens))
	}
	w.append(c, st.askerOrNil(), func(c actor.Context) {
		w.answerInput(c, st)
		w.armWall(c)
		if asks {
			w.ask(c)
			return
		}
		w.advance(c)
	}, facts...)
}

// beginStaged opens the turn of the oldest staged input, when there is one still.
func (w *Worker) beginStaged(c actor.Context) {
	if b, ok := w.state.Next(w.limits()).(conversation.Begin); ok {
		w.begin(c, b.Input.InputAccepted)
		return
	}
	w.giveBackAll(c)
	w.advance(c)
}

// armWall sets what is left of the turn's wall time: neither the time between two activations nor the wait for a
// person counts.
func (w *Worker) armWall(c actor.Context) {
	t := w.state.Turn()
	limit := w.wallLimit()
	if limit == 0 {
		return
	}
	left := limit - time.Duration(t.WorkedMs)*time.Millisecond
	if w.activated { // the newest record is of this activation, and the time since is its own
		left -= max(0, w.svc.Now().Sub(time.UnixMilli(w.state.At())))
	}
	left += w.purse.pause.until(w.svc.Now())
	turn := t.ID
	w.wall.SetBy(w.svc.Clock, c, max(left, 0), func(gen uint64) any { return &wallTimeUp{gen, turn} })
}

func (w *Worker) wallTimeUp(c actor.Context, m *wallTimeUp) {
	t := w.state.Turn()
	if !w.wall.Fresh(m.gen) || t == nil || t.ID != m.turn || t.Cancelled != nil {
		return
	}
	w.wall.Stop()
	reason := w.tooLong(t)
	w.interrupt(c)
	w.append(c, nil, w.settled, w.cancelFacts(conversation.ByLimit, reason)...)
}

// tooLong says, for people, what a turn that is out of time waited for at last, and why.
func (w *Worker) tooLong(t *conversation.Turn) string {
	reason := fmt.Sprintf("the turn took longer than %s", w.wallLimit())
	switch what := w.waitsFor(); {
	case len(w.leases.want) > 0: // who works there is not for everybody who reads the reason
		reason += "; it waited for the workspace " + w.leases.want[0].GetUri()
	case what != "":
		reason += "; it waited for " + what
	}
	if t.Failed != nil {
		reason += "; the newest model call failed: " + t.Failed.GetMessage()
	}
	return reason
}

// advance does whatever the facts say comes next.
func (w *Worker) advance(c actor.Context) {
	if w.closing.asked != nil && w.state.Turn() == nil && w.compacting == nil && !w.state.Closed() {
		if w.undelivered() {
			w.giveBackAll(c)
			w.become((*Worker).idle, stateInactive)
			w.post(c)
			return
		}
		w.writeClosed(c)
		return
	}
	step := w.state.Next(w.limits())
	if w.svc.Still && !restful(step) {
		w.become((*Worker).idle, stateWaiting)
		return
	}
	if w.state.Turn() == nil && w.border(c, step) {
		return
	}
	switch next := step.(type) {
	case conversation.Rest:
		w.rest(c)
	case conversation.Begin:
		w.lease(c, w.beginStaged)
	case conversation.Join:
		w.join(c, next)
	case conversation.Generate:
		w.generate(c, next)
	case conversation.Plan:
		w.plan(c, next)
	case conversation.Settle:
		w.settle(c)
	case conversation.Complete:
		w.append(c, nil, w.turnDone, w.completed(next))
	}
}

// restful says whether a step starts nothing.
func restful(next conversation.Step) bool {
	switch next.(type) {
	case conversation.Rest, conversation.Complete:
		return true
	}
	return false
}

// rest goes idle and tells those who waited for it.
func (w *Worker) rest(c actor.Context) {
	w.become((*Worker).idle, stateInactive)
	if w.mailRests() {
		w.rested(c)
	}
}

// rested tells those who waited for it.
func (w *Worker) rested(c actor.Context) {
	for _, pid := range w.idlers {
		c.Send(pid, &messages.Ack{})
	}
	w.idlers = nil
}

func (w *Worker) completed(next conversation.Complete) *messages.TurnCompleted {
	t := w.state.Turn()
	return &messages.TurnCompleted{
		TurnId: t.ID, Outcome: next.Outcome, Usage: t.Usage, Reason: next.Reason, FinalSeq: t.FinalSeq, ErrorCode: next.Code,
	}
}

// turnDone gives the workspaces back and answers, now that the end is durable.
func (w *Worker) turnDone(c actor.Context) {
	w.wall.Stop()
	w.retry.Stop()
	w.prompt, w.decided, w.known, w.told, w.previews, w.failing = nil, nil, nil, nil, nil, false
	if w.state.Parent() != "" {
		w.endJobs()
	}
	w.giveBackAll(c)
	w.returnBudget(c)
	w.purse.pause = pause{}
	w.renew()
	last := w.state.Last()
	result := last.Result(w.session, w.id)
	w.tellAfter(last.ID, result)
	for _, in := range last.Inputs {
		w.waiting.answer(in.GetInputId(), func(pid *actor.PID) { w.answerTurn(c, pid, last, result) })
	}
	for _, x := range w.cancels {
		if x.pid != nil {
			x.found.Jobs = w.svc.folders.jobsOf(w.id)
			c.Send(x.pid, x.found)
		}
	}
	w.cancels = nil
	w.snapshot(c)
	w.advance(c)
}

// answerTurn gives a program its call's result, and everybody else the turn's.
func (w *Worker) answerTurn(c actor.Context, pid *actor.PID, t *conversation.Turn, result *messages.TurnResult) {
	c.Send(pid, outcome(t, result))
}

func outcome(t *conversation.Turn, result *messages.TurnResult) any {
	if !t.Program() || len(t.AllCalls) != 1 {
		return result
	}
	f := t.AllCalls[0].Finished
	return &messages.ToolReply{
		ExecId: f.GetExecId(), CallId: f.GetCallId(), Tool: t.AllCalls[0].Name, Status: f.GetStatus(), Content: f.GetContent(),
		ErrorCode: f.GetErrorCode(), DetailsJson: f.GetDetailsJson(), MetaJson: f.GetMetaJson(), Truncated: f.GetTruncated(),
		DurationUs: f.GetDurationUs(), Diff: f.GetDiff(),
	}
}

// await answers when the turn of an input is done; without an input id, for the open or the last turn.
func (w *Worker) await(c actor.Context, m *messages.AwaitTurn) {
	id := m.GetInputId()
	if id == "" {
		id = w.currentInput()
	}
	if id == "" {
		if last := w.state.Last(); last != nil {
			c.Respond(last.Result(w.session, w.id))
			return
		}
		c.Respond(messages.Fail(messages.CodeNoTurn, "the session has no turn yet", "send a prompt"))
		return
	}
	turn, done, known := w.state.TurnOf(id)
	switch {
	case !known:
		c.Respond(messages.Fail(messages.CodeNotFound, fmt.Sprintf("input %s is not known here", id), ""))
	case done && turn == "":
		c.Respond(messages.Fail(messages.CodeWithdrawn, fmt.Sprintf("input %s was withdrawn", id), ""))
	case done && w.state.Last() != nil && w.state.Last().ID == turn:
		w.answerTurn(c, c.Sender(), w.state.Last(), w.state.Last().Result(w.session, w.id))
	case done:
		w.readTurn(c, turn)
	default:
		w.waiting.add(c.ActorSystem(), id, c.Sender())
	}
}

// currentInput is the newest input of the open turn, or else the newest staged one.
func (w *Worker) currentInput() string {
	if t := w.state.Turn(); t != nil {
		return t.Inputs[len(t.Inputs)-1].GetInputId()
	}
	if st := w.state.Staged(); len(st) > 0 {
		return st[len(st)-1].GetInputId()
	}
	return ""
}
