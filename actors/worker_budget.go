package actors

import (
	"cmp"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// How a worker pays its model calls, when its session has a budget (ADR 55): it asks its Session for what the next call may cost at
// most, sets that aside in the append that starts the call, and settles in the append that ends it. A call that nothing was set aside for is not made (I15).

// purse is what the worker knows of the payment of its next, or newest, call.
type purse struct {
	asks     uint64            // numbers them; begins anew with the epoch
	asking   bool              // the newest is not answered
	granted  *messages.Amounts // for the next call
	wanted   estimate          // that it was asked for with
	charge   *messages.Amounts // what the call that ended has cost, until that is settled
	asked    time.Time         // for the newest
	pause    pause
	wallLeft time.Duration
	wallStep string    // whose time that is; "": the session's
	wall     act.Timer // of the session
}

// estimate is the upper bound of a call.
type estimate struct {
	input  int64 // tokens of the request
	answer int64 // most tokens of the answer
	price  Price
}

// Bounds of one call. An estimate of tokens may be a third too low (docs/adr/0023-compaction.md); an answer of less than leastAnswer tokens
// is not worth its request.
const (
	defaultAnswer = 4096
	leastAnswer   = 256
	callsAtOnce   = 16 // tool calls that are set aside for one answer
	framing       = 64 // tokens of what stands around a request
)

// shortOfBudget is the class of a call for which too little was set aside.
const shortOfBudget model.Class = "budget"

// room is how many tokens the answer may have; 0 when nothing bounds it.
func (w *Worker) room() int64 {
	r := w.state.Reserved()
	return r.GetTokens() - r.GetInputTokens()
}

// atMost is the upper bound of an estimate of tokens.
func atMost(tokens int) int64 { return int64(tokens) + int64(tokens)/2 + framing }

// budgetWallUp ends a turn for which no time of the session is left.
type budgetWallUp struct {
	gen  uint64
	turn string
}

// budget is that of the session, nil when it has none.
func (w *Worker) budget() *messages.Budget { return w.newest.GetBudget() }

func (w *Worker) budgeted() bool { return w.budget().Bounds() }

// cost is what so many tokens cost at most.
func (e estimate) cost(input, output int64) int64 {
	return int64(float64(input)*max(e.price.Input, e.price.Cached)+float64(output)*e.price.Output) + 1
}

func (e estimate) amounts(answer int64, calls int64) *messages.Amounts {
	a := &messages.Amounts{Tokens: e.input + answer, ToolCalls: calls}
	if e.price != (Price{}) {
		a.MicroUsd = e.cost(e.input, answer)
	}
	return a
}

// pay asks for what a call whose request is about so many tokens may cost. refused ends what wanted it when it cannot be paid.
func (w *Worker) pay(c actor.Context, tokens int, offersTools bool, refused func(actor.Context, conversation.Complete)) {
	b := w.budget()
	resolved, err := w.svc.Models.Resolve(w.nextModel())
	if err == nil && b.GetMost().GetMicroUsd() > 0 && resolved.Price == (Price{}) && !resolved.Free {
		err = fmt.Errorf("the budget is in US dollars, and model %q has no price: set models.ALIAS.price, or bound tokens", w.state.Model())
	}
	if err != nil {
		refused(c, conversation.Complete{Outcome: messages.TurnCompleted_ERROR, Reason: err.Error(), Code: string(model.NotFound)})
		return
	}
	e := estimate{input: atMost(tokens), answer: cmp.Or(b.GetAnswer(), defaultAnswer), price: resolved.Price}
	if window := resolved.Context; window > 0 {
		e.answer = max(leastAnswer, min(e.answer, window-int64(tokens)))
	}
	calls, least := int64(0), int64(0)
	if offersTools && b.GetMost().GetToolCalls() > 0 {
		calls, least = callsAtOnce, 1
	}
	p := &w.purse
	if p.asks == 0 {
		p.asks = w.journal.Lease().Epoch << 16
	}
	p.asks++
	p.asking, p.wanted, p.asked, p.pause.away = true, e, w.svc.Now(), false
	w.become((*Worker).generating, stateWaiting)
	c.Send(c.Parent(), &messages.AskBudget{
		WorkerId: w.id, Ask: p.asks, Spent: w.state.Committed(), Want: e.amounts(e.answer, calls), Least: e.amounts(min(leastAnswer, e.answer), least),
	})
}

// budgetAnswered is for a worker that waits for the answer.
func (w *Worker) budgetAnswered(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.BudgetGranted:
		w.budgetGranted(c, m)
	case *messages.BudgetRefused:
		w.budgetRefused(c, m)
	case *messages.BudgetShort:
		w.budgetShort(c, m)
	case *holdOver:
		if w.hold.Fresh(m.gen) {
			w.hold.Stop()
			w.letGo(c)
		}
	}
}

// aboutBudget is for any other state.
func (w *Worker) aboutBudget(c actor.Context) {
	switch m := c.Message().(type) {
	case *budgetWallUp:
		w.budgetWallUp(c, m)
	case *messages.BudgetGranted: // too late
		w.returnBudget(c)
	default:
		w.stale(c)
	}
}

// budgetGranted goes on with what waited for it.
func (w *Worker) budgetGranted(c actor.Context, m *messages.BudgetGranted) {
	p := &w.purse
	switch {
	case p.asking && m.GetAsk() != p.asks:
		return // to an older ask, which this one has taken the place of
	case !p.asking:
		w.returnBudget(c)
		return
	}
	w.unpause(c)
	if p.pause.away {
		w.returnBudget(c)
		w.lease(c, w.goOn)
		return
	}
	p.asking, p.granted = false, m.GetAmounts()
	p.wallLeft, p.wallStep = time.Duration(m.GetWallLeftMs())*time.Millisecond, m.GetStep()
	if w.compacting != nil {
		w.summarise(c)
		return
	}
	w.advance(c)
}

// budgetRefused ends what cannot be paid.
func (w *Worker) budgetRefused(c actor.Context, m *messages.BudgetRefused) {
	p := &w.purse
	if !p.asking || m.GetAsk() != p.asks {
		return
	}
	p.asking = false
	w.unpause(c)
	if w.compacting != nil {
		w.fallBack(c, m.GetReason(), nil)
		return
	}
	end := conversation.OverBudget(m.GetReason() + "; more: " + moreBudget(w.session, m.GetStep()))
	if m.GetUnavailable() {
		end = conversation.Complete{Outcome: messages.TurnCompleted_ERROR, Reason: m.GetReason(), Code: messages.CodeUnavailable}
	}
	w.overBudget(c, end)
}

// moreBudget is what a person types to give a session, or a step of its run, more.
func moreBudget(session, step string) string {
	if step == "" {
		return "troupe budget add " + session
	}
	return fmt.Sprintf("troupe budget add %s --step %q", session, step)
}

func (w *Worker) overBudget(c actor.Context, end conversation.Complete) {
	if t := w.state.Turn(); t == nil || t.Cancelled != nil {
		w.advance(c)
		return
	}
	w.append(c, nil, w.turnDone, w.completed(end))
}

// reservation sets aside what was granted for a call, which is taken by it. It comes right behind the start of the call.
func (w *Worker) reservation() *messages.BudgetReserved {
	p := &w.purse
	g, e := p.granted, p.wanted
	p.granted, p.charge = nil, nil
	answer := min(e.answer, g.GetTokens()-e.input)
	if most := w.budget().GetMost(); most.GetMicroUsd() > 0 && e.price.Output > 0 {
		answer = min(answer, int64(float64(g.GetMicroUsd()-e.cost(e.input, 0))/e.price.Output))
	}
	r := &messages.BudgetReserved{InputTokens: e.input, Tokens: e.input + max(answer, 1), ToolCalls: g.GetToolCalls(), Short: answer < e.answer, WaitedMs: p.pause.waited.Milliseconds()}
	p.pause.waited = 0
	if e.price != (Price{}) {
		r.MicroUsd = e.cost(e.input, max(answer, 1))
	}
	return r
}

// paid are the facts of the start of a call: with what is set aside for it, when that is asked for.
func (w *Worker) paid(started *messages.GenerationStarted) []proto.Message {
	if w.purse.granted == nil {
		return []proto.Message{started}
	}
	return []proto.Message{started, w.reservation()}
}

// unpaid says why a call must not be made; nil when it may.
func (w *Worker) unpaid() error {
	if w.budgeted() && w.state.Reserved() == nil {
		return &model.Error{Class: model.BadRequest, Message: "nothing of the session's budget was set aside for the call"}
	}
	return nil
}

// charged notes what a call has cost that has ended: as the provider says; else, what can have been billed of it.
func (w *Worker) charged(g *generation, done *model.Completion, err error) {
	r := w.state.Reserved()
	if r == nil {
		return
	}
	u := priced(proto.CloneOf(done.Usage), g.model.Price)
	a := &messages.Amounts{Tokens: max(u.GetInputTokens(), 0) + max(u.GetOutputTokens(), 0), MicroUsd: u.GetCostMicroUsd()}
	if a.Tokens == 0 && !neverBilled(done, err) {
		out := int64(conversation.EstimateTokens(done.Text) + conversation.EstimateTokens(done.Reasoning))
		for _, call := range done.ToolCalls {
			out += int64(conversation.EstimateTokens(call.GetName()) + conversation.EstimateTokens(call.GetArguments()))
		}
		a.Tokens = min(r.GetInputTokens()+out, r.GetTokens())
		if g.model.Price != (Price{}) {
			a.MicroUsd = min(estimate{price: g.model.Price}.cost(r.GetInputTokens(), out), r.GetMicroUsd())
		}
	}
	w.purse.charge = a
}

// neverBilled says whether a call has failed before anything was answered.
func neverBilled(done *model.Completion, err error) bool {
	me, ok := err.(*model.Error) //nolint:errorlint // a model yields it bare
	if !ok || done.Text != "" || done.Reasoning != "" || len(done.ToolCalls) > 0 {
		return false
	}
	switch me.Class {
	case model.RateLimited, model.Overloaded, model.ContextLength, model.Auth, model.BadRequest, model.NotFound, model.Unmatched:
		return true
	case model.Truncated, model.Protocol, model.Timeout:
	}
	return false
}

// settling adds to facts that are about to be written what they settle: a call that is over, and the calls of tools that its answer makes. What
// is there of an earlier activation is lost.
func (w *Worker) settling(facts []proto.Message) []proto.Message {
	r := w.state.Reserved()
	if r == nil && !w.budgeted() {
		return facts
	}
	over := r != nil && w.gen == nil
	f := &messages.BudgetSettled{ToolCalls: w.plannedIn(facts)}
	if over {
		f.GenId = r.GetGenId()
		if a := w.purse.charge; a != nil {
			f.Tokens, f.MicroUsd = a.GetTokens(), a.GetMicroUsd()
		} else {
			f.Tokens, f.MicroUsd, f.Lost = r.GetTokens(), r.GetMicroUsd(), true
		}
		w.purse.charge = nil
	}
	ends := false
	for _, fact := range facts {
		_, is := fact.(*messages.TurnCompleted)
		ends = ends || is
	}
	if t := w.state.Turn(); t != nil && (over || ends) && (w.state.Parent() == "" || w.state.Background()) {
		f.WallMs = max(0, w.worked(t)-t.BilledMs)
	}
	if !over && f.GetToolCalls() == 0 && f.GetWallMs() == 0 {
		return facts
	}
	return append(facts, f)
}

// worked is how long activations have spent on a turn by now, in milliseconds, without waits for people.
func (w *Worker) worked(t *conversation.Turn) int64 {
	ms := t.WorkedMs
	if w.activated && !w.asksPeople() {
		ms += max(0, w.svc.Now().UnixMilli()-w.state.At())
	}
	return max(0, ms-w.purse.pause.until(w.svc.Now()).Milliseconds())
}

// plannedIn counts the calls that facts plan, but for those that were refused for want of budget.
func (w *Worker) plannedIn(facts []proto.Message) (n int64) {
	if t := w.state.Turn(); t == nil || t.Program() {
		return 0
	}
	for _, fact := range facts {
		switch f := fact.(type) {
		case *messages.ToolPlanned:
			n++
		case *messages.ToolFinished:
			if f.GetErrorCode() == tools.CodeBudgetExceeded && w.state.Turn().Call(f.GetExecId()) == nil {
				n--
			}
		}
	}
	return n
}

// callsLeft is how many calls of tools the answer that is being planned may make; negative: as many as it likes.
func (w *Worker) callsLeft() int {
	if t := w.state.Turn(); w.budget().GetMost().GetToolCalls() == 0 || t == nil || t.Program() {
		return -1
	}
	return int(w.state.Reserved().GetToolCalls())
}

func tooManyCalls(p *messages.ToolPlanned) *messages.ToolFinished {
	return refusal(p, messages.ToolFinished_ERROR, tools.Errorf(tools.CodeBudgetExceeded,
		"Not run: the session's budget of tool calls does not suffice for this one. Make fewer calls at a time."))
}

// reportBudget tells the Session what is spent, once that is durable.
func (w *Worker) reportBudget(c actor.Context) {
	if w.budgeted() {
		c.Send(c.Parent(), &messages.ReportBudget{WorkerId: w.id, Spent: w.state.Committed()})
	}
}

// returnBudget gives back what was granted, or asked for, and is not needed any more.
func (w *Worker) returnBudget(c actor.Context) {
	p := &w.purse
	p.wall.Stop()
	p.pause.since, p.pause.reason, p.pause.step = time.Time{}, "", ""
	if (p.asking || p.granted != nil) || w.gen == nil {
		p.asking, p.granted = false, nil
		w.reportBudget(c)
	}
}

// settles says whether facts hold a settlement.
func settles(facts []proto.Message) bool {
	for _, f := range facts {
		if _, ok := f.(*messages.BudgetSettled); ok {
			return true
		}
	}
	return false
}

// armBudgetWall ends the turn when the session's time is up, unless it then waits for more at its next call.
func (w *Worker) armBudgetWall(c actor.Context) {
	p := &w.purse
	if p.wallLeft <= 0 || w.budget().GetPause() || w.state.Turn() == nil {
		return
	}
	turn := w.state.Turn().ID
	p.wall.SetBy(w.svc.Clock, c, p.wallLeft, func(gen uint64) any { return &budgetWallUp{gen, turn} })
}

func (w *Worker) budgetWallUp(c actor.Context, m *budgetWallUp) {
	t := w.state.Turn()
	if !w.purse.wall.Fresh(m.gen) || t == nil || t.ID != m.turn || t.Cancelled != nil {
		return
	}
	w.purse.wall.Stop()
	w.interrupt(c)
	reason := fmt.Sprintf("the budget of the session does not suffice: its time of %s has passed", time.Duration(w.budget().GetMost().GetWallMs())*time.Millisecond)
	if step := w.purse.wallStep; step != "" {
		reason = fmt.Sprintf("the budget of step %s does not suffice: its time has passed", step)
	}
	reason += "; more: " + moreBudget(w.session, w.purse.wallStep)
	w.append(c, nil, w.settled, w.cancelFacts(conversation.ByBudget, reason)...)
}
