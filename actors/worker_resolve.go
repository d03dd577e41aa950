package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// doubted puts a call in doubt: a person is asked what became of it.
func doubted(call *conversation.Call) *messages.CallDoubted {
	return &messages.CallDoubted{ExecId: call.Plan.GetExecId(), CallId: call.Plan.GetCallId(), Tool: call.Name}
}

// askPerson waits for a person's word, once nothing else of the turn can go on. The workspaces are given back at
// once: who is asked will want to look there, and perhaps to work. The time does not count as the turn's.
func (w *Worker) askPerson(c actor.Context) {
	w.wall.Stop()
	w.giveBackAll(c)
	w.become((*Worker).doubting, stateWaiting)
}

// doubting waits for a person's word on calls of which nobody knows what became.
func (w *Worker) doubting(c actor.Context) {
	if m, ok := c.Message().(*messages.Configure); ok {
		w.regranted(c, m)
		return
	}
	w.common(c)
}

// resolve writes down what a person says of a call in doubt, and goes on by it. The first word counts.
func (w *Worker) resolve(c actor.Context, m *messages.ResolveCall) {
	facts, fail := resolution(w.state, w.svc.cleanWord(m))
	if fail != nil {
		c.Respond(fail)
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		if asker != nil {
			c.Send(asker, &messages.Ack{})
		}
		w.resolved(c)
	}, facts...)
}

// resolved goes on after a person's word. When the workspaces were given back they are taken again, with new tokens;
// while they are awaited, what comes of that goes on by itself.
func (w *Worker) resolved(c actor.Context) {
	switch {
	case w.leases.then != nil, w.svc.Still:
	case w.phase == stateWaiting && !w.canGoOn(): // the others are waited for still
		w.armExpiry(c)
	case w.phase == stateWaiting && !w.leases.busy():
		w.lease(c, w.goOn)
	case w.phase == stateWaiting: // they are kept still
		w.goOn(c)
	default:
		w.advance(c)
	}
}

// goOn takes a turn up again that has waited for a person.
func (w *Worker) goOn(c actor.Context) {
	if w.state.Turn() == nil { // cancelled while the lease was awaited
		w.giveBackAll(c)
		w.advance(c)
		return
	}
	w.hold.Stop()
	w.phase = stateWorking
	w.armWall(c)
	w.advance(c)
}

// resolution checks a person's word against the facts, and says what is to be written.
func resolution(s *conversation.State, m *messages.ResolveCall) ([]proto.Message, *messages.Failure) {
	call := callOf(s, m.GetExecId())
	switch {
	case call == nil, call.Answer == nil && !call.InDoubt():
		return nil, NotInDoubt(m.GetExecId())
	case !call.InDoubt():
		return nil, AlreadyResolved(m.GetExecId(), conversation.ResolutionName(call.Answer.GetResolution()))
	}
	f := &messages.CallResolved{ExecId: m.GetExecId(), Resolution: m.GetResolution(), By: m.GetBy(), Note: m.GetNote()}
	if f.GetBy() == "" {
		f.By = "user"
	}
	switch f.GetResolution() {
	case messages.CallResolved_RETRY:
		return []proto.Message{f}, nil
	case messages.CallResolved_DONE, messages.CallResolved_FAIL:
		return []proto.Message{f, conversation.ResultOf(call, f)}, nil
	case messages.CallResolved_UNSPECIFIED:
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("there is no such resolution: %v", m.GetResolution()), "one of retry, done, fail")
}

// callOf finds a call of the open turn, or of the newest completed one.
func callOf(s *conversation.State, exec string) *conversation.Call {
	for _, t := range []*conversation.Turn{s.Turn(), s.Last()} {
		if t != nil {
			if call := t.Call(exec); call != nil {
				return call
			}
		}
	}
	return nil
}

// NotInDoubt is the refusal of a word on a call that nobody asked about.
func NotInDoubt(exec string) *messages.Failure {
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("no call %s waits for a person's word", exec), "`troupe ls calls --state in_doubt` lists those that do")
}

// AlreadyResolved is the refusal of a second word.
func AlreadyResolved(exec, word string) *messages.Failure {
	return messages.Fail(messages.CodeResolved, fmt.Sprintf("call %s was resolved already: %s", exec, word), "")
}

// doubtIndex keeps the calls in doubt in the secondary index, so that they are listed and found without waking their
// sessions. change is by how many they become more. The facts are not applied yet.
func doubtIndex(s *conversation.State, session, worker string, facts []proto.Message) (ops []persistence.IndexOp, change int32) {
	t := s.Turn()
	if t == nil {
		return nil, 0
	}
	inDoubt := make(map[string]bool)
	for _, call := range t.Calls {
		inDoubt[call.Plan.GetExecId()] = call.InDoubt()
	}
	out := func(exec string) {
		if inDoubt[exec] {
			inDoubt[exec] = false
			change--
			ops = append(ops, persistence.IndexOp{Key: DoubtKey(session, exec), Delete: true})
		}
	}
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.CallDoubted:
			if b, err := proto.Marshal(doubtView(t.Call(f.GetExecId()), session, worker, t)); err == nil {
				change++
				ops = append(ops, persistence.IndexOp{Key: DoubtKey(session, f.GetExecId()), Value: b}, persistence.IndexOp{Key: ResolvedKey(f.GetExecId(), session), Delete: true})
			}
		case *messages.CallResolved:
			out(f.GetExecId())
			word := conversation.ResolutionName(f.GetResolution())
			ops = append(ops, persistence.IndexOp{Key: ResolvedKey(f.GetExecId(), session), Value: []byte(word)})
		case *messages.ToolFinished:
			out(f.GetExecId())
		}
	}
	return ops, change
}

// doubtView is how a call in doubt is listed.
func doubtView(call *conversation.Call, session, worker string, t *conversation.Turn) *messages.CallView {
	v := call.Listing(session, worker, t.ID)
	v.State, v.Status = conversation.StateInDoubt, conversation.StateInDoubt
	v.Arguments = cutArguments(v.GetArguments(), listingRoom(t))
	return v
}

// personIndex keeps what waits for a person in the secondary index: calls in doubt, and approvals.
func personIndex(s *conversation.State, session, worker string, facts []proto.Message) (ops []persistence.IndexOp, doubts, questions int32) {
	ops, doubts = doubtIndex(s, session, worker, facts)
	more, questions := approvalIndex(s, session, worker, facts)
	return append(ops, more...), doubts, questions
}

// DoubtKey is the listing entry of a call in doubt, below its session's; the value is a CallView.
func DoubtKey(session, exec string) string { return "dbt/" + session + "/" + exec }

// ResolvedKey tells of a call that a person has settled with which word. The session is in it so that it goes with that; ""
// gives what it is found by.
func ResolvedKey(exec, session string) string { return "rsv/" + exec + "/" + session }
