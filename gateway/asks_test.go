package gateway_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestASessionOfTheAPIAsksUnlessItSaysOtherwise: a server lists what waits for an answer, so that somebody can give it.
func TestASessionOfTheAPIAsksUnlessItSaysOtherwise(t *testing.T) {
	var got *messages.CreateSession
	s := serve(t, &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
		if c, is := m.(*messages.CreateSession); is {
			got = c
		}
		return &messages.SessionView{Id: "ses_1"}, nil
	}}, gateway.Options{})
	for body, asks := range map[string]bool{`{}`: true, `{"ask":true}`: true, `{"ask":false}`: false, `{"no_input":true}`: false} {
		if res, text := s.do(t, "POST", "/api/sessions", body); res.StatusCode != 201 || got.GetAsk() != asks {
			t.Errorf("%s: %s %s %v", body, res.Status, text, got)
		}
	}
	for _, asks := range []bool{true, false} { // a program says what it means
		body, err := messages.CreateFrom(&messages.CreateSession{Ask: asks})
		if err != nil {
			t.Fatal(err)
		}
		back, err := body.Proto()
		if err != nil || back.GetAsk() != asks {
			t.Errorf("ask %v came as %v, %v", asks, back, err)
		}
	}
}
