package actors

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// findWorker says whether a worker can be written to by another one.
func (s *Session) findWorker(c actor.Context, m *messages.FindWorker) {
	from, id := s.workers[m.GetFrom()], m.GetWorkerId()
	if id == "parent" && from != nil {
		if id = from.spawned.GetParent(); id == "" {
			s.answer(c, messages.Fail(messages.CodeBadRequest, "nobody delegated to you: there is no parent", s.peers(m.GetFrom())))
			return
		}
	}
	w := s.workers[id]
	switch {
	case w == nil && s.facts.gone[id] != nil:
		s.answer(c, messages.Fail(messages.CodeClosed, fmt.Sprintf("worker %s was deleted", id), s.peers(m.GetFrom())))
	case w == nil:
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("%q is no worker of this session", id), s.peers(m.GetFrom())))
	case id == m.GetFrom():
		s.answer(c, messages.Fail(messages.CodeBadRequest, "that is yourself", s.peers(m.GetFrom())))
	case w.spawned.GetRunId() != "":
		s.answer(c, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("worker %s works for a step of a pipeline, which alone writes to it", id), s.peers(m.GetFrom())))
	case w.quarantined != "":
		s.answer(c, w.refused())
	default:
		s.answer(c, &messages.ActorView{Kind: "worker", Id: id, Agent: cmp.Or(w.spawned.GetAgent(), DefaultAgent)})
	}
}

// peers names the workers that one may write to.
func (s *Session) peers(but string) string {
	var all []string
	for _, id := range s.order {
		if w := s.workers[id]; id != but && w.spawned.GetRunId() == "" {
			all = append(all, id+" (agent "+cmp.Or(w.spawned.GetAgent(), DefaultAgent)+")")
		}
	}
	if len(all) == 0 {
		return "there is nobody else in this session"
	}
	return "there are: " + strings.Join(all, ", ")
}

// tellLost tells a parent of a child in the background that cannot tell it itself any more. What the child has told already counts: it is the same
// message.
func (s *Session) tellLost(f *messages.WorkerSpawned, why string, c actor.Context) {
	if !f.GetBackground() || s.workers[f.GetParent()] == nil {
		return
	}
	sys, self, away := c.ActorSystem(), c.Self(), &s.rest.away
	away.Add(1)
	s.svc.aside(func() {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), postWait)
		defer cancel()
		_, _ = act.Ask[*messages.InputReply](ctx, sys, self, lostResult(f, why)) // told again when the session is opened
	})
}

// tellAgain tells a worker that was released of its children that cannot: it has not taken it while it was quarantined.
func (s *Session) tellAgain(c actor.Context, parent string) {
	for _, f := range s.facts.gone {
		if f.GetParent() == parent {
			s.tellLost(f, wasDeleted, c)
		}
	}
	for _, w := range s.workers {
		if w.quarantined != "" && w.spawned.GetParent() == parent {
			s.tellLost(w.spawned, failedAgain(w.quarantined), c)
		}
	}
}

// recallOrphans ends those who work in the background for a worker that is gone: it could not end them itself, or a crash came between.
func (s *Session) recallOrphans(c actor.Context) {
	for id, w := range s.workers {
		if w.spawned.GetBackground() && s.workers[w.spawned.GetParent()] == nil {
			s.recall(c, &messages.RecallInput{WorkerId: id, InputId: w.spawned.GetInputId(), By: byParent, Reason: "the agent that delegated was deleted"})
		}
	}
}

func failedAgain(reason string) string { return "it failed again and again (" + reason + ")" }

// wasDeleted is why a child tells nothing any more.
const wasDeleted = "it was deleted"
