package conversation_test

import (
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// settle takes one call one step further.
func (d *driver) settle(c *conversation.Call) {
	exec := c.Plan.GetExecId()
	switch {
	case c.Dispatched == nil && !c.Cleared() && c.Requested == nil:
		d.put(&messages.ApprovalRequested{ApprovalId: "apr_" + exec, ExecId: exec})
	case c.Dispatched == nil && c.Requested != nil && c.Resolved == nil:
		d.put(&messages.ApprovalResolved{
			ApprovalId: "apr_" + exec, ExecId: exec,
			Decision: messages.Decision_Value(rapid.IntRange(1, 5).Draw(d.t, "decision")),
		})
	case c.Dispatched == nil && !c.Cleared():
		d.finish(c, messages.ToolFinished_DENIED)
	case c.Dispatched == nil && c.Plan.GetEffect() != messages.Effect_PURE:
		d.put(&messages.ToolDispatched{ExecId: exec, Attempt: 1})
	case c.InDoubt():
		d.put(&messages.CallResolved{ExecId: exec, Resolution: messages.CallResolved_Resolution(rapid.IntRange(1, 3).Draw(d.t, "word"))})
	case c.Redo():
		d.put(&messages.ToolDispatched{ExecId: exec, Attempt: c.Dispatched.GetAttempt() + 1})
	case c.Settled():
		f := conversation.ResultOf(c, c.Answer)
		h := d.s.NextHash(f)
		d.put(f)
		d.foretold(h)
	case c.Dispatched != nil && c.Answer == nil && rapid.IntRange(0, 4).Draw(d.t, "doubt") == 0:
		d.put(&messages.CallDoubted{ExecId: exec})
	default:
		d.finish(c, messages.ToolFinished_Status(rapid.IntRange(1, 8).Draw(d.t, "status")))
	}
}

func (d *driver) result(c *conversation.Call, st messages.ToolFinished_Status) *messages.ToolFinished {
	f := &messages.ToolFinished{ExecId: c.Plan.GetExecId(), CallId: c.Plan.GetCallId(), Status: st, Content: d.bulk(d.pick("result", "", "one", "two"))}
	if rapid.Bool().Draw(d.t, "saw a file") {
		f.PostconditionHashes = []*messages.FileHash{{Path: d.pick("path", "a", "b", "c"), Sha256: d.pick("hash", "", "11", "22")}}
	}
	return f
}

// finish writes one result and, when it is the last, checks the hash that was foretold.
func (d *driver) finish(c *conversation.Call, st messages.ToolFinished_Status) {
	f := d.result(c, st)
	h, last := d.s.NextHash(f), len(d.s.Turn().OpenCalls()) == 1
	goesOn := last && d.s.GoesOn(f, d.limits)
	d.put(f)
	d.foretold(h)
	switch n := d.s.Next(d.limits).(type) {
	case conversation.Generate:
		if !goesOn {
			d.t.Fatalf("behind its last result the turn asks the model, and ahead of it it did not")
		}
	case conversation.Join:
		if goesOn {
			d.t.Fatalf("behind its last result %s, and ahead of it nobody did", stepText(n))
		}
	}
}

// finishAll ends all calls in a random order, without running those that have not been dispatched.
func (d *driver) finishAll(calls []*conversation.Call) {
	var all []*messages.ToolFinished
	for _, c := range calls {
		switch {
		case c.Dispatched == nil && (c.Plan.GetEffect() != messages.Effect_PURE || !c.Cleared()):
			all = append(all, d.result(c, messages.ToolFinished_CANCELLED))
		case c.Settled():
			all = append(all, conversation.ResultOf(c, c.Answer))
		case c.InDoubt() || c.Redo(): // it does not run, and an earlier attempt may have
			all = append(all, conversation.Interrupted(c.Plan.GetExecId(), c.Plan.GetCallId(), c.Name))
		default:
			all = append(all, d.result(c, messages.ToolFinished_OK))
		}
	}
	h := d.s.NextHash(all...)
	for _, f := range rapid.Permutation(all).Draw(d.t, "order") {
		d.put(f)
	}
	d.foretold(h)
}

func (d *driver) foretold(h [32]byte) {
	if r, ok := d.s.Ready(); ok {
		if p := r.Render("s"); p.Hash != h {
			d.t.Fatalf("NextHash foretold %x, and %x is sent", h, p.Hash)
		}
	}
}

// recover decides about all open calls, writes that down and acts on it, as a Worker does.
func (d *driver) recover() {
	decisions := d.s.Recover()
	d.put(&messages.Activated{Epoch: d.epoch, RecoveredSeq: d.s.Seq(), Decisions: decisions})
	for _, dec := range decisions {
		c := d.s.Turn().Call(dec.GetExecId())
		var facts []proto.Message
		switch dec.GetAction() {
		case messages.RecoveryDecision_DISPATCH, messages.RecoveryDecision_WAIT_APPROVAL, messages.RecoveryDecision_KNOWN:
			continue // goes on as if nothing had been
		case messages.RecoveryDecision_ASK_PERSON:
			if !c.InDoubt() {
				d.put(&messages.CallDoubted{ExecId: dec.GetExecId()})
			}
			continue
		case messages.RecoveryDecision_RERUN:
			facts = append(facts, &messages.ToolDispatched{ExecId: dec.GetExecId(), Attempt: 2}, d.result(c, messages.ToolFinished_OK))
		case messages.RecoveryDecision_RECONCILE:
			facts = append(facts, d.result(c, messages.ToolFinished_OK))
		default:
			f := d.result(c, messages.ToolFinished_INTERRUPTED_UNKNOWN)
			f.Content = conversation.InterruptedText
			facts = append(facts, f)
		}
		for _, f := range facts {
			d.put(f)
		}
	}
}

// orderly does the next step without any further trouble, so that there is an end.
func (d *driver) orderly() {
	switch n := d.s.Next(conversation.Limits{Steps: 5}).(type) {
	case conversation.Generate:
		if gen := d.s.Turn().Gen; gen != nil && len(d.prompts)%2 == 0 {
			d.answer(gen.GetGenId(), 0, "stop")
			return
		}
		d.put(&messages.GenerationStarted{GenId: d.id("gen")})
		d.answer(d.s.Turn().Gen.GetGenId(), 0, "stop")
	case conversation.Settle:
		d.settle(n.Calls[0])
	default:
		d.step(n)
	}
}
