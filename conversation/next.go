package conversation

import (
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/messages"
)

// Step is what may come next in a conversation: the closed set below.
type Step interface{ step() }

// The steps.
type (
	// Rest means that there is nothing to do until an input arrives.
	Rest struct{}
	// Begin a turn with the oldest staged input.
	Begin struct{ Input *Input }
	// Generate asks the model; Number counts the turn's steps from 1, Attempt the tries of that step.
	Generate struct {
		Ready           Ready
		Number, Attempt int
	}
	// Plan the calls from position From on: the one of a program's turn, or those of an answer
	// that was stored without its plans.
	Plan struct {
		Calls []*messages.ToolCall
		From  int
	}
	// Settle the open calls: dispatch those that may start, wait for the others.
	Settle struct{ Calls []*Call }
	// Complete the turn.
	Complete struct {
		Outcome messages.TurnCompleted_Outcome
		Reason  string
		Code    string
	}
)

func (Rest) step()     {}
func (Begin) step()    {}
func (Generate) step() {}
func (Plan) step()     {}
func (Settle) step()   {}
func (Complete) step() {}

// Limits bound a turn. Zero means no limit.
type Limits struct {
	Steps   int // generations per turn
	Repeats int // identical calls in a row, with identical results

	// Fits says whether a request whose messages are so many tokens has room in the model's window: inputs join an open turn
	// only while they do. nil: anything has.
	Fits func(tokens int) bool
}

// Next says what may come next. It looks at the facts alone, so that a worker that was
// just recovered and one that never stopped go on in the same way.
func (s *State) Next(lim Limits) Step {
	t := s.turn
	switch {
	case s.created == nil || s.closed:
		return Rest{}
	case t == nil && len(s.inputs) == 0:
		return Rest{}
	case t == nil:
		return Begin{s.inputs[0]}
	case t.assistant != nil && len(t.Calls) < len(t.assistant.ToolCalls):
		return Plan{t.assistant.ToolCalls[len(t.Calls):], len(t.Calls)}
	case t.Pending():
		return Settle{t.OpenCalls()}
	case t.Cancelled != nil:
		return cancelled(t.Cancelled)
	case t.Doomed() != nil:
		return Doom(t.Doomed())
	case t.Program():
		return s.nextOfProgram(t)
	}
	return s.nextOfTurn(t, lim)
}

func (s *State) nextOfProgram(t *Turn) Step {
	if len(t.Calls) == 0 {
		return Plan{Calls: []*messages.ToolCall{t.Inputs[0].GetCall()}}
	}
	return Complete{Outcome: messages.TurnCompleted_DONE}
}

func (s *State) nextOfTurn(t *Turn, lim Limits) Step {
	if f := t.Failed; f != nil && f.GetRetryAtUnixMs() == 0 {
		if f.GetClass() == ContextLength {
			return Complete{messages.TurnCompleted_LIMIT, tooLong + ": " + f.GetMessage(), ContextLength}
		}
		return Complete{messages.TurnCompleted_ERROR, f.GetMessage(), f.GetClass()}
	}
	if t.finished() {
		return completion(t)
	}
	if end := t.exceeds(lim, nil); end != nil {
		return *end
	}
	if in := s.joining(lim); len(in) > 0 {
		return Join{in}
	}
	r, ok := s.Ready()
	if !ok { // a call was answered but never planned: the journal cannot hold this
		return Complete{messages.TurnCompleted_ERROR, "the conversation is not ready for a model call", "internal_error"}
	}
	return Generate{Ready: r, Number: t.Steps + 1, Attempt: t.Attempts + 1}
}

// ContextLength is the class of a generation, and the code of a turn, that failed because its request does not fit
// into the model's window.
const ContextLength = "context_length"

const tooLong = "the conversation no longer fits into the model's context; give smaller tasks, have less printed, or take a model with a larger one"

// TooLong ends the open turn, whose next request would exceed the model's window of so many tokens.
func TooLong(tokens, window int) Complete {
	return Complete{messages.TurnCompleted_LIMIT, fmt.Sprintf("%s (about %d tokens; it takes %d)", tooLong, tokens, window), ContextLength}
}

// GoesOn says whether the turn asks the model again, and does nothing else before, once its last open call has this result.
func (s *State) GoesOn(last *messages.ToolFinished, lim Limits) bool {
	return s.turn.exceeds(lim, last) == nil && len(s.joining(lim, last)) == 0
}

// exceeds ends a turn that has come to a limit, nil when it has not. last is a result that is about to be written.
func (t *Turn) exceeds(lim Limits, last *messages.ToolFinished) *Complete {
	if lim.Steps > 0 && t.Steps >= lim.Steps {
		return &Complete{messages.TurnCompleted_LIMIT, fmt.Sprintf("the turn reached its limit of %d steps", lim.Steps), "limit"}
	}
	if lim.Repeats > 0 && t.repeats(last) >= lim.Repeats {
		name := t.AllCalls[len(t.AllCalls)-1].Name
		return &Complete{messages.TurnCompleted_STUCK, fmt.Sprintf("%s was called %d times in a row in the same way, with the same result", name, lim.Repeats), "stuck"}
	}
	if why := circles(steps(t.tried(last)), lim.Repeats); why != "" {
		return &Complete{messages.TurnCompleted_STUCK, why, "stuck"}
	}
	return nil
}

// repeats counts in how many steps in a row the turn's last call was made, always with the same result. The
// same call many times in one step is one: the model has seen no answer in between.
func (t *Turn) repeats(last *messages.ToolFinished) int {
	content := func(c *Call) string {
		if c.Finished == nil && c.Plan.GetExecId() == last.GetExecId() {
			return last.GetContent()
		}
		return c.Finished.GetContent()
	}
	n := 0
	for _, c := range slices.Backward(t.AllCalls) {
		newest := t.AllCalls[len(t.AllCalls)-1]
		if c.Name != newest.Name || content(c) != content(newest) || !sameArguments(c.Arguments, newest.Arguments) {
			break
		}
		if c.Plan.GetOrdinal() == 0 {
			n++
		}
	}
	return n
}

// ByLimit is the author of a CancelRequested that the turn's wall time made.
const ByLimit = "limit"

// ByBudget is the author of a CancelRequested of a turn for which no time of its session's budget is left.
const ByBudget = "budget"

// ByFailure is the author of a CancelRequested of a turn that cannot go on: something that it needs has failed for good.
const ByFailure = "failure"

// cancelled tells a person's cancel from a limit's, and from one that a failure made.
func cancelled(f *messages.CancelRequested) Step {
	if f.GetBy() == ByFailure {
		return Complete{messages.TurnCompleted_ERROR, f.GetReason(), "unavailable"}
	}
	if f.GetBy() == ByBudget {
		return OverBudget(f.GetReason())
	}
	if f.GetBy() == ByLimit {
		return Complete{messages.TurnCompleted_TIMEOUT, f.GetReason(), "timeout"}
	}
	return Complete{messages.TurnCompleted_ABORTED, f.GetReason(), "cancelled"}
}

// Doom ends a turn by the policy of a call whose outcome nobody knows.
func Doom(c *Call) Complete {
	reason := fmt.Sprintf("the outcome of %s (%s) is unknown, and its policy is to fail the turn: look whether it ran before going on", c.Name, c.Plan.GetExecId())
	return Complete{messages.TurnCompleted_ERROR, reason, "interrupted"}
}

// completion turns the finish reason of the last generation into the turn's outcome.
func completion(t *Turn) Step {
	switch t.Finish {
	case "length":
		if t.Cut {
			return OverBudget("the answer was cut: no more of the budget was left for it")
		}
		return Complete{messages.TurnCompleted_LIMIT, "the answer was cut at the model's output limit", "truncated"}
	case "content_filter":
		return Complete{messages.TurnCompleted_ERROR, "the provider's content filter stopped the answer", "content_filter"}
	}
	return Complete{Outcome: messages.TurnCompleted_DONE}
}
