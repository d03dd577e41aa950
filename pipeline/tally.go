package pipeline

import (
	"slices"

	"github.com/troupe-dev/troupe/messages"
)

// tally is how the items of a step stand. It is kept with every change, so that what an item costs does not grow with the number of items:
// nobody looks at all of them for one.
type tally struct {
	pending, under places // that have not begun; that run, or wait for a person or for the time of another attempt
	done, lost     int    // that have succeeded; that have failed or were cancelled
	used           *messages.Usage
}

// places are the places of items, in their order.
type places []int

func (p *places) add(i int) {
	if at, in := slices.BinarySearch(*p, i); !in {
		*p = slices.Insert(*p, at, i)
	}
}

func (p *places) drop(i int) {
	switch at, in := slices.BinarySearch(*p, i); {
	case !in:
	case at == 0: // the usual one: the rest stays where it is
		*p = (*p)[1:]
	default:
		*p = slices.Delete(*p, at, at+1)
	}
}

// to gives an item another status.
func (it *ItemState) to(status string) {
	t := &it.step.tally
	switch it.Status {
	case Pending:
		t.pending.drop(it.Index)
	case Running, Waiting:
		t.under.drop(it.Index)
	case Succeeded:
		t.done--
	case Failed, Cancelled:
		t.lost--
	}
	switch it.Status = status; status {
	case Pending:
		t.pending.add(it.Index)
	case Running, Waiting:
		t.under.add(it.Index)
	case Succeeded:
		t.done++
	case Failed, Cancelled:
		t.lost++
	}
}

// Under are the items that are under way or wait, in their order.
func (ss *StepState) Under() []*ItemState { return ss.at(ss.tally.under) }

func (ss *StepState) at(p places) []*ItemState {
	out := make([]*ItemState, len(p))
	for i, place := range p {
		out[i] = ss.Items[place]
	}
	return out
}

// Ended is how many items have succeeded, and how many have failed or were cancelled.
func (ss *StepState) Ended() (done, lost int) { return ss.tally.done, ss.tally.lost }

// left is how many items are not over.
func (ss *StepState) left() int { return len(ss.tally.pending) + len(ss.tally.under) }

// Usage is what all items of a step have used. What a pipeline uses that it runs is that of the steps below it. Nobody changes it.
func (ss *StepState) Usage() *messages.Usage {
	if ss.tally.used == nil {
		return &messages.Usage{}
	}
	return ss.tally.used
}

// live visits every step at which something may be under way: those of nested pipelines that are over are left out.
func (sc *scope) live(fn func(*StepState)) {
	for _, st := range sc.file.Steps {
		ss := sc.steps[st.ID]
		fn(ss)
		if st.Kind != NestedStep {
			continue
		}
		for _, i := range ss.tally.under {
			if in := ss.Items[i].inner; in != nil {
				in.live(fn)
			}
		}
	}
}

// Live are the steps at which something may be under way, in the order of the files.
func (s *State) Live() (out []*StepState) {
	if s.top != nil {
		s.top.live(func(ss *StepState) { out = append(out, ss) })
	}
	return out
}
