package gateway

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// wire is a client's side of an answer: what reached it, in one piece for each flush.
type wire struct {
	header http.Header

	mu      sync.Mutex
	pending strings.Builder
	pieces  []string
	err     error
}

func (w *wire) Header() http.Header { return w.header }
func (w *wire) WriteHeader(int)     {}
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending.Write(p)
}

func (w *wire) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pieces = append(w.pieces, w.pending.String())
	w.pending.Reset()
	return w.err
}

// types is what each piece holds, by type; a comment is a colon.
func (w *wire) types() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, p := range w.pieces {
		var types []string
		for line := range strings.Lines(p) {
			line = strings.TrimSpace(line)
			if t, is := strings.CutPrefix(line, "event: "); is {
				types = append(types, t)
			} else if line == ":" {
				types = append(types, line)
			}
		}
		all = append(all, strings.Join(types, " "))
	}
	w.pieces = nil
	return strings.Join(all, "|")
}

func TestWhatHappensTogetherIsSentTogetherAndWhatIsWaitedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{header: http.Header{}}
		s := (&api{opts: Options{Keepalive: time.Second}}).stream(w, func() { t.Error("the client is given up") })
		tell := func(types ...string) {
			t.Helper()
			for _, typ := range types {
				if err := s.event(&messages.Event{Type: typ}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		want := func(what string) {
			t.Helper()
			if got := w.types(); got != what {
				t.Errorf("got %q, want %q", got, what)
			}
		}
		tell("a", "b", "c")
		want("a") // nothing was sent for long: it need not wait
		<-time.After(gather - time.Millisecond)
		want("")
		<-time.After(2 * time.Millisecond)
		want("b c")
		tell("d", messages.EventTextDelta, messages.EventTextDelta, "e")
		want("d text.delta") // who reads sees the first word at once
		tell(messages.EventTextDelta)
		want("text.delta e text.delta")
		tell("f", messages.EventTurnCompleted)
		want("f turn.completed")
		tell("g")
		want("")
		tell(messages.EventApprovalRequested)
		want("g approval.requested")
		<-time.After(1900 * time.Millisecond)
		want(":")
		for range 3 {
			if err := s.event(&messages.Event{Type: "h", Text: strings.Repeat("x", gathered/2)}); err != nil {
				t.Fatal(err)
			}
		}
		want("h|h h")
		tell("i")
		s.end(true)
		want("i") // an end loses nothing
		if s.timer.Stop() {
			t.Error("the stream has ended, and its timer keeps it")
		}
		<-time.After(5 * time.Second)
		want("")
	})
}

func TestAStreamWithoutEventsBeginsAndAClientThatTakesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, gone := &wire{header: http.Header{}}, make(chan bool, 2)
		s := (&api{opts: Options{Keepalive: time.Second}}).stream(w, func() { gone <- true })
		<-time.After(openingWait + time.Millisecond)
		synctest.Wait()
		if w.types() != "" || w.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("after a while: %v", w.header)
		}
		w.mu.Lock()
		w.err = errors.New("the client is gone")
		w.mu.Unlock()
		<-time.After(time.Second)
		synctest.Wait()
		if len(gone) != 1 {
			t.Errorf("a client that takes no comment was given up %d times", len(gone))
		}
		if err := s.event(&messages.Event{Type: "a"}); !errors.Is(err, w.err) {
			t.Errorf("then: %v", err)
		}
		s.end(false)
	})
}
