package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/pipeline"
)

// joinedInWait is a turn that waits for more budget, and that an input has joined which comes to far more than the rest of its request.
type joinedInWait struct {
	h      *actortest.House
	s, w   string
	step   string // whose budget it is; "": the session's
	first  string // the input that the turn began with
	joined string // what joined it
}

// hears says how many inputs it was sent.
func hears(_ context.Context, r *model.Request) actortest.Reply {
	n := 0
	for _, m := range r.Prompt.Messages {
		if m.Role == messages.User {
			n++
		}
	}
	return actortest.Reply{Text: fmt.Sprintf("heard %d", n)}
}

func sessionInWait(t *testing.T) *joinedInWait {
	t.Helper()
	j := &joinedInWait{h: actortest.New(t, actortest.Options{Agents: plain(), Model: costing(hears, 60, 140)})}
	b := tokenBudget(10)
	b.Pause = true
	j.s, j.w = j.h.Create(&messages.CreateSession{Budget: b})
	j.first = submit(j.h, j.s, "go")
	j.join(t)
	return j
}

func stepInWait(t *testing.T) (j *joinedInWait, run string) {
	t.Helper()
	j = &joinedInWait{h: actortest.New(t, actortest.Options{Model: costing(hears, 60, 140)}), step: "a"}
	j.s, _, run = startRun(t, j.h, `agents: {plain: {system: You are plain.}}
steps: [{id: a, agent: plain, prompt: go, budget: {tokens: 10, on_exceed: pause}}]
`)
	actortest.Until(t, "the step has its worker", func() bool {
		if items := stepOf(j.h, j.s, run, "a").GetItemViews(); len(items) == 1 {
			j.w = items[0].GetWorkerId()
		}
		return j.w != ""
	})
	j.join(t)
	return j, run
}

// join steers the turn while it waits, and gives it what would do without that.
func (j *joinedInWait) join(t *testing.T) {
	t.Helper()
	waits := func() bool {
		for _, w := range actortest.Ask[*messages.SessionView](j.h, j.s, &messages.DescribeSession{}).GetWorkers() {
			if w.GetId() == j.w {
				return w.GetWaiting().GetKind() == "budget"
			}
		}
		return false
	}
	actortest.Until(t, "the turn waits for more", waits)
	j.joined = strings.Repeat("rather this ", 4000)
	actortest.Ask[*messages.InputReply](j.h, j.s, &messages.SubmitInput{WorkerId: j.w, InputId: "rather this", Mode: messages.InputAccepted_STEER, Parts: actortest.Text(j.joined)})
	j.add(4000)
	actortest.Until(t, "the call is asked for anew, or made", func() bool {
		facts := j.h.Facts(j.w)
		return len(actortest.Of[*messages.InputJoined](facts)) == 1 && waits() || len(actortest.Of[*messages.BudgetReserved](facts)) > 0
	})
	if made := actortest.Of[*messages.GenerationStarted](j.h.Facts(j.w)); len(made) > 0 {
		t.Fatalf("what was granted without the input that joined pays for a call with it: %v", made)
	}
}

func (j *joinedInWait) add(tokens int64) {
	actortest.Ask[*messages.BudgetView](j.h, j.s, &messages.AddBudget{Step: j.step, Add: &messages.Amounts{Tokens: tokens}})
}

// paid gives the turn enough, and looks at what was set aside for its call.
func (j *joinedInWait) paid(t *testing.T) {
	t.Helper()
	j.add(40_000)
	if r := actortest.Ask[*messages.TurnResult](j.h, j.s, &messages.AwaitTurn{WorkerId: j.w, InputId: "rather this"}); r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != "heard 2" {
		t.Errorf("the turn: %v", r)
	}
	set := actortest.Of[*messages.BudgetReserved](j.h.Facts(j.w))
	if least := int64(conversation.EstimateTokens(j.joined)); len(set) != 1 || set[0].GetInputTokens() < least {
		t.Errorf("what joined is about %d tokens, and set aside is %v", least, set)
	}
}

func TestWhatJoinsATurnThatWaitsForItsBudgetIsPaidToo(t *testing.T) {
	t.Run("of a session", func(t *testing.T) {
		j := sessionInWait(t)
		j.paid(t)
		keptWithin(t, j.h.Store, j.s, 44_010)
	})
	t.Run("of a step", func(t *testing.T) {
		j, run := stepInWait(t)
		j.paid(t)
		if v := endOf(j.h, j.s, run); v.GetState() != pipeline.Succeeded {
			t.Errorf("the run is %s: %s", v.GetState(), v.GetError())
		}
		keptWithinSteps(t, j.h.Store, j.s)
	})
}

// TestTheFirstInputOfATurnThatOthersJoinedIsNotTakenBack though the model has answered nothing: they would be lost with it.
func TestTheFirstInputOfATurnThatOthersJoinedIsNotTakenBack(t *testing.T) {
	j := sessionInWait(t)
	for _, in := range []string{j.first, "rather this"} {
		if _, err := actortest.Try[*messages.Ack](j.h, j.s, &messages.WithdrawInput{InputId: in}); actortest.Code(err) != messages.CodeCommitted || !strings.Contains(err.Error(), "joined") {
			t.Errorf("%s was taken back: %v", in, err)
		}
	}
	j.paid(t)
}
