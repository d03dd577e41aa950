package actors

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Session is one conversation space: it owns the set of workspaces and hands each of its Workers
// an immutable grant of them; it routes, and keeps nothing of a conversation.
//
// Accepts: CreateSession or OpenSession (first), and ToSession with a command for itself or one of
// its workers; from its workers WorkerFailed, Published, RememberRule and the commands that a failed one
// hands back; from its PipelineRun and its Conversations what they say there. A worker that fails is poisoned and replaced after a pause; what arrives meanwhile waits
// here, in order. Parent: Supervisor. Children: Workers, Conversations,
// a PipelineRun.
type Session struct {
	svc     *Services
	log     *slog.Logger
	receive func(*Session, actor.Context) // the state: unborn, opening, ready, or an ending one

	id       string
	journal  *persistence.Journal
	facts    sessionFacts
	grant    *messages.Grant
	workers  map[string]*member
	byCall   map[string]*member // those that were made for a call, by that
	order    []string           // of workers, the first is the one that prompts go to
	watchers []*actor.PID
	stash    act.Stash
	builds   act.Stash
	till     till
	rest     rest
	calm     calm
	life     life
	makings  map[*making]struct{}
	run      *runner // nil: it was not made for a pipeline run
	shared   map[string]*sharing
	building bool // a worker is being written down
	creating bool // it is being made, and not known yet
	ending   bool // stopping: nobody is started any more, though messages still come
	doomed   bool // it is being deleted for good, and that is written down: nothing else is taken any more
}

// member is a worker as its Session sees it.
type member struct {
	id       string
	spawned  *messages.WorkerSpawned
	pid      *actor.PID // nil while it is down
	children []string   // that it has delegated to
	used     uint64     // commands that were passed to it

	dormant    bool  // a child that nobody has wanted anything of since the session came into memory
	ending     bool  // it is down, and its name not free yet
	retiring   bool  // it leaves memory, and is dormant when its name is free
	needed     bool  // its run works with it
	retreating bool  // it is waited for to rest, so that it can leave
	damaged    bool  // it is quarantined so that releasing it changes nothing
	tried      bool  // it was released, and has not worked since
	known      bool  // it has said what it is left, if anything, since the session came into memory
	held       bool  // a child that starts when its parent is known
	restarts   int32 // of it, since the session came into memory
	openings   int32 // tries to open it in a row that ended in a panic

	failures    int    // since it last ran well
	quarantined string // why it is not started again
	lastError   string
	release     string // who lets it go on, when it is started: it was quarantined
	told        string // release, as the running one was told
	since       time.Time
	queue       act.Stash
	timer       act.Timer
	equipped    *equipment // with which tools it was left last; nil: as it was when it began
	born        *opened    // what it starts with, when it was just made; else nil
}

func newSession(svc *Services) *Session {
	s := &Session{svc: svc, log: svc.Log, workers: make(map[string]*member, 1)}
	s.receive = (*Session).unborn
	return s
}

// Receive sees to the actor's life, and leaves the rest to the state it is in.
func (s *Session) Receive(c actor.Context) {
	defer s.rescue(c)
	switch m := c.Message().(type) {
	case *actor.Started:
	case *actor.Terminated:
		s.terminated(c, m.GetWho())
	case *actor.Stopping:
		s.stopping(c)
	case *actor.Stopped:
		if s.journal != nil {
			s.journal.Release()
		}
		s.forget()
	default:
		s.receive(s, c)
	}
}

// forget lets go of the state: a kept PID would keep all of it alive (house rule 10).
func (s *Session) forget() {
	s.endLife()
	s.workers, s.byCall, s.run, s.grant, s.watchers, s.journal, s.facts, s.order = nil, nil, nil, nil, nil, nil, sessionFacts{}, nil
	s.stash, s.builds, s.till, s.makings, s.shared, s.calm.silent = act.Stash{}, act.Stash{}, till{}, nil, nil, nil
	s.receive = func(*Session, actor.Context) {}
}

// rescue turns a panic of a handler into an orderly end: the Supervisor stops routing here, poisons this
// incarnation and starts the next from the journal. Commands are handed back meanwhile.
func (s *Session) rescue(c actor.Context) {
	r := recover()
	if r == nil {
		return
	}
	s.log.Error("session panicked", "err", fmt.Sprint(r), "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
	s.answer(c, messages.Fail(messages.CodeInternal, fmt.Sprintf("the session failed while handling %T", c.Message()), "it restarts; try again"))
	s.receive = func(s *Session, c actor.Context) {
		if _, ok := c.Message().(*messages.ToSession); ok {
			c.Forward(c.Parent())
			return
		}
		s.answer(c, messages.Fail(messages.CodeUnavailable, "the session is restarting", "try again"))
	}
	c.Send(c.Parent(), &messages.SessionEnded{SessionId: s.id, Reason: fmt.Sprint(r), Failed: true})
}

// unborn waits to be told which session it is.
func (s *Session) unborn(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.CreateSession:
		s.create(c, m)
	case *messages.OpenSession:
		s.id = m.GetSessionId()
		s.log = s.svc.logOf(s.id, "")
		s.open(c)
	default:
		act.Unexpected(c, s.log)
	}
}

// ready is the state of a session that knows its facts.
func (s *Session) ready(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.ToSession:
		s.command(c, m)
	case *messages.Published:
		s.publish(c, m)
	case *messages.WorkerFailed:
		s.workerFailed(c, m)
	case *respawn:
		s.respawn(c, m)
	case *messages.SpawnChild:
		s.spawnChild(c, m)
	case *messages.FindWorker:
		s.findWorker(c, m)
	case *equips:
		s.narrowChildren(c, m)
	case *workerKnown:
		s.workerKnown(c, m.worker)
	case *workerBuilt:
		s.workerBuilt(c, m)
	case *messages.ReleaseWorker: // handed back, too
		s.releaseOnce(c, m)
	case *regrant:
		s.regranted(c, m)
	case *granting:
		s.granted(c, m)
	case *copyMade:
		s.copyMade(c, m)
	case *applied:
		s.applied(c, m)
	case *cloneGrew:
		s.cloneGrew(c, m)
	case *workersClosed:
		s.workersClosed(c, m)
	case *endWritten:
		s.endWritten(c, m)
	case *idleDue, *idleKnown, *askAwake, *askSilence, *messages.Passivate, *messages.MakeRoom:
		s.aboutRest(c)
	case *messages.DescribeTree:
		s.subtree(c)
	case *messages.Replaced:
		s.tellAll(c, m)
	case *messages.RememberRule:
		s.rememberRule(c, m)
	case *ruleWritten:
		s.ruleWritten(c, m)
	case *messages.AskBudget, *messages.ReportBudget, *budgetWritten:
		s.aboutBudget(c)
	case *messages.FieldChanged:
		s.noteField(c, m)
	case *fieldNoted:
		s.fieldNoted(c, m)
	case *endJobs, *jobsNoted:
		s.aboutJobs(c)
	case *messages.SubmitInput, *messages.RunInput, *messages.CallTool, *messages.AwaitTurn, *messages.CancelSession, *messages.ListInputs,
		*messages.WithdrawInput, *messages.ReadHistory, *messages.ConfigureWorker, *messages.NarrowChild, *messages.WaitIdle, *messages.ResolveCall, *messages.ResolveApproval,
		*messages.SetTimer, *messages.CancelTimer, *messages.ListTimers, *messages.FireTimer,
		*messages.CompactHistory, *messages.DeleteWorker, *messages.SaveHistory, *messages.DeliverMail:
		s.route(c, m) // handed back by a worker that failed
	default:
		s.ofRun(c)
	}
}

// command unwraps what the Supervisor routed here: for a worker, or for the session itself.
func (s *Session) command(c actor.Context, m *messages.ToSession) {
	if _, look := m.GetCommand().(*messages.ToSession_Describe); !look {
		s.use()
	}
	if _, again := m.GetCommand().(*messages.ToSession_Close); s.doomed && !again {
		s.answer(c, sessionClosed(s.id))
		return
	}
	switch cmd := m.GetCommand().(type) {
	case *messages.ToSession_Submit:
		s.route(c, cmd.Submit)
	case *messages.ToSession_Run:
		s.route(c, cmd.Run)
	case *messages.ToSession_AwaitTurn:
		s.route(c, cmd.AwaitTurn)
	case *messages.ToSession_ListInputs:
		s.route(c, cmd.ListInputs)
	case *messages.ToSession_WithdrawInput:
		s.route(c, outsider(cmd.WithdrawInput))
	case *messages.ToSession_ResolveCall:
		s.route(c, cmd.ResolveCall)
	case *messages.ToSession_ResolveApproval:
		s.resolveApproval(c, outsider(cmd.ResolveApproval))
	case *messages.ToSession_CallTool:
		s.route(c, cmd.CallTool)
	case *messages.ToSession_Save:
		s.route(c, cmd.Save)
	case *messages.ToSession_Compact:
		s.route(c, cmd.Compact)
	case *messages.ToSession_History:
		s.route(c, cmd.History)
	case *messages.ToSession_Configure:
		s.route(c, cmd.Configure)
	case *messages.ToSession_SetTimer:
		s.route(c, cmd.SetTimer)
	case *messages.ToSession_CancelTimer:
		s.route(c, cmd.CancelTimer)
	case *messages.ToSession_ListTimers:
		s.route(c, cmd.ListTimers)
	case *messages.ToSession_FireTimer:
		s.route(c, cmd.FireTimer)
	default:
		s.own(c, m)
	}
}

// own serves what is for the session, or for all of its workers when none is named.
func (s *Session) own(c actor.Context, m *messages.ToSession) {
	switch cmd := m.GetCommand().(type) {
	case *messages.ToSession_Cancel:
		s.cancelAll(c, outsider(cmd.Cancel))
	case *messages.ToSession_WaitIdle:
		s.waitAll(c, cmd.WaitIdle)
	case *messages.ToSession_SpawnWorker:
		s.spawnWorker(c, cmd.SpawnWorker)
	case *messages.ToSession_ReleaseWorker:
		s.release(c, cmd.ReleaseWorker)
	case *messages.ToSession_AttachWorkspace:
		s.attach(c, cmd.AttachWorkspace)
	case *messages.ToSession_DetachWorkspace:
		s.detach(c, cmd.DetachWorkspace)
	case *messages.ToSession_ChangeTrust:
		s.changeTrust(c, cmd.ChangeTrust)
	case *messages.ToSession_TakeVariables:
		s.takeVariables(c, cmd.TakeVariables)
	case *messages.ToSession_UseFile:
		s.useFile(c, cmd.UseFile)
	case *messages.ToSession_ReadFields, *messages.ToSession_SetField, *messages.ToSession_DeclareFields:
		s.onFields(c, m)
	case *messages.ToSession_DiffCopy:
		s.diffCopy(c, cmd.DiffCopy)
	case *messages.ToSession_ApplyCopy:
		s.applyCopy(c, cmd.ApplyCopy)
	case *messages.ToSession_DeleteWorker:
		s.deleteWorker(c, outsider(cmd.DeleteWorker))
	case *messages.ToSession_RevokeRule:
		s.revokeRule(c, cmd.RevokeRule)
	case *messages.ToSession_CountJobs:
		s.countJobs(c)
	case *messages.ToSession_EndJob:
		s.endJob(c, cmd.EndJob)
	case *messages.ToSession_Close:
		s.closeSession(c, cmd.Close)
	case *messages.ToSession_Describe:
		s.describe(c)
	case *messages.ToSession_Subscribe:
		s.subscribe(c, cmd.Subscribe)
	case *messages.ToSession_Unsubscribe:
		s.unsubscribe(c, c.Sender())
	default:
		s.further(c, m)
	}
}

// addressed is a command for one worker; "" means the first.
type addressed interface{ GetWorkerId() string }

// route passes a command to its worker, sender preserved, or keeps it while the worker is down.
func (s *Session) route(c actor.Context, cmd any) {
	id := ""
	if a, ok := cmd.(addressed); ok {
		id = a.GetWorkerId()
	}
	if id == "" {
		id = s.first()
	}
	w := s.workers[id]
	if w != nil {
		s.wake(c, w)
	}
	if begins(cmd) {
		s.rest.begun.Add(1)
	}
	switch {
	case w == nil:
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no worker %q", s.id, id), "see `troupe ls workers`"))
	case w.quarantined != "":
		s.answer(c, w.refused())
	case w.pid == nil:
		w.keep(c, cmd)
	default:
		w.used++
		c.RequestWithCustomSender(w.pid, cmd, c.Sender())
	}
}

func (s *Session) answer(c actor.Context, msg any) {
	if c.Sender() != nil {
		c.Respond(msg)
	}
}

// start spawns a worker and tells it who it is and what it may use.
func (s *Session) start(c actor.Context, w *member) {
	if s.hold(c, w) {
		return
	}
	pid, err := c.SpawnNamed(s.svc.workerProps(), w.id)
	if err != nil {
		s.log.Error("worker cannot be spawned", "worker", w.id, "err", err)
		w.quarantined = err.Error()
		s.workerKnown(c, w.id) // as far as it can be
		return
	}
	w.pid, w.since = pid, s.svc.Now()
	w.used++
	s.rest.begun.Add(1)
	configure := &messages.Configure{
		Grant: s.grantOf(w), NoInput: s.facts.created.GetNoInput(), WorkerId: w.id, SessionId: s.id, Watched: len(s.watchers) > 0, Restarts: w.restarts,
		Release: w.release, Openings: w.openings, Persist: s.facts.created.GetPersist(), Ask: s.canAsk(), Run: s.facts.created.GetRunId() != "",
	}
	if w.born != nil {
		c.Send(pid, &newborn{configure, w.born})
		w.born = nil
	} else {
		c.Send(pid, configure)
	}
	w.release, w.told = "", w.release
	s.narrow(c, w)
	w.queue.Forward(c, pid)
	s.retreat(c, w)
}

// workerFailed stops routing to a worker and poisons it: everything that was sent to it before is
// handed back first.
func (s *Session) workerFailed(c actor.Context, m *messages.WorkerFailed) {
	w := s.workers[m.GetWorkerId()]
	if w == nil || w.pid == nil {
		return
	}
	if m.GetQuarantine() {
		s.tellLost(w.spawned, failedAgain(m.GetReason()), c)
		w.quarantined, w.damaged = m.GetReason(), m.GetDamaged()
		s.workerKnown(c, w.id) // as far as it can be
	}
	if w.openings++; !m.GetOpening() {
		w.openings = 0
	} else if !m.GetQuarantine() {
		w.release = w.told // it has not come to write that down
	}
	s.lost(w, m.GetReason())
	c.Poison(w.pid)
	w.pid, w.ending = nil, true
	s.lostPayer(c, w)
}

// lost counts a failure; a worker that ran for a while starts at the short pause again.
func (s *Session) lost(w *member, reason string) {
	if s.svc.Now().Sub(w.since) > ranWell {
		w.failures = 0
	}
	w.failures++
	w.restarts++
	w.lastError = reason
	s.log.Warn("worker failed", "worker", w.id, "count", w.failures, "err", reason)
}

// HandleFailure is the strategy for workers whose handlers panicked past their own rescue: stop, and
// start anew after a pause. Siblings and the session go on.
func (s *Session) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	for _, w := range s.workers {
		if w.pid != nil && w.pid.GetId() == child.GetId() {
			s.lost(w, fmt.Sprint(reason))
			w.pid, w.ending = nil, true
		}
	}
	sup.StopChildren(child)
}

// terminated starts the successor of a worker after a pause that grows with its failures, or
// answers for one that is quarantined.
func (s *Session) terminated(c actor.Context, who *actor.PID) {
	s.unsubscribe(c, who)
	if s.runEnded(c, who) || s.sharedEnded(c, who) {
		return
	}
	w := s.workers[filepath.Base(who.GetId())]
	if w == nil || who.GetAddress() != c.Self().GetAddress() {
		return
	}
	if s.ending {
		w.pid = nil
		s.lastOut(c)
		return
	}
	if s.retired(c, w) {
		return
	}
	if w.pid != nil { // ended by itself, or killed from outside
		s.lost(w, "stopped unexpectedly")
		w.pid = nil
	}
	w.ending = false
	s.lostPayer(c, w)
	if w.quarantined != "" {
		q := w.queue
		w.queue = act.Stash{}
		q.Replay(c, s.late, func() bool { return true })
		return
	}
	w.timer.Set(c, restartPause(w.failures), func(gen uint64) any { return &respawn{w.id, gen} })
}

func (s *Session) respawn(c actor.Context, m *respawn) {
	if w := s.workers[m.worker]; w != nil && w.timer.Fresh(m.gen) && w.pid == nil {
		w.timer.Stop()
		s.start(c, w)
	}
}

// stopping answers those who wait for a worker that is down.
func (s *Session) stopping(c actor.Context) {
	s.ending = true
	gone := messages.Fail(messages.CodeUnavailable, "the session is stopping", "try again")
	s.endMakings(c, gone, func(*making) bool { return true })
	s.endLife()
	drop := func(_ any, sender *actor.PID) {
		if sender != nil {
			c.Send(sender, gone)
		}
	}
	s.rest.timer.Stop()
	s.stash.Each(drop)
	s.builds.Each(drop)
	for _, pid := range s.calm.silent {
		c.Send(pid, gone)
	}
	for _, pid := range s.watchers {
		c.Send(pid, &messages.Unsubscribe{}) // they subscribe again, to the next incarnation
	}
	for _, w := range s.workers {
		w.queue.Each(drop)
		w.timer.Stop()
		w.born.release()
	}
	for _, x := range s.shared {
		x.queue.Each(drop)
		x.timer.Stop()
	}
	s.receive = func(s *Session, c actor.Context) { s.answer(c, gone) }
}
