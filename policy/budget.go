package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Ledger is a session's budget and what its workers may spend of it (ADR 55), and the budgets of the steps of its run, which are parts of it (ADR 92). Each worker
// has an account: what it has spent, or may spend in a call that was granted to it. Their sum never exceeds the budget, and that of those who work for a step never
// exceeds the step's, whatever the order in which they ask and report, as long as calls cost no more than was reserved for them. Its zero value bounds nothing.
type Ledger struct {
	budget   *messages.Budget
	accounts map[string]*account
	steps    map[string]*messages.Budget
	spends   map[string][]string // the steps whose budgets a worker spends from
}

type account struct {
	spent   *messages.Amounts
	granted *messages.Amounts // for a call under way; nil: there is none
	child   bool              // its time is a part of somebody else's
}

func (a *account) upto() *messages.Amounts { return a.spent.Plus(a.granted) }

// own is what was spent, without time that is a part of somebody else's.
func (a *account) own() *messages.Amounts {
	one := a.spent.Plus(nil)
	if a.child {
		one.WallMs = 0
	}
	return one
}

// Answer is what becomes of an ask.
type Answer int

// The answers.
const (
	Granted  Answer = iota
	Aside           // others who work for the same step have more of its budget set aside than they may need: ask again when one has settled
	Later           // the same of the session's budget
	Exceeded        // it does not suffice, and nothing will come back
)

// Set makes a budget count.
func (l *Ledger) Set(b *messages.Budget) { l.budget = b }

// SetStep makes the budget of a step count.
func (l *Ledger) SetStep(step string, b *messages.Budget) {
	if l.steps == nil {
		l.steps = make(map[string]*messages.Budget)
	}
	l.steps[step] = b
}

// Join says from which steps' budgets a worker spends besides the session's.
func (l *Ledger) Join(worker string, steps []string) {
	if l.spends == nil {
		l.spends = make(map[string][]string)
	}
	if l.spends[worker] = steps; len(steps) == 0 {
		delete(l.spends, worker)
	}
}

// Steps are the steps whose budgets a worker spends from besides the session's.
func (l *Ledger) Steps(worker string) []string { return l.spends[worker] }

// whole is the scope of a session's own budget, among those of steps.
const whole = ""

// scopes are what a worker spends from: the session's budget, then those of steps.
func (l *Ledger) scopes(worker string) []string { return append([]string{whole}, l.spends[worker]...) }

func (l *Ledger) most(scope string) *messages.Budget {
	if scope == whole {
		return l.budget
	}
	return l.steps[scope]
}

// Bounds says whether there is a budget.
func (l *Ledger) Bounds() bool { return l.budget.Bounds() }

// Report notes what a worker has spent, while it has nothing set aside.
func (l *Ledger) Report(worker string, child bool, spent *messages.Amounts) {
	if l.accounts == nil {
		l.accounts = make(map[string]*account)
	}
	l.accounts[worker] = &account{spent: spent.Plus(nil), child: child}
}

// Assume notes up to where a worker may have spent that will report: some of it may come back.
func (l *Ledger) Assume(worker string, child bool, upto *messages.Amounts) {
	l.Report(worker, child, nil)
	l.accounts[worker].granted = upto.Plus(nil)
}

// Still says that nothing of what a worker may spend comes back by itself: it is out of service. What it was granted counts.
func (l *Ledger) Still(worker string) {
	if a := l.accounts[worker]; a != nil {
		a.spent, a.granted = a.upto(), nil
	}
}

// Upto is what a worker has spent or may spend.
func (l *Ledger) Upto(worker string) *messages.Amounts {
	if a := l.accounts[worker]; a != nil {
		return a.upto()
	}
	return &messages.Amounts{}
}

// Sum is what all workers have spent or may spend, and whether some of it may come back.
func (l *Ledger) Sum() (sum *messages.Amounts, pending bool) { return l.sum(whole, "") }

// SumOf is Sum of those who spend from the budget of a step.
func (l *Ledger) SumOf(step string) (sum *messages.Amounts, pending bool) { return l.sum(step, "") }

func (l *Ledger) sum(scope, without string) (sum *messages.Amounts, pending bool) {
	sum = &messages.Amounts{}
	for id, a := range l.accounts {
		if scope != whole && !slices.Contains(l.spends[id], scope) {
			continue
		}
		upto := a.upto()
		if a.child {
			upto.WallMs = 0
		}
		sum = sum.Plus(upto)
		pending = pending || a.granted != nil && id != without
	}
	return sum, pending
}

// Ask decides what a worker that has settled everything gets for its next call: what it wants, or when nobody else has anything set aside of what does not
// suffice for that, what there is, if that is not less than the least. What is granted counts as spent from then on.
func (l *Ledger) Ask(worker string, want, least *messages.Amounts) (*messages.Amounts, Answer) {
	granted, answer := want.Plus(nil), Granted
	for _, scope := range l.scopes(worker) {
		sum, pending := l.sum(scope, worker)
		left := l.left(scope, sum)
		switch {
		case within(want, left) && left.GetWallMs() > 0:
		case pending && scope == whole:
			answer = Later
		case pending:
			answer = max(answer, Aside)
		case within(least, left) && left.GetWallMs() > 0:
			granted.Tokens, granted.MicroUsd = min(granted.GetTokens(), left.GetTokens()), min(granted.GetMicroUsd(), left.GetMicroUsd())
			granted.ToolCalls = min(granted.GetToolCalls(), left.GetToolCalls())
		default:
			return nil, Exceeded
		}
	}
	if answer != Granted {
		return nil, answer
	}
	if l.accounts[worker] == nil {
		l.Report(worker, false, nil)
	}
	l.accounts[worker].granted = granted
	return granted.Plus(nil), Granted
}

// Short says which budget does not suffice for a call that costs at least so much, and to which nothing comes back: the step's, or "" for the session's; and whether
// who needs it waits for more. Of several it is one that ends the turn, if there is one.
func (l *Ledger) Short(worker string, least *messages.Amounts) (step string, pause bool) {
	found := false
	for _, scope := range l.scopes(worker) {
		sum, pending := l.sum(scope, worker)
		if left := l.left(scope, sum); pending || within(least, left) && left.GetWallMs() > 0 {
			continue
		}
		if !l.most(scope).GetPause() {
			return scope, false
		}
		if !found {
			step, found = scope, true
		}
	}
	return step, found
}

// unlimited is what is left of what has no limit.
const unlimited = int64(1) << 60

func (l *Ledger) left(scope string, sum *messages.Amounts) *messages.Amounts {
	m := l.most(scope).GetMost()
	rest := func(most, spent int64) int64 {
		if most <= 0 {
			return unlimited
		}
		return max(0, most-spent)
	}
	return &messages.Amounts{
		Tokens: rest(m.GetTokens(), sum.GetTokens()), MicroUsd: rest(m.GetMicroUsd(), sum.GetMicroUsd()),
		ToolCalls: rest(m.GetToolCalls(), sum.GetToolCalls()), WallMs: rest(m.GetWallMs(), sum.GetWallMs()),
	}
}

// WallLeft is the time that is left to a worker before its turn ends: time is not set aside, it passes. 0 without a limit, and where it would wait for more. step is
// whose time that is; "": the session's.
func (l *Ledger) WallLeft(worker string) (left time.Duration, step string) {
	least := unlimited
	for _, scope := range l.scopes(worker) {
		if b := l.most(scope); b.GetMost().GetWallMs() > 0 && !b.GetPause() {
			sum, _ := l.sum(scope, "")
			if ms := l.left(scope, sum).GetWallMs(); ms < least {
				least, step = ms, scope
			}
		}
	}
	if least == unlimited {
		return 0, ""
	}
	return time.Duration(least) * time.Millisecond, step
}

func within(a, left *messages.Amounts) bool {
	return a.GetTokens() <= left.GetTokens() && a.GetMicroUsd() <= left.GetMicroUsd() && a.GetToolCalls() <= left.GetToolCalls()
}

// Why says, for people, what of a budget does not suffice for a call that costs at least so much; "" is the session's budget.
func (l *Ledger) Why(step string, least *messages.Amounts) string {
	sum, _ := l.sum(step, "")
	left, m, whose := l.left(step, sum), l.most(step).GetMost(), "the session"
	if step != whole {
		whose = "step " + step
	}
	var out []string
	say := func(short bool, format string, args ...any) {
		if short {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(least.GetTokens() > left.GetTokens(), "%d of %d tokens are spent, and the next model call needs at least %d", sum.GetTokens(), m.GetTokens(), least.GetTokens())
	say(least.GetMicroUsd() > left.GetMicroUsd(), "$%s of $%s are spent, and the next model call may cost $%s", dollars(sum.GetMicroUsd()), dollars(m.GetMicroUsd()), dollars(least.GetMicroUsd()))
	say(least.GetToolCalls() > left.GetToolCalls(), "%d of %d tool calls are made", sum.GetToolCalls(), m.GetToolCalls())
	say(left.GetWallMs() == 0, "%s of %s have passed", millis(sum.GetWallMs()), millis(m.GetWallMs()))
	return "the budget of " + whose + " does not suffice: " + strings.Join(out, "; ")
}

func millis(ms int64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second / 10)
}

func dollars(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Parts are the accounts.
func (l *Ledger) Parts() map[string]*messages.BudgetView {
	out := make(map[string]*messages.BudgetView, len(l.accounts))
	for id, a := range l.accounts {
		out[id] = &messages.BudgetView{Spent: a.spent, Reserved: a.granted}
	}
	return out
}

// StepViews are the budgets of all steps as they stand.
func (l *Ledger) StepViews() map[string]*messages.BudgetView {
	out := make(map[string]*messages.BudgetView, len(l.steps))
	for step, b := range l.steps {
		if b == nil {
			continue // it has none any more
		}
		out[step] = &messages.BudgetView{Most: b.GetMost(), Pause: b.GetPause(), Spent: &messages.Amounts{}, Reserved: &messages.Amounts{}}
	}
	for id, steps := range l.spends {
		a := l.accounts[id]
		if a == nil {
			continue
		}
		for _, step := range steps {
			if v := out[step]; v != nil {
				v.Spent, v.Reserved = v.GetSpent().Plus(a.own()), v.GetReserved().Plus(a.granted)
			}
		}
	}
	return out
}

// View is the budget as it stands.
func (l *Ledger) View(waiting int) *messages.BudgetView {
	if !l.Bounds() {
		return nil
	}
	spent, reserved := &messages.Amounts{}, &messages.Amounts{}
	for _, a := range l.accounts {
		spent, reserved = spent.Plus(a.own()), reserved.Plus(a.granted)
	}
	return &messages.BudgetView{Most: l.budget.GetMost(), Pause: l.budget.GetPause(), Waiting: int32(waiting), Spent: spent, Reserved: reserved}
}
