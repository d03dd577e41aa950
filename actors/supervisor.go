package actors

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Supervisor is the root of the tree. It finds or starts the Session that a command is for, and
// replaces what fails below it after a growing pause; a child that keeps failing is given up.
//
// Accepts: CreateSession, ToSession, OpenWorkspace, DescribeTree, RevokeRule, RegisterHost; of Sessions openingWorkspaces, KeepWorkspaces, RememberRule, SessionEnded, SessionIdle and
// Staying, of Workspaces WorkspaceUnused. Children: Timers, Rules, Limiters, Workspaces, Sessions. Parent: none; it is stopped last.
type Supervisor struct {
	svc   *Services
	log   *slog.Logger
	props struct{ session, workspace, timers, rules *actor.Props }
	// limiter makes the props of a provider's Limiter: each has limits of its own.
	limiter func(provider string) *actor.Props
	kids    map[string]*kid // by name
	places  places          // of the Workspaces
	room    room            // for sessions

	ending  bool   // stopping: nobody is started any more, though messages still come
	scratch []byte // see unfit
}

// kid is a child as the Supervisor sees it.
type kid struct {
	name      string
	pid       *actor.PID
	leaving   *actor.PID                     // a session that has been told that nothing more comes: it ends, or says that it stays
	ended     bool                           // it leaves for good: it is forgotten, not replaced
	spawn     func(actor.Context) *actor.PID // nil: not started again, the next message does
	sinceMs   int64                          // its start
	failures  int                            // in a row
	restarts  uint64
	lastError string
	gaveUp    string
	timer     act.Timer
	queue     act.Stash

	used     uint64 // of a session: when it was last sent something, in the order of the Supervisor's messages
	stayedMs int64  // of a session: when it last said that it does not rest; 0: never

	uses    []string                 // of a session: its workspaces, by name
	grant   *messages.WorkspaceGrant // of a workspace
	users   int                      // of a workspace: sessions that use it
	retired uint64                   // of a workspace: how often it was to be given up
}

type kidDue struct {
	name string
	gen  uint64
}

const (
	// giveUpAfter is how often in a row a child may fail.
	giveUpAfter = 10
	// ranWell is how long a child runs before its earlier failures are forgotten.
	ranWell = time.Minute
)

// restartPause is how long a child that failed stays down: longer with each failure in a row.
func restartPause(failures int) time.Duration {
	return act.Backoff{First: 10 * time.Millisecond, Max: 30 * time.Second}.Pause(max(failures, 1))
}

// NewSupervisor readies the services and returns the props of the root.
func NewSupervisor(svc *Services) *actor.Props {
	svc.Limits = svc.Limits.withDefaults()
	if svc.Redact == nil {
		svc.Redact = knowsNothing{}
	}
	if svc.Clock == nil {
		svc.Clock = act.SystemClock(svc.Now)
	}
	svc.Now = svc.Clock.Now
	svc.folders = newFolders()
	svc.pool = act.NewPool()
	svc.running, svc.stopped = &sync.WaitGroup{}, make(chan struct{})
	props := func(make actor.Producer) *actor.Props {
		return actor.PropsFromProducer(make, actor.WithDispatcher(svc.pool), actor.WithMailbox(act.Mailbox(svc.Sent)))
	}
	svc.props.worker = props(func() actor.Actor { return newWorker(svc) })
	svc.props.executor = props(func() actor.Actor { return newToolExecutor(svc) })
	svc.props.run = props(func() actor.Actor { return &PipelineRun{svc: svc, log: svc.Log} })
	svc.props.conversation = props(func() actor.Actor { return &Conversation{svc: svc, log: svc.Log} })
	return props(func() actor.Actor {
		s := &Supervisor{svc: svc, log: svc.Log, kids: make(map[string]*kid)}
		s.props.session = props(func() actor.Actor { return newSession(svc) })
		s.props.workspace = props(func() actor.Actor { return newWorkspace(svc) })
		s.props.timers = props(func() actor.Actor { return newTimers(svc) })
		s.props.rules = props(func() actor.Actor { return newRules(svc) })
		s.limiter = func(provider string) *actor.Props {
			return props(func() actor.Actor { return newLimiter(svc, provider) })
		}
		return s
	})
}

// Start spawns the tree and returns its root.
func Start(sys *actor.ActorSystem, svc *Services) (*actor.PID, error) {
	if err := os.RemoveAll(svc.TempDir); err != nil { // leftovers of calls that a crash cut off
		return nil, fmt.Errorf("clear temporary folders: %w", err)
	}
	if err := os.MkdirAll(svc.TempDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for temporary folders: %w", err)
	}
	err := svc.sweepCopies(context.Background())
	if err != nil {
		return nil, err
	}
	if err := svc.markRunning(); err != nil {
		return nil, err
	}
	if svc.ledger, err = tools.OpenLedger(filepath.Join(svc.DataDir, "ledger"), svc.Now); err != nil {
		return nil, err
	}
	svc.sys, svc.rootPID = sys, sys.NewLocalPID(root)
	svc.loadRules(context.Background())
	svc.loadFielded(context.Background())
	return sys.Root.SpawnNamed(NewSupervisor(svc), root)
}

// Drain waits for the goroutines of calls, once the tree is stopped.
func (s *Services) Drain(done func()) {
	go func() {
		s.running.Wait()
		s.pool.Close()
		if err := s.ledger.Close(); err != nil {
			s.Log.Warn("close the ledger of calls", "err", err)
		}
		s.unmarkRunning()
		done()
	}()
}

func (s *Services) workerProps() *actor.Props   { return s.props.worker }
func (s *Services) executorProps() *actor.Props { return s.props.executor }

// Receive is the dispatch table.
func (s *Supervisor) Receive(c actor.Context) {
	if s.ending && c.Sender() != nil {
		c.Respond(messages.Fail(messages.CodeUnavailable, "the runtime is stopping", "try again"))
		return
	}
	switch m := c.Message().(type) {
	case *messages.CreateSession, *messages.ToSession:
		if fail := s.unfit(m.(proto.Message)); fail != nil {
			if c.Sender() != nil {
				c.Respond(fail)
			}
			return
		}
	}
	switch m := c.Message().(type) {
	case *actor.Started:
		s.started(c)
	case *messages.CreateSession:
		s.create(c, m)
	case *messages.ToSession:
		s.toSession(c, m)
	case *openingWorkspaces:
		s.openWorkspaces(c, m)
	case *messages.OpenWorkspace:
		s.openWorkspace(c, m)
	case *messages.KeepWorkspaces:
		s.keepWorkspaces(c, m)
	case *messages.DescribeTree:
		s.describe(c, m)
	case *messages.SessionEnded:
		s.sessionEnded(c, m)
	case *resolvedAsleep:
		s.resolvedAsleep(c, m)
	case *messages.SessionIdle:
		s.sessionIdle(c, m)
	case *messages.Staying:
		s.staying(c, m)
	case *messages.WorkspaceUnused:
		s.workspaceUnused(c, m)
	case *roomDue:
		if s.room.timer.Fresh(m.gen) {
			s.turnAway(c)
		}
	case *messages.FindActor:
		s.find(c, m)
	case *messages.RememberRule, *messages.RevokeRule, *messages.RegisterHost:
		s.toRules(c)
	case *messages.FieldChanged:
		s.fieldChanged(c, m)
	case *actor.Terminated:
		s.terminated(c, m.GetWho())
	case *kidDue:
		s.due(c, m)
	case *actor.Stopping:
		s.stopping(c)
	case *actor.Stopped:
		s.kids, s.places, s.room = nil, places{}, room{}
	default:
		act.Unexpected(c, s.log)
	}
}

// started spawns the Timers and the Rules, and a Limiter for every provider.
func (s *Supervisor) started(c actor.Context) {
	s.keep(c, timersName, func(c actor.Context) *actor.PID { return s.spawn(c, s.props.timers, timersName) })
	s.keep(c, rulesName, func(c actor.Context) *actor.PID { return s.spawn(c, s.props.rules, rulesName) })
	for _, p := range s.svc.Models.Providers() {
		limiter := s.limiter(p)
		s.keep(c, limiterName(p), func(c actor.Context) *actor.PID { return s.spawn(c, limiter, limiterName(p)) })
	}
}

func (s *Supervisor) spawn(c actor.Context, props *actor.Props, name string) *actor.PID {
	pid, err := c.SpawnNamed(props, name)
	if err != nil {
		s.log.Error("actor cannot be spawned", "actor", name, "err", err)
		return nil
	}
	return pid
}

func (s *Supervisor) keep(c actor.Context, name string, spawn func(actor.Context) *actor.PID) *kid {
	k := &kid{name: name, spawn: spawn, pid: spawn(c), sinceMs: s.now()}
	s.kids[name] = k
	return k
}

// now is the time of day in milliseconds.
func (s *Supervisor) now() int64 { return s.svc.Now().UnixMilli() }

func (s *Supervisor) create(c actor.Context, m *messages.CreateSession) {
	if m.GetSessionId() == "" {
		m = shallow(m)
		m.SessionId = messages.NewID(messages.SessionPrefix)
	}
	if !messages.ValidID(messages.SessionPrefix, m.GetSessionId()) {
		c.Respond(messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no session id", m.GetSessionId()), "leave it out"))
		return
	}
	if k := s.kids[m.GetSessionId()]; k != nil {
		if k.pid == nil && k.gaveUp == "" { // it is ending, and may never have been
			k.queue.Put(c)
			return
		}
		c.Respond(messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("session %s exists", m.GetSessionId()), ""))
		return
	}
	if !s.admit(c) {
		return
	}
	k := s.enter(m.GetSessionId())
	k.pid, k.sinceMs = s.spawn(c, s.props.session, k.name), s.now()
	s.use(k)
	c.RequestWithCustomSender(k.pid, m, c.Sender())
}

// toSession forwards a command, starting the session from its journal when it is not in memory.
func (s *Supervisor) toSession(c actor.Context, m *messages.ToSession) {
	if !messages.ValidID(messages.SessionPrefix, m.GetSessionId()) {
		c.Respond(NoSession(m.GetSessionId()))
		return
	}
	k := s.kids[m.GetSessionId()]
	_, leaves := m.GetCommand().(*messages.ToSession_Unsubscribe)
	switch {
	case k == nil && leaves: // nobody is there who could still send to it
		return
	case k == nil && m.GetResolveCall() != nil:
		s.resolveAsleep(c, m.GetSessionId(), wordOnCall(s.svc, m.GetResolveCall()))
		return
	case k == nil && asleep(m.GetResolveApproval()):
		s.resolveAsleep(c, m.GetSessionId(), wordOnApproval(s.svc, m.GetResolveApproval()))
		return
	case k == nil && !s.admit(c):
		return
	case k == nil:
		k = s.enter(m.GetSessionId())
		s.reopen(c, k)
	case k.gaveUp != "":
		c.Respond(messages.Fail(messages.CodeQuarantined, fmt.Sprintf("session %s keeps failing: %s", k.name, k.gaveUp), "run `troupe verify`"))
		return
	case k.pid == nil:
		k.queue.Put(c)
		return
	}
	s.use(k)
	c.Forward(k.pid)
}

// toRules forwards a change to the rules that outlast a session.
func (s *Supervisor) toRules(c actor.Context) {
	switch k := s.kids[rulesName]; {
	case k == nil || k.gaveUp != "":
		c.Respond(messages.Fail(messages.CodeUnavailable, "the rules keep failing", "see the log"))
	case k.pid == nil:
		k.queue.Put(c)
	default:
		c.Forward(k.pid)
	}
}

func (s *Supervisor) reopen(c actor.Context, k *kid) {
	k.pid, k.sinceMs = s.spawn(c, s.props.session, k.name), s.now()
	c.Send(k.pid, &messages.OpenSession{SessionId: k.name})
}

// HandleFailure is the strategy for children that panicked: stop, and start anew after a pause.
func (s *Supervisor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	s.log.Error("actor panicked", "actor", child.GetId(), "err", reason)
	if k := s.kids[nameOf(child)]; k != nil {
		k.failed(s.now(), fmt.Sprint(reason))
	}
	sup.StopChildren(child)
}

// failed counts a failure; a child that ran for a while starts at the short pause again.
func (k *kid) failed(nowMs int64, reason string) {
	if nowMs-k.sinceMs > ranWell.Milliseconds() {
		k.failures = 0
	}
	k.failures++
	k.lastError = reason
	if k.failures >= giveUpAfter {
		k.gaveUp = reason
	}
}

// sessionEnded stops routing to a session and poisons it: everything that was sent to it before is
// answered or handed back first, and what comes now waits for the end (house rule 4).
func (s *Supervisor) sessionEnded(c actor.Context, m *messages.SessionEnded) {
	k := s.kids[m.GetSessionId()]
	if k == nil || k.pid == nil && k.leaving == nil {
		return
	}
	k.ended = !m.GetFailed()
	if m.GetFailed() {
		k.failed(s.now(), m.GetReason())
	}
	if k.pid == nil {
		k.pid = k.leaving
	}
	c.Poison(k.pid)
	k.pid, k.leaving = nil, nil
}

func nameOf(pid *actor.PID) string { return pid.GetId()[strings.LastIndex(pid.GetId(), "/")+1:] }

// terminated replaces a child, or forgets a session that ended: what waited for that, and the next
// message, is handled as if it had never been there.
func (s *Supervisor) terminated(c actor.Context, who *actor.PID) {
	k := s.kids[nameOf(who)]
	if k == nil || s.ending {
		return
	}
	left := k.leaving != nil || k.ended || k.spawn == nil && k.failures == 0 || k.retired > 0 && k.users == 0
	k.pid, k.leaving = nil, nil
	switch {
	case left:
		s.forget(c, k)
	case k.gaveUp != "":
		s.vacate(k)
		s.tellReplaced(c, k)
		s.again(c, k) // to be refused
		s.roomChanged(c)
	default:
		delete(s.room.asked, k.name) // it cannot answer
		k.restarts++
		k.timer.Set(c, restartPause(k.failures), func(gen uint64) any { return &kidDue{k.name, gen} })
	}
}

func (s *Supervisor) due(c actor.Context, m *kidDue) {
	k := s.kids[m.name]
	if k == nil || !k.timer.Fresh(m.gen) || k.pid != nil {
		return
	}
	k.timer.Stop()
	if k.spawn != nil {
		k.pid, k.sinceMs = k.spawn(c), s.now()
		s.tellReplaced(c, k)
		s.retire(c, k)
	} else {
		s.reopen(c, k)
	}
	if k.pid != nil {
		k.queue.Forward(c, k.pid)
	}
}

func (s *Supervisor) stopping(c actor.Context) {
	s.ending = true
	s.refuseParked(c, messages.Fail(messages.CodeUnavailable, "the runtime is stopping", "try again"))
	for _, k := range s.kids {
		k.timer.Stop()
		k.queue.Each(func(_ any, sender *actor.PID) {
			if sender != nil {
				c.Send(sender, messages.Fail(messages.CodeUnavailable, "the runtime is stopping", "try again"))
			}
		})
	}
}
