package chaos

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// TestEveryCutOfATurnWhoseAnswersAreRememberedRecovers cuts a life in which one answer leaves a rule in the session's journal and one
// in that of the whole store, after each append. An answer that is in the journal has its rule; there is each once.
func TestEveryCutOfATurnWhoseAnswersAreRememberedRecovers(t *testing.T) {
	made := func(t *testing.T) *question {
		q := newQuestion(t)
		q.scopes = map[string]troupe.Scope{"call_0": troupe.Always, "call_1": troupe.ForSession}
		return q
	}
	whole := made(t)
	appends := whole.live(t, 1<<30, true)
	whole.check(t, "uncut")
	whole.checkRules(t, "uncut", true)
	everyCut(t, appends, 6, func(t *testing.T, n int, heard bool) {
		q := made(t)
		q.live(t, n, heard)
		q.checkRules(t, "cut", false)
		q.live(t, 1<<30, true)
		q.check(t, "recovered")
		q.checkRules(t, "recovered", true)
	})
}

// checkRules holds the answers in the journals against the rules there.
func (q *question) checkRules(t *testing.T, when string, ended bool) {
	t.Helper()
	rules := map[string]string{} // id -> text
	texts := map[string]int{}
	add := func(id, text string) {
		rules[id] = text
		texts[text]++
	}
	read := func(e persistence.Entry) error {
		switch e.Stream[:4] {
		case "sys ":
			f, err := messages.SystemFactIn(e.Record)
			if r, ok := f.(*messages.RuleRemembered); ok {
				add(r.GetRuleId(), r.GetRule())
			}
			return err
		case "ses/":
			f, err := messages.SessionFactIn(e.Record)
			if r, ok := f.(*messages.RuleAdded); ok {
				add(r.GetRuleId(), r.GetRule())
			}
			return err
		}
		return nil
	}
	if err := q.mem.ReadSession(context.Background(), sessionID, 0, read); err != nil && ended {
		t.Fatal(err)
	}
	if err := q.mem.Read(context.Background(), messages.SystemStream, 1, func(e persistence.Entry) error { e.Stream = "sys "; return read(e) }); err != nil {
		t.Fatal(err)
	}
	for text, n := range texts {
		if n != 1 {
			t.Errorf("%s: %s is remembered %d times", when, text, n)
		}
	}
	answers := 0
	for _, f := range q.facts(t) {
		if f, ok := f.(*messages.ApprovalResolved); ok {
			answers++
			// Cut between the rule that says no and the answer that it came with: the call is decided on again, by the rule (ADR 90).
			if f.GetBy() == "toolset" && f.GetDecision() == messages.Decision_CANCELLED && texts["deny write_file(no.txt)"] == 1 {
				continue
			}
			if rules[f.GetRuleId()] != f.GetRule() || f.GetRule() == "" {
				t.Errorf("%s: %v without its rule: %v", when, f, rules)
			}
		}
	}
	if ended && (answers != 2 || texts["write_file(yes.txt)"] != 1 || texts["deny write_file(no.txt)"] != 1) {
		t.Errorf("%s: %d answers, %v", when, answers, texts)
	}
}
