package actors

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// Workspace guards one canonical address. Its mailbox is the lock: a turn takes its lease
// here first, in order of arrival; readers share, a writer is alone; nobody overtakes.
// Tools run elsewhere, so it always answers.
//
// Owns: the lease queue, the newest fencing token (epoch << 32 + n: it only grows, since n counts the leases
// of all workspaces since the start, and the epoch the starts), the count of effects per token, the fields (workspace_fields.go). Accepts: ReadFields,
// SetField, DeclareFields, KeepJob, AcquireLease (LeaseGranted or LeaseQueued at once, LeaseGranted when
// the turn comes), ReleaseLease, EffectBegun, EffectEnded, DescribeWorkspace, Terminated of a holder.
// A lease passes on only when its effects have ended: a dead worker's command may still run. Jobs, which calls left running,
// move on to their worker's next lease while nobody else waits; when somebody does, they are ended.
// Parent: Supervisor, which replaces it; the epoch of the new one is higher.
type Workspace struct {
	log    *slog.Logger
	svc    *Services
	uri    string
	epoch  uint64
	last   uint64    // token given
	unused uint64    // generation of the Supervisor's wish to be told when nothing runs any more; 0: none
	early  act.Stash // what came before OpenWorkspace: it is addressed by name, and without the epoch no token may be given
	held   []*lease  // granted and not passed on
	queue  []*lease
	watch  []string // ids of PIDs that are watched: once each, until they end
	book   fieldBook
	joined uint32        // ordinals given to those who joined a lease
	turns  []*effectTurn // effects that wait for those of their kin
}

type lease struct {
	who      *actor.PID
	worker   string
	of       string // the session, where who does not say
	parent   string // whose lease it works under; "" under its own
	request  uint64
	shared   bool
	token    uint64
	child    uint32
	released bool
	effects  map[string]bool
}

func newWorkspace(svc *Services) *Workspace {
	return &Workspace{log: svc.Log, svc: svc}
}

// Receive is the dispatch table.
func (w *Workspace) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
	case *messages.OpenWorkspace:
		w.open(c, m)
	case *actor.Terminated:
		w.gone(c, m.GetWho())
	case *actor.Stopping:
		w.refuse(c)
		w.closeFields(c)
	case *actor.Stopped:
		w.discard(w.svc.folders.close(w.uri))
		w.book = fieldBook{}
		w.held, w.queue, w.watch, w.turns, w.early = nil, nil, nil, nil, act.Stash{}
	default:
		if w.uri == "" {
			w.early.Put(c)
			return
		}
		w.serve(c)
	}
}

// discard removes a copy that nobody has any more. What a crash leaves of it the next start removes.
func (w *Workspace) discard(dir string) {
	if dir == "" {
		return
	}
	w.svc.aside(func() {
		if err := os.RemoveAll(dir); err != nil {
			w.log.Warn("a copy stays until the next start", "path", dir, "err", err)
		}
	})
}

// serve is the dispatch table of a Workspace that knows its epoch.
func (w *Workspace) serve(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.AcquireLease:
		w.acquire(c, m)
	case *messages.ReleaseLease:
		w.release(c, m)
	case *messages.EffectBegun:
		w.begun(c, m)
	case *messages.EffectEnded:
		w.ended(c, m)
	case *messages.KeepJob:
		w.keepJob(m)
		w.grant(c)
	case *messages.DescribeWorkspace:
		c.Respond(w.view())
	case *messages.RetireWorkspace:
		w.unused = m.GetGeneration()
		w.grant(c)
	case *messages.ReadFields, *messages.SetField, *messages.DeclareFields:
		w.onFields(c)
	case *fieldsOpened:
		w.fieldsOpened(c, m)
	case *fieldsWritten:
		w.fieldsWritten(c, m)
	case *fieldEffectDone:
		w.fieldEffectDone(c, m)
	default:
		act.Unexpected(c, w.log)
	}
}

// open learns which address this is; the folder itself is opened at first use, because
// 50,000 sessions must not cost 50,000 folders.
func (w *Workspace) open(c actor.Context, m *messages.OpenWorkspace) {
	if w.uri == "" {
		w.uri, w.epoch = m.GetGrant().GetUri(), m.GetEpoch()
		w.svc.folders.admit(m.GetGrant())
		w.inherit()
		if w.svc.fields.has(w.id(c)) { // what an edit set off may not have run yet
			w.openFields(c)
		}
		w.early.Replay(c, w.serve, func() bool { return true })
	}
	if c.Sender() != nil {
		c.Respond(&messages.Ack{})
	}
}

// inherit takes over the effects that a predecessor had counted: what runs under its tokens ends before anybody else is
// let in (I6).
func (w *Workspace) inherit() {
	for token, execs := range w.svc.folders.running(w.uri) {
		l := &lease{token: token, released: true, effects: make(map[string]bool, len(execs))}
		for _, exec := range execs {
			if worker, session := w.svc.folders.whose(exec); worker != "" {
				w.keepJob(&messages.KeepJob{JobId: exec, WorkerId: worker, SessionId: session})
				continue
			}
			l.effects[exec] = true
		}
		if len(l.effects) > 0 {
			w.held = append(w.held, l)
		}
	}
}

// keepJob counts a job that runs here as what a turn of its worker has left behind.
func (w *Workspace) keepJob(m *messages.KeepJob) {
	if slices.ContainsFunc(w.held, func(l *lease) bool { return l.effects[m.GetJobId()] }) {
		return
	}
	w.held = append(w.held, &lease{worker: m.GetWorkerId(), of: m.GetSessionId(), released: true, effects: map[string]bool{m.GetJobId(): true}})
}

func (w *Workspace) acquire(c actor.Context, m *messages.AcquireLease) {
	if m.GetAgain() && w.knows(c.Sender(), m.GetRequest()) {
		return
	}
	l := &lease{who: c.Sender(), worker: m.GetHolder(), parent: m.GetParent(), request: m.GetRequest(), shared: m.GetShared()}
	if !slices.Contains(w.watch, l.who.GetId()) {
		w.watch = append(w.watch, l.who.GetId())
		c.Watch(l.who)
	}
	if w.joins(l) {
		w.give(c, l)
		return
	}
	w.queue = append(w.queue, l)
	w.grant(c)
	if l.token == 0 {
		c.Respond(&messages.LeaseQueued{Workspace: w.uri, Ahead: int32(len(w.held) + len(w.queue) - 1), Request: l.request, Holder: w.holder()})
	}
}

// holder is the session of somebody who works here; "" when that is not known.
func (w *Workspace) holder() string {
	for _, l := range w.held {
		if of := l.session(); of != "" {
			return of
		}
	}
	return ""
}

// knows says whether a request stands in the queue, or was granted.
func (w *Workspace) knows(who *actor.PID, request uint64) bool {
	same := func(l *lease) bool { return l.request == request && l.who.GetId() == who.GetId() }
	return slices.ContainsFunc(w.queue, same) || slices.ContainsFunc(w.held, same)
}

// grant serves the queue's head while it is compatible with what is held.
func (w *Workspace) grant(c actor.Context) {
	for len(w.queue) > 0 {
		l := w.queue[0]
		w.carry(l)
		if !w.compatible(l) {
			w.endJobs(l)
			return
		}
		w.queue = slices.Delete(w.queue, 0, 1) // its room is the next one's
		w.give(c, l)
	}
	if cap(w.queue) > 16 { // that of a rush
		w.queue = nil
	}
	if w.unused != 0 && len(w.held) == 0 && !w.book.working() { // also no effect of somebody who is dead runs any more (I6)
		c.Send(c.Parent(), &messages.WorkspaceUnused{Id: nameOf(c.Self()), Generation: w.unused})
		w.unused = 0
	}
}

// give grants a lease. Who is let in beside its kin has their token: to everybody else they are one.
func (w *Workspace) give(c actor.Context, l *lease) {
	if i := slices.IndexFunc(w.held, func(h *lease) bool { return h.token != 0 && !h.released && kin(h, l) }); i >= 0 {
		w.joined++
		l.token, l.child = w.held[i].token, w.joined
	} else {
		l.token = w.epoch<<32 + w.svc.tokens.Add(1)
	}
	w.last = l.token
	w.held = append(w.held, l)
	c.Send(l.who, &messages.LeaseGranted{Workspace: w.uri, Token: l.token, Child: l.child, Request: l.request})
}

// carry gives the head of the queue the jobs of its worker, and of others of its session, when nothing but those is in its way. Its token is a new
// one, and the old lease is no more: no effect runs under two tokens.
func (w *Workspace) carry(l *lease) {
	mine := func(h *lease) bool { return (h.worker == l.worker || inOneSession(h, l)) && h.resting() }
	if l.shared || slices.ContainsFunc(w.held, func(h *lease) bool { return !mine(h) && !beside(h, l) }) {
		return
	}
	for _, h := range w.held {
		if mine(h) {
			if l.effects == nil {
				l.effects = make(map[string]bool, len(h.effects))
			}
			maps.Copy(l.effects, h.effects)
		}
	}
	w.held = slices.DeleteFunc(w.held, mine)
}

// endJobs asks for the end of jobs that keep another session out after their worker's turn.
func (w *Workspace) endJobs(next *lease) {
	for _, h := range w.held {
		if h.resting() && !inOneSession(h, next) {
			for id := range h.effects {
				w.svc.folders.end(id, "another agent waited for the workspace")
			}
		}
	}
}

// resting says that a lease was given back, and is kept by jobs alone.
func (l *lease) resting() bool {
	if !l.released || len(l.effects) == 0 {
		return false
	}
	for id := range l.effects {
		if !isJob(id) {
			return false
		}
	}
	return true
}

func isJob(id string) bool { return strings.HasPrefix(id, messages.JobPrefix) }

func (w *Workspace) compatible(l *lease) bool {
	return !slices.ContainsFunc(w.held, func(h *lease) bool { return !beside(h, l) })
}

// release gives a lease back, or a place in the queue.
func (w *Workspace) release(c actor.Context, m *messages.ReleaseLease) {
	for i, l := range w.queue {
		if l.worker == m.GetHolder() && l.request == m.GetRequest() {
			w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
			w.grant(c)
			return
		}
	}
	for _, l := range w.held {
		if l.worker == m.GetHolder() && !l.released && l.meant(m) {
			l.released = true
			w.nextTurns(c)
			w.pass(c, l)
			return
		}
	}
}

// meant says whether a lease is the one to give back. Kin share their token, so that it alone does not tell a worker's new
// lease from one that it never had.
func (l *lease) meant(m *messages.ReleaseLease) bool {
	return (m.GetToken() == 0 || l.token == m.GetToken()) && (m.GetRequest() == 0 || l.request == m.GetRequest()) && m.GetToken()+m.GetRequest() != 0
}

// pass drops a lease that was released and whose effects have ended, and serves the next.
func (w *Workspace) pass(c actor.Context, l *lease) {
	if !l.released || len(l.effects) > 0 {
		if l.resting() {
			w.grant(c)
		}
		return
	}
	for i, h := range w.held {
		if h == l {
			w.held = slices.Delete(w.held, i, i+1)
			break
		}
	}
	w.grant(c)
}

// begun allows an effect to who holds the workspace alone: a reader's toolset may have grown
// since it took its lease.
func (w *Workspace) begun(c actor.Context, m *messages.EffectBegun) {
	for _, l := range w.held {
		if l.token == m.GetToken() && l.child == m.GetChild() && !l.released {
			if l.shared {
				c.Respond(w.readOnly(l))
				return
			}
			if !l.effects[m.GetExecId()] && !w.alone(l) {
				w.awaitTurn(l, m.GetExecId(), c.Sender())
				return
			}
			w.allow(c, l, m.GetExecId(), c.Sender())
			return
		}
	}
	c.Respond(w.stale())
}

// readOnly refuses an effect under a lease that is shared.
func (w *Workspace) readOnly(l *lease) *messages.Failure {
	parent := slices.ContainsFunc(w.held, func(h *lease) bool { return h.worker == l.parent && h.shared && !h.released })
	if l.parent != "" && parent {
		return messages.Fail(messages.CodeDenied, "the agent that delegated only reads in "+w.uri+" in this turn, and who works for it does so under its lease", "answer what is to be changed instead")
	}
	return messages.Fail(messages.CodeDenied, w.uri+" was taken to be read alone when the turn began", "it can be changed from the next turn on")
}

func (w *Workspace) stale() *messages.Failure {
	return messages.Fail(messages.CodeStaleLease, "the lease on "+w.uri+" has passed on", "take it again")
}

func (w *Workspace) allow(c actor.Context, l *lease, exec string, asker *actor.PID) {
	if l.effects == nil {
		l.effects = make(map[string]bool, 1)
	}
	l.effects[exec] = true
	if asker != nil {
		c.Send(asker, &messages.EffectAllowed{ExecId: exec})
	}
}

func (w *Workspace) ended(c actor.Context, m *messages.EffectEnded) {
	w.leaveTurn(m.GetExecId())
	for _, l := range w.held {
		if l.effects[m.GetExecId()] && (l.token == m.GetToken() || isJob(m.GetExecId())) { // a job may have moved on
			delete(l.effects, m.GetExecId())
			w.pass(c, l)
			break
		}
	}
	w.nextTurns(c)
}

// gone passes on what a dead worker held, once its effects have ended.
func (w *Workspace) gone(c actor.Context, who *actor.PID) {
	w.watch = slices.DeleteFunc(w.watch, func(id string) bool { return id == who.GetId() })
	kept := w.queue[:0:0]
	for _, l := range w.queue {
		if l.who.GetId() != who.GetId() {
			kept = append(kept, l)
		}
	}
	w.queue = kept
	for _, l := range append([]*lease(nil), w.held...) {
		if l.who.GetId() == who.GetId() {
			l.released = true
			w.pass(c, l)
		}
	}
	w.nextTurns(c)
	w.grant(c)
}

// refuse answers those who wait: a stopped mailbox says nothing.
func (w *Workspace) refuse(c actor.Context) {
	gone := messages.Fail(messages.CodeUnavailable, "the workspace "+w.uri+" is stopping", "try again")
	w.early.Each(func(_ any, sender *actor.PID) {
		if sender != nil {
			c.Send(sender, gone)
		}
	})
	for _, l := range w.queue {
		c.Send(l.who, gone)
	}
	for _, t := range w.turns {
		w.answer(c, t, gone)
	}
	w.queue, w.turns = nil, nil
}

func (w *Workspace) view() *messages.WorkspaceView {
	v := &messages.WorkspaceView{Uri: w.uri, Waiting: int32(len(w.queue)), LastToken: w.last}
	for _, l := range w.held {
		v.Holders = append(v.Holders, l.token)
		v.Effects += int32(len(l.effects))
	}
	return v
}
