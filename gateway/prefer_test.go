package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// turns answers an input as accepted, and what waits for its turn as result says.
func turns(result func(context.Context, *messages.AwaitTurn) (proto.Message, error)) *backend {
	return &backend{answer: func(ctx context.Context, m proto.Message) (proto.Message, error) {
		if whose, asked := m.(*messages.WhoseIs); asked {
			return &messages.Belongs{SessionId: whose.GetId()}, nil
		}
		to, ok := m.(*messages.ToSession)
		if !ok || to.GetSessionId() != "ses_1" {
			return messages.Fail(messages.CodeNotFound, "no such session", ""), nil
		}
		switch x := to.GetCommand().(type) {
		case *messages.ToSession_Submit:
			return &messages.InputReply{InputId: x.Submit.GetInputId(), Seq: 7, SessionId: "ses_1", WorkerId: "wrk_2", Duplicate: x.Submit.GetInputId() == "again"}, nil
		case *messages.ToSession_AwaitTurn:
			return result(ctx, x.AwaitTurn)
		}
		return nil, errors.New("another command")
	}}
}

const inputs = "/api/sessions/ses_1/inputs"

func TestAnInputMayWaitForItsResult(t *testing.T) {
	s := serve(t, turns(func(_ context.Context, m *messages.AwaitTurn) (proto.Message, error) {
		return &messages.TurnResult{SessionId: "ses_1", WorkerId: m.GetWorkerId(), TurnId: "turn of " + m.GetInputId(), Outcome: messages.TurnCompleted_DONE}, nil
	}), gateway.Options{})
	for prefer, waits := range map[string]bool{
		"wait=5": true, "respond-async, wait=5": true, `Wait = "5"`: true, "wait=5; x=1": true, "wait=99999999": true, "handling=lenient,wait=1,wait=0": true,
		"": false, "wait": false, "wait=": false, "wait=0": false, "wait=-1": false, "wait=soon": false, "wait=1e9": false, "await=5": false, "wait=99999999999999999999": false,
	} {
		for _, id := range []string{"i1", "again"} {
			res, body := s.do(t, "POST", inputs, `{"input_id":"`+id+`","text":"x"}`, "Prefer", prefer)
			var got messages.ResultJSON
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			want := 202
			if waits {
				want = 200
			}
			if res.StatusCode != want || waits && (got.Turn != "turn of "+id || got.Worker != "wrk_2") || (res.Header.Get("Preference-Applied") == "wait") != waits {
				t.Errorf("Prefer: %s: %s %s %v", prefer, res.Status, body, res.Header)
			}
			if (res.Header.Get(gateway.ReplayedHeader) == "true") != (id == "again") {
				t.Errorf("Prefer: %s: replayed %q for %s", prefer, res.Header.Get(gateway.ReplayedHeader), id)
			}
		}
	}
}

func TestAnInputIsAcceptedWhateverItsResultComesTo(t *testing.T) {
	logged := map[string]string{"the house fails": "broken"} // a fault of the server's is told to nobody else
	for name, result := range map[string]func(context.Context, *messages.AwaitTurn) (proto.Message, error){
		"it takes longer": func(ctx context.Context, _ *messages.AwaitTurn) (proto.Message, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		"the session is gone": func(context.Context, *messages.AwaitTurn) (proto.Message, error) {
			return messages.Fail(messages.CodeNotFound, "no such session", ""), nil
		},
		"the house fails": func(context.Context, *messages.AwaitTurn) (proto.Message, error) { return nil, errors.New("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer // read when the server has stopped
			s := serve(t, turns(result), gateway.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			res, body := s.do(t, "POST", inputs, `{"input_id":"i1","text":"x"}`, "Prefer", "wait=1")
			var got messages.AcceptedJSON
			if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 202 || got.InputID != "i1" {
				t.Errorf("%s %s %v", res.Status, body, err)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			if said := log.String(); (said != "") != (logged[name] != "") || !strings.Contains(said, logged[name]) {
				t.Errorf("logged: %q", said)
			}
		})
	}
}

func TestAnInputThatWaitsIsAnsweredWhenTheServerStops(t *testing.T) {
	asked := make(chan struct{})
	s := serve(t, turns(func(ctx context.Context, _ *messages.AwaitTurn) (proto.Message, error) {
		close(asked)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}), gateway.Options{})
	stopped := make(chan error, 1)
	go func() {
		<-asked
		stopped <- s.stop()
	}()
	if res, body := s.do(t, "POST", inputs, `{"input_id":"i1","text":"x"}`, "Prefer", "wait=600"); res.StatusCode != 202 {
		t.Errorf("%s %s", res.Status, body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A result is read, not only begun: scope prompt alone gets what it always got.
func TestAResultIsForWhoMayRead(t *testing.T) {
	waited := false
	b := turns(func(context.Context, *messages.AwaitTurn) (proto.Message, error) {
		waited = true
		return &messages.TurnResult{Outcome: messages.TurnCompleted_DONE, Text: "secret"}, nil
	})
	who := map[string]gateway.Principal{
		"both":   {Name: "both", Scopes: []gateway.Scope{gateway.ScopeRead, gateway.ScopePrompt}},
		"writer": {Name: "writer", Scopes: []gateway.Scope{gateway.ScopePrompt}},
	}
	s := serve(t, b, gateway.Options{Authenticate: byHeader(who)})
	for name, status := range map[string]int{"writer": 202, "both": 200} {
		waited = false
		res, body := s.do(t, "POST", inputs, `{"input_id":"i1","text":"x"}`, "Prefer", "wait=5", "Authorization", name)
		if res.StatusCode != status || waited != (status == 200) {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
	}
}
