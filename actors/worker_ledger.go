package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// consulted is what the ledger of the executors knows of open calls, read off the mailbox.
type consulted struct {
	known map[string]*messages.ToolReply
}

// consult asks the executors' ledger about the open calls that must not run twice. It is asked under the leases: then
// whatever ran has ended, and noted how (I6).
func (w *Worker) consult(c actor.Context) {
	asked := w.inLedger()
	if len(asked) == 0 {
		w.resume(c)
		return
	}
	w.become((*Worker).consulting, stateWaiting)
	svc, log := w.svc, w.log
	svc.spawn(c.ActorSystem(), c.Self(), func(*act.Panic) any { return &consulted{} }, func() any {
		m := &consulted{known: make(map[string]*messages.ToolReply)}
		for exec, attempt := range asked {
			seen, done, err := svc.ledger.Look(exec, attempt)
			if err != nil {
				log.Warn("the ledger cannot be read", "call", exec, "err", err)
			}
			if seen == tools.Ended {
				m.known[exec] = done
			}
		}
		return m
	})
}

// inLedger lists the calls that the ledger may know, with their attempts.
func (w *Worker) inLedger() map[string]uint32 {
	t := w.state.Turn()
	if t == nil {
		return nil
	}
	asked := make(map[string]uint32)
	for _, call := range t.OpenCalls() {
		if call.Dispatched != nil && !call.Redo() && !call.Settled() && once(call.Plan.GetEffect()) {
			asked[call.Plan.GetExecId()] = call.Dispatched.GetAttempt()
		}
	}
	return asked
}

// once says whether calls of a class must not run twice by themselves.
func once(class messages.Effect_Class) bool {
	return class == messages.Effect_AT_MOST_ONCE || class == messages.Effect_UNSPECIFIED
}

// consulting waits for the ledger's word; everything else waits with it.
func (w *Worker) consulting(c actor.Context) {
	m, ok := c.Message().(*consulted)
	if !ok {
		w.wait(c)
		return
	}
	w.known = m.known
	w.become((*Worker).usingTools, stateWorking)
	w.resume(c)
	w.replay(c)
}

// recall replaces the decisions about calls whose results the ledger has.
func (w *Worker) recall(decisions []*messages.RecoveryDecision) {
	for _, d := range decisions {
		if w.known[d.GetExecId()] != nil {
			d.Action = messages.RecoveryDecision_KNOWN
		} else if call := w.state.Turn().Call(d.GetExecId()); d.GetAction() != messages.RecoveryDecision_RERUN && w.isAway(call) && !call.Settled() && !call.InDoubt() {
			d.Action = messages.RecoveryDecision_RECONCILE // its owner has a ledger, too
		}
	}
}

// isAway says whether a call was handed to the owner of a workspace on another machine.
func (w *Worker) isAway(call *conversation.Call) bool {
	if call == nil || call.Dispatched == nil || pure(call) {
		return false
	}
	tool, err := w.svc.Tools.Lookup(call.Name)
	return err == nil && slices.ContainsFunc(w.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool {
		return g.GetUri() == call.Plan.GetWorkspace() && travels(g, tool.Spec())
	})
}

// settleLedger forgets results that are in the journal now.
func (w *Worker) settleLedger(facts []proto.Message) {
	t := w.state.Turn()
	if t == nil {
		t = w.state.Last()
	}
	for _, f := range facts {
		done, ok := f.(*messages.ToolFinished)
		if !ok || t == nil {
			continue
		}
		call := t.Call(done.GetExecId())
		if call == nil || call.Dispatched == nil {
			continue
		}
		if once(call.Plan.GetEffect()) {
			w.svc.ledger.Settle(done.GetExecId(), call.Dispatched.GetAttempt())
		}
		w.svc.Owners.settle(Place{w.session, call.Plan.GetWorkspace()}, done.GetExecId(), call.Dispatched.GetAttempt())
	}
}

// inDoubt counts the calls that wait for a person's word.
func inDoubt(s *conversation.State) (n int32) {
	if t := s.Turn(); t != nil {
		for _, call := range t.Calls {
			if call.InDoubt() {
				n++
			}
		}
	}
	return n
}
