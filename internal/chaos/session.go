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
	asks   bool // its calls wait for an approval; in the others nobody is asked
	made   bool
	worker string
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
		if err := s.timer(ctx, t); err != nil {
			return err
		}
		turn, err := s.end(ctx, t, i > 0)
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
	return at < len(s.turns) && s.turns[at].queued && !s.turns[at-1].cancel && !s.turns[at].call
}

// input is what a turn sends.
func input(t turn) *messages.SubmitInput { return submitText(t.input, t.text) }

func submitText(id, text string) *messages.SubmitInput {
	return &messages.SubmitInput{InputId: id, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}}
}

// send makes sure that an input is acknowledged: after a kill it is sent again, with the same id.
func (s *session) send(ctx context.Context, t turn) error {
	if t.call && s.made {
		return nil // it is answered by its result
	}
	if !s.made {
		reply, err := s.lane.ask(ctx, &messages.CreateSession{
			SessionId: s.id, Model: ownModel, Workspaces: s.spaces, Rules: known(), NoInput: !s.asks, Ask: s.asks, First: input(t),
		})
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
	if t.cancel || s.asks && t.aborts(s.lane.opts.Seed, s.lane.opts.Mode) {
		a.Outcome = ""
	}
	s.worker = r.GetWorkerId()
	s.lane.ack(a)
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
	case *messages.SetTimer:
		m.Command = &messages.ToSession_SetTimer{SetTimer: c}
	case *messages.CancelTimer:
		m.Command = &messages.ToSession_CancelTimer{CancelTimer: c}
	case *messages.ListTimers:
		m.Command = &messages.ToSession_ListTimers{ListTimers: c}
	case *messages.WaitIdle:
		m.Command = &messages.ToSession_WaitIdle{WaitIdle: c}
	case *messages.ReleaseWorker:
		m.Command = &messages.ToSession_ReleaseWorker{ReleaseWorker: c}
	}
	return m
}

// end waits until a turn is done. A program's call begins only here; the first turn of a session is a prompt.
func (s *session) end(ctx context.Context, t turn, later bool) (string, error) {
	if t.call && later {
		return "", s.call(ctx, t)
	}
	return s.await(ctx, t)
}

// call runs one tool for a program: sent again after a kill, with the same id, it runs no second time.
func (s *session) call(ctx context.Context, t turn) error {
	args, outcome := marshal(map[string]any{"name": t.input}), "done"
	if t.n%2 == 0 {
		args = marshal(map[string]any{"name": t.input, "workspace_id": guardedName})
		if s.asks && newReply(s.lane.opts.Seed, tagIn(string(args)), s.lane.opts.Mode).decision == messages.Decision_CANCELLED {
			outcome = "" // a person may end its turn
		}
	}
	reply, err := s.lane.ask(ctx, s.to(&messages.CallTool{CallId: t.input, Tool: toolCharge, Arguments: string(args)}))
	if err != nil {
		return fmt.Errorf("call a tool as %s: %w", t.input, err)
	}
	if _, ok := reply.(*messages.ToolReply); !ok {
		return fmt.Errorf("call a tool as %s: answered %T", t.input, reply)
	}
	s.lane.ack(Ack{Session: s.id, Input: t.input, Outcome: outcome})
	return nil
}

// timer sets a timer, and perhaps takes it back. Sent again after a kill it is the same timer.
func (s *session) timer(ctx context.Context, t turn) error {
	if t.timer == noTimer {
		return nil
	}
	id := fmt.Sprintf("tim_chaos_%d", t.n)
	set := &messages.SetTimer{
		TimerId: id, DueUnixMs: time.Now().Add(time.Duration(t.n%7) * 40 * time.Millisecond).UnixMilli(),
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: prompt(kindTimer, t.n) + "the time has come."}}},
	}
	if _, err := s.lane.ask(ctx, s.to(set)); err != nil {
		return fmt.Errorf("set timer %s: %w", id, err)
	}
	if t.timer == setTimer {
		return nil
	}
	_, err := s.lane.ask(ctx, s.to(&messages.CancelTimer{TimerId: id, By: "chaos"}))
	var refused *messages.Failure
	if errors.As(err, &refused) && refused.GetCode() == messages.CodeNotFound {
		return nil // it has fired, or was taken back before the kill
	}
	return err
}

// rest waits until no timer is set and no turn is open any more.
func (s *session) rest(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.made {
		reply, err := s.lane.ask(ctx, s.to(&messages.ListTimers{}))
		if err != nil {
			return fmt.Errorf("list the timers of %s: %w", s.id, err)
		}
		if l, ok := reply.(*messages.Timers); ok && len(l.GetTimers()) == 0 {
			_, err := s.lane.ask(ctx, s.to(&messages.WaitIdle{}))
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
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
