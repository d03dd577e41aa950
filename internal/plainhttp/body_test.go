package plainhttp_test

import "sync"

// endless is a body that nobody may close while somebody reads it.
type endless struct {
	mu     sync.Mutex
	closed bool
	late   bool // it was read after it was closed
}

func (e *endless) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late = e.late || e.closed
	return len(p), nil
}

func (e *endless) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}
