package actors

import (
	"context"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// showings is who sees which approval now. It is of this process, and of the connections to it: nothing of it is written down, and an
// approval that nobody sees any more is pending again.
type showings struct {
	mu  sync.Mutex
	all map[string]*showing // by approval
}

type showing struct {
	exec     string
	viewers  []*messages.Viewer
	answered chan struct{} // closed when it waits no longer
}

// begin notes a viewer. The approval waits no longer when the channel is closed; end is called when the viewer goes, and says
// whether it was the last one.
func (s *showings) begin(v *messages.ApprovalView, viewer *messages.Viewer) (answered <-chan struct{}, end func() (last bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]*showing)
	}
	x := s.all[v.GetApprovalId()]
	if x == nil {
		x = &showing{exec: v.GetExecId(), answered: make(chan struct{})}
		s.all[v.GetApprovalId()] = x
	}
	x.viewers = append(x.viewers, viewer)
	return x.answered, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.viewers = slices.DeleteFunc(slices.Clone(x.viewers), func(o *messages.Viewer) bool { return o == viewer })
		if len(x.viewers) == 0 && s.all[v.GetApprovalId()] == x {
			delete(s.all, v.GetApprovalId())
		}
		return len(x.viewers) == 0
	}
}

// note lets go of approvals that facts, which are durable, have answered.
func (s *showings) note(facts []proto.Message) {
	for _, f := range facts {
		if r, ok := f.(*messages.ApprovalResolved); ok {
			s.mu.Lock()
			if x := s.all[r.GetApprovalId()]; x != nil {
				close(x.answered)
				delete(s.all, r.GetApprovalId())
			}
			s.mu.Unlock()
		}
	}
}

// further serves what is about those who watch the session.
func (s *Session) further(c actor.Context, m *messages.ToSession) {
	switch cmd := m.GetCommand().(type) {
	case *messages.ToSession_ShowRun:
		s.toRun(c, cmd.ShowRun)
	case *messages.ToSession_ResumeRun:
		s.toRun(c, cmd.ResumeRun)
	case *messages.ToSession_CancelRun:
		s.toRun(c, cmd.CancelRun)
	case *messages.ToSession_AwaitRun:
		s.toRun(c, cmd.AwaitRun)
	case *messages.ToSession_ShareConversation, *messages.ToSession_TakeTurn, *messages.ToSession_SubmitTurn, *messages.ToSession_ReadConversation,
		*messages.ToSession_AwaitSharedTurn, *messages.ToSession_WithdrawTurn:
		s.onShared(c, m)
	case *messages.ToSession_AddBudget:
		s.addBudget(c, cmd.AddBudget)
	case *messages.ToSession_Announce:
		s.publish(c, &messages.Published{Events: []*messages.Event{cmd.Announce.GetEvent()}})
		s.answer(c, &messages.Ack{})
	default:
		act.Unexpected(c, s.log)
	}
}

// Viewers tells who sees an approval, named by its id or that of its call, now.
func (s *Services) Viewers(approvalID, exec string) []*messages.Viewer {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	if x := s.shown.all[approvalID]; x != nil {
		return slices.Clone(x.viewers)
	}
	for _, x := range s.shown.all {
		if exec != "" && x.exec == exec {
			return slices.Clone(x.viewers)
		}
	}
	return nil
}

// Show notes that somebody sees an approval, until ctx ends or it waits no longer, which is no error. tell is told when that
// begins, and when nobody sees it any more.
func (s *Services) Show(ctx context.Context, v *messages.ApprovalView, by string, tell func(state string)) error {
	answered, end := s.shown.begin(v, &messages.Viewer{By: by, SinceUnixMs: s.Now().UnixMilli()})
	tell(StateShown)
	select {
	case <-answered:
		end()
		return nil
	case <-ctx.Done():
	case <-s.stopped:
	}
	if end() {
		tell(StatePending)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return messages.Fail(messages.CodeUnavailable, "the runtime has stopped", "start it again")
}

// The states of an approval that waits.
const (
	StatePending = "pending" // nobody sees it
	StateShown   = "shown"
)
