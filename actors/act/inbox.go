package act

import (
	"context"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// Inbox is an address whose messages a goroutine of the program reads: how events leave the
// house of actors. It keeps at most Max messages; a reader that is too slow loses the oldest
// and is told by Lost.
type Inbox struct {
	sys *actor.ActorSystem
	pid *actor.PID
	max int

	mu       sync.Mutex
	kept     []any
	lost     bool
	closed   bool
	watchers map[string]*actor.PID // by id; they are told when it is closed
	wake     chan struct{}
}

// NewInbox registers an inbox. The caller ends it with Close.
func NewInbox(sys *actor.ActorSystem, limit int) *Inbox {
	in := &Inbox{sys: sys, max: limit, wake: make(chan struct{}, 1)}
	in.pid, _ = sys.ProcessRegistry.Add(in, "inbox"+sys.ProcessRegistry.NextID())
	return in
}

// PID is where to send.
func (in *Inbox) PID() *actor.PID { return in.pid }

// Take waits for messages and returns all that are there, oldest first, and whether some
// before them were lost.
func (in *Inbox) Take(ctx context.Context) (msgs []any, lost bool, err error) {
	for {
		in.mu.Lock()
		msgs, lost = in.kept, in.lost
		in.kept, in.lost = nil, false
		in.mu.Unlock()
		if len(msgs) > 0 {
			return msgs, lost, nil
		}
		select {
		case <-in.wake:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// Return puts messages back that were taken too early, ahead of what has come since.
func (in *Inbox) Return(msgs []any) {
	if len(msgs) == 0 {
		return
	}
	in.mu.Lock()
	in.kept = append(append([]any(nil), msgs...), in.kept...)
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Close unregisters the address; those who watch it are told that it ended, and so is whoever begins to watch it later, as a message of it may have
// come to them after the one that took it back.
func (in *Inbox) Close() {
	in.sys.ProcessRegistry.Remove(in.pid)
	in.mu.Lock()
	watchers := in.watchers
	in.watchers, in.closed = nil, true
	in.mu.Unlock()
	for _, who := range watchers {
		in.end(who)
	}
}

func (in *Inbox) end(watcher *actor.PID) {
	if p, there := in.sys.ProcessRegistry.Get(watcher); there {
		p.SendSystemMessage(watcher, &actor.Terminated{Who: in.pid, Why: actor.TerminatedReason_Stopped})
	}
}

// SendUserMessage keeps a message for the reader.
func (in *Inbox) SendUserMessage(_ *actor.PID, message any) {
	msg := actor.UnwrapEnvelopeMessage(message)
	if _, dead := msg.(*actor.DeadLetterResponse); dead { // who was asked is no more
		msg = messages.Fail(messages.CodeUnavailable, ErrGone.Error(), "try again")
	}
	in.mu.Lock()
	if len(in.kept) >= in.max {
		in.kept, in.lost = in.kept[1:], true
	}
	in.kept = append(in.kept, msg)
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// SendSystemMessage keeps who watches it. Addresses keep the process that they were once resolved to: a closed inbox still gets what is sent to it.
func (in *Inbox) SendSystemMessage(_ *actor.PID, message any) {
	switch m := message.(type) {
	case *actor.Watch:
		in.mu.Lock()
		closed := in.closed
		if !closed {
			if in.watchers == nil {
				in.watchers = make(map[string]*actor.PID, 1)
			}
			in.watchers[m.Watcher.GetId()] = m.Watcher
		}
		in.mu.Unlock()
		if closed {
			in.end(m.Watcher)
		}
	case *actor.Unwatch:
		in.mu.Lock()
		delete(in.watchers, m.Watcher.GetId())
		in.mu.Unlock()
	}
}

// Stop does nothing: only its owner closes an inbox.
func (in *Inbox) Stop(*actor.PID) {}
