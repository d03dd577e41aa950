package actors

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// TestWhatBecameOfAFlightThatWasGivenUpIsNotTheNextOnes, though that brings a message of the same id.
func TestWhatBecameOfAFlightThatWasGivenUpIsNotTheNextOnes(t *testing.T) {
	next := &flight{message: "msg_1"}
	w := &Worker{state: &conversation.State{}}
	w.mail.flying = map[string]*flight{"wrk_b": next}
	for _, err := range []error{context.Canceled, nil} {
		w.posted(nil, &posted{&flight{message: "msg_1"}, &messages.OutboxEnqueued{MessageId: "msg_1", To: "wrk_b"}, err})
	}
	if next.failed || w.mail.tries != 0 || w.mail.flying["wrk_b"] != next {
		t.Errorf("the next one: %+v, after %d tries", next, w.mail.tries)
	}
}
