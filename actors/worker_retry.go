package actors

import "github.com/troupe-dev/troupe/model"

// limited counts the attempts at the step under way, in this activation, that the provider has refused for their number.
type limited struct {
	turn  string
	step  int
	count int
}

// triesAgain says whether an attempt that failed is repeated. One that the provider refused for the number of requests is, for as long as the turn
// has time: a wait cures it. Of others there are as many as limits say.
func (w *Worker) triesAgain(class model.Class) bool {
	if !retryable(class) {
		return false
	}
	t := w.state.Turn()
	l := &w.limited
	if l.turn != t.ID || l.step != t.Steps {
		*l = limited{turn: t.ID, step: t.Steps}
	}
	if class == model.RateLimited {
		l.count++
		return true
	}
	return t.Failures+1-l.count < w.svc.Limits.ModelAttempts
}

// substitute is the model that is asked after so many failed attempts at a step, the newest of them of a class, instead of the worker's own; "" when that
// is asked. They take turns: either may be back first.
func (w *Worker) substitute(failures int, class string) string {
	switch model.Class(class) {
	case model.RateLimited, model.Overloaded, model.Timeout:
	default:
		return ""
	}
	if failures%2 == 0 {
		return ""
	}
	r, err := w.svc.Models.Resolve(w.state.Model())
	if err != nil || r.Fallback == "" {
		return ""
	}
	if _, err := w.svc.Models.Resolve(r.Fallback); err != nil {
		return ""
	}
	return r.Fallback
}

// stopTimers is for a worker that ends.
func (w *Worker) stopTimers() {
	w.wall.Stop()
	w.retry.Stop()
	w.purse.wall.Stop()
}

// nextModel is the model that the next attempt asks.
func (w *Worker) nextModel() string {
	if t := w.state.Turn(); t != nil && t.Failed != nil {
		if m := w.substitute(t.Failures, t.Failed.GetClass()); m != "" {
			return m
		}
	}
	return w.state.Model()
}
