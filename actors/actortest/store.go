package actortest

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Store is a store whose appends can be held back or refused.
type Store struct {
	persistence.Store

	mu     sync.Mutex
	hold   func(proto.Message) bool
	came   chan struct{}
	kept   []func()
	refuse func(proto.Message) error
	broken error
}

// Release implements persistence.Releaser.
func (s *Store) Release(l persistence.Lease) {
	if r, ok := s.Store.(persistence.Releaser); ok {
		r.Release(l)
	}
}

// Hold keeps the appends back in which a fact matches. One element comes for each; release lets
// them and all later ones through.
func (s *Store) Hold(match func(proto.Message) bool) (came <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.came = match, make(chan struct{}, 1024)
	return s.came, s.release
}

func (s *Store) release() {
	s.mu.Lock()
	kept := s.kept
	s.hold, s.kept = nil, nil
	s.mu.Unlock()
	for _, fn := range kept {
		fn()
	}
}

// Refuse lets fn say, for every fact, with what error its append is answered.
func (s *Store) Refuse(fn func(proto.Message) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = fn
}

// Break refuses every append from now on, and says so in Health.
func (s *Store) Break(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// Health implements persistence.Store.
func (s *Store) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.Store.Health()
}

// Enqueue implements persistence.Store.
func (s *Store) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	s.mu.Lock()
	err := s.broken
	held := false
	for _, f := range facts(b) {
		if s.refuse != nil && err == nil {
			err = s.refuse(f)
		}
		held = held || s.hold != nil && s.hold(f)
	}
	if err == nil && held {
		s.kept = append(s.kept, func() { s.Store.Enqueue(done, b...) })
		s.came <- struct{}{}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if err != nil {
		go done(persistence.Receipt{}, err) // as a committer does: never from the writer's own call
		return
	}
	s.Store.Enqueue(done, b...)
}

func facts(batches []persistence.Batch) []proto.Message {
	var out []proto.Message
	for _, b := range batches {
		decode := messages.SystemFactIn
		switch {
		case strings.HasPrefix(b.Lease.Stream, messages.WorkerStream("")):
			decode = messages.WorkerFactIn
		case strings.HasPrefix(b.Lease.Stream, messages.SessionStream("")):
			decode = messages.SessionFactIn
		case strings.HasPrefix(b.Lease.Stream, messages.RunStream("")):
			decode = messages.RunFactIn
		case strings.HasPrefix(b.Lease.Stream, messages.ConversationStream("")):
			decode = messages.ConversationFactIn
		}
		for _, r := range b.Records {
			if f, err := decode(r); err == nil && f != nil {
				out = append(out, f)
			}
		}
	}
	return out
}

// Is matches facts of one type.
func Is[T proto.Message](f proto.Message) bool {
	_, ok := f.(T)
	return ok
}
