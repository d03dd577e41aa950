package actors

import "sync"

// arrived is the text of an answer under way, as those who watch have seen it: without secrets, and without what may be the beginning of one.
// The goroutine of the call adds to it; a worker that is stopped meanwhile writes it down.
type arrived struct {
	mu   sync.Mutex
	text []byte // of its beginning, one byte more than is kept at most
	size int    // of all of it
}

func (a *arrived) add(text string) {
	if a == nil || text == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.size += len(text)
	a.text = append(a.text, text[:min(len(text), maxResult+1-len(a.text))]...)
}

// String is what has arrived, bounded as the text of an answer that a cancel cut off is.
func (a *arrived) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size <= maxResult {
		return string(a.text)
	}
	return cutOf(string(a.text), a.size, maxResult)
}
