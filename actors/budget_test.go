package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

func tokenBudget(n int64) *messages.Budget {
	return &messages.Budget{Most: &messages.Amounts{Tokens: n}}
}

// costing answers as a model does, at so many tokens for each call.
func costing(m actortest.Model, in, out int64) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		a := m(ctx, r)
		a.Usage = &messages.Usage{InputTokens: in, OutputTokens: out}
		return a
	}
}

// keptWithin walks a session's records in the order in which they became durable: never is more spent and set aside than the budget has. It
// returns what is spent in the end.
func keptWithin(t *testing.T, store persistence.Store, session string, most int64) *messages.Amounts {
	t.Helper()
	spent, reserved := map[string]*messages.Amounts{}, map[string]*messages.Amounts{}
	err := store.ReadSession(t.Context(), session, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		fact, err := messages.WorkerFactIn(e.Record)
		switch f := fact.(type) {
		case *messages.BudgetReserved:
			reserved[e.Stream] = f.Amounts()
		case *messages.BudgetSettled:
			spent[e.Stream] = spent[e.Stream].Plus(f.Amounts())
			delete(reserved, e.Stream)
		}
		if sum := total(spent).Plus(total(reserved)); sum.GetTokens() > most {
			t.Errorf("%d of %d tokens are spent or set aside at record %d of %s", sum.GetTokens(), most, e.Record.GetSeq(), e.Stream)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(reserved) > 0 {
		t.Errorf("%v is still set aside", reserved)
	}
	return total(spent)
}

func total(all map[string]*messages.Amounts) *messages.Amounts {
	sum := &messages.Amounts{}
	for _, a := range all {
		sum = sum.Plus(a)
	}
	return sum
}

func budgetOf(h *actortest.House, session string) *messages.BudgetView {
	return actortest.Ask[*messages.SessionView](h, session, &messages.DescribeSession{}).GetBudget()
}

func TestATurnThatTheBudgetDoesNotCoverEndsWithOutcomeBudget(t *testing.T) {
	calls := 0
	h := actortest.New(t, actortest.Options{Model: costing(func(_ context.Context, r *model.Request) actortest.Reply {
		if calls++; r.MaxTokens <= 0 {
			t.Errorf("the answer is not bounded")
		}
		return actortest.Reply{Text: "yes"}
	}, 9000, 500)})
	s, w := h.Create(&messages.CreateSession{Budget: tokenBudget(30_000)})
	for i := range 2 {
		if res := h.Run(s, "go"); res.GetOutcome() != messages.TurnCompleted_DONE {
			t.Fatalf("turn %d: %v", i, res)
		}
	}
	res := h.Run(s, "go on")
	if res.GetOutcome() != messages.TurnCompleted_BUDGET || res.GetErrorCode() != "budget_exceeded" || !strings.Contains(res.GetReason(), "19000 of 30000 tokens") {
		t.Errorf("the third turn: %v", res)
	}
	if calls != 2 {
		t.Errorf("the model was asked %d times", calls)
	}
	if sum := keptWithin(t, h.Store, s, 30_000); sum.GetTokens() != 19_000 {
		t.Errorf("%v is spent", sum)
	}
	v := budgetOf(h, s)
	if v.GetSpent().GetTokens() != 19_000 || v.GetReserved().GetTokens() != 0 || v.GetMost().GetTokens() != 30_000 {
		t.Errorf("the budget is shown as %v", v)
	}
	if got := h.Worker(s).GetSpent().GetTokens(); got != 19_000 {
		t.Errorf("worker %s has spent %d", w, got)
	}
}

// TestChildrenShareTheBudgetAndNeverExceedItTogether with budgets for none of them, for some, and for all: a child asks its model twice, and their parent does.
func TestChildrenShareTheBudgetAndNeverExceedItTogether(t *testing.T) {
	const call, tokens = 1500, 300
	for _, c := range []struct {
		children int
		most     int64
	}{{8, 24_000}, {8, 40_000}, {8, 60_000}, {100, 20_000}, {100, 150_000}, {100, 500_000}} {
		t.Run(fmt.Sprint(c.children, " children, ", c.most), func(t *testing.T) {
			t.Parallel()
			var calls []*messages.ToolCall
			for i := range c.children {
				calls = append(calls, delegate(fmt.Sprint(i), fmt.Sprint("task ", i)))
			}
			h := actortest.New(t, actortest.Options{
				Limits: actors.Limits{Children: c.children, Workers: c.children + 1},
				Model:  costing(family(actortest.CallThenSay(actortest.Call("l", "list_files", `{}`)), calls...), call, tokens),
			})
			s, _ := h.Create(&messages.CreateSession{Budget: tokenBudget(c.most)})
			res := h.Run(s, "go")
			sum := keptWithin(t, h.Store, s, c.most)
			all := int64(2+2*c.children) * (call + tokens)
			if enough := c.most >= all+all/4; enough && (sum.GetTokens() != all || res.GetOutcome() != messages.TurnCompleted_DONE) {
				t.Errorf("with enough for all %v is spent: %v", sum, res)
			} else if !enough && sum.GetTokens() >= all {
				t.Errorf("%v is spent", sum)
			}
			if v := budgetOf(h, s); !v.GetSpent().Same(sum) || !v.GetReserved().Zero() {
				t.Errorf("the budget is shown as %v, and the parts are %v", v, sum)
			}
		})
	}
}

func TestATurnThatIsToPauseWaitsForMoreBudgetAndGoesOn(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: costing(actortest.Say("yes"), 9000, 500)})
	b := tokenBudget(12_000)
	b.Pause = true
	s, _ := h.Create(&messages.CreateSession{Budget: b})
	h.Run(s, "go")
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go on")}})
	actortest.Until(t, "the turn waits for more", func() bool { return budgetOf(h, s).GetWaiting() == 1 })
	if got := h.Worker(s).GetWaitsFor(); got != "the budget of its session" {
		t.Errorf("it waits for %q", got)
	}
	more := &messages.AddBudget{Add: &messages.Amounts{Tokens: 12_000}, By: "user", ChangeId: "once"}
	for range 2 {
		if v := actortest.Ask[*messages.BudgetView](h, s, more); v.GetMost().GetTokens() != 24_000 {
			t.Errorf("the budget is %v", v)
		}
	}
	if res := actortest.Wait(t, "the turn", waits); res.Err != nil || res.Reply.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("the turn: %v", res)
	}
	keptWithin(t, h.Store, s, 24_000)
}

// TestACallIsPaidThatWasAskedForWhileTheSessionWroteSomethingElse though nobody else asks or reports.
func TestACallIsPaidThatWasAskedForWhileTheSessionWroteSomethingElse(t *testing.T) {
	store := &actortest.Store{Store: stored(t)}
	h := actortest.New(t, actortest.Options{Store: store, Model: costing(actortest.Say("yes"), 100, 100)})
	s, _ := h.Create(&messages.CreateSession{Budget: tokenBudget(50_000)})
	came, release := store.Hold(actortest.Is[*messages.WorkspaceAttached])
	made := actortest.Later[*messages.WorkspaceGrant](h, s, &messages.AttachWorkspace{Workspace: &messages.WorkspaceSpec{Uri: "local:" + t.TempDir(), Name: "other", Trust: messages.Trust_FULL}})
	actortest.Wait(t, "the workspace's record", came)
	turn := actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go")}})
	actortest.Until(t, "it asks", func() bool { return h.Worker(s).GetWaitsFor() == "the budget of its session" })
	release()
	if a := actortest.Wait(t, "the workspace", made); a.Err != nil {
		t.Error(a.Err)
	}
	if a := actortest.Wait(t, "the turn", turn); a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("%v %v", a.Reply, a.Err)
	}
}

func TestWhatNoBudgetCanBeIsRefused(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("yes")})
	if _, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{Budget: tokenBudget(-1)}); actortest.Code(err) != messages.CodeBadRequest {
		t.Errorf("a negative budget: %v", err)
	}
	s, _ := h.Create(&messages.CreateSession{})
	if _, err := actortest.Try[*messages.BudgetView](h, s, &messages.AddBudget{Add: &messages.Amounts{Tokens: 1}}); actortest.Code(err) != messages.CodeBadRequest {
		t.Errorf("more of no budget: %v", err)
	}
	s, _ = h.Create(&messages.CreateSession{Budget: tokenBudget(10)})
	for name, add := range map[string]*messages.Amounts{"nothing": {}, "less": {Tokens: -1}, "another kind": {MicroUsd: 5}} {
		if _, err := actortest.Try[*messages.BudgetView](h, s, &messages.AddBudget{Add: add}); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	usd, _ := h.Create(&messages.CreateSession{Budget: &messages.Budget{Most: &messages.Amounts{MicroUsd: 1_000_000}}})
	if res := h.Run(usd, "go"); res.GetOutcome() != messages.TurnCompleted_ERROR || !strings.Contains(res.GetReason(), "has no price") {
		t.Errorf("dollars of a model without a price: %v", res)
	}
}
