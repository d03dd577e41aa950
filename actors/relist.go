package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A store may have been opened without listings and timers, as the block that held them was damaged. What they say stands in the journals,
// so that they are made again from those, once, at the start and before there are actors. Tokens and projects stand nowhere else: they
// stay refused until a repair.

// relistedKinds are what the index entries begin with that journals tell.
func relistedKinds() []string {
	return []string{SessionKey(""), "wrk/", "apr/", "apd/", "rul/", "dbt/", "rsv/", "cnv/", RunKey(""), markKey("")}
}

// relistBatch is how many entries are put in one append.
const relistBatch = 256

// relister makes entries again.
type relister struct {
	svc   *Services
	lost  *persistence.Lost
	lease persistence.Lease
	batch persistence.Batch
	put   int
}

// relistStream is claimed by whoever makes listings again; nothing is written to it.
const relistStream = "sys/relist"

// Relist makes again what a damaged store lost of its listings and timers. A conversation that does not read is passed over: it is
// refused to those who ask for it by its id.
func Relist(ctx context.Context, svc *Services) error {
	store, ok := svc.Store.(persistence.Relister)
	if !ok {
		return nil
	}
	lost := store.Lost()
	if lost == nil {
		return nil
	}
	svc.Log.Warn("listings and timers that were damaged are made again from the journals")
	lease, err := svc.Store.Claim(ctx, relistStream, svc.Node)
	if err != nil {
		return fmt.Errorf("make listings again: %w", err)
	}
	r := &relister{svc: svc, lost: lost, lease: lease}
	var ids []string
	err = svc.Store.Streams(ctx, messages.SessionStream(""), func(stream string) error {
		ids = append(ids, strings.TrimPrefix(stream, messages.SessionStream("")))
		return nil
	})
	if damaged(err) { // those of which nothing is left are not among them
		svc.Log.Error("sessions may be missing in listings", "err", err)
		err = nil
	}
	for _, id := range ids {
		if err != nil {
			break
		}
		if err = r.session(ctx, id); damaged(err) {
			svc.Log.Error("a session is not listed again", "session", id, "err", err)
			err = nil
		}
	}
	if err == nil {
		err = r.flush(ctx)
	}
	if err == nil {
		err = store.Relisted(ctx, relistedKinds()...)
	}
	if err != nil {
		return fmt.Errorf("make listings again: %w", err)
	}
	svc.Log.Info("listings and timers were made again from the journals", "count", r.put)
	return nil
}

// index puts an entry if it may be lost.
func (r *relister) index(ctx context.Context, ops ...persistence.IndexOp) error {
	for _, op := range ops {
		lost, err := r.lost.Index(op.Key)
		if err != nil {
			return err
		}
		if !lost || op.Delete { // what should not be there goes with the rest
			continue
		}
		r.batch.Index = append(r.batch.Index, op)
		if err := r.some(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *relister) some(ctx context.Context) error {
	if r.put++; len(r.batch.Index)+len(r.batch.Timers) < relistBatch {
		return nil
	}
	return r.flush(ctx)
}

func (r *relister) flush(ctx context.Context) error {
	b := r.batch
	r.batch = persistence.Batch{}
	if len(b.Index)+len(b.Timers) == 0 {
		return nil
	}
	b.Lease, b.Expect = r.lease, r.lease.Next
	_, err := r.svc.Store.Append(ctx, b)
	return err
}

// session makes again what is listed of a session. One that has never been listed, as its copy was not finished, stays so.
func (r *relister) session(ctx context.Context, id string) error {
	var f sessionFacts
	err := r.svc.Store.Read(ctx, messages.SessionStream(id), 1, func(e persistence.Entry) error {
		fact, err := messages.SessionFactIn(e.Record)
		if err == nil {
			err = f.apply(fact, e.Record)
		}
		return asDamage(err)
	})
	if err != nil || f.created == nil {
		return err
	}
	mark, err := r.mark(ctx, id)
	switch {
	case err != nil:
		return err
	case mark == markUnfinished || mark == markDoomed: // it goes at this start
		return nil
	case mark == markRestricted:
		f.restrict()
	}
	if err := r.unlisted(ctx, id, &f); err != nil || f.closed {
		return err
	}
	grant, err := f.grantOf(nil, nil)
	if err != nil {
		return asDamage(err)
	}
	v, title := f.view(grant), ""
	for _, w := range f.workers {
		first, err := r.worker(ctx, id, w.GetWorkerId())
		if damaged(err) {
			r.svc.Log.Error("a worker is not listed again", "session", id, "worker", w.GetWorkerId(), "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
		if title == "" {
			title = first
		}
	}
	v.Title = title
	if err := r.index(ctx, listing(r.svc.Log, SessionKey(id), v)...); err != nil {
		return err
	}
	for _, rule := range f.rules {
		if err := r.index(ctx, listing(r.svc.Log, RuleKey(id, rule.GetRuleId()), rule)...); err != nil {
			return err
		}
	}
	for _, c := range f.shared {
		err := r.shared(ctx, c.GetConversationId())
		if damaged(err) {
			r.svc.Log.Error("a shared conversation is not listed again", "session", id, "conversation", c.GetConversationId(), "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return r.run(ctx, id, false)
}

// mark is that of a session. Whether it was imported, and is trusted less than its journal says, may be what is lost.
func (r *relister) mark(ctx context.Context, id string) (mark string, err error) {
	key := markKey(id)
	lost, err := r.lost.Index(key)
	if err != nil {
		return "", err
	}
	if lost {
		return markRestricted, r.index(ctx, persistence.IndexOp{Key: key, Value: []byte(markRestricted)})
	}
	err = r.svc.Store.Index(ctx, key, func(k string, value []byte) error {
		if k == key {
			mark = string(value)
		}
		return nil
	})
	if damaged(err) { // others are lost
		err = nil
	}
	return mark, err
}

// shared makes again how a conversation that workers share is listed.
func (r *relister) shared(ctx context.Context, id string) error {
	state, err := ReadShared(ctx, r.svc.Store, id)
	if err != nil {
		return err
	}
	entry, err := sharedEntry(state.Listing())
	if err != nil {
		return err
	}
	return r.index(ctx, entry...)
}

// worker makes again what is listed of a worker, and its timers. It returns what its first input calls its session.
func (r *relister) worker(ctx context.Context, session, id string) (title string, err error) {
	s, ops := &conversation.State{}, make(map[string]persistence.IndexOp)
	keep := func(all []persistence.IndexOp) {
		for _, op := range all {
			ops[op.Key] = op
		}
	}
	err = r.svc.Store.Read(ctx, messages.WorkerStream(id), 1, func(e persistence.Entry) error {
		f, err := messages.WorkerFactIn(e.Record)
		if in, ok := f.(*messages.InputAccepted); ok && title == "" && in.GetCall() == nil {
			title = cutTitle(in.GetParts())
		}
		if err == nil && f != nil {
			more, _, _ := personIndex(s, session, id, []proto.Message{f})
			keep(more)
		}
		return asDamage(s.Apply(e.Record))
	})
	if errors.Is(err, persistence.ErrTrimmed) { // what was answered in what is gone is not told any more
		if err = r.answers(ctx, session, id); err != nil {
			return title, err
		}
		if s, err = r.trimmed(ctx, session, id); err == nil {
			keep(waitingFor(s, session, id))
		}
	}
	if err != nil {
		return title, err
	}
	v := (&Worker{svc: r.svc, log: r.svc.Log, id: id, session: session, state: s, phase: stateInactive, quarantined: s.Quarantined() != "", lastError: s.Quarantined()}).listed()
	v.UpdatedAtUnixMs = s.At()
	switch {
	case v.GetQuarantined():
		v.State = stateFailed
	case v.GetTurn() != "":
		v.State = stateWorking
	case v.GetStaged() > 0 || v.GetOutbox() > 0:
		v.State = stateWaiting
	}
	keep(listing(r.svc.Log, WorkerKey(session, id), v))
	for _, op := range ops {
		if err := r.index(ctx, op); err != nil {
			return title, err
		}
	}
	return title, r.timers(ctx, s)
}

// timers sets those again that may be lost.
func (r *relister) timers(ctx context.Context, s *conversation.State) error {
	if s.Closed() {
		return nil
	}
	for _, t := range s.Timers() {
		key := timerKey(s.Session(), s.ID(), t.GetTimerId())
		lost, err := r.lost.Timer(key)
		if err != nil {
			return err
		}
		if !lost {
			continue
		}
		r.batch.Timers = append(r.batch.Timers, persistence.TimerOp{ID: key, Due: time.UnixMilli(t.GetDueUnixMs())})
		if err := r.some(ctx); err != nil {
			return err
		}
	}
	return nil
}

// trimmed folds a worker of whose journal only the end is left.
func (r *relister) trimmed(ctx context.Context, session, id string) (*conversation.State, error) {
	j, err := persistence.OpenJournal(ctx, r.svc.Store, messages.WorkerStream(id), session, r.svc.Node)
	if err != nil {
		return nil, err
	}
	defer j.Release()
	s, _, err := recoverState(ctx, r.svc, j)
	return s, err
}

// waitingFor are the entries of what a worker asks people now.
func waitingFor(s *conversation.State, session, worker string) []persistence.IndexOp {
	t := s.Turn()
	if t == nil {
		return nil
	}
	var ops []persistence.IndexOp
	put := func(key string, v proto.Message) {
		if b, err := proto.Marshal(v); err == nil {
			ops = append(ops, persistence.IndexOp{Key: key, Value: b})
		}
	}
	for _, call := range t.Calls {
		switch {
		case call.Pending():
			v := call.ApprovalView(session, worker, t.ID, s.Agent(), call.Requested)
			v.Parent = s.Parent()
			put(ApprovalKey(session, call.Requested.GetApprovalId()), cutApproval(v, listingRoom(t)))
		case call.InDoubt():
			put(DoubtKey(session, call.Plan.GetExecId()), doubtView(call, session, worker, t))
		}
	}
	return ops
}

// asDamage makes an error of folding a record one of the store's.
func asDamage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
}
