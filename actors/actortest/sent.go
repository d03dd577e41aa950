package actortest

import (
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Bounds of what is remembered of one house.
const (
	maxSent     = 4096
	maxSentSize = 64 << 10
)

// sent remembers messages as they were when they were sent: from then on they are their receivers' too, and nobody writes to
// them.
type sent struct {
	mu   sync.Mutex
	kept []letter
}

type letter struct{ msg, was proto.Message }

// see is told of every message.
func (s *sent) see(msg any) {
	m, ok := msg.(proto.Message)
	if !ok || proto.Size(m) > maxSentSize {
		return
	}
	was := proto.Clone(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < maxSent {
		s.kept = append(s.kept, letter{m, was})
	}
}

// check complains of messages that were written to after they were sent.
func (s *sent) check(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.kept {
		if !proto.Equal(l.msg, l.was) {
			t.Errorf("a message was written to after it was sent:\n%T %v\nwas\n%v", l.msg, l.msg, l.was)
		}
	}
}
