package pipeline

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Result is what one answer of a worker, or one call of a tool, came to.
type Result struct {
	OK      bool
	Text    string
	Class   string // of what went wrong: rate_limited, overloaded, timeout, truncated, denied, ... ; "" for others
	Error   string
	Usage   *messages.Usage
	Lineage *messages.Lineage // the conversation as it stands

	Scripted bool // no language model answered
}

// Settle says what a result makes of an item under way: it is over, is tried again, or its worker is asked again. input is the prompt
// that was answered; a result of an earlier one, or of an item that is over, is nothing.
func (s *State) Settle(w World, path string, index int, input string, r Result) proto.Message {
	switch f := s.settle(w, path, index, input, r).(type) {
	case *messages.StepItemRepaired:
		f.Scripted = r.Scripted
		return f
	case *messages.StepItemRetried:
		f.Scripted = r.Scripted
		return f
	case *messages.StepItemFinished:
		f.Scripted = r.Scripted
		return f
	default:
		return f
	}
}

func (s *State) settle(w World, path string, index int, input string, r Result) proto.Message {
	it := s.Item(path, index)
	if it == nil || it.Status != Running || it.Input != input || s.Finished != nil {
		return nil
	}
	d := &decider{s: s, w: w}
	if !r.OK {
		if f := d.cut(it, r.Usage); f != nil {
			return f
		}
		return d.after(it, r.Class, orElse(r.Error, "it failed"), r.Usage)
	}
	st := it.step.Step
	var out any = r.Text
	if st.Schema != nil {
		v, why := st.Schema.fit(r.Text)
		if why != "" {
			if it.Repairs < st.Repair {
				return &messages.StepItemRepaired{
					Step: path, Index: int32(index), InputId: d.id(messages.InputPrefix, it.step.name(), index, it.Attempt*1000+it.Repairs+1), //nolint:gosec // at most maxItems
					Prompt: st.Schema.Repair(why), Usage: r.Usage,
				}
			}
			return d.after(it, "schema", "the answer does not fit its schema: "+why, r.Usage)
		}
		out = v
	}
	f := d.finished(it, Succeeded, "", "")
	f.OutputJson, f.Usage, f.Conversation = encodeJSON(out), r.Usage, r.Lineage
	return f
}

// after is what follows a failed attempt: another one, or the end of the item.
func (d *decider) after(it *ItemState, class, why string, used *messages.Usage) proto.Message {
	r := it.step.Step.Retry
	if r == nil {
		r = it.step.scope.file.Defaults.Retry
	}
	if r == nil || it.Attempt > r.Max || !slices.Contains(r.On, class) {
		f := d.finished(it, Failed, class, why)
		f.Usage = used
		return f
	}
	return &messages.StepItemRetried{
		Step: it.step.Path, Index: int32(it.Index), Attempt: int32(it.Attempt), Class: class, Error: why, Usage: used, //nolint:gosec // at most maxItems, and few attempts
		NotBeforeUnixMs: d.w.Now.Add(r.pause(it.Attempt)).UnixMilli(),
	}
}

// pause is the time before another attempt after the n-th one.
func (r *Retry) pause(n int) time.Duration {
	p := r.Initial
	switch r.Backoff {
	case "linear":
		p *= time.Duration(n)
	case "exponential":
		for range min(n-1, 20) {
			p = min(2*p, MostWait)
		}
	}
	return min(p, MostWait)
}

// Due is the time at which Decide may have something to say though nothing has happened; zero: never.
func (s *State) Due(now time.Time) time.Time {
	var due int64
	note := func(at int64) {
		if at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	if s.Finished != nil || s.top == nil {
		return time.Time{}
	}
	d := &decider{s: s, rate: s.allowance(now)}
	d.room, d.pipelines, _ = s.rooms()
	pending := false
	s.top.live(func(ss *StepState) {
		if ss.Status != Running {
			return
		}
		pending = pending || ss.Step.Repeat != nil || ss.Step.Kind == GroupStep || len(ss.tally.pending) > 0
		for _, i := range ss.tally.under {
			switch it := ss.Items[i]; {
			case it.Status == Running:
				if it.Deadline > now.UnixMilli() { // else it is ending
					note(it.Deadline)
				}
			case it.Asks():
				if at := it.Asked.GetExpiresAtUnixMs(); at > now.UnixMilli() || ss.met() {
					note(at)
				}
			case it.Status == Waiting && (it.NotBefore > now.UnixMilli() || d.free(ss) && ss.met()):
				note(it.NotBefore)
			case it.Status == Waiting: // for room, for the rate, or for what a changed plan has its step need
				pending = true
			}
		}
	})
	if l := s.Plan.Root.Limits; pending && l.Rate > 0 && s.allowance(now) == 0 {
		for _, at := range s.begun {
			if now.UnixMilli()-at < l.Per.Milliseconds() {
				note(at + l.Per.Milliseconds())
			}
		}
	}
	if due == 0 {
		return time.Time{}
	}
	return time.UnixMilli(cmp.Or(due, 1))
}
