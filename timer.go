package troupe

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Timer is an input that a worker gets at a time.
type Timer struct {
	ID         string
	At         time.Time // to the millisecond
	Text       string
	SkipMissed bool
	State      string // set, fired, skipped or cancelled
	Worker     string
}

// RemindOptions are what a timer may have besides its time and its text.
type RemindOptions struct {
	ID         string // the same id again changes nothing; "" makes one
	SkipMissed bool   // over a minute late, it is left out; without this it comes as soon as it can
}

// Remind gives the worker an input at a time. When Remind returns the timer is durable: it fires once, not before its time, whether the
// session is in memory or not, and after a restart too. A time that has passed fires at once.
func (w *Worker) Remind(ctx context.Context, at time.Time, text string, o RemindOptions) (*Timer, error) {
	m := &messages.SetTimer{
		WorkerId: w.id, TimerId: o.ID, DueUnixMs: at.UnixMilli(), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}, By: "program",
	}
	if o.ID == "" {
		m.TimerId = messages.NewID(messages.TimerPrefix)
	}
	if o.SkipMissed {
		m.Misfire = messages.TimerSet_SKIP
	}
	v, err := ask[*messages.TimerView](ctx, w.rt, w.session, m)
	if err != nil {
		return nil, err
	}
	return timerOf(v), nil
}

// Timers lists the worker's timers that are still to come, the earliest first.
func (w *Worker) Timers(ctx context.Context) ([]*Timer, error) {
	l, err := ask[*messages.Timers](ctx, w.rt, w.session, &messages.ListTimers{WorkerId: w.id})
	if err != nil {
		return nil, err
	}
	var out []*Timer
	for _, v := range l.GetTimers() {
		out = append(out, timerOf(v))
	}
	return out, nil
}

// CancelTimer takes a timer back: when it returns without an error, the timer has not fired and never will.
func (w *Worker) CancelTimer(ctx context.Context, id string) error {
	_, err := ask[*messages.Ack](ctx, w.rt, w.session, &messages.CancelTimer{WorkerId: w.id, TimerId: id, By: "program"})
	return err
}

func timerOf(v *messages.TimerView) *Timer {
	return &Timer{
		ID: v.GetTimerId(), At: time.UnixMilli(v.GetDueUnixMs()), Text: v.GetText(), SkipMissed: v.GetMisfire() == "skip",
		State: v.GetState(), Worker: v.GetWorkerId(),
	}
}
