package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// session is a client of a lane: it sends prompts until they are acknowledged, waits for their turns, and
// watches what happens, whatever becomes of the runtime meanwhile.
type session struct {
	lane   *lane
	n      int
	id     string
	spaces []*messages.WorkspaceSpec
	turns  []turn
	made   bool
}

// work sends the turns one after the other; a queued one follows while the one before it is open.
func (s *session) work(ctx context.Context) error {
	if len(s.turns) == 0 {
		return nil
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	f := &follower{session: s, ended: make(map[string]chan struct{})}
	var follow sync.WaitGroup
	defer follow.Wait()
	defer stop()
	sent := 0
	last := ""
	for i, t := range s.turns {
		for sent <= i || s.follows(sent) {
			if err := s.send(ctx, s.turns[sent]); err != nil {
				return err
			}
			if sent++; sent == 1 {
				follow.Go(func() { f.run(watching) })
			}
		}
		if err := s.refusals(ctx, t, i+1 < sent); err != nil {
			return err
		}
		turn, err := s.await(ctx, t)
		if err != nil {
			return err
		}
		last = cmp.Or(turn, last)
		s.lane.turn()
	}
	if last == "" {
		return nil
	}
	return f.until(ctx, last)
}

// follows says whether a turn is sent while the one before it is open. One that is cancelled is alone: a cancel
// that is sent again, after a kill, must not hit another.
func (s *session) follows(at int) bool {
	return at < len(s.turns) && s.turns[at].queued && !s.turns[at-1].cancel
}

// input is what a turn sends.
func input(t turn) *messages.SubmitInput { return submitText(t.input, t.text) }

func submitText(id, text string) *messages.SubmitInput {
	return &messages.SubmitInput{InputId: id, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}}
}

// send makes sure that an input is acknowledged: after a kill it is sent again, with the same id.
func (s *session) send(ctx context.Context, t turn) error {
	if !s.made {
		reply, err := s.lane.ask(ctx, &messages.CreateSession{SessionId: s.id, Model: "chaos", Workspaces: s.spaces, NoInput: true, First: input(t)})
		var refused *messages.Failure
		switch {
		case errors.As(err, &refused) && refused.GetCode() == messages.CodeAlreadyExists: // it was made, and nobody heard
			s.made = true
		case err != nil:
			return fmt.Errorf("create session %s: %w", s.id, err)
		default:
			s.made = true
			if v, ok := reply.(*messages.SessionView); ok && v.GetFirst() != nil {
				s.acknowledged(t, v.GetFirst())
				return nil
			}
		}
	}
	reply, err := s.lane.ask(ctx, s.to(input(t)))
	if err != nil {
		return fmt.Errorf("send input %s: %w", t.input, err)
	}
	r, ok := reply.(*messages.InputReply)
	if !ok {
		return fmt.Errorf("send input %s: answered %T", t.input, reply)
	}
	s.acknowledged(t, r)
	return nil
}

func (s *session) acknowledged(t turn, r *messages.InputReply) {
	a := Ack{Session: s.id, Input: t.input, Text: t.text, Seq: r.GetSeq(), Duplicate: r.GetDuplicate(), Outcome: "done"}
	if t.cancel {
		a.Outcome = ""
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.acks = append(s.lane.acks, a)
}

// to addresses a command to the session.
func (s *session) to(cmd proto.Message) *messages.ToSession { return address(s.id, cmd) }

func address(id string, cmd proto.Message) *messages.ToSession {
	m := &messages.ToSession{SessionId: id}
	switch c := cmd.(type) {
	case *messages.SubmitInput:
		m.Command = &messages.ToSession_Submit{Submit: c}
	case *messages.AwaitTurn:
		m.Command = &messages.ToSession_AwaitTurn{AwaitTurn: c}
	case *messages.CancelSession:
		m.Command = &messages.ToSession_Cancel{Cancel: c}
	case *messages.CallTool:
		m.Command = &messages.ToSession_CallTool{CallTool: c}
	}
	return m
}

// await waits until the turn of an input is done, and returns its id.
func (s *session) await(ctx context.Context, t turn) (string, error) {
	if t.cancel {
		if _, err := s.lane.ask(ctx, s.to(&messages.CancelSession{By: "chaos"})); err != nil {
			return "", fmt.Errorf("cancel the turn of input %s: %w", t.input, err)
		}
	}
	reply, err := s.lane.ask(ctx, s.to(&messages.AwaitTurn{InputId: t.input}))
	var refused *messages.Failure
	if t.cancel && errors.As(err, &refused) && refused.GetCode() == messages.CodeWithdrawn {
		return "", nil // the cancel came before its turn began
	}
	if err != nil {
		return "", fmt.Errorf("await input %s: %w", t.input, err)
	}
	r, ok := reply.(*messages.TurnResult)
	if !ok {
		return "", fmt.Errorf("await input %s: answered %T", t.input, reply)
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.results = append(s.lane.results, Result{
		Session: s.id, Input: t.input, Turn: r.GetTurnId(), Outcome: conversation.OutcomeName(r.GetOutcome()), Text: r.GetText(),
	})
	return r.GetTurnId(), nil
}

// follower is a client that watches a session, and resumes by cursor after every kill.
type follower struct {
	*session
	mu    sync.Mutex
	last  uint64
	ended map[string]chan struct{} // turn -> closed when its end was shown
}

// run watches until ctx ends.
func (f *follower) run(ctx context.Context) {
	for {
		now, err := f.lane.alive(ctx)
		if err != nil {
			return
		}
		f.watch(ctx, now)
		pause := time.NewTimer(5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// watch notes what it is shown until the life, or the loop, ends.
func (f *follower) watch(ctx context.Context, now life) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-now.Over():
			cancel()
		case <-ctx.Done():
		}
	}()
	f.mu.Lock()
	after := f.last
	f.mu.Unlock()
	for e, err := range now.Events(ctx, f.id, after) {
		if err != nil {
			return
		}
		f.note(e)
	}
}

func (f *follower) note(e *messages.Event) {
	f.lane.mu.Lock()
	f.lane.seen = append(f.lane.seen, Seen{Session: f.id, Life: f.lane.lives, Event: e})
	f.lane.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.GetSeq() == 0 {
		return
	}
	f.last = e.GetSeq()
	if e.GetType() == messages.EventTurnCompleted {
		close(f.end(e.GetTurn()))
	}
}

// end is the channel of a turn; the caller holds mu. A turn whose end is shown twice has a new one: R8 finds it.
func (f *follower) end(turn string) chan struct{} {
	c := f.ended[turn]
	if c != nil {
		select {
		case <-c:
		default:
			return c
		}
	}
	c = make(chan struct{})
	f.ended[turn] = c
	return c
}

// until waits until the end of a turn was shown.
func (f *follower) until(ctx context.Context, turn string) error {
	f.mu.Lock()
	c := f.ended[turn]
	if c == nil {
		c = make(chan struct{})
		f.ended[turn] = c
	}
	f.mu.Unlock()
	bound := time.NewTimer(f.lane.opts.Patience)
	defer bound.Stop()
	select {
	case <-c:
		return nil
	case <-bound.C:
		return fmt.Errorf("the end of turn %s was not shown to who watches %s after %s", turn, f.id, f.lane.opts.Patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
