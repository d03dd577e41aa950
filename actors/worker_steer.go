package actors

import (
	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// join takes inputs of mode steer into the open turn, and goes on with it.
func (w *Worker) join(c actor.Context, next conversation.Join) {
	var facts []proto.Message
	for _, in := range next.Inputs {
		facts = append(facts, &messages.InputJoined{TurnId: w.state.Turn().ID, InputId: in.GetInputId()})
	}
	w.append(c, nil, w.advance, facts...)
}
