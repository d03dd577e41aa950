package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// timers says which request a command about timers is. A timer gets its id here, when it has none: sent
// twice, it is set once.
func timers(base string, m *messages.ToSession) (*call, error) {
	switch x := m.GetCommand().(type) {
	case *messages.ToSession_SetTimer:
		body, err := messages.SetTimerFrom(x.SetTimer)
		if err != nil {
			return nil, err
		}
		if body.ID == "" {
			body.ID = messages.NewID(messages.TimerPrefix)
		}
		q := post(base, body, as[messages.TimerJSON])
		q.key = body.ID
		return q, nil
	case *messages.ToSession_ListTimers:
		return get(base, listed[messages.TimerJSON](func(v []*messages.TimerView) proto.Message { return &messages.Timers{Timers: v} }),
			"worker", x.ListTimers.GetWorkerId()), nil
	case *messages.ToSession_CancelTimer:
		return remove(base+"/"+segment(x.CancelTimer.GetTimerId()), "worker", x.CancelTimer.GetWorkerId(), "by", x.CancelTimer.GetBy()), nil
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%T is not about timers", m.GetCommand()), "")
}
