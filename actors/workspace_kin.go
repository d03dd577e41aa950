package actors

import (
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
)

// A worker that delegates and its children share what they lease: to everybody else they are one holder, with one token, and among
// themselves effects run one at a time (ADR 46).

// effectTurn is an effect that waits until those of its kin have ended.
type effectTurn struct {
	l     *lease
	exec  string
	asker *actor.PID
}

// kin says whether two leases are of a parent and its child, or of two children of one parent.
func kin(a, b *lease) bool {
	if a.worker == "" || b.worker == "" { // what a predecessor left: nobody knows whose it is
		return false
	}
	head := func(l *lease) string {
		if l.parent != "" {
			return l.parent
		}
		return l.worker
	}
	return head(a) == head(b)
}

// beside says whether one who asks may work beside one who holds. Effects that outlive their lease keep everybody out, jobs only strangers.
func beside(held, asks *lease) bool {
	if held.shared && asks.shared {
		return true
	}
	if asks.shared && held.resting() && inOneSession(held, asks) {
		return true
	}
	return held.worker != asks.worker && kin(held, asks) && (!held.released || held.resting())
}

// inOneSession says whether two leases are of workers of one session, of which none ends what another has left running.
func inOneSession(a, b *lease) bool {
	return a.session() != "" && a.session() == b.session()
}

// session is whose worker has the lease; "" when it is nobody's, or nobody knows.
func (l *lease) session() string {
	if l.of != "" {
		return l.of
	}
	if path := strings.Split(l.who.GetId(), "/"); len(path) > 2 { // root, session, worker
		return path[1]
	}
	return ""
}

// joins says whether a child comes in past the queue: its parent works here and waits for it, so that who waits for the parent waits for
// the child, too. It has no more than the parent.
func (w *Workspace) joins(l *lease) bool {
	if l.parent == "" {
		return false
	}
	i := slices.IndexFunc(w.held, func(h *lease) bool { return h.worker == l.parent && !h.released })
	if i >= 0 {
		l.shared = l.shared || w.held[i].shared
	}
	return i >= 0
}

// alone says whether an effect may begin: nothing of its kin runs, and nobody of them has waited longer. What a call leaves running
// while it runs itself begins at once.
func (w *Workspace) alone(l *lease) bool {
	for _, h := range w.held {
		if h != l && kin(h, l) && h.works() {
			return false
		}
	}
	return l.works() || !slices.ContainsFunc(w.turns, func(t *effectTurn) bool { return kin(t.l, l) })
}

// works says whether an effect runs, jobs aside.
func (l *lease) works() bool {
	for id := range l.effects {
		if !isJob(id) {
			return true
		}
	}
	return false
}

// awaitTurn keeps the asker of an effect until it may begin. Who asks again keeps the place.
func (w *Workspace) awaitTurn(l *lease, exec string, asker *actor.PID) {
	for _, t := range w.turns {
		if t.exec == exec {
			t.asker = asker
			return
		}
	}
	w.turns = append(w.turns, &effectTurn{l, exec, asker})
}

// leaveTurn forgets an effect that is no longer wanted.
func (w *Workspace) leaveTurn(exec string) {
	w.turns = slices.DeleteFunc(w.turns, func(t *effectTurn) bool { return t.exec == exec })
}

// nextTurns lets the effects begin that waited for what has ended.
func (w *Workspace) nextTurns(c actor.Context) {
	waiting := w.turns
	w.turns = nil
	for _, t := range waiting {
		switch {
		case t.l.released || !slices.Contains(w.held, t.l):
			w.answer(c, t, w.stale())
		case w.alone(t.l):
			w.allow(c, t.l, t.exec, t.asker)
		default:
			w.turns = append(w.turns, t)
		}
	}
}

func (w *Workspace) answer(c actor.Context, t *effectTurn, msg any) {
	if t.asker != nil {
		c.Send(t.asker, msg)
	}
}
