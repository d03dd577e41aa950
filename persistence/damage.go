package persistence

import "context"

// Damaged is a store that may have been opened without a part of what it held.
type Damaged interface {
	// Damage says what is lost, or may be, until a repair: listings may be short of it. What names a stream stands with it. nil: nothing is known to be.
	Damage(ctx context.Context) ([]Finding, error)
}
