package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// waiting is a backend that answers AwaitTurn only when told to, or when the context ends.
func waiting(came chan<- struct{}, release <-chan struct{}) *backend {
	return &backend{answer: func(ctx context.Context, m proto.Message) (proto.Message, error) {
		came <- struct{}{}
		select {
		case <-release:
			if _, waits := m.(*messages.ToSession).GetCommand().(*messages.ToSession_AwaitTurn); waits {
				return &messages.TurnResult{TurnId: "t1"}, nil
			}
			return &messages.InputReply{InputId: "i1"}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}
}

func TestStoppingEndsStreamsAndLongPollsAndRemovesTheSocket(t *testing.T) {
	f := newFeed()
	s := serve(t, f, gateway.Options{})
	stream := s.open(t.Context(), t, "GET", "/api/sessions/ses_1/events", "")
	defer stream.Body.Close()
	<-f.begun
	came := make(chan struct{})
	f.answer = waiting(came, nil).answer
	polled := s.later(t.Context(), "GET", "/api/sessions/ses_1/wait", "")
	<-came
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if rest, err := io.ReadAll(stream.Body); len(rest) != 0 || err != nil {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	if err := <-f.ended; err == nil {
		t.Error("the house's stream ended without a cause")
	}
	if r := <-polled; r.err != nil || r.status != 503 || r.kind != messages.ProblemType || !strings.Contains(r.body, `"code":"unavailable"`) {
		t.Errorf("the long poll got %+v", r)
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestStoppingLetsAnOrdinaryRequestFinish(t *testing.T) {
	came, release := make(chan struct{}), make(chan struct{})
	s := serve(t, waiting(came, release), gateway.Options{})
	answered := s.later(t.Context(), "POST", "/api/sessions/ses_1/inputs", `{"text":"x"}`)
	<-came
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	refusedSoon(t, s.path) // stopping has begun
	close(release)
	if r := <-answered; r.status != http.StatusAccepted {
		t.Errorf("answered %+v", r)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// refusedSoon returns when nobody listens on a socket any more.
func refusedSoon(t *testing.T, path string) {
	t.Helper()
	for {
		c, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		c.Close()
		if t.Context().Err() != nil {
			t.Fatal("the socket still answers")
		}
	}
}

func TestALongPollAnswersWhenItsTurnIsDone(t *testing.T) {
	came, release := make(chan struct{}), make(chan struct{})
	s := serve(t, waiting(came, release), gateway.Options{})
	got := s.later(t.Context(), "GET", "/api/sessions/ses_1/wait", "")
	<-came
	close(release)
	want := `{"session":"","turn":"t1","text":"","outcome":"","usage":{"input_tokens":0,"output_tokens":0,"cost_usd":0},"tool_calls":[]}`
	if r := <-got; r.body != want {
		t.Errorf("got %+v", r)
	}
}

func TestALongPollEndsWhenItsClientGoes(t *testing.T) {
	came, ended := make(chan struct{}), make(chan error, 1)
	b := &backend{answer: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		close(came)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}}
	s := serve(t, b, gateway.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := s.later(ctx, "GET", "/api/sessions/ses_1/wait", "")
	<-came
	cancel()
	if r := <-gone; !errors.Is(r.err, context.Canceled) {
		t.Errorf("the client got %+v", r)
	}
	if err := <-ended; err == nil {
		t.Error("the question was not given up")
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	l, _, err := gateway.ListenSocket(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Serve(t.Context(), l, gateway.New(&backend{}, gateway.Options{})); err == nil {
		t.Error("served on a closed listener")
	}
}

func TestAHandlerThatDoesNotEndIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("requests may take 5 s to end before they are cut off")
	}
	l, path, err := gateway.ListenSocket(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	came, ended := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- gateway.Serve(ctx, l, h) }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-came
	cancel()
	if err := <-served; err != nil {
		t.Errorf("stopped with %v", err)
	}
	<-ended
}
