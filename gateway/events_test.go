package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// feed is a backend whose events come from a channel. Its streams say when they begin and end.
type feed struct {
	backend
	events chan item
	begun  chan uint64 // after
	ended  chan error  // cause
}

type item struct {
	ev  *messages.Event
	err error
}

func newFeed() *feed {
	return &feed{events: make(chan item), begun: make(chan uint64, 8), ended: make(chan error, 8)}
}

func (f *feed) Events(ctx context.Context, _ string, after uint64) iter.Seq2[*messages.Event, error] {
	return func(yield func(*messages.Event, error) bool) {
		f.begun <- after
		for {
			select {
			case it := <-f.events:
				if !yield(it.ev, it.err) || it.err != nil {
					f.ended <- context.Cause(ctx)
					return
				}
			case <-ctx.Done():
				f.ended <- context.Cause(ctx)
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// block reads one block of a stream, up to its blank line.
func block(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read the stream after %q: %v", b.String(), err)
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

func TestDurableEventsCarryTheirSeqAsIDAndOthersNone(t *testing.T) {
	f := newFeed()
	s := serve(t, f, gateway.Options{})
	res := s.open(t.Context(), t, "GET", "/api/sessions/ses_1/events?after=3", "")
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	if after := <-f.begun; after != 3 {
		t.Errorf("began after %d", after)
	}
	r := bufio.NewReader(res.Body)
	// Each event arrives before the next is sent: nothing is held back.
	f.events <- item{ev: &messages.Event{Seq: 4, Type: messages.EventTurnStarted, Session: "ses_1", Turn: "t1"}}
	want := "id: 4\nevent: turn.started\ndata: {\"seq\":4,\"type\":\"turn.started\",\"at\":\"1970-01-01T00:00:00.000Z\",\"session\":\"ses_1\",\"turn\":\"t1\"}\n"
	if got := block(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	f.events <- item{ev: &messages.Event{Type: messages.EventTextDelta, Text: "a\nb\r\nid: 9\n\n"}}
	want = "event: text.delta\ndata: {\"type\":\"text.delta\",\"at\":\"1970-01-01T00:00:00.000Z\",\"text\":\"a\\nb\\r\\nid: 9\\n\\n\"}\n"
	if got := block(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if q := f.questions(); len(q) != 1 || !proto.Equal(q[0], &messages.WhoseIs{Id: "ses_1", Any: true}) {
		t.Errorf("asked %v", q)
	}
}

func TestTheLastEventIDCountsMoreThanTheAddress(t *testing.T) {
	f := newFeed()
	s := serve(t, f, gateway.Options{})
	res := s.open(t.Context(), t, "GET", "/api/sessions/ses_1/events?after=3", "", "Last-Event-ID", "12")
	defer res.Body.Close()
	if after := <-f.begun; after != 12 {
		t.Errorf("began after %d", after)
	}
}

func TestAQuietStreamSaysThatItLives(t *testing.T) {
	f := newFeed()
	s := serve(t, f, gateway.Options{Keepalive: time.Millisecond})
	res := s.open(t.Context(), t, "GET", "/api/sessions/ses_1/events", "")
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	for range 3 {
		if got := block(t, r); got != ":\n" {
			t.Errorf("got %q", got)
		}
	}
}

func TestAStreamOfNoSessionIsNotFound(t *testing.T) {
	f := newFeed()
	f.answer = func(context.Context, proto.Message) (proto.Message, error) {
		return nil, messages.Fail(messages.CodeNotFound, "no session ses_1", "")
	}
	s := serve(t, f, gateway.Options{})
	res, body := s.do(t, "GET", "/api/sessions/ses_1/events", "")
	refused(t, res, body, 404, messages.CodeNotFound)
	if len(f.begun) != 0 {
		t.Error("events were asked for")
	}
}

func TestAFailureInTheMiddleIsTheLastEvent(t *testing.T) {
	for code, err := range map[string]error{
		messages.CodeCorrupt:  messages.Fail(messages.CodeCorrupt, "broken", "verify"),
		messages.CodeInternal: errors.New("broken"),
	} {
		f := newFeed()
		s := serve(t, f, gateway.Options{})
		res := s.open(t.Context(), t, "GET", "/api/sessions/ses_1/events", "")
		r := bufio.NewReader(res.Body)
		f.events <- item{err: err}
		got := block(t, r)
		if !strings.HasPrefix(got, "event: error\ndata: {") || !strings.Contains(got, `"code":"`+code+`"`) || !strings.Contains(got, `"detail":"broken"`) {
			t.Errorf("got %q", got)
		}
		if rest, err := io.ReadAll(r); len(rest) != 0 || err != nil {
			t.Errorf("then %q, %v", rest, err)
		}
		res.Body.Close()
	}
}

// TestEventsThatAreGoneAreRefusedByStatus: a client that would otherwise take the end of its stream for a lost connection.
func TestEventsThatAreGoneAreRefusedByStatus(t *testing.T) {
	b := &backend{events: func(context.Context, string, uint64) iter.Seq2[*messages.Event, error] {
		return func(yield func(*messages.Event, error) bool) {
			f := messages.Fail(messages.CodeTrimmed, "they were trimmed away", "ask for those after 7")
			f.ResumeAfter = 7
			yield(nil, f)
		}
	}}
	res, body := serve(t, b, gateway.Options{}).do(t, "GET", "/api/sessions/ses_1/events?after=2", "")
	refused(t, res, body, http.StatusGone, messages.CodeTrimmed)
	var p messages.ProblemJSON
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.ResumeAfter != 7 || p.Snapshot != "/api/sessions/ses_1" {
		t.Errorf("it leads to %+v, %v", p, err)
	}
}

func TestAPanicInAStreamEndsOnlyThatStream(t *testing.T) {
	b := &backend{events: func(context.Context, string, uint64) iter.Seq2[*messages.Event, error] {
		return func(func(*messages.Event, error) bool) { panic("no") }
	}}
	s := serve(t, b, gateway.Options{})
	_, body := s.do(t, "GET", "/api/sessions/ses_1/events", "")
	if !strings.Contains(body, `"code":"internal_error"`) {
		t.Errorf("the stream ended with %q", body)
	}
	if res, _ := s.do(t, "GET", "/livez", ""); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s", res.Status)
	}
}

func TestAStreamEndsWhenItsReaderGoes(t *testing.T) {
	f := newFeed()
	s := serve(t, f, gateway.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	res := s.open(ctx, t, "GET", "/api/sessions/ses_1/events", "")
	defer res.Body.Close()
	<-f.begun
	cancel()
	if err := <-f.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
