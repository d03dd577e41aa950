package persistence

import "context"

// Lost says of secondary entries whether they may be missing, or older than what was written last. It may say so of one that never was.
type Lost struct {
	Index func(key string) (bool, error)
	Timer func(id string) (bool, error)
}

// Relister is a store that may have been opened without secondary entries, as what held them was damaged. Who knows the journals
// makes the lost ones again.
type Relister interface {
	// Lost is nil when every entry is there, or all that can be made again was.
	Lost() *Lost
	// Relisted tells that what can be known of the index below some prefixes was put again. What is left of lost entries there is
	// removed, and readers of the index below them are refused no more.
	Relisted(ctx context.Context, prefixes ...string) error
}
