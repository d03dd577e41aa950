package policy_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
)

// TestNoOrderOfAsksAndReportsGrantsMoreThanTheBudget: workers ask, settle less than they were granted, die with a call under way, and report.
func TestNoOrderOfAsksAndReportsGrantsMoreThanTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := &messages.Amounts{Tokens: rapid.Int64Range(1, 1000).Draw(t, "tokens"), MicroUsd: rapid.Int64Range(0, 50).Draw(t, "usd"), ToolCalls: rapid.Int64Range(0, 20).Draw(t, "calls")}
		var l policy.Ledger
		l.Set(&messages.Budget{Most: most})
		spent, granted := map[string]*messages.Amounts{}, map[string]*messages.Amounts{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := fmt.Sprint("w", rapid.IntRange(1, 4).Draw(t, "worker"))
			g := granted[w]
			switch {
			case g != nil: // settle: all of it, or less
				part := func(n int64) int64 { return rapid.Int64Range(0, n).Draw(t, "cost") }
				spent[w] = spent[w].Plus(&messages.Amounts{Tokens: part(g.GetTokens()), MicroUsd: part(g.GetMicroUsd()), ToolCalls: part(g.GetToolCalls())})
				delete(granted, w)
				l.Report(w, false, spent[w])
			default:
				want := &messages.Amounts{Tokens: rapid.Int64Range(1, 400).Draw(t, "want"), MicroUsd: rapid.Int64Range(0, 20).Draw(t, "dear"), ToolCalls: rapid.Int64Range(0, 5).Draw(t, "often")}
				l.Report(w, false, spent[w])
				a, answer := l.Ask(w, want, &messages.Amounts{Tokens: (want.GetTokens() + 1) / 2})
				if answer == policy.Later && len(granted) == 0 {
					t.Fatal("it is to wait for what nobody has")
				}
				if answer == policy.Granted {
					granted[w] = a
				}
			}
			sum := &messages.Amounts{}
			for _, all := range []map[string]*messages.Amounts{spent, granted} {
				for _, a := range all {
					sum = sum.Plus(a)
				}
			}
			if sum.GetTokens() > most.GetTokens() || most.GetMicroUsd() > 0 && sum.GetMicroUsd() > most.GetMicroUsd() || most.GetToolCalls() > 0 && sum.GetToolCalls() > most.GetToolCalls() {
				t.Fatalf("%v of %v", sum, most)
			}
			if kept, _ := l.Sum(); !kept.Same(sum) {
				t.Fatalf("the ledger has %v, and the parts are %v", kept, sum)
			}
		}
	})
}

func TestAmountsNeverTurnNegative(t *testing.T) {
	huge := &messages.Amounts{Tokens: math.MaxInt64, MicroUsd: -5}
	if sum := huge.Plus(huge); sum.GetTokens() != math.MaxInt64 || sum.GetMicroUsd() != 0 {
		t.Errorf("%v", sum)
	}
	var l policy.Ledger
	l.Set(&messages.Budget{Most: &messages.Amounts{Tokens: 10}})
	l.Report("a", false, huge)
	if _, answer := l.Ask("b", &messages.Amounts{Tokens: 1}, &messages.Amounts{Tokens: 1}); answer != policy.Exceeded {
		t.Errorf("answer %v after a provider that reports more than there is", answer)
	}
}

func TestATightRestIsGrantedWhenNobodyWillGiveAnythingBack(t *testing.T) {
	var l policy.Ledger
	l.Set(&messages.Budget{Most: &messages.Amounts{Tokens: 100}})
	want, least := &messages.Amounts{Tokens: 80}, &messages.Amounts{Tokens: 30}
	l.Report("a", false, nil)
	l.Report("b", false, nil)
	if g, answer := l.Ask("a", want, least); answer != policy.Granted || g.GetTokens() != 80 {
		t.Fatalf("%v, %v", g, answer)
	}
	if _, answer := l.Ask("b", want, least); answer != policy.Later {
		t.Errorf("answer %v while another has 80 set aside", answer)
	}
	l.Report("a", false, &messages.Amounts{Tokens: 60})
	if g, answer := l.Ask("b", want, least); answer != policy.Granted || g.GetTokens() != 40 {
		t.Errorf("%v, %v of the 40 that are left", g, answer)
	}
	l.Still("b")
	if _, answer := l.Ask("a", want, least); answer != policy.Exceeded {
		t.Errorf("answer %v when all is spent", answer)
	}
}
