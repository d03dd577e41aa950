package actors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

// How a house that is full lets somebody in. A command for a session that is not in memory is parked, and those sessions that were used the
// longest ago are asked to leave (MakeRoom), some at a time. Each either says that it is idle, and leaves by the handshake of session_idle.go, or
// that it stays. When one has left, what is parked is handled as if it came just then. When nobody who could be asked rests, or too much is parked, or
// it takes too long, the answer is busy, with a time to come again. What was refused has changed nothing.

// room is what the Supervisor knows of the sessions in memory.
type room struct {
	sessions int             // in memory, or on their way in or out
	uses     uint64          // messages that were sent to sessions
	parked   act.Stash       // commands that wait for room
	asked    map[string]bool // sessions that were asked to leave and have not answered
	round    int             // how many were asked last
	timer    act.Timer       // runs while something is parked
}

type roomDue struct{ gen uint64 }

const (
	// tryAgain is when who was refused for want of room may come again.
	tryAgain = time.Second
	// roomWait is how long a command is parked at most.
	roomWait = 2 * time.Second
	// mostParked are parked at a time.
	mostParked = 1024
	// leastAsked are asked to leave at a time, when more could be; then twice as many, while none of them rests, to mostAsked.
	leastAsked, mostAsked = 8, 128
	// stays is for how long a session is not asked again that said that it does not rest.
	stays = time.Second
)

func (k *kid) session() bool { return strings.HasPrefix(k.name, messages.SessionPrefix) }

// enter notes a session that is not in memory yet.
func (s *Supervisor) enter(name string) *kid {
	k := &kid{name: name}
	s.kids[name] = k
	s.room.sessions++
	return k
}

// vacate notes that a session is no longer in memory, for it has left or was given up.
func (s *Supervisor) vacate(k *kid) {
	if k.session() {
		s.room.sessions--
		delete(s.room.asked, k.name)
	}
}

// use notes that a session is sent something.
func (s *Supervisor) use(k *kid) {
	s.room.uses++
	k.used = s.room.uses
}

// admit says whether one session more may come into memory for the message that is handled. If not, that was parked or refused. Who waits for no answer
// could not be told, and is let in.
func (s *Supervisor) admit(c actor.Context) bool {
	most := s.svc.Limits.Sessions
	switch {
	case most <= 0 || s.room.sessions < most || c.Sender() == nil:
		return true
	case s.room.parked.Len() >= mostParked:
		c.Respond(s.noRoom())
		return false
	}
	if s.room.parked.Len() == 0 {
		s.room.round = 0
		s.room.timer.Set(c, roomWait, func(gen uint64) any { return &roomDue{gen} })
	}
	s.room.parked.Put(c)
	s.makeRoom(c)
	return false
}

func (s *Supervisor) noRoom() *messages.Failure {
	return messages.Busy(fmt.Sprintf("%d sessions are in memory, and none of them rests", s.room.sessions), "try again in a moment, or raise limits.sessions", tryAgain)
}

// makeRoom asks sessions to leave, unless some are just being asked or on their way out.
func (s *Supervisor) makeRoom(c actor.Context) {
	if len(s.room.asked) > 0 {
		return
	}
	now := s.now()
	var could []*kid
	for _, k := range s.kids {
		switch {
		case !k.session():
		case k.leaving != nil || k.ended:
			return // what comes of that decides
		case k.pid != nil && (k.stayedMs == 0 || time.UnixMilli(now).Sub(time.UnixMilli(k.stayedMs)).Abs() >= stays):
			could = append(could, k)
		}
	}
	if len(could) == 0 {
		s.turnAway(c)
		return
	}
	slices.SortFunc(could, func(a, b *kid) int { return cmp.Compare(a.used, b.used) })
	s.room.asked = make(map[string]bool)
	s.room.round = max(leastAsked, s.room.parked.Len(), min(2*s.room.round, mostAsked))
	for _, k := range could[:min(len(could), s.room.round)] {
		s.room.asked[k.name] = true
		c.Send(k.pid, &messages.MakeRoom{})
	}
}

// roomChanged handles what is parked, as far as there is room now, or it is for a session that has come in.
func (s *Supervisor) roomChanged(c actor.Context) {
	if s.room.parked.Len() == 0 {
		return
	}
	s.room.parked.Replay(c, s.Receive, func() bool {
		m, _ := s.room.parked.Next().(*messages.ToSession)
		return s.room.sessions < s.svc.Limits.Sessions || s.kids[m.GetSessionId()] != nil
	})
	if s.room.parked.Len() == 0 {
		s.room.timer.Stop()
		return
	}
	s.makeRoom(c)
}

// turnAway refuses all that is parked.
func (s *Supervisor) turnAway(c actor.Context) {
	s.room.asked = nil
	s.refuseParked(c, s.noRoom())
}

func (s *Supervisor) refuseParked(c actor.Context, why *messages.Failure) {
	s.room.timer.Stop()
	s.room.parked.Each(func(_ any, sender *actor.PID) { c.Send(sender, why) })
}
