package actors

import (
	"log/slog"
	"slices"
	"strconv"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// TestAllAreAskedInOrderBeforeAnyAnswers has a session that answers nobody before it has heard of all.
func TestAllAreAskedInOrderBeforeAnyAnswers(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	defer sys.Shutdown()
	var ids, came []string
	for i := range 50 {
		ids = append(ids, strconv.Itoa(i))
	}
	var asking []*actor.PID
	session := sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*messages.CancelSession); ok {
			came, asking = append(came, m.GetWorkerId()), append(asking, c.Sender())
			if len(came) < len(ids) {
				return
			}
			for i, who := range asking {
				switch i {
				case 1:
					c.Send(who, messages.Fail(messages.CodeQuarantined, "it fell", ""))
				case 2:
					c.Send(who, messages.Fail(messages.CodeClosed, "it is gone", ""))
				default:
					c.Send(who, &messages.Cancelled{Turns: 1})
				}
			}
		}
	}))
	replies, barred, fail := each(t.Context(), sys, session, ids, func(id string) proto.Message { return &messages.CancelSession{WorkerId: id} })
	if fail != nil || len(replies) != len(ids)-2 || !slices.Equal(barred, []string{"1"}) || !slices.Equal(came, ids) {
		t.Errorf("asked in the order %v; %d replies, barred %v, %v", came, len(replies), barred, fail)
	}
}
