package actors

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// triesAgain says whether an attempt that failed is repeated. One that the provider refused for the number of requests, or that was not made as it is out
// of order, is, for as long as the turn has time: a wait cures it. Of others there are as many as limits say, where as many requests that nothing came of
// count as one as the model's client would send of one call. What the attempts before it were stands in the journal.
func (w *Worker) triesAgain(class model.Class, f *messages.GenerationFailed) bool {
	t := w.state.Turn()
	others := len(w.standIns())
	left := w.attempts(f) < max(w.svc.Limits.ModelAttempts, others+1)
	if t.Gen.GetInsteadOf() != "" && !t.Tries.Own && ofItsOwn(class) {
		return left
	}
	if conversation.ForGood(string(class)) { // each model gets one chance
		return t.Failures+1 <= others && w.substitute(t.Failures+1, string(class)) != ""
	}
	return retryable(class) && (f.GetNotMade() || class == model.RateLimited || left)
}

// attempts is how many attempts at the step have failed with the newest, of those that limits bound.
func (w *Worker) attempts(f *messages.GenerationFailed) int {
	unanswered, each := w.vain(f)
	t := w.state.Turn()
	return attempts(t.Failures+1-t.Tries.Waits, unanswered, each)
}

// pauses is which pause follows a failure.
func (w *Worker) pauses(f *messages.GenerationFailed) int {
	unanswered, each := w.vain(f)
	return pauses(w.state.Turn().Failures+1, unanswered, each, f.GetUnanswered())
}

// vain is how many requests nothing has come of, with the newest, and how many of them are one attempt.
func (w *Worker) vain(f *messages.GenerationFailed) (unanswered, each int) {
	t := w.state.Turn()
	each, unanswered = 1, t.Tries.Unanswered
	if f.GetUnanswered() {
		unanswered++
	}
	if r, err := w.svc.Models.Resolve(t.Gen.GetModel()); err == nil {
		each = model.Attempts(r.Model)
	}
	return unanswered, each
}

// attempts is how many attempts so many failures are, some of which are requests that nothing came of: each of these is an attempt, or several are one.
func attempts(failures, unanswered, each int) int { return failures - unanswered + unanswered/each }

// pauses is which pause follows so many failures, some of which are requests that nothing came of: those of one attempt are as far from each other as a
// model's client would send them, and attempts are further and further from each other.
func pauses(failures, unanswered, each int, newest bool) int {
	if of := unanswered % each; newest && of > 0 {
		return of
	}
	return attempts(failures, unanswered, each)
}

// noAnswer says whether a request failed that nothing came of, and that may succeed when it is sent again.
func noAnswer(done *model.Completion, err error) bool {
	var me *model.Error
	if !errors.As(err, &me) || done.Text != "" || done.Reasoning != "" || len(done.ToolCalls) > 0 || done.Usage != nil {
		return false
	}
	switch me.Class {
	case model.Overloaded, model.Timeout, model.Truncated:
		return true
	case model.RateLimited, model.ContextLength, model.Auth, model.BadRequest, model.NotFound, model.Protocol, model.Unmatched:
	}
	return false
}

// unanswered says whether a call is a request that nothing came of, and that the model's client would have sent again.
func (m *generated) unanswered(g *generation) bool {
	return m.first == 0 && model.Attempts(g.model.Model) > 1 && noAnswer(m.completion, m.err)
}

// ofItsOwn says whether what a model that stands in refuses says nothing of the worker's own: that one is asked again.
func ofItsOwn(class model.Class) bool {
	return conversation.ForGood(string(class)) || class == model.ContextLength || class == model.BadRequest
}

// standIns are the models that may be asked instead of the worker's own, in order: those that its agent names, or else the one of the model itself. One
// whose window is too small for the request is none.
func (w *Worker) standIns() []string {
	own := w.state.Model()
	agent, _ := w.svc.agent(w.state.Agent())
	names := agent.Fallback
	if len(names) == 0 {
		if r, err := w.svc.Models.Resolve(own); err == nil && r.Fallback != "" {
			names = []string{r.Fallback}
		}
	}
	var out []string
	for _, name := range names {
		r, err := w.svc.Models.Resolve(name)
		if err != nil || name == own || r.Context > 0 && w.state.Turn() != nil && w.request(w.state.RequestTokens()) > int(r.Context) {
			continue
		}
		out = append(out, name)
	}
	return out
}

// mayAskAnother says whether the step has models left that were not tried, should this one be out of order.
func (w *Worker) mayAskAnother() bool {
	t := w.state.Turn()
	return t != nil && t.Failures+1 <= len(w.standIns()) && w.substitute(t.Failures+1, string(model.Overloaded)) != ""
}

// substitute is the model that is asked after so many failed attempts at a step, the newest of them of a class, instead of the worker's own; "" when that
// is asked. They take turns: either may be back first.
func (w *Worker) substitute(failures int, class string) string {
	switch agent, _ := w.svc.agent(w.state.Agent()); model.Class(class) {
	case model.RateLimited, model.Overloaded, model.Timeout:
	case model.Auth, model.NotFound:
		if len(agent.Fallback) == 0 {
			return ""
		}
	default:
		return ""
	}
	others := w.standIns()
	if at := failures % (len(others) + 1); at > 0 {
		return others[at-1]
	}
	return ""
}

// pauseAfter is how long the n-th pause is: as long as the provider asks for, and no longer than the Limiter believes it, which lets everybody
// else try by then.
func pauseAfter(err *model.Error, n int) time.Duration {
	return max(min(err.RetryAfter, longestPause), act.Backoff{First: 500 * time.Millisecond, Max: 30 * time.Second}.Pause(n))
}

// stopTimers is for a worker that ends.
func (w *Worker) stopTimers() {
	w.wall.Stop()
	w.retry.Stop()
	w.purse.wall.Stop()
}

// nextModel is the model that the next attempt asks. An attempt that a crash cut off is repeated where it was made: it says nothing against who was asked, and
// to ask the worker's own again would cost one of the attempts that there are.
func (w *Worker) nextModel() string {
	t := w.state.Turn()
	switch {
	case t == nil:
	case t.Failed != nil:
		if m := w.substitute(t.Failures, t.Failed.GetClass()); m != "" {
			return m
		}
	case t.Gen.GetInsteadOf() == w.state.Model() && slices.Contains(w.standIns(), t.Gen.GetModel()):
		return t.Gen.GetModel()
	}
	return w.state.Model()
}

// permitDenied: the provider is out of order, or wants a pause, and another model may be asked.
func (w *Worker) permitDenied(c actor.Context, m *messages.PermitDenied) {
	g := w.gen
	if g == nil || g.request != m.GetRequest() || g.permit {
		return
	}
	w.denied = true
	err := &model.Error{Class: model.Overloaded, Message: fmt.Sprintf("provider %q is out of order: too many calls in a row have failed", g.provider)}
	if m.GetPaused() {
		err = &model.Error{Class: model.RateLimited, Message: fmt.Sprintf("provider %q wants a pause of %s more", g.provider, (time.Duration(m.GetForMs()) * time.Millisecond).Round(time.Second))}
	}
	w.generationFailed(c, err, "")
}

// permitAnswered goes on with the call, or with another model.
func (w *Worker) permitAnswered(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.PermitGranted:
		w.permitGranted(c, m)
	case *messages.PermitDenied:
		w.permitDenied(c, m)
	}
}
