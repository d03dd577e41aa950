package troupe

import (
	"context"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// ForkOptions say where a fork begins and what is different in it. The zero value copies everything.
type ForkOptions struct {
	At    uint64 // last record that is copied, by its seq in the session's events; 0: the newest that can be read
	Model string // of later generations; "" is the one of the session that is forked
}

// Fork makes a session that goes on from a record of another one, with the same workers, folders, trust and rules. The
// other session is read from the store and not woken; nothing of it changes. What was open at the record is closed in the fork: calls
// without a result as interrupted, and an open turn as aborted. Inputs that waited for their turn there wait in
// the fork too. A refusal is a *Failure.
func (rt *Runtime) Fork(ctx context.Context, id string, o ForkOptions) (*Session, error) {
	f, err := actors.Fork(ctx, rt.svc, &messages.ForkSession{SessionId: id, At: o.At, Model: o.Model})
	if err != nil {
		return nil, err
	}
	return &Session{&Worker{rt: rt, session: f.GetSession().GetId()}}, nil
}
