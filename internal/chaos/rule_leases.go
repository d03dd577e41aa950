package chaos

import (
	"github.com/troupe-dev/troupe/messages"
)

// leasesExclude is R9.
func leasesExclude(v *view, r *report) {
	given := make(map[lease]*fact)
	for _, s := range v.workers() {
		tokensGrow(s, given, r)
	}
	v.effectsExclude(r)
}

// lease is one that was given, and never twice. A parent and its children share a token, and differ in their ordinals.
type lease struct {
	workspace string
	token     uint64
	child     uint32
}

// after says whether a lease was given after another one on the same workspace.
func (l lease) after(other lease) bool {
	return l.token > other.token || l.token == other.token && l.child > other.child
}

// tokensGrow checks the leases of one worker: those of a later turn, or of a later activation, are higher, no other worker was
// given them, and a call is dispatched under the lease that its turn holds. given has those of the workers before.
func tokensGrow(s *stream, given map[lease]*fact, r *report) {
	held := make(map[string]lease)
	take := func(f *fact, leases []*messages.LeaseToken) {
		for _, l := range leases {
			one, before := lease{l.GetWorkspace(), l.GetToken(), l.GetChild()}, held[l.GetWorkspace()]
			if !one.after(before) {
				r.add(Broken, s.name, f.seq(), "the lease on %s has token %d after %d", l.GetWorkspace(), l.GetToken(), before.token)
			}
			if other := given[one]; other != nil && other.stream != s.name {
				r.add(Broken, s.name, f.seq(), "token %d of %s was given to %s, too, at %d", one.token, one.workspace, other.stream, other.seq())
			}
			if given[one] = f; one.after(before) {
				held[l.GetWorkspace()] = one
			}
		}
	}
	asked := false // a turn that waits for a person may give its leases back, and takes others then
	for _, f := range s.facts {
		switch x := f.what.(type) {
		case *messages.TurnStarted:
			asked = false
			take(f, x.GetLeases())
		case *messages.Activated:
			take(f, x.GetLeases())
		case *messages.ApprovalRequested:
			asked = true
		case *messages.ToolDispatched:
			l := x.GetLease()
			one := lease{l.GetWorkspace(), l.GetToken(), l.GetChild()}
			if asked && one.after(held[one.workspace]) {
				take(f, []*messages.LeaseToken{l})
			}
			if l != nil && one != held[one.workspace] {
				r.add(Broken, s.name, f.seq(), "%s was dispatched under token %d of %s, the turn holds %d", x.GetExecId(), one.token, one.workspace, held[one.workspace].token)
			}
		}
	}
}

// under is an effect that has begun and not ended.
type under struct {
	exec  string
	token uint64
}

// effectsExclude walks the effect log: in one workspace nothing begins under one token while something runs
// under another, tokens only grow, and effects run one at a time. A kill ends what was running.
func (v *view) effectsExclude(r *report) {
	newest := make(map[string]uint64)
	running := make(map[string][]under) // by workspace
	var boot uint64
	for _, e := range v.Effects {
		if e.Boot != boot {
			boot = e.Boot
			clear(running)
		}
		c := v.byExec[e.Exec]
		if c == nil || c.pure() {
			continue
		}
		d := c.dispatchedIn(e.Boot)
		if d.GetLease() == nil {
			continue // found by R4, or a call that belongs to no workspace
		}
		place, token := d.GetLease().GetWorkspace(), d.GetLease().GetToken()
		switch e.Phase {
		case Begun:
			if token < newest[place] {
				r.add(Broken, streamOf(c), seqOf(c), "%s began under token %d of %s after token %d", e.Exec, token, place, newest[place])
			}
			newest[place] = max(token, newest[place])
			for _, u := range running[place] {
				if u.token != token {
					r.add(Broken, streamOf(c), seqOf(c), "%s began under token %d of %s while %s ran under token %d", e.Exec, token, place, u.exec, u.token)
				} else {
					r.add(Broken, streamOf(c), seqOf(c), "%s began in %s while %s ran", e.Exec, place, u.exec)
				}
			}
			running[place] = append(running[place], under{e.Exec, token})
		case Ended:
			kept := running[place][:0:0]
			for _, u := range running[place] {
				if u.exec != e.Exec {
					kept = append(kept, u)
				}
			}
			running[place] = kept
		case Happened:
		}
	}
}
