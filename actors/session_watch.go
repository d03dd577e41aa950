package actors

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// subscribe adds a watcher. Events up to the answered cursor are in the store: it is read after
// every worker knows that somebody watches, so that no event falls between.
func (s *Session) subscribe(c actor.Context, m *messages.Subscribe) {
	if !slices.ContainsFunc(s.watchers, func(p *actor.PID) bool { return p.GetId() == c.Sender().GetId() }) {
		s.watchers = append(s.watchers, c.Sender())
		c.Watch(c.Sender())
	}
	var pids []*actor.PID
	for _, w := range s.workers {
		if w.pid != nil {
			pids = append(pids, w.pid)
		}
	}
	svc, sys, asker, id, away := s.svc, c.ActorSystem(), c.Sender(), s.id, &s.rest.away
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for _, pid := range pids {
			_, err := act.AskSoon[*messages.Ack](ctx, sys, pid, &messages.Watched{On: true})
			if err != nil && !errors.Is(err, act.ErrGone) { // one that is gone is started anew, watched
				return messages.Fail(messages.CodeUnavailable, "subscribe: "+err.Error(), "try again")
			}
		}
		cursor, err := svc.Store.Cursor(ctx, id)
		if err != nil {
			return messages.Fail(messages.CodeUnavailable, "subscribe: "+err.Error(), "")
		}
		return &messages.Subscribed{Cursor: cursor, Request: m.GetRequest()}
	})
}

func (s *Session) publish(c actor.Context, m *messages.Published) {
	for _, pid := range s.watchers {
		c.Send(pid, m)
	}
}

func (s *Session) unsubscribe(c actor.Context, who *actor.PID) {
	if who == nil {
		return
	}
	for i, pid := range s.watchers {
		if pid.GetId() == who.GetId() {
			s.watchers = append(s.watchers[:i:i], s.watchers[i+1:]...)
			s.tellWatched(c)
			return
		}
	}
}
