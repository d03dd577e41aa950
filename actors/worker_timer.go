package actors

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

const (
	// misfire is how late a timer may be fired whose policy is to skip what was missed.
	misfire = time.Minute
	// maxTimers is how many timers of one worker may be set at once.
	maxTimers = 1000
	// maxTimerID is the longest id of a timer, in bytes.
	maxTimerID = 128
)

// aboutTimers is the part of common that is about timers.
func (w *Worker) aboutTimers(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.SetTimer:
		w.setTimer(c, m)
	case *messages.CancelTimer:
		w.cancelTimer(c, m)
	case *messages.ListTimers:
		c.Respond(w.listTimers())
	case *messages.FireTimer:
		w.fireTimer(c, m, nil)
	default:
		w.aboutBudget(c)
	}
}

// setTimer writes a timer down: from then on it will fire, whatever happens to this process.
func (w *Worker) setTimer(c actor.Context, m *messages.SetTimer) {
	f := &messages.TimerSet{TimerId: m.GetTimerId(), DueUnixMs: m.GetDueUnixMs(), Parts: w.svc.cleanParts(m.GetParts()), Misfire: m.GetMisfire(), By: m.GetBy()}
	if f.GetTimerId() == "" {
		f.TimerId = messages.NewID(messages.TimerPrefix)
	}
	if t := w.state.Timer(f.GetTimerId()); t != nil {
		if !sameTimer(t.TimerSet, f) {
			c.Respond(messages.Fail(messages.CodeConflict, fmt.Sprintf("timer %s was set with other content", f.GetTimerId()), "use a new timer id"))
			return
		}
		c.Respond(w.timerView(t))
		return
	}
	if fail := w.refuseTimer(f); fail != nil {
		c.Respond(fail)
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		c.Send(timersPID(c.ActorSystem()), &messages.TimerChanged{DueUnixMs: f.GetDueUnixMs()})
		if asker != nil {
			c.Send(asker, w.timerView(w.state.Timer(f.GetTimerId())))
		}
	}, f)
}

func sameTimer(a, b *messages.TimerSet) bool {
	return a.GetDueUnixMs() == b.GetDueUnixMs() && a.GetMisfire() == b.GetMisfire() &&
		string(conversation.ContentHash(a.GetParts(), nil)) == string(conversation.ContentHash(b.GetParts(), nil))
}

func (w *Worker) refuseTimer(f *messages.TimerSet) *messages.Failure {
	switch {
	case w.state.Closed():
		return messages.Fail(messages.CodeClosed, "the worker was deleted", "")
	case f.GetDueUnixMs() <= 0:
		return messages.Fail(messages.CodeBadRequest, "the timer has no time", "say when it is due")
	case len(f.GetTimerId()) > maxTimerID:
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the timer id is longer than %d bytes", maxTimerID), "")
	case strings.TrimSpace(conversation.InputText(f.GetParts())) == "":
		return messages.Fail(messages.CodeBadRequest, "the timer's input is empty", "say what the agent should do then")
	case len(w.state.Timers()) >= maxTimers:
		return messages.Fail(messages.CodeBusy, fmt.Sprintf("%d timers are set already", maxTimers), "cancel one")
	}
	return nil
}

// cancelTimer takes a timer back. Once that is durable it cannot fire any more.
func (w *Worker) cancelTimer(c actor.Context, m *messages.CancelTimer) {
	if t := w.state.Timer(m.GetTimerId()); t == nil || !t.Open() {
		c.Respond(messages.Fail(messages.CodeNotFound, fmt.Sprintf("timer %s is not set", m.GetTimerId()), ""))
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		if asker != nil {
			c.Send(asker, &messages.Ack{})
		}
	}, &messages.TimerCancelled{TimerId: m.GetTimerId(), By: m.GetBy()})
}

func (w *Worker) listTimers() *messages.Timers {
	out := &messages.Timers{}
	for _, t := range w.state.Timers() {
		out.Timers = append(out.Timers, w.timerView(t))
	}
	return out
}

// fireTimer submits the input of a timer that is due, together with the fact that it has fired: it
// fires once, whoever asks how often. then goes on with it, when nothing else does.
func (w *Worker) fireTimer(c actor.Context, m *messages.FireTimer, then func(actor.Context)) {
	t := w.state.Timer(m.GetTimerId())
	now := w.svc.Clock.Now()
	switch {
	case t == nil:
		c.Respond(messages.Fail(messages.CodeNotFound, fmt.Sprintf("timer %s is not set", m.GetTimerId()), ""))
		return
	case w.state.Closed():
		c.Respond(messages.Fail(messages.CodeClosed, "the worker was deleted", ""))
		return
	case !t.Open() || now.UnixMilli() < t.GetDueUnixMs(): // it was told already, or too early: the clock was set back
		c.Respond(w.timerView(t))
		return
	}
	late := now.UnixMilli() - t.GetDueUnixMs()
	fired := &messages.TimerFired{TimerId: t.GetTimerId(), LateMs: late}
	facts := []proto.Message{fired}
	if t.GetMisfire() == messages.TimerSet_SKIP && late > misfire.Milliseconds() {
		fired.Skipped = true
	} else {
		fired.InputId = messages.NewID(messages.InputPrefix)
		facts = append(facts, w.svc.tracedInput(&messages.InputAccepted{
			InputId: fired.GetInputId(), Origin: messages.InputAccepted_TIMER, From: t.GetBy(), Parts: t.GetParts(),
			ContentHash: conversation.ContentHash(t.GetParts(), nil),
		}, w.session, w.id))
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		if asker != nil {
			c.Send(asker, w.timerView(t))
		}
		if then != nil {
			then(c)
		}
	}, facts...)
}

func (w *Worker) timerView(t *conversation.Timer) *messages.TimerView {
	state := t.End
	if t.Open() {
		state = "set"
	}
	return &messages.TimerView{
		TimerId: t.GetTimerId(), DueUnixMs: t.GetDueUnixMs(), Text: conversation.InputText(t.GetParts()),
		Misfire: strings.ToLower(t.GetMisfire().String()), WorkerId: w.id, State: state,
	}
}

// timerOps keeps the store's timers as the facts of an append have them, so that they are found without the worker.
func (w *Worker) timerOps(facts []proto.Message) []persistence.TimerOp {
	var ops []persistence.TimerOp
	gone := func(id string) {
		ops = append(ops, persistence.TimerOp{ID: timerKey(w.session, w.id, id), Delete: true})
	}
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.TimerSet:
			ops = append(ops, persistence.TimerOp{ID: timerKey(w.session, w.id, f.GetTimerId()), Due: time.UnixMilli(f.GetDueUnixMs())})
		case *messages.TimerFired:
			gone(f.GetTimerId())
		case *messages.TimerCancelled:
			gone(f.GetTimerId())
		case *messages.Closed:
			for _, t := range w.state.Timers() {
				gone(t.GetTimerId())
			}
		}
	}
	return ops
}

// nextTimer is when the next timer is due, in ms since 1970; 0: none is set.
func (w *Worker) nextTimer() int64 {
	if t := w.state.Timers(); len(t) > 0 {
		return t[0].GetDueUnixMs()
	}
	return 0
}

// timers are those that an imported session still has.
func (p *Copying) timers() []persistence.TimerOp {
	var ops []persistence.TimerOp
	for _, old := range p.Survey.order {
		s := p.Survey.workers[old]
		if s.Closed() {
			continue
		}
		for _, t := range s.Timers() {
			ops = append(ops, persistence.TimerOp{ID: timerKey(p.ID, p.names.id(old), t.GetTimerId()), Due: time.UnixMilli(t.GetDueUnixMs())})
		}
	}
	return ops
}
