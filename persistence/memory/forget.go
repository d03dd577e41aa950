package memory

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/persistence"
)

// Forget removes a session's records. Cut does not know of it.
func (s *Store) Forget(ctx context.Context, session string) error {
	if err := s.barrier(ctx); err != nil {
		return fmt.Errorf("forget session %s: %w", session, err)
	}
	return s.view(ctx, "forget session "+session, func(st *state) error {
		for _, e := range st.sessions[session] {
			delete(st.streams, e.stream)
			delete(st.leases, e.stream)
		}
		delete(st.sessions, session)
		return nil
	})
}

var _ persistence.Forgetter = (*Store)(nil)
