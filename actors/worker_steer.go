package actors

import (
	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// join takes inputs of mode steer into the open turn, and goes on with it. What its next call was granted, or waits for, was asked for without them:
// it is given back, and asked for anew (I15).
func (w *Worker) join(c actor.Context, next conversation.Join) {
	if w.purse.asking || w.purse.granted != nil {
		w.unpause(c)
		w.returnBudget(c)
	}
	var facts []proto.Message
	for _, in := range next.Inputs {
		facts = append(facts, &messages.InputJoined{TurnId: w.state.Turn().ID, InputId: in.GetInputId()})
	}
	w.append(c, nil, w.advance, facts...)
}

// roomToJoin says whether a request whose messages are so many tokens, with inputs that join its turn, leaves room for an answer. What the provider has
// refused for its length grows no further before it is compacted.
func (w *Worker) roomToJoin(tokens int) bool {
	window := w.lookUp()
	return !w.refusedForLength() && (window == 0 || w.request(tokens)+reserve(window) <= window)
}
