// Package policy decides whether a tool call may run: a pure function of what is asked, how far
// the workspace is trusted and which rules people made. It reads nothing and asks nobody;
// who calls it acts on the verdict and journals it.
//
// Two directions of doubt run through the package. A rule that allows must cover the whole call,
// and what it cannot read it does not cover. A rule that denies or asks is met when any part of
// the call touches it, and what it cannot read it takes for a match.
package policy

import (
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// Action is what a rule or a verdict says.
type Action string

// The actions.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// Kind is what a tool does, as people think of it when they make rules.
type Kind string

// The kinds of tools.
const (
	Read    Kind = "read"    // looks at files
	Edit    Kind = "edit"    // changes files
	Command Kind = "command" // runs a shell command
	Network Kind = "network" // talks to a host
	Plain   Kind = "plain"   // touches neither files, commands nor hosts that the policy can see
)

// Question is one call about which to decide. Paths, Command and Host are the decoded arguments
// that the call will run with, never the text that the model wrote.
type Question struct {
	Tool   string
	Kind   Kind
	Effect messages.Effect_Class // a rule that allows @read covers PURE tools only

	Paths   []string // every path it touches, workspace-relative, links resolved; "." is the root
	Deep    bool     // it reaches everything below Paths: a recursive delete, a search, a move
	Command string
	Host    string // without port, in ASCII form

	Background bool // the command goes on when the call has ended

	Trust     messages.Trust_Level // of the workspace it was routed to; anything but FULL is Restricted
	Rules     []Rule               // of all scopes
	InToolset bool                 // offered by trust or by the agent's own list
	NeverAsks bool                 // touches nothing a person would be asked about (todo, update_workspace)
	Flag      bool                 // requires_approval: raises an allow to an ask, never lowers
	Unseen    bool                 // it has arguments about which no rule can say anything
	CanAsk    bool                 // somebody may answer, now or later
}

// NotAsked is the decision of a call that would have asked where nobody can answer.
const NotAsked = "not_asked"

// denied is the error code of every refusal by policy.
const denied = "permission_denied"

// Verdict is what comes of a question.
type Verdict struct {
	Action   Action
	Rule     *Rule  // the rule that decided, nil when a default did
	Reason   string // for people
	Decision string // NotAsked or ""
	Code     string // error code of a denial, else ""
}

// Decide answers a question. In this order: any rule that denies; not in the toolset (a rule
// that names the tool and does not deny adds it); the most specific rule that matches; the
// workspace's trust. Then the flag raises an allow, and an ask that nobody can answer is a denial.
func Decide(q Question) Verdict {
	v := decide(q)
	if v.Action == Allow && q.Flag {
		v = Verdict{Action: Ask, Rule: v.Rule, Reason: "the call itself requires an approval"}
	}
	if v.Action == Ask && !q.CanAsk {
		v.Action, v.Decision = Deny, NotAsked
		v.Reason += ", and nobody can be asked"
	}
	if v.Action == Deny {
		v.Code = denied
	}
	return v
}

func decide(q Question) Verdict {
	for _, r := range q.Rules {
		if r.strict() && r.Action != Ask && r.touches(q) {
			return by(Deny, r)
		}
	}
	if !q.InToolset && !added(q) {
		return Verdict{Action: Deny, Reason: fmt.Sprintf("tool %s is not in the toolset here", q.Tool)}
	}
	if r := mostSpecific(q); r != nil {
		return by(r.Action, *r)
	}
	switch {
	case q.NeverAsks:
		return Verdict{Action: Allow, Reason: "the tool touches nothing to ask about"}
	case q.Trust == messages.Trust_FULL:
		return Verdict{Action: Allow, Reason: "the workspace is trusted"}
	}
	return Verdict{Action: Ask, Reason: "the workspace is restricted"}
}

func by(a Action, r Rule) Verdict {
	return Verdict{Action: a, Rule: &r, Reason: "rule " + r.String()}
}

// added says whether a rule brings the tool into the toolset: one that names it and was written by
// somebody, whatever its pattern. What the pattern does not match then goes by trust.
func added(q Question) bool {
	for _, r := range q.Rules {
		if r.Tool == q.Tool && !r.Remembered && !(r.strict() && r.Action != Ask) {
			return true
		}
	}
	return false
}

// mostSpecific picks among the rules that match and do not deny; of equals the one that asks.
func mostSpecific(q Question) *Rule {
	var best *Rule
	for i := range q.Rules {
		r := &q.Rules[i]
		if !r.matches(q) {
			continue
		}
		if best == nil {
			best = r
			continue
		}
		if c := r.compare(*best); c > 0 || c == 0 && r.Action == Ask && best.Action == Allow {
			best = r
		}
	}
	return best
}

// matches is for the rules that remain once nothing denied.
func (r Rule) matches(q Question) bool {
	switch r.Action {
	case Allow:
		return r.covers(q)
	case Ask:
		return r.touches(q)
	case Deny:
	}
	return false
}
