package persistence

import "context"

// Forgetter is a store that can take a session's records out again, as if they had never been: for what was begun and
// never finished. What the records' appends have changed besides (index, keys, timers, blobs) stays.
type Forgetter interface {
	// Forget removes every record of a session, the last one first, and voids the leases of their streams. Nobody may write them
	// meanwhile. Cut off in the middle, it leaves the first records; called again, it goes on.
	Forget(ctx context.Context, session string) error
}
