package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// A step may have a budget, and so may a file that a step runs. What a step spends with all of its items and attempts, and what the steps below it spend, counts in
// both, and in the run's (docs/budgets.md).

// Message is the budget as sessions have it.
func (b *Budget) Message() *messages.Budget {
	return &messages.Budget{
		Most: &messages.Amounts{Tokens: b.Tokens, MicroUsd: b.MicroUSD, WallMs: messages.WallMs(b.Wall)}, Pause: b.OnExceed == "pause",
	}
}

// Budgets are those that the items of a step spend from besides the run's, the widest first. That of a file which a step runs goes by the path below which its steps are.
func (ss *StepState) Budgets() (out []*messages.StepBudget) {
	add := func(path string, b *Budget) {
		if b == nil {
			return
		}
		if n := len(out); n > 0 && out[n-1].GetStep() == path {
			out[n-1].Budget = out[n-1].GetBudget().Tighter(b.Message())
			return
		}
		out = append(out, &messages.StepBudget{Step: path, Budget: b.Message()})
	}
	for {
		add(ss.Path, ss.Step.Budget)
		sc := ss.scope
		if sc.owner == nil {
			break
		}
		add(strings.TrimSuffix(sc.prefix, "/"), sc.file.Budget)
		ss = sc.owner.step
	}
	slices.Reverse(out)
	return out
}

// budgets checks the budget of a step.
func (c *checker) budgets(st *Step) {
	b, all := st.Budget, c.f.Budget
	if b == nil {
		return
	}
	no := func(is bool, what, fix string) {
		if is {
			c.fail(b.at, fmt.Sprintf("step %q: %s", st.ID, what), fix)
		}
	}
	no(st.Kind == ToolStep || st.Kind == HumanStep, "a budget is for what asks models", "leave it out")
	no(b.MicroUSD == 0 && b.Tokens == 0 && b.Wall == 0, "its budget bounds nothing", "write for example: budget: {usd: 0.50, tokens: 20000}")
	if all == nil {
		return
	}
	over := func(kind string, part, whole int64) {
		no(whole > 0 && part > whole, fmt.Sprintf("its budget has more %s than that of the whole pipeline, from which it is taken", kind), "make it smaller, or the pipeline's larger")
	}
	over("usd", b.MicroUSD, all.MicroUSD)
	over("tokens", b.Tokens, all.Tokens)
	over("wall time", int64(b.Wall), int64(all.Wall))
}

// Overdrawn says of what the budgets of steps come to more than the whole pipeline has: then one of them may find less than its own (ADR 118).
func (f *File) Overdrawn() (notes []string) {
	if f.Budget == nil {
		return nil
	}
	sum := &Budget{}
	for _, st := range f.Steps {
		if st.Budget != nil {
			sum.Tokens, sum.MicroUSD, sum.Wall = sum.Tokens+st.Budget.Tokens, sum.MicroUSD+st.Budget.MicroUSD, sum.Wall+st.Budget.Wall
		}
	}
	note := func(over bool, parts, whole string) {
		if over {
			notes = append(notes, fmt.Sprintf("the budgets of its steps come to %s, and the whole pipeline has %s: nothing is kept free, so one of them may find less than its own", parts, whole))
		}
	}
	note(f.Budget.Tokens > 0 && sum.Tokens > f.Budget.Tokens, fmt.Sprintf("%d tokens", sum.Tokens), fmt.Sprint(f.Budget.Tokens))
	note(f.Budget.MicroUSD > 0 && sum.MicroUSD > f.Budget.MicroUSD, fmt.Sprintf("$%.2f", float64(sum.MicroUSD)/1e6), fmt.Sprintf("$%.2f", float64(f.Budget.MicroUSD)/1e6))
	note(f.Budget.Wall > 0 && sum.Wall > f.Budget.Wall, sum.Wall.String(), f.Budget.Wall.String())
	return notes
}
