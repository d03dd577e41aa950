package actors

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// cancelWait bounds how long the workers of a session may take to end their turns, beyond the time that calls
// have for it.
const cancelWait = time.Minute

// outsider is a command from outside. Who calls himself a worker's parent there is not: what a parent ends it is not told of.
func outsider[M interface {
	proto.Message
	GetBy() string
}](m M) M {
	if m.GetBy() != byParent {
		return m
	}
	m = proto.CloneOf(m)
	m.ProtoReflect().Set(m.ProtoReflect().Descriptor().Fields().ByName("by"), protoreflect.ValueOfString("user"))
	return m
}

// cancelAll cancels the turns of all workers, when none is named. It answers when none of them runs anything any more.
func (s *Session) cancelAll(c actor.Context, m *messages.CancelSession) {
	if m.GetJobs() {
		s.cancelWithJobs(c, m)
		return
	}
	if m.GetWorkerId() != "" {
		s.route(c, m)
		return
	}
	s.cancelRun(c, m)
	if !s.cancelTalks(c, m) {
		s.cancelWorkers(c, m)
	}
}

func (s *Session) cancelWorkers(c actor.Context, m *messages.CancelSession) {
	s.endMakings(c, endedEarly("the session's work was cancelled"), func(m *making) bool { return m.worker != nil })
	now := s.whoIsAwake()
	if len(s.order) > 1 {
		s.cancelUntilQuiet(c, m, now)
		return
	}
	s.askAll(c, s.svc.Limits.Grace+cancelWait, now.cancel(m), func(replies []proto.Message) proto.Message {
		sum := &messages.Cancelled{}
		addCancelled(sum, replies)
		return sum
	})
}

// cancel is the command to one worker of all that are cancelled. A child in the background has a parent that is cancelled as well, and not to be told.
func (a *awake) cancel(m *messages.CancelSession) func(id string) proto.Message {
	return func(id string) proto.Message {
		one := proto.CloneOf(m)
		one.WorkerId = id
		if a.background[id] {
			one.By = byParent
		}
		return one
	}
}

// addCancelled adds what the workers answered, and says whether there was anything to cancel.
func addCancelled(sum *messages.Cancelled, replies []proto.Message) (found bool) {
	sum.Jobs = 0
	for _, r := range replies {
		if x, ok := r.(*messages.Cancelled); ok {
			sum.Turns += x.GetTurns()
			sum.Inputs += x.GetInputs()
			sum.Messages += x.GetMessages()
			sum.Jobs += x.GetJobs()
			found = found || x.GetTurns()+x.GetInputs()+x.GetMessages() > 0
		}
	}
	return found
}

// mostPasses bounds how often workers are cancelled by one command, should somebody give them new inputs all the time.
const mostPasses = 8

// cancelUntilQuiet cancels workers that write to each other, and again those that a message has reached meanwhile, or that were made meanwhile:
// when it is answered nothing that is on its way wakes anybody. Inputs of people that wait stay, unless they are to be taken back, too.
func (s *Session) cancelUntilQuiet(c actor.Context, m *messages.CancelSession, now *awake) {
	svc, sys, self, asker, away, begun := s.svc, c.ActorSystem(), c.Self(), c.Sender(), &s.rest.away, &s.rest.begun
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		sum, one := &messages.Cancelled{}, proto.CloneOf(m)
		one.Words, one.Only = true, false
		for range mostPasses {
			before := begun.Load()
			replies, _, fail := each(ctx, sys, self, now.workers, now.cancel(one))
			if fail != nil {
				return fail
			}
			if found := addCancelled(sum, replies); !found && begun.Load() == before {
				return sum
			}
			one.Only = !m.GetInputs() // a person's input that waited has its turn now
			var err error
			if now, err = act.Ask[*awake](ctx, sys, self, &askAwake{}); err != nil {
				return asFailure(err)
			}
		}
		return messages.Fail(messages.CodeUnavailable, "the workers of the session got new work as fast as it was cancelled", "cancel again")
	})
}

// cancelWithJobs cancels, and then ends what agents have left running, also those that are quarantined or out of memory, once it is written down who wants
// that. It answers when nothing of it is left.
func (s *Session) cancelWithJobs(c actor.Context, m *messages.CancelSession) {
	turns := proto.CloneOf(m)
	turns.Jobs = false
	svc, sys, self, id, asker, away := s.svc, c.ActorSystem(), c.Self(), s.id, c.Sender(), &s.rest.away
	away.Add(1)
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		done, err := act.Ask[*messages.Cancelled](ctx, sys, self, &messages.ToSession{SessionId: id, Command: &messages.ToSession_Cancel{Cancel: turns}})
		noting, stop := context.WithTimeout(context.Background(), cancelWait) // also when a turn does not end
		defer stop()
		jobs, failed := act.Ask[*jobsEnd](noting, sys, self, &endJobs{m.GetWorkerId(), m.GetBy(), m.GetReason()})
		ended, left := int32(0), int32(0)
		if failed == nil {
			for _, gone := range jobs.gone {
				select {
				case <-gone:
					ended++
				case <-ctx.Done():
					left++
				}
			}
		}
		if err = cmp.Or(err, failed); err != nil {
			return asFailure(err)
		}
		done = proto.CloneOf(done) // I11
		done.Ended, done.Jobs = ended, left
		return done
	})
}

// Messages of a session to itself: who may have something to do.
type (
	askAwake struct{}
	awake    struct {
		workers    []string
		background map[string]bool // of all workers, whose parents do not wait for them
	}
)

func (s *Session) whoIsAwake() *awake {
	a := &awake{workers: s.awake(), background: make(map[string]bool)}
	for id, w := range s.workers {
		a.background[id] = w.spawned.GetBackground()
	}
	return a
}

// begins says whether a worker may have something to do by a command that it had not before.
func begins(cmd any) bool {
	switch cmd.(type) {
	case *messages.SubmitInput, *messages.RunInput, *messages.DeliverMail, *messages.FireTimer, *messages.CompactHistory, *messages.ReleaseWorker:
		return true
	}
	return false
}

// awake are the workers that may run something.
func (s *Session) awake() (ids []string) {
	for _, id := range s.order {
		if w := s.workers[id]; w.quarantined == "" && !w.dormant {
			ids = append(ids, id)
		}
	}
	return ids
}

// askAll puts a command to every worker, off the mailbox and to all at the same time, and answers the asker with what make
// makes of the replies. Those that are quarantined run nothing, and are passed over. wait 0 is for ever.
func (s *Session) askAll(c actor.Context, wait time.Duration, ask func(id string) proto.Message, make func([]proto.Message) proto.Message) {
	ids := s.awake()
	if len(ids) == 1 && s.workers[ids[0]].pid != nil {
		s.route(c, ask(ids[0]))
		return
	}
	sys, self, asker, away := c.ActorSystem(), c.Self(), c.Sender(), &s.rest.away
	away.Add(1)
	s.svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithCancel(context.Background())
		if wait > 0 {
			ctx, cancel = context.WithTimeout(ctx, wait)
		}
		defer cancel()
		replies, _, err := each(ctx, sys, self, ids, ask)
		if err != nil {
			return err
		}
		return make(replies)
	})
}

// each asks for all ids, in their order and before any can have answered, and waits for every reply: what the first of them leaves is nothing for another
// that has not heard of it. The first refusal is the answer for all, except that of a worker that is quarantined or gone. barred are those that are
// quarantined.
func each(
	ctx context.Context, sys *actor.ActorSystem, session *actor.PID, ids []string, ask func(id string) proto.Message,
) (replies []proto.Message, barred []string, fail *messages.Failure) {
	if err := ctx.Err(); err != nil {
		return nil, nil, messages.Fail(messages.CodeUnavailable, "the workers were not asked: "+err.Error(), "try again")
	}
	answers := make([]func(context.Context) (proto.Message, error), len(ids))
	for i, id := range ids {
		answers[i] = act.Asked[proto.Message](sys, session, ask(id))
	}
	for i, answer := range answers {
		reply, err := answer(ctx)
		var f *messages.Failure
		switch {
		case err == nil:
			replies = append(replies, reply)
		case errors.As(err, &f) && f.GetCode() == messages.CodeQuarantined:
			barred = append(barred, ids[i])
		case errors.As(err, &f) && f.GetCode() == messages.CodeClosed:
		case fail != nil:
		case errors.As(err, &f):
			fail = f
		default:
			fail = messages.Fail(messages.CodeUnavailable, "not all workers answered: "+err.Error(), "try again")
		}
	}
	return replies, barred, fail
}

// countJobs counts the open turns of the session, the inputs and the turns of shared conversations that wait for theirs, and the commands that its agents
// left running.
func (s *Session) countJobs(c actor.Context) {
	svc, id, shares := s.svc, s.id, len(s.facts.shared) > 0
	s.gather(c, func(views []*messages.WorkerView) any {
		n := &messages.JobCount{}
		var workers []string
		for _, v := range views {
			if v.GetTurn() != "" {
				n.Running++
			}
			n.Waiting += v.GetStaged()
			workers = append(workers, v.GetId())
		}
		countLeft(svc, n, workers)
		if !shares {
			return n
		}
		talks, err := SharedConversations(context.Background(), svc.Store, id)
		if err != nil {
			return messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
		}
		for _, v := range talks {
			n.Waiting += v.GetWaiting()
		}
		return n
	})
}
