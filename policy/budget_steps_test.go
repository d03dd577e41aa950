package policy_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
)

func tokens(n int64) *messages.Amounts { return &messages.Amounts{Tokens: n} }

// TestNoOrderOfAsksAndReportsGrantsMoreThanAStepsBudget nor than the session's: workers of steps, of a step within a step, and of none ask, settle less than they were
// granted, and die with a call under way; and what the steps have comes to what the session has.
func TestNoOrderOfAsksAndReportsGrantsMoreThanAStepsBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := map[string]int64{
			"": rapid.Int64Range(0, 1000).Draw(t, "all"), "a": rapid.Int64Range(1, 400).Draw(t, "a"), "b": rapid.Int64Range(1, 400).Draw(t, "b"), "b/c": rapid.Int64Range(1, 400).Draw(t, "c"),
		}
		of := map[string][]string{"w1": nil, "w2": {"a"}, "w3": {"a"}, "w4": {"b"}, "w5": {"b", "b/c"}, "w6": {"b", "b/c"}}
		var l policy.Ledger
		l.Set(&messages.Budget{Most: tokens(most[""])})
		for step, n := range most {
			if step != "" {
				l.SetStep(step, &messages.Budget{Most: tokens(n)})
			}
		}
		for w, steps := range of {
			l.Join(w, steps)
		}
		spent, granted := map[string]int64{}, map[string]int64{}
		sums := func(step string) (sum, set int64) {
			for w, steps := range of {
				if step == "" || strings.Contains(" "+strings.Join(steps, " ")+" ", " "+step+" ") {
					sum, set = sum+spent[w]+granted[w], set+granted[w]
				}
			}
			return sum, set
		}
		for range rapid.IntRange(1, 80).Draw(t, "moves") {
			w := fmt.Sprint("w", rapid.IntRange(1, 6).Draw(t, "worker"))
			switch n := granted[w]; {
			case n > 0 && rapid.Bool().Draw(t, "dies"): // nobody knows what it has spent
				spent[w], granted[w] = spent[w]+n, 0
				l.Still(w)
			case n > 0:
				spent[w], granted[w] = spent[w]+rapid.Int64Range(0, n).Draw(t, "cost"), 0
				l.Report(w, false, tokens(spent[w]))
			default:
				want := rapid.Int64Range(1, 300).Draw(t, "want")
				least := (want + 1) / 2
				l.Report(w, false, tokens(spent[w]))
				g, answer := l.Ask(w, tokens(want), tokens(least))
				waits, dry := false, false
				for _, step := range append([]string{""}, of[w]...) {
					sum, set := sums(step)
					if most[step] > 0 && want > most[step]-sum {
						waits, dry = waits || set > 0, dry || set == 0 && least > most[step]-sum
					}
				}
				if expect := map[bool]policy.Answer{true: policy.Exceeded, false: policy.Granted}[dry]; !waits && answer != expect {
					t.Fatalf("%s is answered %v, and nobody has anything set aside", w, answer)
				}
				switch short, _ := l.Short(w, tokens(least)); {
				case answer == policy.Granted:
					granted[w] = g.GetTokens()
				case answer != policy.Exceeded && !waits:
					t.Fatalf("%s is to wait for what nobody has", w)
				case answer == policy.Exceeded && (!dry || most[short] == 0):
					t.Fatalf("%s is refused for the budget of %q", w, short)
				}
				if answer == policy.Granted && (granted[w] < least || granted[w] > want) {
					t.Fatalf("%s gets %d, and wants %d to %d", w, granted[w], least, want)
				}
			}
			for step, n := range most {
				sum, set := sums(step)
				if n > 0 && sum > n {
					t.Fatalf("%d of %d of %q", sum, n, step)
				}
				kept, pending := l.SumOf(step)
				if kept.GetTokens() != sum || pending != (set > 0) {
					t.Fatalf("the ledger has %v for %q, and the parts are %d, of which %d set aside", kept, step, sum, set)
				}
				if v := cmp.Or(l.StepViews()[step], l.View(0)); n > 0 && v.GetSpent().GetTokens()+v.GetReserved().GetTokens() != sum {
					t.Fatalf("%q is shown as %v, and the parts are %d", step, v, sum)
				}
			}
		}
	})
}

func TestWhoWaitsForItsStepAloneSaysSoAndWhoseBudgetIsShortIsNamed(t *testing.T) {
	var l policy.Ledger
	l.SetStep("a", &messages.Budget{Most: tokens(100), Pause: true})
	l.SetStep("a/b", &messages.Budget{Most: tokens(90)})
	for _, w := range []string{"w1", "w2"} {
		l.Join(w, []string{"a", "a/b"})
	}
	if _, answer := l.Ask("w1", tokens(80), tokens(10)); answer != policy.Granted {
		t.Fatalf("the first is answered %v", answer)
	}
	if _, answer := l.Ask("w2", tokens(80), tokens(10)); answer != policy.Aside {
		t.Errorf("who waits for the step alone is answered %v", answer)
	}
	l.Report("w1", false, tokens(80))
	if g, answer := l.Ask("w2", tokens(80), tokens(10)); answer != policy.Granted || g.GetTokens() != 10 {
		t.Errorf("of the 10 that are left it gets %v, %v", g, answer)
	}
	l.Report("w2", false, tokens(10))
	if _, answer := l.Ask("w2", tokens(80), tokens(10)); answer != policy.Exceeded {
		t.Errorf("without any left it is answered %v", answer)
	}
	if step, pause := l.Short("w2", tokens(10)); step != "a/b" || pause {
		t.Errorf("%q is short, and it pauses: %t", step, pause)
	}
	if why := l.Why("a/b", tokens(10)); !strings.HasPrefix(why, "the budget of step a/b does not suffice: 90 of 90 tokens") {
		t.Error(why)
	}
	if step, pause := l.Short("w2", tokens(11)); step != "a/b" || pause {
		t.Errorf("of two that are short it is %q, and it pauses: %t", step, pause)
	}
	l.SetStep("a/b", &messages.Budget{Most: tokens(200)})
	if step, pause := l.Short("w2", tokens(11)); step != "a" || !pause {
		t.Errorf("%q is short, and it pauses: %t", step, pause)
	}
}

func TestTheTimeThatIsLeftIsThatOfTheTightestBudgetThatEndsTheTurn(t *testing.T) {
	var l policy.Ledger
	l.Set(&messages.Budget{Most: &messages.Amounts{WallMs: 60_000}})
	l.SetStep("a", &messages.Budget{Most: &messages.Amounts{WallMs: 10_000}})
	l.Join("w1", []string{"a"})
	l.Report("w1", false, &messages.Amounts{WallMs: 4_000})
	l.Report("w2", false, &messages.Amounts{WallMs: 50_000})
	if a, step := l.WallLeft("w1"); a != 6*time.Second || step != "" {
		t.Errorf("%s of %q are left", a, step)
	}
	l.Report("w1", false, &messages.Amounts{WallMs: 7_000})
	l.Report("w2", false, &messages.Amounts{WallMs: 20_000})
	if a, step := l.WallLeft("w1"); a != 3*time.Second || step != "a" {
		t.Errorf("%s of %q are left", a, step)
	}
	if b, step := l.WallLeft("w2"); b != 33*time.Second || step != "" {
		t.Errorf("%s of %q are left to who works for no step", b, step)
	}
	l.SetStep("a", &messages.Budget{Most: &messages.Amounts{WallMs: 5_000}, Pause: true})
	if a, step := l.WallLeft("w1"); a != 33*time.Second || step != "" {
		t.Errorf("%s of %q are left", a, step)
	}
	l.Set(nil)
	if a, _ := l.WallLeft("w1"); a != 0 {
		t.Errorf("%s are left of what waits for more", a)
	}
}
