package actors

import (
	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// plan writes down what is to become of calls that have no plan yet.
func (w *Worker) plan(c actor.Context, next conversation.Plan) {
	w.append(c, nil, w.advance, w.planFacts(next.Calls, next.From)...)
}

// settle starts every open call that may start: those that only read at once and side by side; those
// with effects one at a time in each workspace, in call order.
func (w *Worker) settle(c actor.Context) {
	w.become((*Worker).usingTools, stateUsingTool)
	busy, children := make(map[string]bool), 0
	open := w.state.Turn().OpenCalls()
	if w.state.Turn().Cancelled != nil { // what runs is waited for, and nothing else starts
		w.finishAll(c, open)
		return
	}
	for _, call := range open {
		if call.Settled() { // a person has said what became of it
			w.finish(c, conversation.ResultOf(call, call.Answer))
			return
		}
		if call.Refused() {
			w.finish(c, conversation.RefusalOf(call, call.Resolved))
			return
		}
		switch {
		case !w.running[call.Plan.GetExecId()] && !call.InDoubt():
		case w.delegates(call.Name):
			children++
		case !pure(call):
			busy[call.Plan.GetWorkspace()] = true
		}
	}
	if facts := append(w.unavailable(open), w.deprived(open)...); len(facts) > 0 {
		w.append(c, nil, w.advance, facts...)
		return
	}
	if w.questions(c) {
		return
	}
	var ready []*conversation.Call
	for _, call := range open {
		switch {
		case w.running[call.Plan.GetExecId()] || call.InDoubt():
		case call.Unasked() && w.previews[call.Plan.GetExecId()] != nil:
		case call.Unasked():
			w.preview(c, open, call)
		case !call.Cleared():
		case pure(call):
			w.execute(c, call, &messages.Execute{})
		case w.delegates(call.Name):
			if children++; children <= max(w.foreground(), 1) && w.start(c, call) {
				ready = append(ready, call)
			}
		case !busy[call.Plan.GetWorkspace()]:
			busy[call.Plan.GetWorkspace()] = true
			if w.start(c, call) {
				ready = append(ready, call)
			}
		}
	}
	switch {
	case len(ready) > 0:
		w.dispatch(c, ready, nil)
	case len(w.running) == 0 && w.state.Turn().InDoubt():
		w.askPerson(c)
	case w.state.Turn().Asking():
		w.awaitAnswers(c)
	}
}

// start takes the next step of one call with effects. It returns true when that is its dispatch.
func (w *Worker) start(c actor.Context, call *conversation.Call) bool {
	decision := w.decided[call.Plan.GetExecId()]
	switch {
	case decision == messages.RecoveryDecision_RECONCILE:
		w.execute(c, call, &messages.Execute{Reconcile: true})
	case call.Dispatched != nil && (decision == messages.RecoveryDecision_RERUN || call.Redo()):
		if !w.prepares(call) {
			return true
		}
		w.execute(c, call, &messages.Execute{Prepare: true})
	case call.Dispatched != nil:
		w.execute(c, call, &messages.Execute{})
	case w.prepares(call):
		w.execute(c, call, &messages.Execute{Prepare: true})
	default:
		return true
	}
	return false
}

func pure(call *conversation.Call) bool { return call.Plan.GetEffect() == messages.Effect_PURE }

// prepares says whether the tool hashes what it is about to change.
func (w *Worker) prepares(call *conversation.Call) bool {
	t, err := w.svc.Tools.Lookup(call.Name)
	if err != nil {
		return false
	}
	_, ok := t.(tools.Preparer)
	return ok
}

// dispatch writes down that calls start, and starts them only then (I2).
func (w *Worker) dispatch(c actor.Context, calls []*conversation.Call, pre []*messages.FileHash) {
	facts := make([]proto.Message, 0, len(calls))
	for _, call := range calls {
		delete(w.decided, call.Plan.GetExecId())
		facts = append(facts, w.dispatched(call.Plan, call.Dispatched.GetAttempt()+1, pre))
	}
	w.append(c, nil, func(c actor.Context) {
		if w.stash.Holds(isCancel) { // heard while the append was under way: it is next, and closes them
			return
		}
		for _, call := range calls {
			w.execute(c, call, &messages.Execute{})
		}
	}, facts...)
}

func (w *Worker) dispatched(p *messages.ToolPlanned, attempt uint32, pre []*messages.FileHash) *messages.ToolDispatched {
	return &messages.ToolDispatched{
		ExecId: p.GetExecId(), Attempt: attempt, Executor: w.svc.Node, Lease: w.token(p.GetWorkspace()),
		PreconditionHashes: pre, Tool: p.GetTool(),
	}
}

func isCancel(msg any) bool {
	_, ok := msg.(*messages.CancelSession)
	return ok
}

// finishAll closes those of the calls that do not run: they never will.
func (w *Worker) finishAll(c actor.Context, calls []*conversation.Call) {
	var facts []proto.Message
	w.abandon(c, calls)
	for _, call := range calls {
		if !w.running[call.Plan.GetExecId()] {
			facts = append(facts, w.closed(call, w.state.Turn().Cancelled.GetBy())...)
		}
	}
	if len(facts) > 0 {
		w.append(c, nil, w.advance, facts...)
	}
}

func (w *Worker) token(workspace string) *messages.LeaseToken {
	for _, l := range w.leases.held {
		if l.GetWorkspace() == workspace {
			return l
		}
	}
	return nil
}

// execute hands a call to the executor; m says in which way.
func (w *Worker) execute(c actor.Context, call *conversation.Call, m *messages.Execute) {
	if w.executor == nil {
		w.executor = c.Spawn(w.svc.executorProps())
	}
	p := call.Plan
	if len(w.running) == 0 {
		w.ranSinceMs = w.svc.Now().UnixMilli()
	}
	w.running[p.GetExecId()] = true
	m.ExecId, m.CallId, m.Tool, m.Arguments = p.GetExecId(), p.GetCallId(), call.Name, call.Arguments
	m.TimeoutMs, m.Agent, m.SessionId, m.WorkerId, m.TurnId = p.GetTimeoutMs(), w.state.Agent(), w.session, w.id, w.state.Turn().ID
	m.Lease, m.Env, m.Pure = w.token(p.GetWorkspace()), w.grant.GetEnv(), pure(call)
	m.Shares = w.shares(p.GetWorkspace())
	m.Attempt = call.Dispatched.GetAttempt()
	m.PreconditionHashes = call.Dispatched.GetPreconditionHashes()
	for _, g := range w.grant.GetWorkspaces() {
		if g.GetUri() == p.GetWorkspace() {
			m.Workspace = g
		}
		if g.GetName() == HomeName {
			m.Home = g
		}
	}
	if call.Requested != nil {
		m.ApprovedHash, m.ApprovedFiles, m.ApprovedEdited = call.Resolved.GetArgsHash(), call.Requested.GetFiles(), call.Resolved.GetModifiedArgs() != ""
		m.ApprovalId, m.ApprovedBy = call.Requested.GetApprovalId(), call.Resolved.GetBy()
	}
	if w.delegates(call.Name) {
		m.Child = w.delegation(call)
	}
	m.KnownFiles, m.Fresh = w.state.KnownFiles(p.GetWorkspace()), w.ofRun != nil && w.state.Turn().Program()
	w.traceExecute(call, m)
	c.Request(w.executor, m)
}

// toolReply takes what became of a call, or of a step on the way there.
func (w *Worker) toolReply(c actor.Context, m *messages.ToolReply) {
	t := w.state.Turn()
	if !w.running[m.GetExecId()] || t == nil {
		return
	}
	delete(w.running, m.GetExecId())
	w.traceReply(m)
	call := t.Call(m.GetExecId())
	switch {
	case (m.GetPrepared() || m.GetNotDone() || m.GetPreviewed()) && t.Cancelled != nil:
		w.finishAll(c, []*conversation.Call{call})
	case (m.GetPrepared() || m.GetNotDone() || m.GetPreviewed()) && w.failing:
		w.failTurn(c)
	case (m.GetPrepared() || m.GetNotDone() || m.GetPreviewed()) && (w.isLost(call) || w.isDeprived(call)):
		w.advance(c)
	case m.GetPreviewed():
		w.previewed(c, m)
	case m.GetPrepared():
		w.dispatch(c, []*conversation.Call{call}, m.GetFiles())
	case m.GetNotDone():
		delete(w.decided, m.GetExecId())
		w.execute(c, call, &messages.Execute{Prepare: true})
	case m.GetUnknown():
		w.unknown(c, call)
	case m.GetStatus() == messages.ToolFinished_OK && (t.Cancelled != nil || w.failing) && w.delegates(call.Name) && inBackground(call.Arguments):
		w.execute(c, call, &messages.Execute{Abandon: true}) // it has begun meanwhile
	case m.GetStatus() == messages.ToolFinished_INTERRUPTED_UNKNOWN && !w.failing && t.Cancelled == nil:
		w.given(c, call, m)
	default:
		w.finish(c, finished(m))
	}
}

func finished(m *messages.ToolReply) *messages.ToolFinished {
	return &messages.ToolFinished{
		ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: m.GetStatus(), Content: m.GetContent(),
		Truncated: m.GetTruncated(), PostconditionHashes: m.GetFiles(), ErrorCode: m.GetErrorCode(),
		DetailsJson: m.GetDetailsJson(), MetaJson: m.GetMetaJson(), DurationUs: m.GetDurationUs(), Diff: m.GetDiff(),
	}
}

// unknown handles a call of which nobody can say whether it happened, by its declared policy.
func (w *Worker) unknown(c actor.Context, call *conversation.Call) {
	delete(w.decided, call.Plan.GetExecId())
	action := conversation.Unknown(call)
	if w.failing || w.state.Turn().Cancelled != nil {
		action = messages.RecoveryDecision_REPORT_UNKNOWN
	}
	switch action {
	case messages.RecoveryDecision_RERUN:
		if w.decided == nil {
			w.decided = make(map[string]messages.RecoveryDecision_Action, 1)
		}
		w.decided[call.Plan.GetExecId()] = action
		w.advance(c)
	case messages.RecoveryDecision_ASK_PERSON:
		w.append(c, nil, w.advance, doubted(call))
	case messages.RecoveryDecision_FAIL_TURN:
		w.append(c, nil, w.failTurn, interrupted(call))
	default:
		w.finish(c, interrupted(call))
	}
}

// given handles a call that was given up, as it does not end. It may still end, so that it is not run again by
// itself; a person who says so lets it wait for its workspace first.
func (w *Worker) given(c actor.Context, call *conversation.Call, m *messages.ToolReply) {
	switch conversation.Unknown(call) {
	case messages.RecoveryDecision_ASK_PERSON:
		w.append(c, nil, w.advance, doubted(call))
	case messages.RecoveryDecision_FAIL_TURN:
		w.append(c, nil, w.failTurn, finished(m))
	default:
		w.finish(c, finished(m))
	}
}

// failTurn closes what is open and ends the turn with an error. What runs is stopped first: its reply
// comes back here.
func (w *Worker) failTurn(c actor.Context) {
	t := w.state.Turn()
	if t.Cancelled != nil { // then it ends so
		w.advance(c)
		return
	}
	w.failing = true
	w.abandon(c, t.OpenCalls())
	if len(w.running) > 0 {
		w.interrupt(c)
		return
	}
	var facts []proto.Message
	for _, call := range t.OpenCalls() {
		facts = append(facts, w.closed(call, conversation.ByFailure)...)
	}
	w.append(c, nil, w.turnDone, append(facts, w.completed(conversation.Doom(t.Doomed())))...)
}

func interrupted(call *conversation.Call) *messages.ToolFinished {
	return &messages.ToolFinished{
		ExecId: call.Plan.GetExecId(), CallId: call.Plan.GetCallId(), Tool: call.Name,
		Status: messages.ToolFinished_INTERRUPTED_UNKNOWN, Content: conversation.InterruptedText, ErrorCode: tools.CodeInterrupted,
	}
}

// finish writes a result down; with the last one goes the start of the next generation, so that a
// step costs one append (S3), or the end of a program's turn.
func (w *Worker) finish(c actor.Context, f *messages.ToolFinished) {
	f = w.nudging([]proto.Message{f})[0].(*messages.ToolFinished) //nolint:forcetypeassert // it is that, or a copy
	t := w.state.Turn()
	last := t.OneOpen()
	switch {
	case w.failing:
		w.append(c, nil, w.failTurn, f)
	case !last || t.Cancelled != nil:
		w.append(c, nil, w.advance, f)
	case w.handsOver(f) && !t.Program():
		w.append(c, nil, w.handed, f)
	case t.Program():
		w.append(c, nil, w.turnDone, f, &messages.TurnCompleted{TurnId: t.ID, Outcome: messages.TurnCompleted_DONE, Usage: t.Usage})
	case !w.state.GoesOn(f, w.limits()):
		w.append(c, nil, w.advance, f)
	case w.budgeted() || w.exceeds(w.state.NextTokens(f)):
		w.append(c, nil, w.advance, f)
	default:
		w.append(c, nil, w.ask, f, w.generationStarted(t.Steps+1, 1, w.state.NextHash(f), w.state.NextTokens(f)))
	}
}

// progress passes a sign of life of a long call on to watchers. It is never stored.
func (w *Worker) progress(c actor.Context, m *messages.Progress) {
	t := w.state.Turn()
	if t == nil || !w.watched.Load() {
		return
	}
	c.Send(c.Parent(), &messages.Published{Events: []*messages.Event{{
		Type: messages.EventToolProgress, AtUnixMs: w.svc.Now().UnixMilli(), Session: w.session, Worker: w.id, Turn: t.ID,
		ExecId: m.GetExecId(), CallId: m.GetCallId(), Done: m.GetDone(), Total: m.GetTotal(), Unit: m.GetUnit(), Text: m.GetText(),
	}}})
}

// callsLost names the calls whose executor ended without a word about them.
type callsLost struct{ execs []string }

// HandleFailure stops a ToolExecutor that panicked; its successor is spawned with the next call.
func (w *Worker) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	w.log.Error("tool executor panicked", "err", reason)
	s.StopChildren(child)
}

// executorEnded notes what ran in an executor that is no more. It is dealt with in its turn: an append may be
// under way.
func (w *Worker) executorEnded(c actor.Context, who *actor.PID) {
	if w.executor == nil || w.executor.GetId() != who.GetId() {
		return
	}
	w.executor = nil
	lost := &callsLost{}
	for id := range w.running {
		lost.execs = append(lost.execs, id)
	}
	if len(lost.execs) > 0 {
		c.Send(c.Self(), lost)
	}
}

// callsLost decides about calls whose executor ended as a recovery does: when what ran has ended, by what the journal
// and the ledger say.
func (w *Worker) callsLost(c actor.Context, m *callsLost) {
	if w.state.Turn() == nil {
		return
	}
	lost := false
	for _, id := range m.execs {
		lost = lost || w.running[id]
		w.traceCalled(id, "lost", "lost")
		delete(w.running, id)
	}
	if lost {
		w.giveBackAll(c)
		w.lease(c, w.consult)
	}
}
