package chaos

import (
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// answeredWith finds an answer in a journal whose giver was told that it counts, and its place among the answers.
func answeredWith(t *testing.T, h *History, d messages.Decision_Value, ran bool) (place, int) {
	t.Helper()
	for _, at := range find(h, func(f *messages.ApprovalResolved) bool { return f.GetDecision() == d }) {
		f := factAt[*messages.ApprovalResolved](t, h, at)
		if ran && !slices.ContainsFunc(h.Effects, func(e Effect) bool { return e.Exec == f.GetExecId() }) {
			continue
		}
		for i, a := range h.Answers {
			if a.Approval == f.GetApprovalId() && (a.Told == Acknowledged || ran) {
				return at, i
			}
		}
	}
	t.Fatalf("the recorded run has no such answer: %s", d)
	return place{}, 0
}

// effectOf is the first line of the effect log about a call.
func effectOf(t *testing.T, h *History, exec string) *Effect {
	t.Helper()
	for i, e := range h.Effects {
		if e.Exec == exec {
			return &h.Effects[i]
		}
	}
	t.Fatalf("the recorded run has no effect of %s", exec)
	return nil
}

func answerDamage() []damage {
	yes, no := messages.Decision_APPROVED, messages.Decision_REJECTED
	// began changes the begin of a call that was approved.
	began := func(with func(e *Effect, yes *messages.Record)) func(*testing.T, *History) {
		return func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, yes, true)
			r := h.Streams[at.stream][at.at].Record
			with(effectOf(t, h, factAt[*messages.ApprovalResolved](t, h, at).GetExecId()), r)
		}
	}
	return []damage{
		{"R7", "a call began before the yes was in the journal: began before it was approved", began(func(e *Effect, yes *messages.Record) { e.Dispatch = yes.GetSeq() - 1 })},
		{"R7", "a call began before the yes was given: began before it was approved", began(func(e *Effect, yes *messages.Record) {
			e.Boot, e.AtMs = yes.GetEpoch()>>32, yes.GetAtUnixMs()-1 // a kill between the two may have put them into different lives
		})},
		{"R7", "a call began in a life before the yes: began before it was approved", began(func(e *Effect, yes *messages.Record) { e.Boot = yes.GetEpoch()>>32 - 1 })},
		{"R7", "a call ran with other arguments than the approved ones: and ran with", began(func(e *Effect, _ *messages.Record) { e.Name += "-else" })},
		{"R7", "a call ran that a person said no to: was denied and had an effect", func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, no, false)
			exec := factAt[*messages.ApprovalResolved](t, h, at).GetExecId()
			h.Effects = append(h.Effects, Effect{Phase: Begun, Exec: exec, Tool: toolLook})
		}},
		{"R7", "a call ran without an answer: began and was not approved", func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, yes, true)
			drop(h, at)
		}},
		{"R7", "an answer that was acknowledged is lost: is in no journal", func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, no, false)
			drop(h, at)
		}},
		{"R7", "an answer that was acknowledged is kept as another: and kept as", func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, yes, false)
			change(t, h, at, func(f *messages.ApprovalResolved) { f.By = "somebody else" })
		}},
		{"R7", "an approval is decided on twice: is decided on again", func(t *testing.T, h *History) {
			at, _ := answeredWith(t, h, yes, false)
			add(t, h, at, factAt[*messages.ApprovalResolved](t, h, at))
		}},
		{"R7", "a second answer is acknowledged: a second answer", func(t *testing.T, h *History) {
			_, i := answeredWith(t, h, yes, false)
			h.Answers = append(h.Answers, h.Answers[i])
		}},
		{"R7", "an answer is refused for one that nobody has written down: is said to be answered", func(_ *testing.T, h *History) {
			h.Answers = append(h.Answers, Answer{Approval: "apr_x", Decision: yes, Told: messages.CodeResolved})
		}},
		{"R7", "an answer is refused for no reason: was refused", func(t *testing.T, h *History) {
			_, i := answeredWith(t, h, yes, false)
			h.Answers[i].Told = messages.CodeNotFound
		}},
		{"R7", "an answer is in the journal that nobody has given: which nobody has given", func(t *testing.T, h *History) {
			_, i := answeredWith(t, h, yes, false)
			id := h.Answers[i].Approval
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Approval == id })
		}},
		{"R7", "an approval waits after the end: waits after the end", func(t *testing.T, h *History) {
			at, i := answeredWith(t, h, no, false)
			id := h.Answers[i].Approval
			h.Answers = slices.DeleteFunc(h.Answers, func(a Answer) bool { return a.Approval == id })
			drop(h, at)
		}},
		{"R7", "an approval that was answered is still listed: is listed as waiting", func(_ *testing.T, h *History) { h.Listed = append(h.Listed, h.Answers[0].Approval) }},
	}
}
