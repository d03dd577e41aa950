package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// appending is the append under way and what follows once it is durable.
type appending struct {
	facts   []proto.Message
	records []*messages.Record
	then    func(actor.Context)
	asker   *actor.PID // who is told when it fails
	before  late       // what goes ahead of it
	traced  time.Time  // when it was handed to the store; zero: nobody asks
	refused bool       // by the store: none of it was written
	answer  appended   // the committer's
}

// appended is the committer's answer, piped to the mailbox.
type appended struct {
	of      *appending
	late    bool // kept back: applied, and not durable yet
	receipt persistence.Receipt
	err     error
}

func (a *appending) askerOrNil() *actor.PID {
	if a == nil {
		return nil
	}
	return a.asker
}

// append hands facts to the store. then runs in the mailbox once they are durable and applied;
// until then every message but a cancel waits.
func (w *Worker) append(c actor.Context, asker *actor.PID, then func(actor.Context), facts ...proto.Message) {
	w.appendActivated(c, asker, then, nil, facts...)
}

// appendActivated is append with what a recovery decided. The first append of an activation
// carries its Activated record, so that waking up costs no append of its own.
func (w *Worker) appendActivated(c actor.Context, asker *actor.PID, then func(actor.Context), a *messages.Activated, facts ...proto.Message) {
	if !w.activated {
		if a == nil {
			a = &messages.Activated{}
		}
		a.Epoch, a.Node, a.Boot, a.RecoveredSeq = w.journal.Lease().Epoch, w.svc.Node, w.svc.Store.Boot(), w.state.Seq()
		facts = append([]proto.Message{a}, facts...)
		w.activated = true
	}
	facts = w.settling(w.following(w.nudging(facts)))
	in := &appending{facts: facts, then: then, asker: asker}
	gen := ""
	for i, f := range facts {
		switch f := f.(type) {
		case *messages.GenerationStarted:
			f.GenId = messages.GenerationID(w.id, w.journal.Lease().Epoch, w.next()+uint64(i))
			gen = f.GetGenId()
		case *messages.BudgetReserved:
			f.GenId = gen
		}
	}
	if err := in.encode(w.turnOf(facts)); err != nil {
		if asker != nil {
			c.Send(asker, messages.Fail(messages.CodeInternal, err.Error(), ""))
		}
		w.fail(c, err.Error(), &messages.Panicked{Reason: err.Error()})
		return
	}
	if w.waits(in) {
		w.keepBack(c, in)
		return
	}
	w.inflight = in
	if w.trace != nil {
		in.traced = w.svc.Now()
	}
	sys, self := c.ActorSystem(), c.Self()
	w.journal.Append(func(r persistence.Receipt, err error) {
		in.answer = appended{of: in, receipt: r, err: err}
		sys.Root.Send(self, &in.answer)
	}, w.draft(in))
}

// encode makes the records of the facts. One that holds text which cannot be written down is mended first.
func (a *appending) encode(turn string) (err error) {
	if a.records, err = messages.NewRecords(a.facts, turn); err == nil {
		return nil
	}
	a.facts, a.records = slices.Clone(a.facts), make([]*messages.Record, 0, len(a.facts)) // the slice may be the caller's
	for i, f := range a.facts {
		r, err := messages.NewRecord(f, turn)
		if err != nil {
			a.facts[i] = mend(f)
			r, err = messages.NewRecord(a.facts[i], turn)
		}
		if err != nil {
			return fmt.Errorf("append %T: %w", f, err)
		}
		a.records = append(a.records, r)
	}
	return nil
}

// turnOf is the turn that facts belong to: the one they open, or the open one.
func (w *Worker) turnOf(facts []proto.Message) string {
	for _, f := range facts {
		if t, ok := f.(*messages.TurnStarted); ok {
			return t.GetTurnId()
		}
	}
	if t := w.state.Turn(); t != nil {
		return t.ID
	}
	return ""
}

// appended applies what is durable now, tells the watchers, and acts.
func (w *Worker) appended(c actor.Context, m *appended) {
	in := w.inflight
	if m.of != in {
		return // of before a failure
	}
	if m.err != nil {
		in.refused = true
		w.storeFailed(c, m.err)
		return
	}
	w.inflight = nil
	post, began := false, w.turnBegan()
	w.snaps.grew(in.records)
	first := m.receipt.First + uint64(len(in.before.records))
	for i, f := range in.facts {
		if err := w.state.ApplyFact(f, in.records[i]); err != nil {
			w.fail(c, fmt.Sprintf("apply %T that was just written: %v", f, err), &messages.Panicked{Reason: err.Error()})
			return
		}
		switch f := f.(type) {
		case *messages.InputAccepted:
			w.state.SetCursor(f.GetInputId(), first+uint64(i))
			if f.GetMail() != nil {
				w.tools = nil // who was written to may answer
			}
		case *messages.HandedOver:
			w.system, w.tools, w.around = "", nil, around{}
		case *messages.ChildSpawned:
			w.tools = nil
		case *messages.OutboxEnqueued:
			post = true
		}
	}
	if post {
		w.post(c)
	}
	if settles(in.facts) {
		w.reportBudget(c)
	}
	w.svc.shown.note(in.facts)
	w.counted(in.facts, began)
	w.traced(in, m.late)
	if !m.late {
		w.settleLedger(in.facts)
		w.publish(c, in, m.receipt)
	}
	in.then(c)
	w.showLate(c) // what came before the first watcher, who came while it was applied
	w.replay(c)
}

// publish sends the events of an append to the Session, when somebody watches.
func (w *Worker) publish(c actor.Context, in *appending, r persistence.Receipt) {
	facts, records := in.facts, in.records
	if len(in.before.facts) > 0 {
		facts, records = slices.Concat(in.before.facts, facts), slices.Concat(in.before.records, records)
	}
	if !w.watched.Load() {
		for _, f := range facts {
			w.projector.See(w.id, f)
		}
		return
	}
	p := &messages.Published{FirstCursor: r.First, LastCursor: r.Last}
	for i, f := range facts {
		if e := w.projector.Project(w.session, w.id, f, records[i], r.First+uint64(i)); e != nil {
			p.Events = append(p.Events, e)
		}
	}
	c.Send(c.Parent(), p)
}

// generation finds an answer that this activation has not published: of before a restart.
func (w *Worker) generation(_ string, seq uint64) *messages.GenerationCompleted {
	for _, t := range []*conversation.Turn{w.state.Turn(), w.state.Last()} {
		if t != nil && t.FinalSeq == seq && len(t.Gens) > 0 {
			return t.Gens[len(t.Gens)-1]
		}
	}
	return nil
}

// called finds a program's call that this activation has not seen accepted: of before a restart.
func (w *Worker) called(_, input string) *messages.ToolCall {
	inputs := w.state.Staged()
	for _, t := range []*conversation.Turn{w.state.Turn(), w.state.Last()} {
		if t != nil {
			inputs = append(inputs, t.Inputs...)
		}
	}
	for _, in := range inputs {
		if in.GetInputId() == input {
			return in.GetCall()
		}
	}
	return nil
}

// storeFailed ends this incarnation: what it decided never came to be. A store that has failed
// for good answers nobody any more; a full disk can be cured; a fenced writer has its successor elsewhere,
// and started again here it would only fence that one in turn (I5).
func (w *Worker) storeFailed(c actor.Context, err error) {
	w.log.Error("append failed", "err", err)
	if !errors.Is(err, persistence.ErrFull) && !errors.Is(err, persistence.ErrFenced) && w.svc.Store.Health() != nil {
		w.svc.Fatal(fmt.Errorf("append to %s: %w", w.journal.Stream(), err))
	}
	if errors.Is(err, persistence.ErrTooLarge) || errors.Is(err, persistence.ErrInvalid) { // it would be so again and again
		w.fail(c, err.Error(), &messages.Panicked{Reason: err.Error()})
		return
	}
	if errors.Is(err, persistence.ErrFenced) {
		w.down(c, "another runtime has taken it over: "+err.Error(), true)
		return
	}
	w.down(c, err.Error(), false)
}

// index keeps the listing entry of the worker up to date at the borders of a turn, so that `ls`
// answers for a worker that is not in memory.
func (w *Worker) index(facts []proto.Message) []persistence.IndexOp {
	ops, doubts, questions := personIndex(w.state, w.session, w.id, facts)
	if doubts == 0 && questions == 0 && !slices.ContainsFunc(facts, relists) {
		return ops
	}
	v := w.listed()
	v.InDoubt += doubts
	v.Approvals += questions
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.InputAccepted:
			v.Staged++
		case *messages.InputWithdrawn:
			v.Staged--
		case *messages.InputJoined:
			v.Staged--
		case *messages.TurnStarted:
			v.Staged -= int32(len(f.GetInputIds()))
			v.Turn = f.GetTurnId()
		case *messages.TurnCompleted:
			v.Turn = ""
			v.Turns++
			v.LastOutcome = conversation.OutcomeName(f.GetOutcome())
		case *messages.BudgetSettled:
			v.Spent, v.Reserved = w.state.Spent().Plus(f.Amounts()), nil
		case *messages.OutboxEnqueued:
			v.Outbox++
		case *messages.OutboxAcked:
			if v.GetOutbox() > 0 {
				v.Outbox--
			}
		case *messages.HandedOver:
			v.Agent, v.Model = f.GetAgent(), f.GetModel()
		case *messages.HistoryCompacted:
			v.Usage = sumUsage(v.GetUsage(), f.GetUsage())
		case *messages.GenerationCompleted:
			v.Usage = sumUsage(v.GetUsage(), f.GetUsage())
		}
	}
	switch { // as it is without a process
	case v.GetTurn() != "":
		v.State = stateWorking
	case v.GetStaged() > 0 || v.GetOutbox() > 0:
		v.State = stateWaiting
	default:
		v.State = stateInactive
	}
	return append(ops, listing(w.log, WorkerKey(w.session, w.id), v)...)
}

// relists says that a fact changes what is listed of its worker.
func relists(fact proto.Message) bool {
	switch fact.(type) {
	case *messages.InputAccepted, *messages.InputWithdrawn, *messages.InputJoined, *messages.TurnStarted, *messages.TurnCompleted, *messages.Released, *messages.HistoryCompacted,
		*messages.HandedOver, *messages.OutboxEnqueued, *messages.OutboxAcked:
		return true
	}
	return false
}

// listing puts a view under its key of the secondary index.
func listing(log *slog.Logger, key string, v proto.Message) []persistence.IndexOp {
	b, err := proto.Marshal(v)
	if err != nil {
		log.Error("encode listing entry", "key", key, "err", err)
		return nil
	}
	return []persistence.IndexOp{{Key: key, Value: b}}
}

// listed reads the listing entry of a worker, an empty one when there is none that can be read.
func listed(ctx context.Context, svc *Services, session, id string) *messages.WorkerView {
	v, key := &messages.WorkerView{Id: id, SessionId: session}, WorkerKey(session, id)
	err := svc.Store.Index(ctx, key, func(k string, value []byte) error {
		if k != key {
			return nil
		}
		return proto.Unmarshal(value, v)
	})
	if err != nil {
		svc.Log.Warn("read listing entry", "key", key, "err", err)
	}
	return v
}

func sumUsage(a, b *messages.Usage) *messages.Usage {
	return &messages.Usage{
		InputTokens: a.GetInputTokens() + b.GetInputTokens(), OutputTokens: a.GetOutputTokens() + b.GetOutputTokens(),
		CachedTokens: a.GetCachedTokens() + b.GetCachedTokens(), ReasoningTokens: a.GetReasoningTokens() + b.GetReasoningTokens(),
		CostMicroUsd: a.GetCostMicroUsd() + b.GetCostMicroUsd(),
	}
}

// Keys of the secondary index. Values are a SessionView and a WorkerView.

// SessionKey is the listing entry of a session.
func SessionKey(id string) string { return "ses/" + id }

// WorkerKey is the listing entry of a worker, below its session's.
func WorkerKey(session, worker string) string { return "wrk/" + session + "/" + worker }
