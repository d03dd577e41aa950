package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/tools"
)

// An attempt that took too long, or was cancelled, has used something nevertheless: what the run says is what its workers used, also when a process ends in between.
func TestWhatAnAttemptUsedThatHadToEndIsItsRuns(t *testing.T) {
	const late, cancelled = "took too long", "was cancelled"
	pipelines := map[string]string{
		"an agent": "steps: [{id: a, agent: default, prompt: x, timeout: 5s, budget: {tokens: 100000}}]\n",
		"several":  "steps: [{id: a, foreach: '1..2', agent: default, prompt: 'x ${{ item }}', timeout: 5s, budget: {tokens: 100000}}]\n",
		"a group":  "agents: {other: {}}\nsteps: [{id: a, group: [default, other], prompt: x, timeout: 5s, budget: {tokens: 100000}}]\n",
	}
	for kind, text := range pipelines {
		for _, why := range []string{late, cancelled} {
			for _, killed := range []bool{false, true} {
				name := kind + " that " + why
				if killed {
					name += " in another process"
				}
				t.Run(name, func(t *testing.T) {
					gate, clock := actortest.NewGate(), actortest.NewClock(time.Now())
					model := costing(actortest.CallThenSay(actortest.Call("1", "hold", `{"name":"a"}`)), 900, 50)
					o := actortest.Options{Store: stored(t), DataDir: t.TempDir(), Model: model, Tools: []tools.Tool{holding(t, gate)}, Now: clock.Now, Clock: clock}
					h := actortest.New(t, o)
					s, _, run := startRun(t, h, text)
					actortest.Wait(t, "a call", gate.Came)
					if killed {
						h.Stop()
						if why == cancelled {
							journalled(t, o.Store, run, &messages.RunCancelled{Reason: "enough"})
						}
					}
					if why == late {
						clock.Advance(6 * time.Second)
					}
					if killed {
						h = actortest.New(t, o)
					} else if why == cancelled {
						actortest.Ask[*messages.RunView](h, s, &messages.CancelRun{RunId: run})
					}
					v := endOf(h, s, run)
					used, spent := v.GetUsage(), usedIn(t, o.Store, s)
					if got := used.GetInputTokens() + used.GetOutputTokens(); got != spent || spent < 950 {
						t.Errorf("the run says that it used %d tokens, and its workers used %d: %v", got, spent, v)
					}
					if ended := map[string]string{late: pipeline.Failed, cancelled: pipeline.Cancelled}[why]; v.GetState() != ended && kind != "a group" { // there another one speaks
						t.Errorf("it is %s: %s", v.GetState(), v.GetError())
					}
				})
			}
		}
	}
}

// usedIn are the tokens that the workers of a session have spent of its budget.
func usedIn(t *testing.T, store persistence.Store, session string) (sum int64) {
	t.Helper()
	err := store.ReadSession(t.Context(), session, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		fact, err := messages.WorkerFactIn(e.Record)
		if f, ok := fact.(*messages.BudgetSettled); ok {
			sum += f.Amounts().GetTokens()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
