package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// A turn that waits for more budget waits for a person, as one that waits for an approval does: the time is not the turn's, and it keeps its workspaces
// for a while. What it is then granted it gives back until it has them again: who holds one of them may wait for just that.

// pause is the wait of a turn for more budget.
type pause struct {
	since  time.Time     // zero: it does not wait
	reason string        // for people
	step   string        // whose budget it is; "": the session's
	waited time.Duration // by the turn since its newest reservation, in waits that are over
	away   bool          // its workspaces were given back
}

// until is how long the turn has waited by a time, of what is not in its journal yet.
func (p *pause) until(now time.Time) time.Duration {
	if p.since.IsZero() {
		return p.waited
	}
	return p.waited + max(0, now.Sub(p.since))
}

// budgetShort begins the wait.
func (w *Worker) budgetShort(c actor.Context, m *messages.BudgetShort) {
	p := &w.purse
	if !p.asking || m.GetAsk() != p.asks || !p.pause.since.IsZero() {
		return
	}
	p.pause.since, p.pause.reason, p.pause.step = w.svc.Now(), m.GetReason(), m.GetStep()
	w.wall.Stop()
	switch {
	case w.compacting != nil:
	case w.svc.Limits.Hold < 0:
		w.letGo(c)
	default:
		w.hold.SetBy(w.svc.Clock, c, w.svc.Limits.Hold, func(gen uint64) any { return &holdOver{gen} })
	}
}

// letGo gives the workspaces of a turn that waits for more budget to those who wait for them.
func (w *Worker) letGo(c actor.Context) {
	if !w.purse.pause.since.IsZero() && w.leases.busy() {
		w.giveBackAll(c)
		w.purse.pause.away = true
	}
}

// unpause ends the wait, if there is one.
func (w *Worker) unpause(c actor.Context) {
	p := &w.purse.pause
	if p.since.IsZero() {
		return
	}
	w.hold.Stop()
	if w.state.Turn() != nil {
		p.waited = p.until(w.svc.Now())
	}
	p.since, p.reason, p.step = time.Time{}, "", ""
	if w.state.Turn() != nil {
		w.armWall(c)
	}
}
