package troupe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// feed is a live view of one session's events: replayed from the store up to where the live ones
// begin, then live, without gap or duplicate. Cursors are dense, so that a hole shows; it
// is filled from the store.
type feed struct {
	rt      *Runtime
	session string
	inbox   *act.Inbox
	next    uint64 // cursor of the next durable event
	asked   uint64 // subscriptions so far

	replay   conversation.Projector
	unread   error  // why replay could not read back what an event needs
	replayed uint64 // cursor of the newest fact that replay has seen
}

// subscribe begins with what happens from now on.
func (rt *Runtime) subscribe(ctx context.Context, session string) (*feed, error) {
	f := &feed{rt: rt, session: session, inbox: act.NewInbox(rt.sys, rt.svc.Limits.SubscriberWait)}
	f.replay = f.projector(ctx)
	cursor, err := f.attach(ctx)
	if err != nil {
		f.close()
		return nil, err
	}
	f.next = cursor + 1
	return f, nil
}

const (
	// attachWait is how long a subscription may stay without an answer before it is made again: what reaches a session in its
	// last moment is not heard, and subscribing twice is like subscribing once.
	attachWait = 2 * time.Second
	// attachTries bounds how often a session that is ending or starting is tried.
	attachTries = 10
)

// attach makes the inbox a watcher of the session and returns up to where the store has everything.
func (f *feed) attach(ctx context.Context) (uint64, error) {
	for try := 1; ; try++ {
		cursor, err := f.attachOnce(ctx)
		var refused *messages.Failure
		switch {
		case err == nil || ctx.Err() != nil || try == attachTries:
			return cursor, err
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case !errors.As(err, &refused) || refused.GetCode() != messages.CodeUnavailable || f.rt.ended():
			return cursor, err
		}
		pause := time.NewTimer(time.Duration(try) * 5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, context.Cause(ctx)
		}
	}
}

func (f *feed) attachOnce(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	f.asked++
	m, err := toSession(f.session, &messages.Subscribe{Request: f.asked})
	if err != nil {
		return 0, err
	}
	f.rt.sys.Root.RequestWithCustomSender(f.rt.root, m, f.inbox.PID())
	var early []any // published after the cursor was read, and here before the answer that brings it
	for {
		msgs, _, err := f.inbox.Take(ctx)
		if err != nil {
			f.inbox.Return(early)
			return 0, err
		}
		for _, msg := range msgs {
			switch x := msg.(type) {
			case *messages.Published:
				if x.GetFirstCursor() != 0 { // what the cursor covers is recognised by its own
					early = append(early, x)
				}
			case *messages.Subscribed:
				if x.GetRequest() != f.asked {
					continue
				}
				f.inbox.Return(append(early, after(msgs, msg)...))
				return x.GetCursor(), nil
			case *messages.Unsubscribe: // it ended meanwhile: what it answers is worth nothing
				f.inbox.Return(append(early, after(msgs, msg)...))
				return 0, messages.Fail(messages.CodeUnavailable, "the session has ended", "try again")
			case *messages.Failure:
				f.inbox.Return(append(early, after(msgs, msg)...))
				return 0, x
			}
		}
	}
}

func after(msgs []any, m any) []any {
	for i, x := range msgs {
		if x == m {
			return msgs[i+1:]
		}
	}
	return nil
}

func (f *feed) close() {
	f.rt.sys.Root.RequestWithCustomSender(f.rt.root, &messages.ToSession{SessionId: f.session, Command: &messages.ToSession_Unsubscribe{Unsubscribe: &messages.Unsubscribe{}}}, f.inbox.PID())
	f.inbox.Close()
}

// Events yields the events of a session with a seq above after, then live ones, until ctx ends
// or the loop is left. After messages.FromNow there are only live ones.
func (rt *Runtime) Events(ctx context.Context, session string, after uint64) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		f, err := rt.subscribe(ctx, session)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.close()
		if upto := f.next - 1; after != messages.FromNow {
			f.next = after + 1
			if !f.fill(ctx, upto, yield) {
				return
			}
		}
		for ev, err := range f.events(ctx) {
			if !yield(ev, err) {
				return
			}
		}
	}
}

// events yields live events, filling holes.
func (f *feed) events(ctx context.Context) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for {
			msgs, lost, err := f.inbox.Take(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if lost && !f.catchUp(ctx, yield) {
				return
			}
			for _, m := range msgs {
				if !f.take(ctx, m, yield) {
					return
				}
			}
		}
	}
}

func (f *feed) take(ctx context.Context, m any, yield func(*Event, error) bool) bool {
	switch x := m.(type) {
	case *messages.Published:
		return f.published(ctx, x, yield)
	case *messages.Unsubscribe: // the session was replaced: watch its successor
		if _, err := f.attach(ctx); err != nil {
			yield(nil, err)
			return false
		}
		return f.catchUp(ctx, yield)
	case *messages.Failure:
		if x.GetCode() == messages.CodeUnavailable && !f.rt.ended() { // of a subscription that was made again since
			return true
		}
		yield(nil, x)
		return false
	}
	return true
}

func (f *feed) published(ctx context.Context, p *messages.Published, yield func(*Event, error) bool) bool {
	if p.GetFirstCursor() == 0 {
		for _, e := range p.GetEvents() {
			if !yield(e, nil) {
				return false
			}
		}
		return true
	}
	if p.GetLastCursor() < f.next {
		return true
	}
	if p.GetFirstCursor() > f.next && !f.fill(ctx, p.GetFirstCursor()-1, yield) {
		return false
	}
	from := f.next
	f.next = p.GetLastCursor() + 1
	for _, e := range p.GetEvents() {
		if e.GetSeq() != 0 && e.GetSeq() < from {
			continue
		}
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// catchUp yields everything that the store has by now.
func (f *feed) catchUp(ctx context.Context, yield func(*Event, error) bool) bool {
	cursor, err := f.rt.svc.Store.Cursor(ctx, f.session)
	if err != nil {
		yield(nil, fmt.Errorf("read events of %s: %w", f.session, err))
		return false
	}
	return f.fill(ctx, cursor, yield)
}

var errEnough = errors.New("enough")

// fill yields the stored events up to a cursor.
func (f *feed) fill(ctx context.Context, upto uint64, yield func(*Event, error) bool) bool {
	if upto < f.next {
		return true
	}
	if f.replayed+1 != f.next { // what it remembers is of before the events that came live
		f.replay = f.projector(ctx)
	}
	left := false
	err := f.rt.svc.Store.ReadSession(ctx, f.session, f.next-1, func(e persistence.Entry) error {
		if e.Cursor > upto {
			return errEnough
		}
		f.next, f.replayed = e.Cursor+1, e.Cursor
		ev, err := f.project(e)
		if err != nil {
			return err
		}
		if ev != nil && ev.GetSeq() != 0 && !yield(ev, nil) {
			left = true
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		yield(nil, unseen(f.session, err))
		return false
	}
	return !left
}

// unseen says why events cannot be read; that the first of them were trimmed away is a refusal.
func unseen(session string, err error) error {
	var left *persistence.TrimmedError
	if errors.As(err, &left) {
		f := messages.Fail(messages.CodeTrimmed, fmt.Sprintf("the events of session %s before %d were trimmed away", session, left.First),
			fmt.Sprintf("ask for those after %d; `troupe show` has what is left of the conversation", left.First-1))
		f.ResumeAfter = left.First - 1
		return f
	}
	return fmt.Errorf("read events of %s: %w", session, err)
}

func (f *feed) project(e persistence.Entry) (*Event, error) {
	kind, id, _ := strings.Cut(e.Stream, "/")
	var fact proto.Message
	var err error
	switch kind {
	case "wrk":
		fact, err = messages.WorkerFactIn(e.Record)
	case "ses":
		id = ""
		fact, err = messages.SessionFactIn(e.Record)
	case "cnv":
		fact, err = messages.ConversationFactIn(e.Record)
		if err != nil || fact == nil {
			return nil, err
		}
		return conversation.ProjectShared(f.session, id, fact, e.Record, e.Cursor), nil
	default:
		return nil, nil
	}
	if err != nil || fact == nil {
		return nil, err
	}
	ev := f.replay.Project(f.session, id, fact, e.Record, e.Cursor)
	if err := f.unread; err != nil { // an event with a part missing is worse than none: it would be taken for the whole
		f.unread = nil
		return nil, err
	}
	return ev, nil
}

// projector is one that has seen nothing, and reads back what it needs.
func (f *feed) projector(ctx context.Context) conversation.Projector {
	return conversation.Projector{
		Lookup: func(worker string, seq uint64) *messages.GenerationCompleted {
			found, err := f.rt.generation(ctx, worker, seq)
			f.unread = errors.Join(f.unread, err)
			return found
		},
		Called: func(worker, input string) *messages.ToolCall {
			found, err := f.rt.called(ctx, worker, input)
			f.unread = errors.Join(f.unread, err)
			return found
		},
	}
}

// generation reads one answer back, for an event whose text stands in an earlier record.
func (rt *Runtime) generation(ctx context.Context, worker string, seq uint64) (*messages.GenerationCompleted, error) {
	var found *messages.GenerationCompleted
	err := rt.svc.Store.Read(ctx, messages.WorkerStream(worker), seq, func(e persistence.Entry) error {
		if f, err := messages.WorkerFactIn(e.Record); err == nil {
			found, _ = f.(*messages.GenerationCompleted)
		}
		return errEnough
	})
	var left *persistence.TrimmedError
	if err != nil && !errors.Is(err, errEnough) && !errors.As(err, &left) { // what was trimmed away stays unknown
		return nil, fmt.Errorf("read back an answer of %s: %w", worker, err)
	}
	return found, nil
}

// called reads a program's call back, for an event of a turn that began before the ones that are wanted.
func (rt *Runtime) called(ctx context.Context, worker, input string) (*messages.ToolCall, error) {
	var found *messages.ToolCall
	look := func(e persistence.Entry) error {
		if f, err := messages.WorkerFactIn(e.Record); err == nil {
			if in, ok := f.(*messages.InputAccepted); ok && in.GetInputId() == input {
				found = in.GetCall()
				return errEnough
			}
		}
		return nil
	}
	err := rt.svc.Store.Read(ctx, messages.WorkerStream(worker), 1, look)
	var left *persistence.TrimmedError
	if errors.As(err, &left) {
		err = rt.svc.Store.Read(ctx, messages.WorkerStream(worker), left.First, look)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("read back a call of %s: %w", worker, err)
	}
	return found, nil
}
