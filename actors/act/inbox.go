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

	mu   sync.Mutex
	kept []any
	lost bool
	wake chan struct{}
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

// Close unregisters the address; those who watch it are told that it ended.
func (in *Inbox) Close() { in.sys.ProcessRegistry.Remove(in.pid) }

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

// SendSystemMessage ignores watches: an inbox says by itself when it no longer listens.
func (in *Inbox) SendSystemMessage(*actor.PID, any) {}

// Stop does nothing: only its owner closes an inbox.
func (in *Inbox) Stop(*actor.PID) {}
