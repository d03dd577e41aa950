package act

import (
	"runtime"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Mailbox makes an unbounded mailbox that takes messages at any time. protoactor-go publishes an
// actor's name before its mailbox has a dispatcher: a message to the name in between would panic in its
// sender and leave protoactor-go's own mailbox unscheduled for ever. Here such messages wait until the
// actor starts. An idle mailbox holds no memory but its own. see, when it is not nil, is shown every message that is
// sent, in its sender's goroutine and before anybody gets it.
func Mailbox(see func(msg any)) actor.MailboxProducer {
	return func() actor.Mailbox {
		m := &mailbox{see: see}
		m.work = m.process
		return m
	}
}

// mailbox is worked through by one goroutine at a time: the one that set running.
type mailbox struct {
	invoker    actor.MessageInvoker
	dispatcher actor.Dispatcher
	work       func() // process, bound once
	see        func(msg any)

	mu                          sync.Mutex
	system, user                fifo
	started, running, suspended bool
}

// PostUserMessage implements actor.Mailbox.
func (m *mailbox) PostUserMessage(msg any) {
	if m.see != nil {
		m.see(actor.UnwrapEnvelopeMessage(msg))
	}
	m.unpack(msg)
	m.post(&m.user, msg)
}

// PostSystemMessage implements actor.Mailbox.
func (m *mailbox) PostSystemMessage(msg any) { m.post(&m.system, msg) }

// unpack posts the messages of a batch before the batch itself, as protoactor-go's mailbox does.
func (m *mailbox) unpack(msg any) {
	if env, ok := msg.(*actor.MessageEnvelope); ok {
		msg = env.Message
	}
	if batch, ok := msg.(actor.MessageBatch); ok {
		for _, one := range batch.GetMessages() {
			m.PostUserMessage(one)
		}
	}
}

func (m *mailbox) post(queue *fifo, msg any) {
	m.mu.Lock()
	queue.push(msg)
	if _, born := msg.(*actor.Started); born && !m.started {
		m.system.lastFirst() // whoever was quicker
	}
	idle := m.started && !m.running && (queue == &m.system || !m.suspended)
	m.running = m.running || idle
	m.mu.Unlock()
	if idle {
		m.dispatcher.Schedule(m.work)
	}
}

// RegisterHandlers implements actor.Mailbox.
func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.invoker, m.dispatcher = invoker, dispatcher
}

// Start implements actor.Mailbox.
func (m *mailbox) Start() {
	m.mu.Lock()
	m.started = true
	idle := !m.running && (m.system.len() > 0 || m.user.len() > 0)
	m.running = m.running || idle
	m.mu.Unlock()
	if idle {
		m.dispatcher.Schedule(m.work)
	}
}

// UserMessageCount implements actor.Mailbox.
func (m *mailbox) UserMessageCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.user.len()
}

// process handles messages until there are none.
func (m *mailbox) process() {
	for m.run() {
	}
}

// run handles messages; what a handler panics with is escalated, and then there may be more to do.
func (m *mailbox) run() (more bool) {
	var msg any
	defer func() {
		if r := recover(); r != nil {
			m.invoker.EscalateFailure(r, msg)
			more = true
		}
	}()
	for i := 1; ; i++ {
		if i%m.dispatcher.Throughput() == 0 {
			runtime.Gosched()
		}
		var system bool
		if msg, system = m.next(); msg == nil {
			return false
		}
		if system {
			m.invoker.InvokeSystemMessage(msg)
		} else {
			m.invoker.InvokeUserMessage(msg)
		}
	}
}

// next takes the next message, system messages first; nil, and the mailbox rests, when there is none
// that may be handled.
func (m *mailbox) next() (msg any, system bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.system.len() > 0 {
		switch msg := m.system.pop(); msg.(type) {
		case *actor.SuspendMailbox:
			m.suspended = true
		case *actor.ResumeMailbox:
			m.suspended = false
		default:
			return msg, true
		}
	}
	if m.user.len() > 0 && !m.suspended {
		return m.user.pop(), false
	}
	m.running = false
	return nil, false
}

// fifo is a queue that gives its memory back when it is empty after many.
type fifo struct {
	items []any
	head  int
	room  [1]any // for the first items: most queues never have more
}

// keptItems is the room that an empty queue may keep.
const keptItems = 16

func (q *fifo) len() int { return len(q.items) - q.head }

func (q *fifo) push(v any) {
	if q.head > 0 && len(q.items) == cap(q.items) && q.head >= len(q.items)/2 { // rather than grow
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	if q.items == nil {
		q.items = q.room[:0]
	}
	q.items = append(q.items, v)
	if cap(q.items) > len(q.room) {
		q.room[0] = nil
	}
}

// lastFirst moves the newest message to the front.
func (q *fifo) lastFirst() {
	last := q.items[len(q.items)-1]
	copy(q.items[q.head+1:], q.items[q.head:])
	q.items[q.head] = last
}

func (q *fifo) pop() any {
	v := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > keptItems {
			q.items = nil
		}
	}
	return v
}
