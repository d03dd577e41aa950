package badger

import "sync"

// maxFree is the most slots of a burst that are kept for the next one.
const maxFree = 1 << 13

// queue hands tasks from any goroutine to the stager. It has no bound of its own: Store.admit refuses
// what would wait in too great a heap.
type queue struct {
	mu     sync.Mutex
	tasks  []task
	free   []task // the slice that the stager is done with
	closed bool

	wake chan struct{} // capacity 1: something was added, or the queue closed
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1)}
}

// add reports whether the queue took the task.
func (q *queue) add(t task) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.tasks = append(q.tasks, t)
	first := len(q.tasks) == 1
	q.mu.Unlock()
	if first {
		q.rouse()
	}
	return true
}

// take returns everything that is queued; the slice is valid until the next call.
func (q *queue) take() (tasks []task, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks = q.tasks
	clear(q.free) // the tasks are done with: let go of them
	if cap(q.free) > maxFree {
		q.free = nil
	}
	q.tasks, q.free = q.free[:0], tasks
	return tasks, q.closed
}

// drain is take for another goroutine than the stager.
func (q *queue) drain() []task {
	q.mu.Lock()
	defer q.mu.Unlock()
	tasks := q.tasks
	q.tasks = nil
	return tasks
}

// close refuses tasks from now on.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.rouse()
}

func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
