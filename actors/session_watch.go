package actors

import "github.com/asynkron/protoactor-go/actor"

func (s *Session) unsubscribe(c actor.Context, who *actor.PID) {
	if who == nil {
		return
	}
	for i, pid := range s.watchers {
		if pid.GetId() == who.GetId() {
			s.watchers = append(s.watchers[:i:i], s.watchers[i+1:]...)
			s.tellWatched(c)
			return
		}
	}
}
