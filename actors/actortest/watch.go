package actortest

import (
	"context"
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// Watch is a watcher of one session.
type Watch struct {
	Cursor uint64 // everything up to it is in the store

	h     *House
	inbox *act.Inbox
	t     testing.TB
}

// Watch subscribes to a session; it ends with the test.
func (h *House) Watch(session string) *Watch {
	h.t.Helper()
	w := &Watch{h: h, inbox: act.NewInbox(h.Sys, 4096), t: h.t}
	h.t.Cleanup(w.inbox.Close)
	h.Sys.Root.RequestWithCustomSender(h.Root, Command(session, &messages.Subscribe{}), w.inbox.PID())
	for early := []any(nil); ; { // events may come before the answer
		msgs := w.Take()
		for i, m := range msgs {
			switch x := m.(type) {
			case *messages.Subscribed:
				w.Cursor = x.GetCursor()
				early = slices.DeleteFunc(early, func(m any) bool {
					p, ok := m.(*messages.Published)
					return ok && p.GetLastCursor() <= w.Cursor // it is in the store
				})
				w.inbox.Return(append(early, msgs[i+1:]...))
				return w
			case *messages.Failure:
				h.t.Fatalf("subscribe: %v", x)
			}
			early = append(early, m)
		}
	}
}

// Take waits for messages and returns all that are there.
func (w *Watch) Take() []any {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	msgs, lost, err := w.inbox.Take(ctx)
	if err != nil || lost {
		w.t.Fatalf("watch: %v, lost %v", err, lost)
	}
	return msgs
}

// Until returns the live events up to and including the first of a type.
func (w *Watch) Until(typ string) []*messages.Event {
	w.t.Helper()
	var out []*messages.Event
	for {
		msgs := w.Take()
		for i, m := range msgs {
			p, ok := m.(*messages.Published)
			if !ok {
				continue
			}
			out = append(out, p.GetEvents()...)
			for _, e := range p.GetEvents() {
				if e.GetType() == typ {
					w.inbox.Return(msgs[i+1:])
					return out
				}
			}
		}
	}
}
