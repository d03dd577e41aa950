package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// A child is a worker that another one of the session has delegated to. It is a sibling of its parent, and that it is a child
// is written down with it. When the session comes into memory its children stay out of it until somebody wants something of them, except
// those that have a turn to go on with: it may be one of their own, which no call waits for.

// spawnChild makes the child of a call, or finds it: a call has one, however often it is asked for. Who only looks for it ends the making of
// its copy: the call was cancelled, or its worker begins anew and asks again.
func (s *Session) spawnChild(c actor.Context, m *messages.SpawnChild) {
	if under := s.makingFor(m.GetExecId()); under != nil {
		if !m.GetAttach() {
			under.waits.Put(c)
			return
		}
		s.endMaking(c, under, endedEarly("the call was cancelled"))
	}
	if s.building {
		s.builds.Put(c)
		return
	}
	if w := s.byCall[m.GetExecId()]; w != nil {
		s.answer(c, &messages.ChildReady{WorkerId: w.id, InputId: w.spawned.GetInputId()})
		return
	}
	if fail := s.noChild(m); fail != nil {
		s.answer(c, fail)
		return
	}
	profile, _ := s.svc.agent(m.GetAgent())
	created := &messages.WorkerCreated{
		WorkerId: childOf(m.GetExecId()), SessionId: s.id, Agent: profile.Name, Model: m.GetModel(), System: m.GetSystem(),
		Parent: m.GetParent(), ExecId: m.GetExecId(), Bounds: m.GetBounds(), Background: m.GetBackground(),
	}
	if created.GetSystem() == "" {
		created.System = profile.System
	}
	task := &messages.InputAccepted{
		InputId: messages.NewID(messages.InputPrefix), Origin: messages.InputAccepted_WORKER, From: m.GetParent(), Parts: s.svc.cleanParts(m.GetTask()),
		People: m.GetPeople(), Traceparent: m.GetTraceparent(),
		ContentHash: conversation.ContentHash(m.GetTask(), nil),
	}
	if m.GetBackground() {
		_, task.InputId = idsOf(m.GetExecId())
		created.Task = task.GetInputId()
	}
	spawned := &messages.WorkerSpawned{
		WorkerId: created.GetWorkerId(), Agent: created.GetAgent(), Model: created.GetModel(), Parent: m.GetParent(), ExecId: m.GetExecId(),
		InputId: task.GetInputId(), Places: m.GetPlaces(), Background: m.GetBackground(),
	}
	var of *messages.WorkspaceGrant
	if profile.Isolate {
		var fail *messages.Failure
		if of, fail = s.isolated(s.placesOf(m.GetPlaces()), false); fail != nil {
			s.answer(c, fail)
			return
		}
	}
	s.hire(c, &newcomer{spawned, created, s.svc.tracedInput(task, s.id, created.GetWorkerId())}, of)
}

// narrowChildren leaves the children of a worker what that has now, and answers when they know. Those that are out of memory, or still to come, hear it
// when they start.
func (s *Session) narrowChildren(c actor.Context, m *equips) {
	var waits []func(context.Context) (*messages.Ack, error)
	if parent := s.workers[m.worker]; parent != nil {
		parent.equipped = m.with
		for _, w := range s.workers {
			if w.pid != nil && w.spawned.GetParent() == parent.id {
				waits = append(waits, act.Asked[*messages.Ack](c.ActorSystem(), w.pid, s.narrowing(w)))
			}
		}
	}
	away, asker := &s.rest.away, c.Sender()
	if asker == nil { // the worker goes on meanwhile: nobody took anything from it
		if len(waits) > 0 {
			s.svc.aside(func() { _ = taken(waits) })
		}
		return
	}
	away.Add(1)
	s.svc.spawn(c.ActorSystem(), asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		if fail := taken(waits); fail != nil {
			return fail
		}
		return &messages.Ack{}
	})
}

// narrowing is what a worker that comes into memory has to know of its parent; nil: nothing.
func (s *Session) narrowing(w *member) *messages.NarrowChild {
	parent := s.workers[w.spawned.GetParent()]
	if parent == nil || parent.equipped == nil {
		return nil
	}
	return &messages.NarrowChild{WorkerId: w.id, Tools: parent.equipped.tools, Bounds: &messages.Bounds{Agent: parent.equipped.agent}}
}

func (s *Session) narrow(c actor.Context, w *member) {
	if m := s.narrowing(w); m != nil {
		c.Send(w.pid, m)
	}
}

// workerKnown says that a worker's journal was read: what its children may have no longer, it has said before.
type workerKnown struct{ worker string }

// hold keeps a child from starting before its parent has said what was taken from it: nothing else may know of that, and the child would
// do what it is asked first. A parent that never can say it holds up nobody.
func (s *Session) hold(c actor.Context, w *member) bool {
	parent := s.workers[w.spawned.GetParent()]
	if parent == nil || parent.known || parent.quarantined != "" {
		return false
	}
	w.held = true
	s.wake(c, parent)
	return true // also when the parent could not be started: that has started its children
}

// workerKnown starts the children that were held.
func (s *Session) workerKnown(c actor.Context, id string) {
	parent := s.workers[id]
	if parent == nil {
		return
	}
	parent.known = true
	for _, child := range s.order {
		if w := s.workers[child]; w.held && w.spawned.GetParent() == id {
			w.held = false
			s.start(c, w)
		}
	}
}

// noChild says why a child cannot be made.
func (s *Session) noChild(m *messages.SpawnChild) *messages.Failure {
	parent := s.workers[m.GetParent()]
	switch {
	case s.doomed:
		return sessionClosed(s.id)
	case s.facts.ended[m.GetExecId()]:
		return messages.Fail(messages.CodeClosed, "the worker that it was delegated to was deleted", "")
	case m.GetAttach():
		return messages.Fail(messages.CodeNotFound, fmt.Sprintf("call %s has no worker", m.GetExecId()), "")
	case parent == nil:
		return messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no worker %q", s.id, m.GetParent()), "")
	case parent.spawned.GetParent() != "":
		return messages.Fail(messages.CodeBadRequest, onlyOneLevel, "")
	case !messages.ValidID(messages.WorkerPrefix, childOf(m.GetExecId())):
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no id of a call", m.GetExecId()), "")
	}
	if _, ok := s.svc.agent(m.GetAgent()); !ok {
		return messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured; there are: %s", m.GetAgent(), strings.Join(s.svc.agentNames(), ", ")), "")
	}
	return nil
}

func (s *Services) agentNames() []string {
	var out []string
	for name := range s.Agents {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// changeFor is a change of the grant as one worker is told of it.
func (s *Session) changeFor(w *member, change *messages.Configure) *messages.Configure {
	own := proto.CloneOf(change)
	own.Grant = s.grantOf(w)
	return own
}

// tellAll sends the same to all workers, except that of a change of the grant each is told what is its own.
func (s *Session) tellAll(c actor.Context, msg any) {
	change, _ := msg.(*messages.Configure)
	for _, w := range s.workers {
		switch {
		case w.pid == nil:
		case change != nil:
			c.Send(w.pid, s.changeFor(w, change))
		default:
			c.Send(w.pid, msg)
		}
	}
}

func (s *Session) tellWatched(c actor.Context) {
	s.tellAll(c, &messages.Watched{On: len(s.watchers) > 0})
}

// amid are the children that have a turn to go on with, an input that waits for one, or a message that has not arrived, as they are listed.
func amid(svc *Services, session string, workers []*messages.WorkerSpawned) map[string]bool {
	out := make(map[string]bool)
	for _, f := range workers {
		if f.GetParent() == "" && f.GetRunId() == "" {
			continue
		}
		if v := listed(context.Background(), svc, session, f.GetWorkerId()); v.GetTurn() != "" || v.GetStaged() > 0 || v.GetOutbox() > 0 {
			out[f.GetWorkerId()] = true
		}
	}
	return out
}

// wake starts a child that has been out of memory.
func (s *Session) wake(c actor.Context, w *member) {
	if w.dormant {
		w.dormant = false
		s.start(c, w)
	}
}

// first is the worker that prompts go to when none is named.
func (s *Session) first() string {
	for _, id := range s.order {
		if f := s.workers[id].spawned; f.GetParent() == "" && f.GetRunId() == "" {
			return id
		}
	}
	return ""
}
