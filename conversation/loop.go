package conversation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// A turn goes in circles when its newest steps are the same one, two or three steps over and over, with the same results, or when all of them
// failed (ADR 57). What differs in its arguments or results is no repetition: polling for what changes is work. It is decided from the facts of
// the turn alone, so that a recovery decides the same.

// longestCircle is how many steps a circle may have.
const longestCircle = 3

// tried is one call and what came of it.
type tried struct {
	ordinal   uint32
	name      string
	arguments string
	exec      string
	finished  *messages.ToolFinished
}

// step is what came of one answer with calls.
type step struct {
	calls  []tried
	failed bool // every call did
}

// same says whether two steps made the same calls with the same results. Texts are compared and not copied: this is asked after every step.
func (s step) same(o step) bool {
	return slices.EqualFunc(s.calls, o.calls, func(a, b tried) bool {
		return a.name == b.name && a.finished.GetStatus() == b.finished.GetStatus() && a.finished.GetContent() == b.finished.GetContent() && sameArguments(a.arguments, b.arguments)
	})
}

// sameArguments says whether two calls ask for the same, however it is spelled: models put keys in another order and spaces elsewhere. It is
// asked last, since what differs in its text has to be decoded.
func sameArguments(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	return decodeArguments(a, &x) && decodeArguments(b, &y) && reflect.DeepEqual(x, y)
}

func decodeArguments(text string, into *any) bool {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // two large numbers are not the same because a float holds neither
	if d.Decode(into) != nil {
		return false
	}
	_, err := d.Token() // what stands behind the value is part of the text
	return errors.Is(err, io.EOF)
}

// tried are the turn's calls, as they are once facts that are about to be written are applied.
func (t *Turn) tried(facts ...proto.Message) []tried {
	var all []tried
	for _, c := range t.AllCalls {
		all = append(all, tried{c.Plan.GetOrdinal(), c.Name, c.Arguments, c.Plan.GetExecId(), c.Finished})
	}
	asked := t.assistant
	for _, fact := range facts {
		switch f := fact.(type) {
		case *messages.GenerationCompleted:
			asked = answerOf(f)
		case *messages.ToolPlanned:
			one := tried{ordinal: f.GetOrdinal(), name: f.GetTool(), exec: f.GetExecId()}
			if asked != nil && int(f.GetOrdinal()) < len(asked.ToolCalls) {
				one.arguments = asked.ToolCalls[f.GetOrdinal()].GetArguments()
			}
			all = append(all, one)
		case *messages.ToolFinished:
			for i := range all {
				if all[i].exec == f.GetExecId() && all[i].finished == nil {
					all[i].finished = f
				}
			}
		}
	}
	return all
}

// steps groups calls by the answers that made them. One that is not finished is left out, with its step.
func steps(all []tried) []step {
	var out []step
	for i := 0; i < len(all); {
		s, end := step{failed: true}, i
		for open := true; end < len(all) && (open || all[end].ordinal > 0); end++ {
			open = false
			one := all[end]
			if one.finished == nil {
				return out
			}
			s.failed = s.failed && failed(one.finished)
		}
		s.calls = all[i:end]
		out, i = append(out, s), end
	}
	return out
}

func failed(f *messages.ToolFinished) bool {
	switch f.GetStatus() {
	case messages.ToolFinished_ERROR, messages.ToolFinished_DENIED, messages.ToolFinished_TIMEOUT, messages.ToolFinished_BAD_ARGS, messages.ToolFinished_CLIENT_OFFLINE:
		return true
	case messages.ToolFinished_UNSPECIFIED, messages.ToolFinished_OK, messages.ToolFinished_CANCELLED, messages.ToolFinished_INTERRUPTED_UNKNOWN:
	}
	return false
}

// rounds counts how often the newest steps have gone round a circle of so many.
func rounds(all []step, length int) int {
	same := 0
	for i := len(all) - 1; i >= length && all[i].same(all[i-length]); i-- {
		same++
	}
	return same/length + 1
}

// failures counts the newest steps in which nothing succeeded.
func failures(all []step) int {
	n := 0
	for _, s := range slices.Backward(all) {
		if !s.failed {
			break
		}
		n++
	}
	return n
}

// mostFailures is how many steps in a row may fail before a turn is stuck, where a call may be repeated so often.
func mostFailures(repeats int) int { return max(4, 2*repeats) }

// circles says, for people, why a turn is stuck; "" when it is not. A circle of one step is counted by its calls (repeats).
func circles(all []step, repeats int) string {
	if repeats <= 0 {
		return ""
	}
	for length := 2; length <= longestCircle; length++ {
		if n := rounds(all, length); n >= max(2, repeats) {
			return fmt.Sprintf("the turn goes in circles: %s, %d times in turn with the same results", strings.Join(namesOf(all[len(all)-length:]), ", "), n)
		}
	}
	if n := failures(all); n >= mostFailures(repeats) {
		return fmt.Sprintf("the last %d steps have all failed, at last %s", n, strings.Join(namesOf(all[len(all)-1:]), ", "))
	}
	return ""
}

func namesOf(all []step) []string {
	var out []string
	for _, s := range all {
		for _, one := range s.calls {
			out = append(out, one.name)
		}
	}
	return out
}

// Nudge is the runtime's word to the model when a turn begins to go in circles: with one of the facts that are about to be written, a result, some time before the
// turn ends as stuck. It is "" when there is nothing to say.
func (s *State) Nudge(facts []proto.Message, lim Limits) (at int, text string) {
	at = -1
	for i, fact := range facts {
		if _, is := fact.(*messages.ToolFinished); is {
			at = i
		}
	}
	t := s.turn
	if at < 0 || lim.Repeats <= 0 || t == nil || t.Program() {
		return at, ""
	}
	tries := t.tried(facts...)
	if slices.ContainsFunc(tries, func(one tried) bool { return one.finished == nil }) {
		return at, "" // another result completes the step
	}
	return at, warning(steps(tries), lim.Repeats)
}

// warning is said once in each row of repetitions, of failures, or both.
func warning(all []step, repeats int) string {
	early := max(2, repeats-2)
	for length := 1; length <= longestCircle && early < repeats; length++ {
		if rounds(all, length) != early || length > 1 && rounds(all[:len(all)-1], length) == early {
			continue
		}
		what := "the same call"
		if length > 1 {
			what = fmt.Sprintf("the same %d steps", length)
		}
		return fmt.Sprintf("[Note of the runtime: this makes %d times in a row that %s gave the same result. It will not change by itself. "+
			"Do something else, or say what keeps you from going on: after %d times the turn is ended.]", early, what, repeats)
	}
	if most := mostFailures(repeats); failures(all) == most/2 {
		return fmt.Sprintf("[Note of the runtime: the last %d steps have all failed. Look at what the errors say before trying again, or say what keeps you "+
			"from going on: after %d the turn is ended.]", most/2, most)
	}
	return ""
}

// heard is a result as the model reads it.
func heard(f *messages.ToolFinished) string {
	if f.GetNudge() == "" {
		return f.GetContent()
	}
	return f.GetContent() + "\n\n" + f.GetNudge()
}
