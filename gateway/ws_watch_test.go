package gateway_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// told is a session whose events the test sends; an error ends them, and so does the end of the channel.
func told(events <-chan any) func(context.Context, string, uint64) iter.Seq2[*messages.Event, error] {
	return func(ctx context.Context, _ string, _ uint64) iter.Seq2[*messages.Event, error] {
		return func(yield func(*messages.Event, error) bool) {
			for {
				select {
				case e, more := <-events:
					err, failed := e.(error)
					if failed {
						yield(nil, err)
						return
					}
					if !more || !yield(e.(*messages.Event), nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

func TestAStreamThatBreaksIsToldAndTheConnectionGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		last error
		want []string
	}{
		"by a refusal": {messages.Fail(messages.CodeTrimmed, "these events are gone", "begin later"), []string{`"code":"trimmed"`, `these events are gone`, `begin later`}},
		"by a failure": {errors.New("the disk"), []string{`"code":"internal_error"`, `the disk`}},
		"by its end":   {},
	} {
		t.Run(name, func(t *testing.T) {
			b, events := takesOwners(), make(chan any)
			b.events = told(events)
			ws := socketTo(t, serve(t, b, gateway.Options{}))
			say(t, ws, `{"type":"hello","version":1,"features":["events"]}`, `{"type":"attach","session":"s"}`)
			hear(t, ws, `"type":"hello"`)
			hear(t, ws, `"type":"attach"`)
			events <- &messages.Event{Type: messages.EventToolProgress, Text: "not announced"}
			events <- &messages.Event{Type: messages.EventTextDelta, Text: "first"}
			hear(t, ws, `"type":"event"`, `"text":"first"`)
			if c.last != nil {
				events <- c.last
				hear(t, ws, append(c.want, `"about":"event"`, `"session":"s"`)...)
			} else {
				close(events)
			}
			say(t, ws, `{"type":"ping"}`)
			hear(t, ws, `"pong":true`)
		})
	}
}

// An approval is shown once to each client, by its name; what waits no longer is taken back, with who decided when an event tells.
func TestAnApprovalIsShownOnceAndTakenBackWhenItWaitsNoLonger(t *testing.T) {
	b, events := takesOwners(), make(chan any)
	b.events = told(events)
	var waiting atomic.Pointer[messages.Approvals]
	var fails atomic.Bool
	set := func(ids ...string) {
		all := &messages.Approvals{}
		for _, id := range ids {
			all.Approvals = append(all.Approvals, &messages.ApprovalView{ApprovalId: id, SessionId: "s"})
		}
		waiting.Store(all)
	}
	house := houseOf(nil, func() (*messages.Approvals, error) {
		if fails.Load() {
			return nil, errors.New("of the test")
		}
		return waiting.Load(), nil
	})
	shown := make(chan *messages.ShowApproval, 8)
	over := make(chan string, 8)
	b.answer = func(ctx context.Context, m proto.Message) (proto.Message, error) {
		if m, ok := m.(*messages.ShowApproval); ok {
			shown <- m
			<-ctx.Done() // it is noted for as long as it is shown
			over <- m.GetApprovalId()
			return nil, context.Cause(ctx)
		}
		return house(ctx, m)
	}
	set("a1", "a2", "a3")
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"name":"the desk","features":["approvals"]}`, `{"type":"attach","session":"s"}`)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"type":"attach"`)
	for _, id := range []string{"a1", "a2", "a3"} {
		hear(t, ws, `"type":"approval_request"`, `"`+id+`"`)
		if m := <-shown; m.GetBy() != "the desk" {
			t.Errorf("shown to %q", m.GetBy())
		}
	}
	asks := &messages.Event{Type: messages.EventApprovalRequested}
	fails.Store(true)
	events <- asks // the listing fails, and nothing is taken back for that
	events <- &messages.Event{Type: messages.EventApprovalResolved, ApprovalId: "a1", Decision: "rejected", By: "eve"}
	hear(t, ws, `"type":"request_resolved"`, `"approval_id":"a1"`, `"decision":"rejected"`, `"by":"eve"`)
	if id := <-over; id != "a1" {
		t.Errorf("%s is noted as shown no longer", id)
	}
	events <- &messages.Event{Type: messages.EventApprovalResolved, ApprovalId: "a1", Decision: "approved"} // told already
	set("a3", "a4")
	fails.Store(false)
	events <- asks
	hear(t, ws, `"type":"approval_request"`, `"a4"`)
	hear(t, ws, `{"type":"request_resolved","approval_id":"a2"}`)
	if id := <-over; id != "a2" {
		t.Errorf("%s is noted as shown no longer", id)
	}
}

func TestAClientIsCalledByItsTokenAndItsName(t *testing.T) {
	scopes := []gateway.Scope{gateway.ScopeRead, gateway.ScopeApprove}
	for _, c := range []struct {
		who        gateway.Principal
		name, want string
	}{
		{gateway.Owner(), "", "websocket"},
		{gateway.Owner(), "the desk", "the desk"},
		{gateway.Principal{Name: "t", Owner: true}, "", "t"},
		{gateway.Principal{Name: "t", Owner: true}, "the desk", "t (the desk)"},
		{gateway.Principal{Name: "t", Scopes: scopes}, "the desk", "t"}, // whoever has a token is that
	} {
		b := takesOwners()
		resolved := make(chan *messages.ResolveApproval, 1)
		house := houseOf(nil, func() (*messages.Approvals, error) {
			return &messages.Approvals{Approvals: []*messages.ApprovalView{{ApprovalId: "a", SessionId: "s"}, {ApprovalId: "b", SessionId: "another"}}}, nil
		})
		b.answer = func(ctx context.Context, m proto.Message) (proto.Message, error) {
			if m, ok := m.(*messages.ResolveApproval); ok {
				resolved <- m
			}
			return house(ctx, m)
		}
		ws := socketTo(t, serve(t, b, with(c.who)))
		say(t, ws, `{"type":"hello","version":1,"name":"`+c.name+`"}`, `{"type":"attach","session":"s"}`)
		hear(t, ws, `"type":"hello"`)
		hear(t, ws, `"type":"attach"`)
		say(t, ws, `{"type":"approval_response","approval_id":"b","decision":"approved"}`)
		hear(t, ws, `"code":"permission_denied"`, `does not take part in`)
		say(t, ws, `{"type":"approval_response","approval_id":"a","decision":"approved"}`)
		if m := <-resolved; m.GetBy() != c.want || m.GetApprovalId() != "a" {
			t.Errorf("%q was called %q, of approval %s", c.want, m.GetBy(), m.GetApprovalId())
		}
	}
}

func TestApprovalsAreNotShownToWhoMayNotAnswerThem(t *testing.T) {
	b, events := takesOwners(), make(chan any)
	b.events = told(events)
	b.answer = houseOf(nil, func() (*messages.Approvals, error) {
		return &messages.Approvals{Approvals: []*messages.ApprovalView{{ApprovalId: "a", SessionId: "s"}}}, nil
	})
	ws := socketTo(t, serve(t, b, with(gateway.Principal{Name: "n", Scopes: []gateway.Scope{gateway.ScopeRead}})))
	say(t, ws, `{"type":"hello","version":1,"features":["approvals","events"]}`, `{"type":"attach","session":"s"}`)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"type":"attach"`)
	events <- &messages.Event{Type: messages.EventTextDelta, Text: "after the first listing"}
	hear(t, ws, `"type":"event"`)
	if n := len(askedFor[*messages.ListApprovals](b.backend)); n != 0 {
		t.Errorf("they were listed %d times", n)
	}
}
