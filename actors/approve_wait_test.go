package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
)

// TestAQuestionWaitsAsLongAsTheRuleSaysThatHadItAsked: less than others wait, or more.
func TestAQuestionWaitsAsLongAsTheRuleSaysThatHadItAsked(t *testing.T) {
	a := asks(t, 3, actortest.Options{
		Limits: actors.Limits{Approval: 90 * time.Second},
		Agents: []actors.Agent{{Name: actors.DefaultAgent, Rules: []string{"ask write_file(a) timeout=30s", "ask write_file(b) timeout=5m"}}},
	}, writes("a", "b", "c")...)
	for i, want := range []time.Duration{30 * time.Second, 5 * time.Minute, 90 * time.Second} {
		if v := a.pending()[i]; v.GetExpiresAtUnixMs()-v.GetAtUnixMs() != want.Milliseconds() {
			t.Errorf("question %d: %v, want %s", i, v, want)
		}
	}
	a.clock.Advance(30 * time.Second)
	a.waits(2)
	a.clock.Advance(time.Minute)
	a.waits(1)
	a.must(a.say(a.pending()[0].GetApprovalId(), approved, ""))
	r := a.end()
	for i, want := range []string{"Tool execution failed: approval timed out after 30 s", "Created b", "Tool execution failed: approval timed out after 90 s"} {
		if got := r.GetToolCalls()[i].GetContent(); !strings.HasPrefix(got, want) {
			t.Errorf("call %d came to %q, want %q", i, got, want)
		}
	}
}
