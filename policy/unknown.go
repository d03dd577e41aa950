package policy

import "github.com/troupe-dev/troupe/messages"

// Unknown says what becomes of a call of which a crash leaves unknown whether it ran; "" says nothing about it.
type Unknown string

// What may become of it.
const (
	UnknownReport Unknown = "report" // the model is told
	UnknownRetry  Unknown = "retry"  // it is run again, with the same exec id
	UnknownAsk    Unknown = "ask"    // a person settles it
	UnknownFail   Unknown = "fail"   // the turn ends with an error
)

// Outcome is the word as it is journaled with the plan of a call; false for a word that is none.
func (u Unknown) Outcome() (messages.UnknownOutcome_Policy, bool) {
	switch u {
	case UnknownReport:
		return messages.UnknownOutcome_REPORT, true
	case UnknownRetry:
		return messages.UnknownOutcome_RETRY, true
	case UnknownAsk:
		return messages.UnknownOutcome_ASK, true
	case UnknownFail:
		return messages.UnknownOutcome_FAIL, true
	}
	return messages.UnknownOutcome_REPORT, false
}

// caution orders the words: of equally specific rules the one counts that takes fewer risks.
func (u Unknown) caution() int {
	switch u {
	case UnknownFail:
		return 4
	case UnknownAsk:
		return 3
	case UnknownReport:
		return 2
	case UnknownRetry:
		return 1
	}
	return 0
}

// UnknownFor is what the rules say about an unknown outcome of the call: the most specific one that does. A rule that
// lets a call run twice has to cover the whole of it; the others speak of every call that they touch.
func UnknownFor(q Question) Unknown {
	var best *Rule
	for i := range q.Rules {
		r := &q.Rules[i]
		switch {
		case r.Unknown == "", r.Unknown == UnknownRetry && !r.covers(q), !r.touches(q):
			continue
		}
		c := 1
		if best != nil {
			c = r.compare(*best)
		}
		if c > 0 || c == 0 && r.Unknown.caution() > best.Unknown.caution() {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	return best.Unknown
}
