package persistence

// Roomer is a store that knows whether there is room for something new.
type Roomer interface {
	// Room is nil while something new should be begun; ErrFull when the disk is too full, ErrBusy when it does
	// not keep up. What was begun before may still be appended to.
	Room() error
}
