package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// watchApprovals puts what the session's calls ask to who sits at the terminal, one after the other. Where nobody does, it
// ends the walk once the turn can only wait. Others may answer first, which the prompt says.
func (r *runner) watchApprovals(ctx context.Context, h *house, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		found, err := ask[*messages.Approvals](ctx, h, &messages.ListApprovals{SessionId: r.session})
		all := found.GetApprovals()
		switch {
		case err != nil || len(all) == 0:
		case r.a.canAsk():
			if !r.askPerson(ctx, h, all[0]) {
				cancel(errWaiting)
				return
			}
			continue
		case !r.stuck(ctx, h):
		default:
			for _, v := range all {
				r.a.note("%s", approvalText(v))
				r.a.note("troupe: answer with: troupe approve %s (or deny)", v.GetApprovalId())
			}
			cancel(errWaiting)
			return
		}
		select {
		case <-r.kicks.approvals:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stuck says whether the first worker of the session only waits for answers: its own, or those of agents that it delegated to.
func (r *runner) stuck(ctx context.Context, h *house) bool {
	all, err := ask[*messages.Workers](ctx, h, &messages.ListWorkers{SessionId: r.session})
	return err == nil && waitsForPeople(all.GetWorkers()) != nil
}

// waitsForPeople names the workers by which the first one's turn stands still, when it does: itself, or those that it delegated
// to and whose answers are all that it waits for.
func waitsForPeople(all []*messages.WorkerView) map[string]bool {
	if len(all) == 0 {
		return nil
	}
	if all[0].GetState() == "waiting" {
		return map[string]bool{all[0].GetId(): true}
	}
	children := make(map[string]bool)
	for _, w := range all {
		if w.GetParent() == all[0].GetId() && w.GetState() == "waiting" && w.GetApprovals()+w.GetInDoubt() > 0 {
			children[w.GetId()] = true
		}
	}
	if len(children) == 0 || len(children) < int(all[0].GetCalls()) {
		return nil
	}
	return children
}

// emptyAnswers is how many empty lines in a row mean that nobody will answer: a terminal that has gone gives no others.
const emptyAnswers = 3

// askPerson puts one approval, until it is answered here or elsewhere. It is false when who sits there says nothing.
func (r *runner) askPerson(ctx context.Context, h *house, v *messages.ApprovalView) bool {
	r.a.note("%s", approvalText(v))
	asking, stop := context.WithCancel(ctx)
	var counting sync.WaitGroup
	defer counting.Wait()
	defer stop()
	go r.untilAnswered(asking, h, v, stop) // somebody else may be quicker
	choices, keys := remember(v)
	for _, line := range choices {
		r.a.note("%s", line)
	}
	prompt := "Run it? [y: approve" + keys + "; n: reject; c: cancel the turn] "
	counting.Go(func() { r.countDown(asking, v, prompt) })
	for empty := 0; empty < emptyAnswers; {
		line, err := r.lines.next(asking, r.a, prompt)
		if err != nil {
			if at := v.GetExpiresAtUnixMs(); ctx.Err() == nil && at > 0 && time.Now().UnixMilli() >= at {
				r.a.note("\ntroupe: nobody answered in time: it is refused")
			} else if ctx.Err() == nil {
				r.a.note("\ntroupe: it was answered elsewhere")
			} else {
				r.a.note("") // the prompt's line has no end
				r.unanswered = true
			}
			return true
		}
		m := &messages.ResolveApproval{ApprovalId: v.GetApprovalId(), ArgsHash: v.GetArgsHash(), By: "user"}
		word, message, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(word) {
		case "y", "yes", "approve":
			m.Decision = messages.Decision_APPROVED
		case "n", "no", "reject":
			m.Decision, m.Message = messages.Decision_REJECTED, strings.TrimSpace(message)
		case "c", "cancel":
			m.Decision = messages.Decision_CANCELLED
		case "":
			empty++
			continue
		default:
			if !remembered(m, v, strings.ToLower(word)) {
				empty = 0
				continue
			}
		}
		_, err = h.Ask(ctx, m)
		var refused *messages.Failure
		switch {
		case errors.As(err, &refused) && refused.GetCode() == messages.CodeResolved:
			r.a.note("troupe: it was answered elsewhere: %s", refused.GetMessage())
		case err != nil && ctx.Err() == nil:
			r.a.note("troupe: warning: the answer was not taken: %v", err)
		case err == nil && m.GetScope() != "":
			r.a.note("troupe: remembered; take it back with: troupe rules rm (troupe rules ls lists what is)")
		}
		return true
	}
	return false
}

// countDown says what time is left for an answer, again and again and more often towards the end, and then puts the question again.
func (r *runner) countDown(ctx context.Context, v *messages.ApprovalView, prompt string) {
	if v.GetExpiresAtUnixMs() == 0 {
		return // it waits for ever
	}
	until := time.UnixMilli(v.GetExpiresAtUnixMs())
	for _, mark := range []time.Duration{time.Hour, 10 * time.Minute, 5 * time.Minute, time.Minute, 30 * time.Second, 10 * time.Second, 5 * time.Second} {
		wait := time.Until(until.Add(-mark))
		if wait <= 0 {
			continue
		}
		soon := time.NewTimer(wait)
		select {
		case <-soon.C:
			r.a.note("\ntroupe: %s left to answer", mark)
			_, _ = io.WriteString(r.a.err, prompt) // as a note
		case <-ctx.Done():
			soon.Stop()
			return
		}
	}
}

// untilAnswered calls stop when an approval waits no longer. Until then others are told that it is shown here.
func (r *runner) untilAnswered(ctx context.Context, h *house, v *messages.ApprovalView, stop func()) {
	_, err := h.Ask(ctx, &messages.ShowApproval{ApprovalId: v.GetApprovalId(), By: "terminal"})
	var refused *messages.Failure
	if err == nil || errors.As(err, &refused) && (refused.GetCode() == messages.CodeResolved || refused.GetCode() == messages.CodeNotFound) {
		stop()
	}
}

// remember says which answers to an approval would be remembered, and as what: the first choice is all reads, for a call that
// reads, else just this, for the session.
func remember(v *messages.ApprovalView) (choices []string, keys string) {
	rules := v.GetRules()
	if len(rules) == 0 {
		if v.GetUnremembered() == "" {
			return nil, ""
		}
		return []string{"  (no answer to this is remembered: " + visible(v.GetUnremembered()) + ")"}, ""
	}
	exact := visible(rules[len(rules)-1])
	if len(rules) > 1 {
		choices = append(choices, "  s: approve, and all reads for this session", "  e: approve, and "+exact+" for this session")
		keys = "; s: and all reads; e: and this"
	} else {
		choices = append(choices, "  s: approve, and "+exact+" for this session")
		keys = "; s: and this for the session"
	}
	return append(choices, fmt.Sprintf("  agent, always: approve, and %s in %s from now on, for agent %s or for every agent", exact, visible(cmp.Or(v.GetWorkspace(), "the session's primary folder")), visible(cmp.Or(v.GetAgent(), "default")))), keys
}

// remembered makes an answer one that is remembered, if that is what a word stands for.
func remembered(m *messages.ResolveApproval, v *messages.ApprovalView, word string) bool {
	rules := v.GetRules()
	if len(rules) == 0 {
		return false
	}
	switch word {
	case "s":
		m.Scope, m.Rule = "session", rules[0]
	case "e":
		m.Scope = "session"
	case "agent", "always":
		m.Scope = word
	default:
		return false
	}
	m.Decision = messages.Decision_APPROVED
	return true
}

// lines reads a terminal by lines. A reader that waits when its question is over keeps its line for the next one.
type lines struct{ waiting chan string }

func (l *lines) next(ctx context.Context, a *app, prompt string) (string, error) {
	if l.waiting != nil {
		select {
		case <-l.waiting: // a line from before the question is no answer to it
			l.waiting = nil
		default:
		}
	}
	a.forgetTyped()
	question := func() error {
		_, err := a.err.Write([]byte(prompt))
		return err
	}
	if s, ok := a.in.(*source); ok {
		return s.answer(ctx, question)
	}
	if err := question(); err != nil {
		return "", err
	}
	if l.waiting == nil {
		l.waiting = make(chan string, 1)
		go func(to chan<- string) { to <- readLine(a.in) }(l.waiting)
	}
	select {
	case line := <-l.waiting:
		l.waiting = nil
		return line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
