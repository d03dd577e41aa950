package actors

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// What a worker takes in memory, about: itself with its session and their mailboxes, as was measured of sessions at rest, and its conversation.
const (
	restingBytes  = 32 << 10
	bytesPerToken = 4
)

func (w *Worker) view() *messages.WorkerView {
	state := w.phase
	if state == stateRequesting && w.gen != nil && w.gen.receiving.Load() {
		state = stateReceiving
	}
	v := &messages.WorkerView{
		Id: w.id, SessionId: w.session, State: state, Quarantined: w.quarantined, Restarts: w.restarts, LastError: w.lastError,
		WaitsFor: w.waitsFor(), Waiting: w.waitingOn(), Pending: int32(w.stash.Len()), Calls: int32(len(w.running)),
	}
	if w.executor != nil {
		v.Executor = w.executor.GetId()
	}
	if w.state != nil {
		v.Agent, v.Model, v.Turns, v.Parent = w.state.Agent(), w.state.Model(), int32(w.state.Turns()), w.state.Parent()
		v.Tools, v.Background, v.Outbox = w.state.Tools(), w.state.Background(), int32(len(w.state.Outbox()))
		v.MemoryBytes = restingBytes + bytesPerToken*int64(w.state.Tokens())
		v.Staged, v.Usage, v.UpdatedAtUnixMs = int32(len(w.state.Staged())), w.state.Usage(), w.state.At()
		if t := w.state.Turn(); t != nil {
			v.Turn = t.ID
		}
		if last := w.state.Last(); last != nil {
			v.LastOutcome = conversation.OutcomeName(last.Completed.GetOutcome())
		}
		if w.budgeted() {
			v.Spent = w.state.Spent()
			if r := w.state.Reserved(); r != nil {
				v.Reserved = r.Amounts()
			}
		}
		v.InDoubt, v.Approvals = inDoubt(w.state), pendingApprovals(w.state)
	}
	return v
}

// listed is the view as it is kept for a worker that is not in memory: without what only a live one has.
func (w *Worker) listed() *messages.WorkerView {
	v := w.view()
	v.WaitsFor, v.Waiting, v.Pending, v.Executor, v.Calls = "", nil, 0, "", 0
	v.MemoryBytes = 0
	v.UpdatedAtUnixMs = w.svc.Now().UnixMilli()
	return v
}

// waitsFor says what the worker waits for, in words for people; "" when it does not wait.
func (w *Worker) waitsFor() string {
	switch {
	case w.phase != stateWaiting:
		return ""
	case w.asksPeople():
		if n := pendingApprovals(w.state); n != 1 {
			return fmt.Sprintf("an answer to %d approvals", n)
		}
		return "an answer to an approval"
	case len(w.leases.want) > 0 && w.leases.behind != "":
		return fmt.Sprintf("the workspace %s, in which session %s works", w.leases.want[0].GetUri(), w.leases.behind)
	case len(w.leases.want) > 0:
		return "the workspace " + w.leases.want[0].GetUri()
	case w.purse.asking && w.purse.pause.step != "":
		return "the budget of step " + w.purse.pause.step
	case w.purse.asking:
		return "the budget of its session"
	case w.gen != nil && !w.gen.permit && w.gen.provider != "":
		return fmt.Sprintf("a permit for a model call of provider %q", w.gen.provider)
	case w.state != nil && w.state.Turn() != nil && w.state.Turn().Failed.GetRetryAtUnixMs() > 0:
		return "another try at the model, at " + messages.FormatTime(w.state.Turn().Failed.GetRetryAtUnixMs())
	}
	return ""
}

// waitingOn is what the worker waits for, besides people, with what only it knows: since when. nil when there is nothing.
func (w *Worker) waitingOn() *messages.Waiting {
	switch {
	case w.state == nil:
		return nil
	case len(w.leases.want) > 0:
		return &messages.Waiting{Kind: "lease", Subject: w.leases.want[0].GetUri(), Session: w.leases.behind, SinceUnixMs: unixMs(w.leases.since)}
	case w.purse.asking:
		return &messages.Waiting{Kind: "budget", Subject: w.session, SinceUnixMs: unixMs(w.purse.asked), Reason: w.purse.pause.reason, Step: w.purse.pause.step}
	case w.gen != nil && w.gen.permit:
		v := &messages.Waiting{Kind: "model", Subject: w.state.Model(), SinceUnixMs: unixMs(w.gen.started)}
		if t := w.state.Turn(); t != nil && !w.gen.summary && t.Gen.GetInsteadOf() != "" {
			v.Subject, v.InsteadOf = t.Gen.GetModel(), t.Gen.GetInsteadOf()
		}
		return v
	case w.gen != nil && w.gen.provider != "":
		return &messages.Waiting{Kind: "permit", Subject: w.gen.provider, SinceUnixMs: unixMs(w.gen.asked)}
	case len(w.running) > 0:
		return &messages.Waiting{Kind: "call", SinceUnixMs: w.ranSinceMs}
	}
	if t := w.state.Turn(); w.phase == stateWaiting && t != nil && t.Failed.GetRetryAtUnixMs() > 0 {
		f := t.Failed
		return &messages.Waiting{Kind: "retry", Subject: w.state.Model(), SinceUnixMs: t.FailedMs, UntilUnixMs: f.GetRetryAtUnixMs(), Reason: f.GetMessage()}
	}
	return nil
}

// unixMs is a time as messages have it; 0 for none.
func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
