package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Ledger is a session's budget and what its workers may spend of it (ADR 55). Each worker has an account: what it has spent, or
// may spend in a call that was granted to it. Their sum never exceeds the budget, whatever the order in which they ask and report, as long as calls
// cost no more than was reserved for them. Its zero value bounds nothing.
type Ledger struct {
	budget   *messages.Budget
	accounts map[string]*account
}

type account struct {
	spent   *messages.Amounts
	granted *messages.Amounts // for a call under way; nil: there is none
	child   bool              // its time is a part of somebody else's
}

func (a *account) upto() *messages.Amounts { return a.spent.Plus(a.granted) }

// Answer is what becomes of an ask.
type Answer int

// The answers.
const (
	Granted  Answer = iota
	Later           // others have more set aside than they may need: ask again when one has settled
	Exceeded        // it does not suffice, and nothing will come back
)

// Set makes a budget count.
func (l *Ledger) Set(b *messages.Budget) { l.budget = b }

// Bounds says whether there is a budget.
func (l *Ledger) Bounds() bool { return l.budget.Bounds() }

// Pause says whether who does not get enough waits for more.
func (l *Ledger) Pause() bool { return l.budget.GetPause() }

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
func (l *Ledger) Sum() (sum *messages.Amounts, pending bool) {
	return l.sum("")
}

func (l *Ledger) sum(without string) (sum *messages.Amounts, pending bool) {
	sum = &messages.Amounts{}
	for id, a := range l.accounts {
		upto := a.upto()
		if a.child {
			upto.WallMs = 0
		}
		sum = sum.Plus(upto)
		pending = pending || a.granted != nil && id != without
	}
	return sum, pending
}

// Ask decides what a worker that has settled everything gets for its next call: what it wants, or when nobody else has anything set aside, what
// there is, if that is not less than the least. What is granted counts as spent from then on.
func (l *Ledger) Ask(worker string, want, least *messages.Amounts) (*messages.Amounts, Answer) {
	sum, pending := l.sum(worker)
	left := l.left(sum)
	switch {
	case within(want, left) && !l.over(sum):
	case pending:
		return nil, Later
	case within(least, left) && !l.over(sum):
		want = &messages.Amounts{
			Tokens: min(want.GetTokens(), left.GetTokens()), MicroUsd: min(want.GetMicroUsd(), left.GetMicroUsd()),
			ToolCalls: min(want.GetToolCalls(), left.GetToolCalls()),
		}
	default:
		return nil, Exceeded
	}
	if l.accounts[worker] == nil {
		l.Report(worker, false, nil)
	}
	l.accounts[worker].granted = want.Plus(nil)
	return want, Granted
}

// unlimited is what is left of what has no limit.
const unlimited = int64(1) << 60

func (l *Ledger) left(sum *messages.Amounts) *messages.Amounts {
	m := l.budget.GetMost()
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

// over says whether the time is up: it is not set aside, it passes.
func (l *Ledger) over(sum *messages.Amounts) bool { return l.left(sum).GetWallMs() == 0 }

// WallLeft is the time that is left; 0 without a limit.
func (l *Ledger) WallLeft() time.Duration {
	if l.budget.GetMost().GetWallMs() == 0 {
		return 0
	}
	sum, _ := l.Sum()
	return time.Duration(l.left(sum).GetWallMs()) * time.Millisecond
}

func within(a, left *messages.Amounts) bool {
	return a.GetTokens() <= left.GetTokens() && a.GetMicroUsd() <= left.GetMicroUsd() && a.GetToolCalls() <= left.GetToolCalls()
}

// Why says, for people, what does not suffice for a call that costs at least so much.
func (l *Ledger) Why(least *messages.Amounts) string {
	sum, _ := l.Sum()
	left, m := l.left(sum), l.budget.GetMost()
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
	return "the budget of the session does not suffice: " + strings.Join(out, "; ")
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

// View is the budget as it stands.
func (l *Ledger) View(waiting int) *messages.BudgetView {
	if !l.Bounds() {
		return nil
	}
	spent, reserved := &messages.Amounts{}, &messages.Amounts{}
	for _, a := range l.accounts {
		one := a.spent.Plus(nil)
		if a.child {
			one.WallMs = 0
		}
		spent, reserved = spent.Plus(one), reserved.Plus(a.granted)
	}
	return &messages.BudgetView{Most: l.budget.GetMost(), Pause: l.budget.GetPause(), Waiting: int32(waiting), Spent: spent, Reserved: reserved}
}
