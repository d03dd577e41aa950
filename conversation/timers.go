package conversation

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Timer is an input that its worker gets at a time, and what became of it.
type Timer struct {
	*messages.TimerSet
	End string // "" while it is set; fired | skipped | cancelled
}

// Open says whether the timer is still to come.
func (t *Timer) Open() bool { return t.End == "" }

// The ends of a timer.
const (
	TimerFired     = "fired"
	TimerSkipped   = "skipped"
	TimerCancelled = "cancelled"
)

// Timer returns a timer by its id, also one that is over, so that the same id again changes nothing. It is nil when
// there was none.
func (s *State) Timer(id string) *Timer { return s.timers[id] }

// Timers lists the timers that are still to come, the earliest first.
func (s *State) Timers() []*Timer {
	var out []*Timer
	for _, t := range s.timers {
		if t.Open() {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *Timer) int {
		return cmp.Or(cmp.Compare(a.GetDueUnixMs(), b.GetDueUnixMs()), cmp.Compare(a.GetTimerId(), b.GetTimerId()))
	})
	return out
}

// foldTimer applies the facts of timers; known is false for every other fact.
func (s *State) foldTimer(fact proto.Message) (known bool, err error) {
	switch f := fact.(type) {
	case *messages.TimerSet:
		if s.timers[f.GetTimerId()] != nil {
			return true, fmt.Errorf("timer %s set twice: %w", f.GetTimerId(), ErrIllegal)
		}
		if s.timers == nil {
			s.timers = make(map[string]*Timer)
		}
		s.timers[f.GetTimerId()] = &Timer{TimerSet: f}
		return true, nil
	case *messages.TimerFired:
		end := TimerFired
		if f.GetSkipped() {
			end = TimerSkipped
		}
		return true, s.endTimer(f.GetTimerId(), end)
	case *messages.TimerCancelled:
		return true, s.endTimer(f.GetTimerId(), TimerCancelled)
	}
	return false, nil
}

func (s *State) endTimer(id, end string) error {
	t := s.timers[id]
	if t == nil || !t.Open() {
		return fmt.Errorf("timer %s is %s without being set: %w", id, end, ErrIllegal)
	}
	t.End = end
	return nil
}
