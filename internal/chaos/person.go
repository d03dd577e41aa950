package chaos

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// person answers what the sessions of a lane ask, over a connection of its own, as `troupe approve` does: at moments
// that the seed chooses, and again when a kill has kept the acknowledgement away.
type person struct {
	lane  *lane
	asked chan struct{} // somebody was shown a question

	mu   sync.Mutex // of a round
	said map[string]*spoken
}

// spoken is what a person knows of one approval.
type spoken struct {
	asked *messages.ApprovalView
	life  int       // in which it was first seen by who is awake
	since time.Time // then
	kills int       // on its account
	told  bool      // what became of an answer is known
}

func newPerson(l *lane) *person {
	return &person{lane: l, asked: make(chan struct{}, 1), said: make(map[string]*spoken)}
}

// call says that somebody was shown a question.
func (p *person) call() {
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

// How often a person looks for questions that nobody was shown, and how long they wait for a kill that does not come.
const (
	lookAgain = 250 * time.Millisecond
	overslept = 2 * time.Second
)

// run answers until ctx ends.
func (p *person) run(ctx context.Context) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		now, err := p.lane.alive(ctx)
		if err != nil {
			return
		}
		_ = p.round(ctx, now, false) // there is another one
		select {
		case <-now.Over():
		case <-p.asked:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// settle makes rounds until nothing waits for an answer, and no answer for what became of it.
func (p *person) settle(ctx context.Context) error {
	for range maxLives {
		now, err := p.lane.alive(ctx)
		if err != nil {
			return err
		}
		if p.round(ctx, now, false) {
			return nil
		}
		pause(ctx, now, askPause)
	}
	return errors.New("approvals wait after the last turn, or their answers are not taken")
}

// round answers what waits and is due, and is true when nothing is left to do. early is for a life that nobody else knows of
// yet: its sessions sleep.
func (p *person) round(ctx context.Context, now life, early bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	by, err := now.Person(ctx)
	if err != nil {
		return false // it is just dying
	}
	m, err := p.lane.askOnce(ctx, now, by, &messages.ListApprovals{})
	all, ok := m.(*messages.Approvals)
	if err != nil || !ok {
		return false
	}
	waiting := make(map[string]bool)
	for _, a := range p.inOrder(all.GetApprovals()) {
		waiting[a.GetApprovalId()] = true
		p.consider(ctx, now, by, a, early)
	}
	done := len(waiting) == 0
	for id, s := range p.said {
		if waiting[id] || s.told || early {
			continue
		}
		// A kill has kept the acknowledgement away, or nobody has answered in time: what is said now comes too late.
		p.answer(ctx, now, by, s, newReply(p.lane.opts.Seed, tagIn(s.asked.GetArguments()), p.lane.opts.Mode))
		done = done && s.told
	}
	return done
}

// inOrder turns the questions of some turns round.
func (p *person) inOrder(all []*messages.ApprovalView) []*messages.ApprovalView {
	var out []*messages.ApprovalView
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && all[j].GetTurnId() == all[i].GetTurnId() {
			j++
		}
		group := slices.Clone(all[i:j])
		if reversed(p.lane.opts.Seed, turnIn(tagIn(all[i].GetArguments()))) {
			slices.Reverse(group)
		}
		out = append(out, group...)
		i = j
	}
	return out
}

// consider answers one approval when its occasion has come.
func (p *person) consider(ctx context.Context, now life, by node, a *messages.ApprovalView, early bool) {
	r := newReply(p.lane.opts.Seed, tagIn(a.GetArguments()), p.lane.opts.Mode)
	s := p.said[a.GetApprovalId()]
	if s == nil {
		s = &spoken{asked: a, since: time.Now(), life: p.lane.lived()}
		p.said[a.GetApprovalId()] = s
	}
	again := p.lane.lived() > s.life || time.Since(s.since) > overslept
	switch {
	case early && r.when != asleep, r.when == unanswered && expires(p.lane.n):
		return
	case early, again, r.when == atOnce:
	case r.when == asleep && p.lane.opts.Mode == Every: // the append of the question is cut
		return
	case r.when == asleep, r.when == afterKill:
		if s.kills++; s.kills == 1 {
			now.Kill()
		}
		return
	case r.when == withKill:
		time.AfterFunc(r.pause/4, now.Kill)
	default:
		pause(ctx, now, r.pause)
	}
	p.answer(ctx, now, by, s, r)
	if r.when == thenKill && !again {
		now.Kill()
	}
}

// answer says what is to be said, and perhaps something else after it, which must be refused.
func (p *person) answer(ctx context.Context, now life, by node, s *spoken, r reply) {
	m := &messages.ResolveApproval{ApprovalId: s.asked.GetApprovalId(), Decision: r.decision, By: "chaos"}
	if r.decision != messages.Decision_APPROVED {
		m.Message = "because the script says so"
	}
	if r.edited {
		m.Arguments = editedArgs(s.asked.GetTool(), s.asked.GetArguments())
	} else {
		m.ArgsHash = s.asked.GetArgsHash()
	}
	if s.told = p.say(ctx, now, by, m); !s.told || !r.twice {
		return
	}
	other := &messages.ResolveApproval{ApprovalId: m.GetApprovalId(), Decision: messages.Decision_REJECTED, By: "chaos again"}
	if r.decision == messages.Decision_REJECTED {
		other.Decision = messages.Decision_APPROVED
	}
	p.say(ctx, now, by, other)
}

// say sends one answer and keeps what became of it. It is false when that is not known.
func (p *person) say(ctx context.Context, now life, by node, m *messages.ResolveApproval) bool {
	l := p.lane
	l.mu.Lock()
	at := len(l.answers)
	l.answers = append(l.answers, Answer{Approval: m.GetApprovalId(), Decision: m.GetDecision(), Arguments: m.GetArguments(), By: m.GetBy()})
	l.mu.Unlock()
	_, err := l.askOnce(ctx, now, by, m)
	var refused *messages.Failure
	told := ""
	switch {
	case err == nil:
		told = Acknowledged
	case errors.As(err, &refused) && full(refused): // it is said again
	case errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable && refused.GetCode() != messages.CodeQuarantined:
		told = refused.GetCode()
	}
	l.mu.Lock()
	l.answers[at].Told = told
	l.mu.Unlock()
	return told != ""
}

// pause waits a moment, unless the life is over.
func pause(ctx context.Context, now life, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-now.Over():
	case <-t.C:
	case <-ctx.Done():
	}
}
