package pipeline

import "time"

// paceOver is how many ends of items tell how fast a step is.
const paceOver = 64

// paced is when items of a step ended, in milliseconds: the newest ones, of those that ended since the run came into memory.
type paced struct{ ends []int64 }

func (p *paced) note(atMs int64) {
	if len(p.ends) == paceOver {
		p.ends = append(p.ends[:0], p.ends[1:]...)
	}
	p.ends = append(p.ends, atMs)
}

// Pace is how many items of a step end in a second, of late, and how long it takes at that rate until all have ended. Zero: there is nothing
// to tell it by. The time in which no process worked on the run does not count, and that in which nothing ends does.
func (ss *StepState) Pace(now time.Time) (perSecond float64, left time.Duration) {
	n := len(ss.pace.ends)
	if ss.Status != Running || ss.Step.Repeat != nil || n < 2 {
		return 0, 0
	}
	took := now.UnixMilli() - ss.pace.ends[0]
	open := ss.left()
	if took <= 0 || open == 0 {
		return 0, 0
	}
	each := float64(took) / float64(n-1) // milliseconds
	return 1000 / each, time.Duration(each * float64(open) * float64(time.Millisecond))
}

// unpaced forgets what the pace was: nobody has worked on the run for a while.
func (s *State) unpaced() {
	for _, ss := range s.Steps() {
		ss.pace = paced{}
	}
}
