package act

import (
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Mailbox makes an unbounded mailbox that takes messages at any time. protoactor-go publishes an
// actor's name before its mailbox has a dispatcher: a message to the name in between panics in its sender
// and leaves the mailbox unscheduled for ever. Here such messages wait until the actor starts.
func Mailbox() actor.MailboxProducer {
	unbounded := actor.Unbounded()
	return func() actor.Mailbox { return &mailbox{Mailbox: unbounded()} }
}

type mailbox struct {
	actor.Mailbox
	started atomic.Bool

	mu           sync.Mutex
	system, user []any // what came before the start
}

// PostUserMessage implements actor.Mailbox.
func (m *mailbox) PostUserMessage(msg any) {
	if !m.started.Load() && m.keep(&m.user, msg) {
		return
	}
	m.Mailbox.PostUserMessage(msg)
}

// PostSystemMessage implements actor.Mailbox.
func (m *mailbox) PostSystemMessage(msg any) {
	if !m.started.Load() && m.keep(&m.system, msg) {
		return
	}
	m.Mailbox.PostSystemMessage(msg)
}

func (m *mailbox) keep(queue *[]any, msg any) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started.Load() {
		return false
	}
	*queue = append(*queue, msg)
	return true
}

// Start implements actor.Mailbox. The actor's own Started is a system message and comes first.
func (m *mailbox) Start() {
	m.Mailbox.Start()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range m.system {
		m.Mailbox.PostSystemMessage(msg)
	}
	for _, msg := range m.user {
		m.Mailbox.PostUserMessage(msg)
	}
	m.system, m.user = nil, nil
	m.started.Store(true)
}
