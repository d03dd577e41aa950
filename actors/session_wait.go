package actors

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// calm is who waits for all workers of a session to rest. However many they are, and however many of them have gone meanwhile, one walk asks the
// workers for all of them: who comes during a walk is answered by the next one.
type calm struct {
	mu      sync.Mutex
	walking bool
	asked   []*actor.PID

	silent []*actor.PID // who waits until nobody has or wants the word; the Session's alone
}

// askSilence waits until nothing is under way in a shared conversation. Reply: Ack.
type askSilence struct{}

// onSilence answers when no conversation has anything to do.
func (s *Session) onSilence(c actor.Context) {
	s.calm.silent = act.Await(c.ActorSystem(), s.calm.silent, c.Sender())
	s.fallSilent(c)
}

// fallSilent answers who waits for silence, if that is what there is.
func (s *Session) fallSilent(c actor.Context) {
	if len(s.calm.silent) == 0 || !s.sharedRest() {
		return
	}
	for _, who := range s.calm.silent {
		s.tell(c, who, &messages.Ack{})
	}
	s.calm.silent = nil
}

// ask notes somebody; true: there is nobody who walks.
func (k *calm) ask(sys *actor.ActorSystem, who *actor.PID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = act.Await(sys, k.asked, who)
	first := !k.walking
	k.walking = true
	return first
}

// take gives those for whom a walk begins; nobody: it is over.
func (k *calm) take() []*actor.PID {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.asked
	k.asked, k.walking = nil, len(all) > 0
	return all
}

// waitAll answers when all workers rest.
func (s *Session) waitAll(c actor.Context, m *messages.WaitIdle) {
	if m.GetWorkerId() != "" {
		s.route(c, m)
		return
	}
	sys, self, k, away, begun := c.ActorSystem(), c.Self(), &s.calm, &s.rest.away, &s.rest.begun
	if c.Sender() == nil || !k.ask(sys, c.Sender()) {
		return
	}
	away.Add(1)
	s.svc.aside(func() {
		defer away.Add(-1)
		for all := k.take(); len(all) > 0; all = k.take() {
			var answer proto.Message
			if p := act.Guard(func() { answer = untilCalm(sys, self, begun) }); p != nil {
				answer = messages.Fail(messages.CodeInternal, p.Error(), "")
			}
			for _, who := range all {
				sys.Root.Send(who, answer)
			}
		}
	})
}

// untilCalm waits until all workers rest, and nobody has or wants the word of a shared conversation. One that rested when it was asked may have got something to do from another one that still worked, such as the
// answer of an agent in the background: they are all asked again until nobody got anything meanwhile.
func untilCalm(sys *actor.ActorSystem, session *actor.PID, begun *atomic.Uint64) proto.Message {
	ctx := context.Background() // whoever is asked answers at its end, too
	for {
		before := begun.Load()
		if _, err := act.Ask[*messages.Ack](ctx, sys, session, &askSilence{}); err != nil {
			return asFailure(err)
		}
		now, err := act.Ask[*awake](ctx, sys, session, &askAwake{})
		if err != nil {
			return asFailure(err)
		}
		_, _, fail := each(ctx, sys, session, now.workers, func(id string) proto.Message { return &messages.WaitIdle{WorkerId: id} })
		switch {
		case fail != nil:
			return fail
		case begun.Load() == before:
			return &messages.Ack{}
		}
	}
}
