package conversation

import "github.com/troupe-dev/troupe/messages"

// Tries is what the failed attempts at the step under way were. A successor goes on from it: a crash makes nothing a step's own failure that
// was none, and gives no model a second chance.
type Tries struct {
	Waits      int  // that the provider refused for their number, or that were not made as it is out of order: a wait cures both
	Unanswered int  // requests that nothing came of: several count as one attempt
	Own        bool // the worker's own model failed for good: its key is refused, or it is not there
	Other      bool // the newest was of a model that stood in
}

// RateLimited is the class of a generation that the provider refused for the number of requests.
const RateLimited = "rate_limited"

// ForGood says whether an attempt's class is of those that no repetition cures, and another model might.
func ForGood(class string) bool { return class == "auth" || class == "not_found" }

// failed counts an attempt that has failed.
func (t *Tries) failed(g *messages.GenerationStarted, f *messages.GenerationFailed) {
	t.Other = g.GetInsteadOf() != ""
	t.Own = t.Own || !t.Other && ForGood(f.GetClass())
	switch {
	case f.GetNotMade() || f.GetClass() == RateLimited:
		t.Waits++
	case f.GetUnanswered():
		t.Unanswered++
	}
}

func keptTries(t Tries) *messages.KeptTries {
	if t == (Tries{}) {
		return nil
	}
	return &messages.KeptTries{Waits: int32(t.Waits), Unanswered: int32(t.Unanswered), Own: t.Own, Other: t.Other} //nolint:gosec // counts
}

func triesOf(k *messages.KeptTries) Tries {
	return Tries{Waits: int(k.GetWaits()), Unanswered: int(k.GetUnanswered()), Own: k.GetOwn(), Other: k.GetOther()}
}
