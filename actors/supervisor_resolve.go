package actors

import (
	"context"
	"fmt"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/policy"
)

// resolvedAsleep is the end of writing a person's word into the journal of a session that is not in memory.
type resolvedAsleep struct {
	session string
	asker   *actor.PID
	reply   any
}

// resolveAsleep writes a person's word down without waking the session: its turn goes on by it when the session is
// opened. Who settles a call need not be able to run it. Commands for the session wait meanwhile.
func (s *Supervisor) resolveAsleep(c actor.Context, session string, m word) {
	s.enter(session)
	svc, asker := s.svc, c.Sender()
	end := func(reply any) any { return &resolvedAsleep{session, asker, reply} }
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return end(messages.Fail(messages.CodeInternal, p.Error(), ""))
	}, func() any { return end(recordWord(svc, session, m)) })
}

func (s *Supervisor) resolvedAsleep(c actor.Context, m *resolvedAsleep) {
	if m.asker != nil {
		c.Send(m.asker, m.reply)
	}
	if k := s.kids[m.session]; k != nil && k.pid == nil {
		s.forget(c, k)
	}
}

// word is what a person says of a call of a worker that is not in memory. With facts and a failure both, the facts are
// written and the failure is the reply.
type word struct {
	worker, about string
	facts         func(*conversation.State) ([]proto.Message, *messages.Failure)
}

func wordOnCall(svc *Services, m *messages.ResolveCall) word {
	return word{m.GetWorkerId(), "resolve call " + m.GetExecId(), func(s *conversation.State) ([]proto.Message, *messages.Failure) {
		return resolution(s, svc.cleanWord(m))
	}}
}

func wordOnApproval(svc *Services, m *messages.ResolveApproval) word {
	return word{m.GetWorkerId(), "answer approval " + m.GetApprovalId(), func(s *conversation.State) ([]proto.Message, *messages.Failure) {
		return approval(s, svc.cleanApproval(m), nil, svc.Now().UnixMilli())
	}}
}

// asleep says whether an approval can be answered without waking its session: arguments of the approver's own are
// checked against what the session may do, and what is to be remembered is the session's to write down. A run goes on when it is answered.
func asleep(m *messages.ResolveApproval) bool {
	return m != nil && !strings.HasPrefix(m.GetWorkerId(), messages.RunPrefix) && m.GetArguments() == "" && (m.GetScope() == "" || m.GetScope() == string(policy.Once))
}

// recordWord appends what a person says of a call to the journal of its worker. It returns the reply.
func recordWord(svc *Services, session string, m word) any {
	o := openWorker(svc, m.worker, session, false)
	if o.broken != nil {
		return messages.Fail(messages.CodeInternal, fmt.Sprintf("%s: open the worker: %v", m.about, o.broken), "")
	}
	if o.err != nil {
		code := messages.CodeUnavailable
		if damaged(o.err) {
			code = messages.CodeCorrupt
		}
		return messages.Fail(code, fmt.Sprintf("%s: %v", m.about, o.err), "")
	}
	defer o.journal.Release()
	facts, fail := m.facts(o.state)
	if len(facts) == 0 {
		return fail
	}
	draft, err := wordDraft(svc, session, o, facts)
	if err != nil {
		return messages.Fail(messages.CodeInternal, fmt.Sprintf("%s: %v", m.about, err), "")
	}
	done := make(chan error, 1)
	o.journal.Append(func(_ persistence.Receipt, err error) { done <- err }, draft)
	select {
	case err = <-done:
	case <-svc.stopped:
		err = persistence.ErrClosed
	}
	if err != nil {
		return messages.Fail(messages.CodeUnavailable, fmt.Sprintf("%s: %v", m.about, err), "try again")
	}
	svc.shown.note(facts)
	if fail != nil {
		return fail
	}
	return &messages.Ack{}
}

func wordDraft(svc *Services, session string, o *opened, facts []proto.Message) (persistence.Draft, error) {
	var d persistence.Draft
	all := append([]proto.Message{&messages.Activated{
		Epoch: o.journal.Lease().Epoch, Node: svc.Node, Boot: svc.Store.Boot(), RecoveredSeq: o.state.Seq(),
	}}, facts...) // whoever writes under an epoch says first who it is
	for _, f := range append(all, &messages.Suspended{}) { // and last that this was no death in the middle of the turn
		r, err := messages.NewRecord(f, o.state.Turn().ID)
		if err != nil {
			return d, err
		}
		_, r.Ignorable = f.(*messages.Suspended) // for releases that do not know it
		d.Records = append(d.Records, r)
	}
	ops, doubts, questions := personIndex(o.state, session, o.state.ID(), facts)
	v := &messages.WorkerView{
		Id: o.state.ID(), SessionId: session, State: stateWaiting, Agent: o.state.Agent(), Model: o.state.Model(), Turns: int32(o.state.Turns()),
		Staged: int32(len(o.state.Staged())), Usage: o.state.Usage(), UpdatedAtUnixMs: svc.Now().UnixMilli(), InDoubt: inDoubt(o.state) + doubts,
		Approvals: pendingApprovals(o.state) + questions, Turn: o.state.Turn().ID,
	}
	b, err := proto.Marshal(v)
	d.Index = append(ops, persistence.IndexOp{Key: WorkerKey(session, o.state.ID()), Value: b})
	return d, err
}

// CallsInDoubt lists the calls that wait for a person's word, of one session or of all (""). It wakes nobody.
func CallsInDoubt(ctx context.Context, store persistence.Store, session string) ([]*messages.CallView, error) {
	prefix := DoubtKey(session, "")
	if session == "" {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	out, err := entries[messages.CallView](ctx, store, prefix)
	if err != nil {
		return nil, fmt.Errorf("list calls in doubt: %w", err)
	}
	return out, nil
}

// CallInDoubt finds a call that waits for a person's word, or says why there is none.
func CallInDoubt(ctx context.Context, store persistence.Store, exec string) (*messages.CallView, error) {
	all, err := CallsInDoubt(ctx, store, "")
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.GetExecId() == exec {
			return v, nil
		}
	}
	word := ""
	err = store.Index(ctx, ResolvedKey(exec, ""), func(_ string, value []byte) error {
		word = string(value)
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("find call %s: %w", exec, err)
	case word != "":
		return nil, AlreadyResolved(exec, word)
	}
	return nil, NotInDoubt(exec)
}
