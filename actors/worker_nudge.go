package actors

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// nudging adds to the result that completes a step what the model is to be told of the circle that it goes in. It stands in the journal with the
// result, so that a recovery reads what was said.
func (w *Worker) nudging(facts []proto.Message) []proto.Message {
	if !slices.ContainsFunc(facts, isResult) {
		return facts
	}
	at, text := w.state.Nudge(facts, w.limits())
	if text == "" {
		return facts
	}
	f, _ := facts[at].(*messages.ToolFinished)
	if f.GetNudge() != "" {
		return facts
	}
	f = proto.CloneOf(f)
	f.Nudge = text
	facts = slices.Clone(facts)
	facts[at] = f
	return facts
}

func isResult(fact proto.Message) bool {
	_, is := fact.(*messages.ToolFinished)
	return is
}
