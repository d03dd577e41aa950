package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

func sse(seq int) string {
	return fmt.Sprintf("id: %d\nevent: turn.started\ndata: {\"seq\":%d,\"type\":\"turn.started\",\"at\":\"1970-01-01T00:00:00.000Z\"}\n\n", seq, seq)
}

const delta = "event: text.delta\ndata: {\"type\":\"text.delta\",\"at\":\"1970-01-01T00:00:00.000Z\",\"text\":\"a\"}\n\n"

// streams serves one script per connection and writes down how each was asked for. After the last
// the session is gone.
func streams(t *testing.T, dir string, scripts ...string) (asked func() []string) {
	t.Helper()
	var n atomic.Int32
	log := make(chan string, 100)
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		log <- r.URL.RawQuery + " " + r.Header.Get("Last-Event-ID")
		i := int(n.Add(1)) - 1
		if i >= len(scripts) {
			w.Header().Set("Content-Type", messages.ProblemType)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"code":"not_found","detail":"no more"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, scripts[i])
		if strings.HasSuffix(scripts[i], "\n") {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler) // in the middle of something
	})
	return func() []string {
		close(log)
		var all []string
		for s := range log {
			all = append(all, s)
		}
		return all
	}
}

// follow reads events to the end: their seqs, and the error.
func follow(t *testing.T, c *client.Client, after uint64) (seqs []uint64, end error) {
	t.Helper()
	for ev, err := range c.Events(t.Context(), "ses_1", after) {
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, ev.GetSeq())
	}
	return seqs, nil
}

func TestABrokenStreamGoesOnWithoutGapOrDuplicate(t *testing.T) {
	dir := t.TempDir()
	half := sse(5)[:20]
	asked := streams(
		t, dir,
		sse(3)+delta+sse(4)+half,         // broken in the middle of an event
		sse(5),                           // ended between two
		strings.TrimSuffix(sse(6), "\n"), // ended before the blank line: not there yet
		":\n\n"+sse(4)+sse(5)+sse(6),     // a server that repeats itself
		"",                               // nothing at all
		strings.ReplaceAll(sse(7), "\n", "\r\n")+"retry: 5\n\nid: 99\n\n"+sse(8),
	)
	seqs, err := follow(t, dial(t, dir), 2)
	if want := []uint64{3, 0, 4, 5, 6, 7, 8}; !slices.Equal(seqs, want) {
		t.Errorf("got %v, want %v", seqs, want)
	}
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetMessage() != "no more" {
		t.Errorf("ended with %v", err)
	}
	want := []string{"after=2 ", "after=4 4", "after=5 5", "after=5 5", "after=6 6", "after=6 6", "after=8 8"}
	if got := asked(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func TestAProblemInTheStreamIsItsEnd(t *testing.T) {
	dir := t.TempDir()
	asked := streams(t, dir, sse(1)+"event: error\ndata: {\"code\":\"unavailable\",\"detail\":\"restarting\"}\n\n", sse(2))
	seqs, err := follow(t, dial(t, dir), 0)
	f, ok := err.(*messages.Failure) //nolint:errorlint // the value itself is meant, as from the runtime
	if !slices.Equal(seqs, []uint64{1}) || !ok || f.GetCode() != messages.CodeUnavailable {
		t.Errorf("got %v, %v", seqs, err)
	}
	if n := len(asked()); n != 1 {
		t.Errorf("connected %d times", n)
	}
}

// TestAStreamThatIsAskedForTooSoonWaitsForItsTurn, at first and when its connection is made again; a server that never lets it in is told of in the end.
func TestAStreamThatIsAskedForTooSoonWaitsForItsTurn(t *testing.T) {
	dir := t.TempDir()
	var n atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		switch i := n.Add(1); i {
		case 4, 8:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, sse(int(i)))
		default:
			w.Header().Set("Content-Type", messages.ProblemType)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"code":"rate_limited","detail":"too many"}`)
		}
	})
	seqs, err := follow(t, dial(t, dir), 0)
	var f *messages.Failure
	if !slices.Equal(seqs, []uint64{4, 8}) || !errors.As(err, &f) || f.GetCode() != messages.CodeRate || n.Load() != 13 {
		t.Errorf("got %v by %d connections, %v", seqs, n.Load(), err)
	}
}

// TestAQuietStreamOutlivesASecondRestart: the server was back between the two, though nothing happened there.
func TestAQuietStreamOutlivesASecondRestart(t *testing.T) {
	dir := t.TempDir()
	var n atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		i := int(n.Add(1))
		if i > 3 {
			w.Header().Set("Content-Type", messages.ProblemType)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"code":"not_found","detail":"no more"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if i != 2 {
			fmt.Fprint(w, sse(i))
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-time.After(300 * time.Millisecond) // nothing happens
		panic(http.ErrAbortHandler)
	})
	c := dial(t, dir)
	c.Patience(200 * time.Millisecond)
	if seqs, err := follow(t, c, 0); !slices.Equal(seqs, []uint64{1, 3}) {
		t.Errorf("got %v by %d connections, %v", seqs, n.Load(), err)
	}
}

func TestAnUnknownSessionIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	asked := streams(t, dir)
	_, err := follow(t, dial(t, dir), 0)
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound || len(asked()) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestEventsThatMakeNoSenseAreTheEnd(t *testing.T) {
	dir := t.TempDir()
	asked := streams(t, dir, "event: turn.started\ndata: {\n\n")
	_, err := follow(t, dial(t, dir), 0)
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeInternal || len(asked()) != 1 {
		t.Errorf("got %v", err)
	}
}

func TestLeavingTheLoopEndsTheConnection(t *testing.T) {
	dir := t.TempDir()
	gone := make(chan error, 1)
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, sse(1))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		gone <- err
	})
	for _, err := range dial(t, dir).Events(t.Context(), "ses_1", 0) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
}

func TestAHolderThatStaysAwayIsAnErrorInTheEnd(t *testing.T) {
	dir := t.TempDir()
	came := make(chan error, 1)
	stop := hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, sse(1))
		came <- http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := <-came; err != nil {
			t.Error(err)
		}
		stop()
	}()
	c := dial(t, dir)
	c.Patience(200 * time.Millisecond)
	seqs, err := follow(t, c, 0)
	if !slices.Equal(seqs, []uint64{1}) || !errors.Is(err, client.ErrNoHolder) {
		t.Errorf("got %v, %v", seqs, err)
	}
	<-stopped
}
