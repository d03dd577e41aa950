package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// toldRun is what a worker of a run has told its Session last of what it waits for. Other workers tell nothing.
type toldRun struct {
	told  bool
	waits waitsFor
}

// waitsFor is what a worker waits for, as a run wants to know it; the zero value: it works.
type waitsFor struct {
	kind, subject, session, step, approval, exec, call, reason string
	sinceMs, untilMs                                           int64
}

func (f waitsFor) view(worker string) *messages.Waiting {
	return &messages.Waiting{
		Kind: f.kind, Subject: f.subject, Session: f.session, Step: f.step, ApprovalId: f.approval, ExecId: f.exec, Reason: f.reason,
		SinceUnixMs: f.sinceMs, UntilUnixMs: f.untilMs, WorkerId: worker,
	}
}

// workerWaits tells a Session of a run what one of its workers waits for by now. It goes on to the run as that of the item, with the worker that the item has.
type workerWaits struct {
	worker string // who waits
	item   string // whom the run has asked; "": the session's first one, who makes the calls of its tool steps
	waits  waitsFor
}

// tellRun says what the worker waits for when that has changed. Nothing of it is in a journal: who starts anew says it again.
func (w *Worker) tellRun(c actor.Context) {
	if w.ofRun == nil || w.state == nil || w.journal == nil {
		return
	}
	now := w.waitsNow()
	if w.ofRun.told && now == w.ofRun.waits {
		return
	}
	w.ofRun.told, w.ofRun.waits = true, now
	c.Send(c.Parent(), &workerWaits{worker: w.id, waits: now})
}

// waitsNow is what the worker waits for: people first, who can do something about it.
func (w *Worker) waitsNow() waitsFor {
	t := w.state.Turn()
	if t != nil {
		for _, call := range t.Calls {
			if call.Pending() {
				return waitsFor{kind: messages.WaitApproval, subject: w.named(call), approval: call.Requested.GetApprovalId(), call: call.Plan.GetCallId(), sinceMs: call.AtMs}
			}
		}
		for _, call := range t.Calls {
			if call.InDoubt() {
				return waitsFor{kind: messages.WaitDoubt, subject: w.named(call), exec: call.Plan.GetExecId(), call: call.Plan.GetCallId(), sinceMs: call.AtMs}
			}
		}
	}
	on := w.waitingOn()
	f := waitsFor{kind: on.GetKind(), subject: on.GetSubject(), session: on.GetSession(), step: on.GetStep(), reason: on.GetReason(), sinceMs: on.GetSinceUnixMs(), untilMs: on.GetUntilUnixMs()}
	switch f.kind {
	case messages.WaitBudget, messages.WaitLease, messages.WaitPermit, messages.WaitRetry:
		f.reason = w.svc.Redact.String(f.reason)
		return f
	case "call":
		return w.atOwners(t, f.sinceMs)
	}
	return waitsFor{}
}

// atOwners is the first call of a turn that runs on a machine of somebody else, which may not be there.
func (w *Worker) atOwners(t *conversation.Turn, sinceMs int64) waitsFor {
	if t == nil {
		return waitsFor{}
	}
	for _, call := range t.Calls {
		if !call.Open() || !w.running[call.Plan.GetExecId()] {
			continue
		}
		for _, g := range w.grant.GetWorkspaces() {
			if g.GetOwner() != "" && g.GetUri() == call.Plan.GetWorkspace() {
				return waitsFor{kind: messages.WaitOwner, subject: g.GetUri(), exec: call.Plan.GetExecId(), call: call.Plan.GetCallId(), sinceMs: sinceMs}
			}
		}
	}
	return waitsFor{}
}

// named is a call in short, for people.
func (w *Worker) named(call *conversation.Call) string {
	args := []rune(w.svc.Redact.String(call.Arguments))
	if len(args) > 80 {
		args = append(args[:79], '…')
	}
	return call.Name + "(" + string(args) + ")"
}
