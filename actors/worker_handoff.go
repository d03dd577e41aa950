package actors

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// handsOver says whether a result is that of a call which hands the conversation over.
func (w *Worker) handsOver(f *messages.ToolFinished) bool {
	return f.GetStatus() == messages.ToolFinished_OK && w.isHandoff(f.GetTool())
}

// isHandoff says whether a tool is the one that hands over: a program may have another one of that name.
func (w *Worker) isHandoff(tool string) bool {
	t, err := w.svc.Tools.Lookup(tool)
	if err != nil {
		return false
	}
	_, ok := t.(*Handoff)
	return ok
}

// following adds to results what they bring with them: in the same append, so that there is never one without the other.
func (w *Worker) following(facts []proto.Message) []proto.Message {
	for i, fact := range slices.Backward(facts) {
		f, ok := fact.(*messages.ToolFinished)
		if !ok || w.state.Turn() == nil {
			continue
		}
		switch call := w.state.Turn().Call(f.GetExecId()); {
		case f.GetStatus() != messages.ToolFinished_OK || call == nil:
		case w.handsOver(f):
			facts = slices.Insert(slices.Clone(facts), i+1, proto.Message(w.handedTo(f)))
		case w.isSend(f.GetTool()):
			facts = slices.Insert(slices.Clone(facts), i+1, proto.Message(w.sent(f)))
		case w.delegates(f.GetTool()) && inBackground(call.Arguments) && !w.heard(f.GetExecId()):
			facts = slices.Insert(slices.Clone(facts), i+1, proto.Message(spawnedBy(f)))
		}
	}
	if m := w.result(facts); m != nil {
		facts = append(slices.Clone(facts), m)
	}
	return facts
}

// handedTo is what the conversation becomes with a call that hands it over.
func (w *Worker) handedTo(f *messages.ToolFinished) *messages.HandedOver {
	var a handoffArgs
	if call := w.state.Turn().Call(f.GetExecId()); call != nil {
		_ = json.Unmarshal([]byte(call.Arguments), &a) // checked by the call
	}
	profile, _ := w.svc.agent(a.Agent)
	m := &messages.HandedOver{
		ExecId: f.GetExecId(), From: w.agent(), Agent: a.Agent, Model: cmp.Or(profile.Model, w.state.Model()), System: profile.System,
		Message: w.svc.Redact.String(a.Message),
	}
	if w.state.Tools() != nil {
		m.Bounds = &messages.Bounds{Agent: w.agent(), Tools: w.state.Tools()}
	}
	return m
}

// handed goes on with the turn as the other agent. One that changes files does not under a lease that is shared with those who only read.
func (w *Worker) handed(c actor.Context) {
	w.narrowChildren(c, nil)
	if w.leases.shared && !w.readsOnly() && len(w.leases.held) > 0 && w.state.Turn().Cancelled == nil {
		w.giveBackAll(c)
		w.lease(c, w.advance)
		return
	}
	w.advance(c)
}

// noHandoff says why a call that hands over, one of so many in an answer, is refused; nil when it is not.
func (w *Worker) noHandoff(p *messages.ToolPlanned, calls int) *messages.ToolFinished {
	if !w.isHandoff(p.GetTool()) {
		return nil
	}
	done := 0
	for _, call := range w.state.Turn().AllCalls {
		if call.Finished != nil && w.handsOver(call.Finished) {
			done++
		}
	}
	switch {
	case calls > 1:
		return refusal(p, messages.ToolFinished_ERROR, tools.Errorf(tools.CodeInvalidArguments, "Not handed over: handoff has to be the only call of an answer; make it when the others are done"))
	case done >= w.svc.Limits.Handoffs:
		return refusal(p, messages.ToolFinished_DENIED, tools.Errorf(tools.CodePermissionDenied, "Access denied: this turn was handed over %d times already; answer with what there is", done))
	}
	return nil
}
