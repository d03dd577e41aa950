package messages

import (
	"math"
	"time"

	"google.golang.org/protobuf/proto"
)

// Plus is the sum of two amounts. It stops at the largest number instead of turning negative, and what is below zero counts
// nothing: providers report what they like.
func (x *Amounts) Plus(y *Amounts) *Amounts {
	return &Amounts{
		Tokens: plus(x.GetTokens(), y.GetTokens()), MicroUsd: plus(x.GetMicroUsd(), y.GetMicroUsd()),
		ToolCalls: plus(x.GetToolCalls(), y.GetToolCalls()), WallMs: plus(x.GetWallMs(), y.GetWallMs()),
	}
}

func plus(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Zero says whether nothing is counted.
func (x *Amounts) Zero() bool {
	return x.GetTokens() == 0 && x.GetMicroUsd() == 0 && x.GetToolCalls() == 0 && x.GetWallMs() == 0
}

// Covers says whether the amounts are nowhere less than others.
func (x *Amounts) Covers(y *Amounts) bool {
	return x != nil && x.GetTokens() >= y.GetTokens() && x.GetMicroUsd() >= y.GetMicroUsd() && x.GetToolCalls() >= y.GetToolCalls() && x.GetWallMs() >= y.GetWallMs()
}

// Same says whether two amounts are.
func (x *Amounts) Same(y *Amounts) bool { return proto.Equal(x.Plus(nil), y.Plus(nil)) }

// Amounts are what the reservation sets aside.
func (x *BudgetReserved) Amounts() *Amounts {
	if x == nil {
		return &Amounts{}
	}
	return &Amounts{Tokens: x.GetTokens(), MicroUsd: x.GetMicroUsd(), ToolCalls: x.GetToolCalls()}
}

// Amounts are what was spent.
func (x *BudgetSettled) Amounts() *Amounts {
	return &Amounts{Tokens: x.GetTokens(), MicroUsd: x.GetMicroUsd(), ToolCalls: x.GetToolCalls(), WallMs: x.GetWallMs()}
}

// Bounds says whether the budget bounds anything.
func (x *Budget) Bounds() bool { return !x.GetMost().Zero() }

// AmountsJSON are amounts in their wire form. As a limit, 0 is none.
type AmountsJSON struct {
	USD       float64 `json:"usd,omitempty"`
	Tokens    int64   `json:"tokens,omitempty"`
	ToolCalls int64   `json:"tool_calls,omitempty"`
	WallMs    int64   `json:"wall_ms,omitempty"`
}

// maxAmount is the most that may be asked for of anything: sums stay far from the largest number.
const maxAmount = 1 << 50

// MicroUSD gives dollars as millionths. Something does not become nothing: as a limit, that is none.
func MicroUSD(usd float64) int64 {
	n := int64(math.Round(usd * 1e6))
	if usd > 0 {
		n = max(n, 1)
	}
	return n
}

// WallMs gives a time as milliseconds, likewise; one below zero stays so, to be refused.
func WallMs(d time.Duration) int64 {
	switch n := d.Milliseconds(); {
	case d > 0:
		return max(n, 1)
	case d < 0:
		return min(n, -1)
	}
	return 0
}

// JSON returns the amounts in their wire form.
func (x *Amounts) JSON() AmountsJSON {
	return AmountsJSON{USD: float64(x.GetMicroUsd()) / 1e6, Tokens: x.GetTokens(), ToolCalls: x.GetToolCalls(), WallMs: x.GetWallMs()}
}

// Proto is the reverse of JSON. What no budget can have is refused.
func (j AmountsJSON) Proto() (*Amounts, error) {
	a := &Amounts{Tokens: j.Tokens, ToolCalls: j.ToolCalls, WallMs: j.WallMs}
	if !(j.USD >= 0 && j.USD <= maxAmount/1e6) {
		return nil, badAmounts()
	}
	a.MicroUsd = MicroUSD(j.USD)
	if fail := a.Refuse(); fail != nil {
		return nil, fail
	}
	return a, nil
}

// Refuse says why the amounts can be no limit; nil when they can.
func (x *Amounts) Refuse() *Failure {
	for _, n := range []int64{x.GetTokens(), x.GetMicroUsd(), x.GetToolCalls(), x.GetWallMs()} {
		if n < 0 || n > maxAmount {
			return badAmounts()
		}
	}
	return nil
}

func badAmounts() *Failure {
	return Fail(CodeBadRequest, "an amount of a budget is negative or too large", "write usd, tokens, tool_calls and wall_ms between 0 and 2^50; 0 is no limit")
}

// BudgetJSON is a budget as a session is made with it.
type BudgetJSON struct {
	AmountsJSON
	OnExceed string `json:"on_exceed,omitempty"` // stop (default) | pause
	Answer   int64  `json:"answer,omitempty"`    // tokens set aside for each answer; 0: 4096
}

// JSON returns the budget in its wire form, nil for none.
func (x *Budget) JSON() *BudgetJSON {
	if x == nil {
		return nil
	}
	return &BudgetJSON{AmountsJSON: x.GetMost().JSON(), OnExceed: onExceed(x.GetPause()), Answer: x.GetAnswer()}
}

// Proto is the reverse of JSON.
func (j *BudgetJSON) Proto() (*Budget, error) {
	if j == nil {
		return nil, nil
	}
	most, err := j.AmountsJSON.Proto()
	if err != nil {
		return nil, err
	}
	if j.OnExceed != "" && j.OnExceed != "stop" && j.OnExceed != "pause" {
		return nil, Fail(CodeBadRequest, "on_exceed is neither stop nor pause", "one of stop, pause")
	}
	b := &Budget{Most: most, Pause: j.OnExceed == "pause", Answer: j.Answer}
	if fail := b.Refuse(); fail != nil {
		return nil, fail
	}
	return b, nil
}

// Refuse says why a session cannot have the budget; nil when it can.
func (x *Budget) Refuse() *Failure {
	if a := x.GetAnswer(); a < 0 || a > 1<<20 {
		return Fail(CodeBadRequest, "the tokens set aside for an answer are negative or too many", "write a number up to 1048576; 0 is 4096")
	}
	return x.GetMost().Refuse()
}

func onExceed(pause bool) string {
	if pause {
		return "pause"
	}
	return "stop"
}

// BudgetViewJSON is a budget as it stands.
type BudgetViewJSON struct {
	Limits   AmountsJSON `json:"limits"`
	Spent    AmountsJSON `json:"spent"`
	Reserved AmountsJSON `json:"reserved"`
	OnExceed string      `json:"on_exceed"`
	Waiting  int32       `json:"waiting,omitempty"` // workers whose turn waits for more
}

// JSON returns the view in its wire form, nil for none.
func (x *BudgetView) JSON() *BudgetViewJSON {
	if x == nil {
		return nil
	}
	return &BudgetViewJSON{
		Limits: x.GetMost().JSON(), Spent: x.GetSpent().JSON(), Reserved: x.GetReserved().JSON(), OnExceed: onExceed(x.GetPause()), Waiting: x.GetWaiting(),
	}
}

// StepBudgetJSON is the budget of a step of a run, as it stands.
type StepBudgetJSON struct {
	Step   string         `json:"step"`
	Budget BudgetViewJSON `json:"budget"`
}

// JSON returns the budget of a step in its wire form.
func (x *StepBudgetView) JSON() StepBudgetJSON {
	j := StepBudgetJSON{Step: x.GetStep()}
	if b := x.GetBudget().JSON(); b != nil {
		j.Budget = *b
	}
	return j
}

// Proto is the reverse of JSON.
func (j StepBudgetJSON) Proto() *StepBudgetView {
	return &StepBudgetView{Step: j.Step, Budget: j.Budget.Proto()}
}

// Proto is the reverse of JSON.
func (j BudgetViewJSON) Proto() *BudgetView {
	return &BudgetView{
		Most: j.Limits.amounts(), Spent: j.Spent.amounts(), Reserved: j.Reserved.amounts(), Pause: j.OnExceed == "pause", Waiting: j.Waiting,
	}
}

// amounts are what a server says: they are not held to what can be asked for.
func (j AmountsJSON) amounts() *Amounts {
	return &Amounts{Tokens: j.Tokens, MicroUsd: int64(math.Round(j.USD * 1e6)), ToolCalls: j.ToolCalls, WallMs: j.WallMs}
}

// Within is the budget that keeps to another one, too: of each limit the tighter one. What becomes of a turn for which it does not suffice, and how long answers may
// be, the first says, when there is one.
func (x *Budget) Within(other *Budget) *Budget {
	if !x.Bounds() {
		return other
	}
	b := proto.CloneOf(x)
	tighter := func(limit *int64, n int64) {
		if n > 0 && (*limit == 0 || n < *limit) {
			*limit = n
		}
	}
	tighter(&b.Most.Tokens, other.GetMost().GetTokens())
	tighter(&b.Most.MicroUsd, other.GetMost().GetMicroUsd())
	tighter(&b.Most.ToolCalls, other.GetMost().GetToolCalls())
	tighter(&b.Most.WallMs, other.GetMost().GetWallMs())
	if b.GetAnswer() == 0 {
		b.Answer = other.GetAnswer()
	}
	return b
}

// Tighter is the budget that keeps to another one, too, and waits for more only where both do.
func (x *Budget) Tighter(other *Budget) *Budget {
	if !x.Bounds() || !other.Bounds() {
		return x.Within(other)
	}
	b := x.Within(other)
	b.Pause = x.GetPause() && other.GetPause()
	return b
}

// AddBudgetJSON asks for more budget.
type AddBudgetJSON struct {
	AmountsJSON
	By       string `json:"by,omitempty"`
	ChangeID string `json:"change_id,omitempty"` // the same id again changes nothing
	Step     string `json:"step,omitempty"`      // of the session's run, whose budget is meant; absent: the session's
}

// AddBudgetFrom is the body of a command.
func AddBudgetFrom(m *AddBudget) AddBudgetJSON {
	return AddBudgetJSON{AmountsJSON: m.GetAdd().JSON(), By: m.GetBy(), ChangeID: m.GetChangeId(), Step: m.GetStep()}
}

// Proto is the command.
func (j AddBudgetJSON) Proto() (*AddBudget, error) {
	add, err := j.AmountsJSON.Proto()
	if err != nil {
		return nil, err
	}
	return &AddBudget{Add: add, By: j.By, ChangeId: j.ChangeID, Step: j.Step}, nil
}

// More is the budget with so much more of what it bounds. What it does not bound stays so.
func (x *Budget) More(add *Amounts) *Budget {
	b := proto.CloneOf(x)
	more := func(limit *int64, n int64) {
		if *limit > 0 {
			*limit = min(plus(*limit, n), maxAmount)
		}
	}
	if b.Most == nil {
		b.Most = &Amounts{}
	}
	more(&b.Most.Tokens, add.GetTokens())
	more(&b.Most.MicroUsd, add.GetMicroUsd())
	more(&b.Most.ToolCalls, add.GetToolCalls())
	more(&b.Most.WallMs, add.GetWallMs())
	return b
}
