package policy

import "errors"

// Reads is the rule that lets everything be read unasked.
const Reads = "@read"

// Remember returns the rules that an answer to a call which asks may leave behind, so that its like is answered in
// the same way from then on: with Allow, for a call that only reads, the one about all reads, and last the narrowest
// one that covers the call; with Deny that one alone. What no rule can say of just this call is refused, and the
// error says why.
func Remember(q Question, a Action) ([]Rule, error) {
	exact, err := exactly(q, a)
	if err != nil {
		return nil, err
	}
	out := []Rule{exact}
	if reads := (Rule{Tool: Reads, Action: Allow, Scope: Session, Remembered: true}); a == Allow && settles(reads, q) {
		out = []Rule{reads, exact}
	}
	return out, nil
}

func exactly(q Question, a Action) (Rule, error) {
	switch {
	case q.Kind == Plain && q.Unseen:
		return Rule{}, errors.New("a rule about this tool would speak of every call, whatever its arguments")
	case q.Kind == Command && elsewhere(q):
		return Rule{}, errors.New("a rule about a command says nothing about the folder in which it runs")
	case q.Kind == Command && q.Background:
		return Rule{}, errors.New("a rule about a command says nothing about how long it runs, and this one goes on in the background")
	case q.Flag:
		return Rule{}, errors.New("this call asks for more than a rule can allow, such as the network")
	}
	r, ok := RuleFor(q)
	if !ok {
		return Rule{}, errors.New(inexact(q))
	}
	r.Action, r.Remembered = a, true
	if !settles(r, q) {
		return Rule{}, errors.New("another rule asks about such calls, and would go on to")
	}
	return r, nil
}

// inexact says why no rule is about one call alone.
func inexact(q Question) string {
	switch {
	case q.Kind == Command:
		_, f := simple(q.Command)
		if f == nil {
			return "the command ends in what a rule takes for any words"
		}
		return "only a single simple command can be remembered, and here is: " + f.why
	case len(q.Paths) > 1:
		return "a rule speaks of one path, and the call of several"
	}
	return "no rule can say just this: what the call is about holds a wildcard, or characters that a rule has not"
}

// elsewhere says whether a command runs in another folder than the workspace's root.
func elsewhere(q Question) bool {
	for _, p := range q.Paths {
		if p != "." {
			return true
		}
	}
	return false
}

// settles says whether the call would be decided as the rule says if it were there.
func settles(r Rule, q Question) bool {
	q.Rules, q.CanAsk = append(q.Rules[:len(q.Rules):len(q.Rules)], r), true
	return (r.Action == Deny || r.covers(q)) && Decide(q).Action == r.Action
}
