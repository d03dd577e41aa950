package actors

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// Worker is one agent: it owns its conversation and is the only one that writes its journal.
//
// It decides, appends, waits until the append is durable, applies, and only then acts or
// answers (I1, I2). One append is under way at a time; meanwhile messages wait in a first-in
// first-out stash, except a cancel, which is heard at once.
//
// Accepts, always from its Session: Configure (first), SubmitInput, RunInput, CallTool, AwaitTurn, CancelSession,
// ListInputs, WithdrawInput, RecallInput, DeliverMail, ResolveCall, ResolveApproval, ReadHistory, ConfigureWorker, SetTimer, CancelTimer, ListTimers, FireTimer,
// DescribeWorker, WaitIdle, Watched; and from those it asked: leases, permits, tool replies. Each ask has one reply.
// Parent: Session, which replaces a failed worker. Children: one ToolExecutor, on first use.
type Worker struct {
	svc     *Services
	log     *slog.Logger                 // names the trace of the open turn, when it has one
	receive func(*Worker, actor.Context) // the state: opening, idle, leasing, generating, usingTools, failed

	id, session string
	grant       *messages.Grant            // as it counts now: of a turn, what it began with and still has
	newest      *messages.Grant            // as the Session has it
	lost        []*messages.WorkspaceGrant // detached since the turn began
	restarts    int32
	openings    int32       // before this one, in a row, that ended in a panic
	watched     atomic.Bool // read by the goroutine of a model call
	quarantined bool        // it ended so, and its Session is to hear of it
	activated   bool        // this activation's record is in the journal
	canAsk      bool        // somebody may answer what asks
	anew        bool        // calls that wait are decided on again: what decides about them may be another than when they were planned
	failing     bool        // the turn ends with an error, once nothing runs any more
	denied      bool        // the attempt that ends was not made: its provider is out of order
	unanswered  bool        // nothing came of it
	lastError   string
	releasedBy  string // who lets it go on, though it is quarantined; "" when nobody does

	journal   *persistence.Journal
	state     *conversation.State
	projector conversation.Projector
	inflight  *appending
	persist   messages.Persist_Policy
	late      late
	snaps     *snapshots
	stash     act.Stash

	phase       string                                      // row 31
	leases      leases                                      // of the turn under way
	gen         *generation                                 // the model call under way
	generations uint64                                      // begun in this activation
	permits     uint64                                      // asked for in this activation
	prompt      *messages.Prompt                            // of the turn that is about to begin
	around      around                                      // what stands around the turn's conversation
	tools       []model.ToolDef                             // offered with the present grant
	system      string                                      // rendered with the present grant
	retry       act.Timer                                   // of a failed generation
	wall        act.Timer                                   // of the turn
	hold        act.Timer                                   // of the workspaces, while approvals are awaited
	expiry      act.Timer                                   // of the approval that expires first
	previews    map[string]*messages.ToolReply              // made, and not asked with yet
	told        map[string]bool                             // approvals that the program was told of
	remembering *remembering                                // an answer whose rule is being written down
	executor    *actor.PID                                  // nil until the first call
	running     map[string]bool                             // exec ids with the executor
	ranSinceMs  int64                                       // when the first of those that run was sent there
	decided     map[string]messages.RecoveryDecision_Action // for calls that were open at recovery
	known       map[string]*messages.ToolReply              // results that the executors' ledger has
	inherited   map[string]bool                             // exec ids of calls that an earlier activation dispatched
	waiting     waiters                                     // for the ends of turns
	idlers      []*actor.PID                                // who awaits rest
	sizes       sizes                                       // of requests
	compacting  *compaction                                 // under way; the border of a turn is taken until it is done
	compacts    *compactWish                                // for the next border of a turn; nil: nobody has one
	cancels     []canceller                                 // who await the end of a cancelled turn
	closing     closing                                     // that the worker ends for good
	purse       purse
	trace       *tracing
	peers       peers
	mail        mailing
	ofRun       *toldRun // nil: it is of none
}

// The states of a worker as every surface names them (acceptance row 31).
const (
	stateInactive   = "inactive"
	stateWorking    = "working"
	stateRequesting = "requesting"
	stateReceiving  = "receiving"
	stateWaiting    = "waiting"
	stateUsingTool  = "using_tool"
	stateFailed     = "inactive_failed"
)

func newWorker(svc *Services) *Worker {
	w := &Worker{
		svc: svc, log: svc.Log, phase: stateInactive,
		running: make(map[string]bool), trace: newTracing(svc),
	}
	w.receive = (*Worker).unborn
	return w
}

// Receive sees to the actor's life, and leaves the rest to the state it is in.
func (w *Worker) Receive(c actor.Context) {
	defer w.rescue(c)
	switch m := c.Message().(type) {
	case *actor.Started:
	case *actor.Terminated:
		w.executorEnded(c, m.GetWho())
	case *actor.Stopping:
		w.stopping(c)
	case *actor.Stopped:
		w.release()
	default:
		w.admit(c)
		w.tellRun(c)
	}
}

// admit holds messages back while an append is under way (I1: nothing is decided on facts that
// are not durable yet), while it is being found out whether an input can start at once, and while a
// rule is written down that an answer leaves behind.
func (w *Worker) admit(c actor.Context) {
	if m, ok := c.Message().(*messages.Remembered); ok {
		w.noteRemembered(c, m)
		return
	}
	if !w.held() || w.urgent(c.Message()) {
		w.receive(w, c)
		return
	}
	if _, ok := c.Message().(*messages.CancelSession); ok {
		w.interrupt(c)
	}
	w.stash.Put(c)
}

func (w *Worker) held() bool {
	return w.inflight != nil || w.leases.staging != nil || w.remembering != nil
}

// urgent names what is handled also while others wait.
func (w *Worker) urgent(msg any) bool {
	switch msg.(type) {
	case *appended, *opened, *messages.Watched, *messages.DescribeWorker, *messages.Progress:
		return true
	case *messages.LeaseGranted, *messages.LeaseQueued, *messages.Failure, *actor.DeadLetterResponse, *messages.Replaced, *messages.Configure:
		return w.inflight == nil
	}
	return false
}

// replay handles what was held back, as far as it can be.
func (w *Worker) replay(c actor.Context) {
	w.ruleRemembered(c)
	w.stash.Replay(c, w.admit, func() bool { return !w.held() })
}

// become changes the state and its public name.
func (w *Worker) become(state func(*Worker, actor.Context), phase string) {
	w.receive, w.phase = state, phase
}

// unborn waits for the grant that says who this is.
func (w *Worker) unborn(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.Configure:
		w.born(c, m)
		w.open(c)
	case *newborn:
		w.born(c, m.configure)
		w.recovered(c, m.opened)
	default:
		act.Unexpected(c, w.log)
	}
}

// watch turns live events on or off, and says so: who subscribes reads the store after that.
func (w *Worker) watch(c actor.Context, m *messages.Watched) {
	w.watched.Store(m.GetOn())
	if c.Sender() != nil {
		c.Respond(&messages.Ack{})
	}
	w.showLate(c)
}

// idle waits for an input.
func (w *Worker) idle(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.SubmitInput:
		w.submit(c, m, false)
	case *messages.RunInput:
		w.submit(c, m.GetInput(), true)
	case *messages.CallTool:
		w.submitCall(c, m)
	case *messages.FireTimer:
		w.fireTimer(c, m, w.advance)
	default:
		w.common(c)
	}
}

// leasing waits for the workspaces of the next turn.
func (w *Worker) leasing(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.LeaseGranted:
		w.leaseGranted(c, m)
	case *messages.LeaseQueued:
		w.leaseQueued(c, m)
	case *messages.Replaced:
		w.replaced(c, m)
	case *messages.Failure:
		w.leaseRefused(c)
	case *actor.DeadLetterResponse:
		w.leaseRefused(c)
	default:
		w.common(c)
	}
}

// generating waits for a model's answer, or for the permit or the pause before the call.
func (w *Worker) generating(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.PermitGranted, *messages.PermitDenied:
		w.permitAnswered(c)
	case *messages.BudgetGranted, *messages.BudgetRefused, *messages.BudgetShort, *holdOver:
		w.budgetAnswered(c)
	case *generated:
		w.generated(c, m)
	case *retryDue:
		if w.retry.Fresh(m.gen) {
			w.retry.Stop()
			if w.compacting != nil {
				w.summarise(c)
				return
			}
			w.advance(c)
		}
	case *messages.Replaced:
		w.replaced(c, m)
	case *messages.Failure, *actor.DeadLetterResponse:
		w.permitRefused(c)
	default:
		w.common(c)
	}
}

// usingTools waits for the results of tool calls.
func (w *Worker) usingTools(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.ToolReply:
		w.toolReply(c, m)
	case *messages.Progress:
		w.progress(c, m)
	case *callsLost:
		w.callsLost(c, m)
	case *messages.Configure:
		w.regranted(c, m)
	default:
		w.common(c)
	}
}

// common is what every state but opening and failed accepts.
func (w *Worker) common(c actor.Context) {
	switch m := c.Message().(type) {
	case *appended:
		w.appended(c, m)
	case *messages.SubmitInput:
		w.submit(c, m, false)
	case *messages.RunInput:
		w.submit(c, m.GetInput(), true)
	case *messages.CallTool:
		w.submitCall(c, m)
	case *messages.AwaitTurn:
		w.await(c, m)
	case *messages.CancelSession:
		w.cancel(c, m)
	case *messages.ListInputs:
		c.Respond(w.inputs())
	case *messages.WithdrawInput:
		w.withdraw(c, m)
	case *messages.RecallInput:
		w.recallInput(c, m)
	case *messages.ResolveCall:
		w.resolve(c, m)
	case *messages.ResolveApproval:
		w.answer(c, m)
	case *approvalDue:
		w.approvalDue(c, m)
	case *messages.ReadHistory:
		w.history(c)
	case *messages.CompactHistory:
		w.compactHistory(c, m)
	case *messages.SaveHistory:
		w.save(c)
	case *messages.ConfigureWorker:
		w.reconfigure(c, m)
	case *messages.NarrowChild:
		w.narrow(c, m)
	case *messages.DescribeWorker:
		c.Respond(w.view())
	case *messages.ReportIdle:
		c.Respond(w.idleness())
	case *messages.ReleaseWorker:
		c.Respond(w.view()) // it is free by now
	case *messages.DeleteWorker:
		w.close(c, m)
	case *messages.WaitIdle:
		w.waitIdle(c)
	case *messages.Configure:
		w.configure(c, m)
	case *messages.Watched:
		w.watch(c, m)
	case *wallTimeUp:
		w.wallTimeUp(c, m)
	case *messages.DeliverMail, *posted, *postDue, *wayFree:
		w.aboutMail(c)
	default:
		w.aboutTimers(c)
	}
}

// stale drops the late results of what was cancelled or has been answered; anything else is unexpected.
func (w *Worker) stale(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.LeaseGranted:
		w.giveBack(c, m)
	case *messages.BudgetRefused, *messages.BudgetShort, *messages.PermitGranted, *messages.PermitDenied, *generated, *retryDue, *holdOver, *messages.Replaced, *messages.LeaseQueued, *messages.ToolReply,
		*callsLost, *consulted, *messages.Progress, *messages.Failure, *actor.DeadLetterResponse: // refusals: of what is no longer wanted
	default:
		act.Unexpected(c, w.log)
	}
}

// failed hands everything back to the Session, which keeps it for the next incarnation.
func (w *Worker) failed(c actor.Context) {
	switch m := c.Message().(type) {
	case *appended, *opened, *generated, *retryDue, *posted, *postDue, *wayFree, *messages.Replaced, *wallTimeUp, *callsLost, *consulted, *holdOver, *approvalDue, *messages.ToolReply,
		*messages.LeaseGranted, *messages.LeaseQueued, *messages.PermitGranted, *messages.PermitDenied, *messages.BudgetGranted, *messages.BudgetRefused, *messages.BudgetShort, *budgetWallUp:
	case *messages.Configure:
		w.acknowledge(c) // the next incarnation gets it at its start
	case *messages.Watched:
		w.watch(c, m)
	case *messages.DescribeWorker:
		c.Respond(w.view())
	case *messages.ReportIdle:
		c.Respond(&messages.Idleness{})
	case *messages.Progress, *messages.Failure, *actor.DeadLetterResponse:
	default:
		if _, recall := m.(*messages.RecallInput); recall || c.Sender() != nil {
			c.Forward(c.Parent())
		}
	}
}

// rescue turns a panic of a handler into a fact and an orderly end: the parent stops routing
// here, poisons this incarnation and starts the next from the journal.
func (w *Worker) rescue(c actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	w.log.Error("worker panicked", "err", fmt.Sprint(r), "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
	if c.Sender() != nil && asks(c.Message()) {
		c.Respond(messages.Fail(messages.CodeInternal, fmt.Sprintf("the worker failed while handling %T", c.Message()), "it restarts; try again"))
	}
	w.fail(c, fmt.Sprint(r), &messages.Panicked{Reason: fmt.Sprint(r), Stack: string(debug.Stack())})
}

// down goes over to the failed state and tells the Session.
func (w *Worker) down(c actor.Context, reason string, quarantine bool) {
	w.end(c, &messages.WorkerFailed{WorkerId: w.id, Reason: reason, Quarantine: quarantine, Damaged: w.state == nil})
}

func (w *Worker) end(c actor.Context, m *messages.WorkerFailed) {
	reason := m.GetReason()
	w.lastError, w.quarantined = reason, m.GetQuarantine()
	w.halt(c)
	w.become((*Worker).failed, stateFailed)
	for _, asker := range []*actor.PID{w.inflight.askerOrNil(), w.leases.staging.askerOrNil(), w.remembering.askerOrNil()} {
		if asker != nil {
			c.Send(asker, messages.Fail(messages.CodeUnavailable, "the worker failed: "+reason, "send the same input id again"))
		}
	}
	w.inflight, w.leases.staging, w.remembering = nil, nil, nil
	c.Send(c.Parent(), m)
	w.stash.Forward(c, c.Parent())
	w.handBack(c)
}

// handBack returns those who wait for a turn to the Session: the next incarnation answers them.
func (w *Worker) handBack(c actor.Context) {
	for _, one := range w.waiting {
		c.RequestWithCustomSender(c.Parent(), &messages.AwaitTurn{WorkerId: w.id, InputId: one.input}, one.pid)
	}
	for _, pid := range w.idlers {
		c.RequestWithCustomSender(c.Parent(), &messages.WaitIdle{WorkerId: w.id}, pid)
	}
	for _, x := range w.cancels {
		c.RequestWithCustomSender(c.Parent(), x.asked, x.pid)
	}
	askers, by := w.compactAskers()
	for _, pid := range askers {
		c.RequestWithCustomSender(c.Parent(), &messages.CompactHistory{WorkerId: w.id, By: by}, pid)
	}
	for _, pid := range w.closing.who {
		c.RequestWithCustomSender(c.Parent(), w.closing.asked, pid)
	}
	w.waiting, w.idlers, w.cancels, w.closing = nil, nil, nil, closing{}
}

// stopping answers whatever is still open: a stopped mailbox says nothing (house rule 4).
func (w *Worker) stopping(c actor.Context) {
	w.halt(c)
	gone := messages.Fail(messages.CodeUnavailable, "the worker is stopping", "try again")
	w.stash.Each(func(msg any, sender *actor.PID) {
		if sender != nil && asks(msg) {
			c.Send(sender, gone)
		}
	})
	for _, one := range w.waiting {
		c.Send(one.pid, gone)
	}
	askers, _ := w.compactAskers()
	for _, pid := range slices.Concat(w.idlers, w.closing.who, askers) {
		c.Send(pid, gone)
	}
	for _, x := range w.cancels {
		if x.pid != nil {
			c.Send(x.pid, gone)
		}
	}
	for _, asker := range []*actor.PID{w.inflight.askerOrNil(), w.leases.staging.askerOrNil(), w.remembering.askerOrNil()} {
		if asker != nil {
			c.Send(asker, gone)
		}
	}
	w.giveBackAll(c)
	w.saveAtEnd()
	w.suspend()
	w.lastSnapshot(c)
	w.inflight, w.leases.staging, w.remembering = nil, nil, nil
	w.receive = func(_ *Worker, c actor.Context) { // messages still come until Stopped (house rule 4)
		if c.Sender() != nil && asks(c.Message()) {
			c.Respond(gone)
		}
	}
}

// release lets go of the state: a kept PID would keep all of it alive (house rule 10).
func (w *Worker) release() {
	if w.journal != nil {
		w.snaps.whenWritten(w.journal.Release) // one may be under way that needs it
	}
	w.stopTimers()
	svc, log := w.svc, w.log
	w.journal, w.state, w.snaps, w.prompt, w.stash, w.tools = nil, nil, nil, nil, act.Stash{}, nil
	w.grant, w.newest, w.lost, w.mail = nil, nil, nil, mailing{}
	w.waiting, w.running, w.decided, w.known, w.inflight, w.gen = nil, nil, nil, nil, nil, nil
	w.svc, w.log = svc, log
	w.receive = func(*Worker, actor.Context) {}
}

func (w *Worker) inputs() *messages.Inputs {
	out := &messages.Inputs{}
	if t := w.state.Turn(); t != nil {
		state := "running"
		if t.Steps > 0 {
			state = "committed"
		}
		for _, in := range t.Inputs {
			out.Inputs = append(out.Inputs, &messages.InputView{InputId: in.GetInputId(), Text: conversation.InputText(in.GetParts()), State: state, AtUnixMs: in.AtMs})
		}
	}
	for _, in := range w.state.Staged() {
		out.Inputs = append(out.Inputs, &messages.InputView{InputId: in.GetInputId(), Text: conversation.InputText(in.GetParts()), State: "staged", AtUnixMs: in.AtMs})
	}
	return out
}
