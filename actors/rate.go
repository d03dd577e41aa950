package actors

import "time"

// window is the time over which a provider counts.
const window = time.Minute

// rate counts what was spent in the last minute: in no minute more than most begins. 0 is no limit.
type rate struct {
	most int64
	log  []spent // oldest first
	sum  int64
}

type spent struct {
	at time.Time
	n  int64
}

// wait is how long nothing may be spent, 0 when it may.
func (r *rate) wait(now time.Time) time.Duration {
	for len(r.log) > 0 && now.Sub(r.log[0].at) >= window {
		r.sum -= r.log[0].n
		r.log = r.log[1:]
	}
	if r.most == 0 || r.sum < r.most {
		return 0
	}
	left := r.sum - r.most
	for _, s := range r.log { // the one whose end makes room
		if left -= s.n; left < 0 {
			return min(window-now.Sub(s.at), window) // a clock that was set back must not wait for ever
		}
	}
	return window
}

func (r *rate) spend(now time.Time, n int64) {
	if r.most == 0 || n <= 0 {
		return
	}
	r.log, r.sum = append(r.log, spent{now, n}), r.sum+n
}
