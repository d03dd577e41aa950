package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// succession are servers on one data directory, one after the other: each but the last is killed.
type succession struct {
	t    *testing.T
	data string

	mu  sync.Mutex
	now *child
}

func (s *succession) current() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// kill ends the server as the kernel does, and starts the next one.
func (s *succession) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.kill()
	s.now = begin(s.t, s.data)
}

// patiently does something with the server that there is, again and again until it answers: a server that is killed answers nobody.
func (s *succession) patiently(do func(c *child) (status int, err error), want int) error {
	var last error
	for limit := time.Now().Add(5 * time.Minute); time.Now().Before(limit); {
		status, err := do(s.current())
		switch {
		case err == nil && status == want:
			return nil
		case err == nil && status != http.StatusServiceUnavailable:
			return fmt.Errorf("answered with %d", status)
		}
		last = err
	}
	return fmt.Errorf("never answered: %w", last)
}

// reading is a client of an event stream that cuts it again and again, and goes on after the last event that it got.
type reading struct {
	events []json.RawMessage
	last   uint64
	cuts   int // by itself
	breaks int // by the server's end
}

// until reads until a number of turns have ended, and cuts the stream after one to eight events while it may.
func (r *reading) until(s *succession, session string, turns, cuts int) error {
	random, ended := rand.New(rand.NewPCG(1, 2)), 0
	for limit := time.Now().Add(5 * time.Minute); ended < turns; {
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d turns are seen after %d cuts and %d breaks", ended, turns, r.cuts, r.breaks)
		}
		st, err := s.current().stream(session, r.last)
		if err != nil {
			r.breaks++
			continue
		}
		some := 1 + random.IntN(8)
		for n := 0; ended < turns && (n < some || r.cuts >= cuts); {
			ev, text, err := st.event()
			if _, malformed := errors.AsType[*json.SyntaxError](err); malformed {
				return fmt.Errorf("after event %d: %w", r.last, err)
			}
			if err != nil {
				r.breaks++
				break
			}
			if n++; n == some {
				r.cuts++
			}
			if ev.Seq == 0 {
				continue
			}
			r.events, r.last = append(r.events, text), ev.Seq
			if ev.Type == messages.EventTurnCompleted {
				ended++
			}
		}
		st.conn.Close()
	}
	return nil
}

// told is an event as a client reads it.
type told struct {
	Seq           uint64
	Type, Text    string
	Turn, Outcome string
	InputID       string `json:"input_id"`
}

// event is the next one of a stream.
func (s *streamed) event() (ev told, text json.RawMessage, err error) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return ev, nil, err
		}
		if data, is := strings.CutPrefix(strings.TrimSpace(line), "data: "); is {
			return ev, json.RawMessage(data), json.Unmarshal([]byte(data), &ev)
		}
	}
}

// TestAHundredInputsAtOnceAreTurnsInTheOrderOfTheirAcceptance gives one session so many inputs at the same time, with the server killed
// again and again meanwhile and clients that send theirs again until it is acknowledged; one more client watches, and cuts its stream 50 times.
func TestAHundredInputsAtOnceAreTurnsInTheOrderOfTheirAcceptance(t *testing.T) {
	const inputs, cuts = 100, 50
	for _, kills := range []int{0, 4} {
		t.Run(fmt.Sprintf("%d kills", kills), func(t *testing.T) {
			s := &succession{t: t, data: t.TempDir()}
			s.now = begin(t, s.data)
			h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inputs}}
			defer h.CloseIdleConnections()
			var v messages.SessionJSON
			if status, err := s.now.post(h, "/api/sessions", "{}", &v); err != nil || status != http.StatusCreated {
				t.Fatal(status, err)
			}
			r := &reading{}
			watched := make(chan error, 1)
			go func() { watched <- r.until(s, v.ID, inputs, cuts) }()
			done := make(chan int, inputs)
			killed := make(chan struct{})
			go func() { // after so many acknowledgements each
				defer close(killed)
				for n := range kills {
					for range inputs / (kills + 1) {
						<-done
					}
					t.Logf("kill %d", n+1)
					s.kill()
				}
			}()
			accepted := make([]uint64, inputs)
			if err := each(inputs, func(i int) error {
				body := fmt.Sprintf(`{"input_id":"in_%d","text":"number %d"}`, i, i)
				err := s.patiently(func(c *child) (int, error) {
					var a messages.AcceptedJSON
					status, err := c.post(h, "/api/sessions/"+v.ID+"/inputs", body, &a)
					accepted[i] = a.Seq
					return status, err
				}, http.StatusAccepted)
				done <- i
				return err
			}); err != nil {
				t.Fatal(err)
			}
			<-killed
			if err := each(inputs, func(i int) error {
				return s.patiently(func(c *child) (int, error) {
					var res messages.ResultJSON
					status, err := c.request(h, http.MethodGet, fmt.Sprintf("/api/sessions/%s/wait?input_id=in_%d", v.ID, i), "", &res)
					if want := fmt.Sprintf("You said number %d", i); err == nil && status == http.StatusOK && (res.Outcome != "done" || res.Text != want) {
						t.Errorf("input %d came to %s %q", i, res.Outcome, res.Text)
					}
					return status, err
				}, http.StatusOK)
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-watched; err != nil {
				t.Fatal(err)
			}
			if r.cuts < cuts {
				t.Errorf("the stream was cut only %d times", r.cuts)
			}
			s.now.end()
			t.Logf("%d cuts, %d breaks, %d events", r.cuts, r.breaks, len(r.events))
			inOrder(t, r.events, accepted)
			journal(t, s.data, v.ID, r.events)
		})
	}
}

// inOrder checks that turns follow each other in the order in which their inputs were accepted, each once and whole.
func inOrder(t *testing.T, events []json.RawMessage, accepted []uint64) {
	t.Helper()
	order := slices.SortedFunc(maps.Keys(indices(accepted)), func(a, b int) int { return int(accepted[a]) - int(accepted[b]) })
	open, turns, seen := "", 0, 0
	for _, text := range events {
		var ev told
		if err := json.Unmarshal(text, &ev); err != nil {
			t.Fatal(err)
		}
		switch ev.Type {
		case messages.EventInputAccepted:
			if seen == len(order) || ev.InputID != fmt.Sprintf("in_%d", order[seen]) || ev.Seq != accepted[order[seen]] {
				t.Fatalf("acceptance %d is %s", seen, text)
			}
			seen++
		case messages.EventTurnStarted:
			if open != "" {
				t.Fatalf("turn %s begins within turn %s", ev.Turn, open)
			}
			open = ev.Turn
		case messages.EventTurnCompleted:
			if turns == len(order) || ev.Turn != open || ev.Text != fmt.Sprintf("You said number %d", order[turns]) || ev.Outcome != "done" {
				t.Fatalf("turn %d, of %s, ends with %s", turns, open, text)
			}
			open = ""
			turns++
		}
	}
	if turns != len(order) || seen != len(order) {
		t.Errorf("%d inputs and %d turns", seen, turns)
	}
}

func indices[T any](all []T) map[int]T {
	m := make(map[int]T, len(all))
	for i, v := range all {
		m[i] = v
	}
	return m
}

// journal checks that a client was told the durable events of a session's journal, each once and nothing else.
func journal(t *testing.T, data, session string, got []json.RawMessage) {
	t.Helper()
	rt, err := troupe.New(t.Context(), troupe.Options{Model: model(t), DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	turns := 0
	want := durable(t, until(t, rt, session, 0, func(ev *messages.Event) bool {
		if completed(ev) {
			turns++
		}
		return turns == 100
	}))
	if len(want) != len(got) {
		t.Errorf("%d events, and the journal has %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if string(got[i]) != want[i] {
			t.Fatalf("event %d is %s, in the journal %s", i, got[i], want[i])
		}
	}
}
