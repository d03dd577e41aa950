package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// many is how many there are of something: as the variable says, else few, so that every commit can look.
func many(t *testing.T, variable string, few int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no number of things", variable, text)
	}
	return n
}

// streamed is an open event stream: what it has brought.
type streamed struct {
	conn net.Conn
	in   *bufio.Reader
	seqs []string // of the durable events, in their order
	ends int      // turns that it saw the end of
}

// stream opens one over a connection of its own.
func (c *child) stream(session string, after uint64) (*streamed, error) {
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	s := &streamed{conn: conn, in: bufio.NewReaderSize(conn, 512)}
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute)) // who hangs longer than this hangs
	if _, err := fmt.Fprintf(conn, "GET /api/sessions/%s/events?after=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", session, after); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	line, err := s.in.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		err = fmt.Errorf("the stream is answered with %q", line)
	}
	for err == nil && line != "\r\n" {
		line, err = s.in.ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.in = bufio.NewReaderSize(httputil.NewChunkedReader(s.in), 512) // a chunk ends anywhere, within a line too
	return s, nil
}

// until reads until so many turns have ended.
func (s *streamed) until(turns int) error {
	for s.ends < turns {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("after %d turns and %d events: %w", s.ends, len(s.seqs), err)
		}
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); {
		case name == "id":
			s.seqs = append(s.seqs, value)
		case name == "event" && value == messages.EventTurnCompleted:
			s.ends++
		case name == "event" && value == "error":
			return errors.New("the stream ends with a problem")
		}
	}
	return nil
}

// post sends JSON and reads the answer.
func (c *child) post(h *http.Client, path, body string, into any) (int, error) {
	return c.request(h, http.MethodPost, path, body, into)
}

func (c *child) request(h *http.Client, method, path, body string, into any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := h.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if into == nil {
		into = &json.RawMessage{}
	}
	return res.StatusCode, json.NewDecoder(res.Body).Decode(into)
}

// each does n things at the same time.
func each(n int, do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// TestManyStreamsAndManyTurnsAtATime has so many event streams open, each over a connection of its own, while so many turns run at the same
// time, again and again; every stream gets every durable event of its session once and in order. `make streams` has 2,000 and 200.
func TestManyStreamsAndManyTurnsAtATime(t *testing.T) {
	streams, turns, rounds := many(t, "TROUPE_STREAMS", 100), many(t, "TROUPE_TURNS", 20), 3
	c := begin(t, t.TempDir())
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: turns, MaxConnsPerHost: turns}}
	defer h.CloseIdleConnections()
	sessions := make([]string, turns)
	if err := each(turns, func(i int) error {
		var v messages.SessionJSON
		status, err := c.post(h, "/api/sessions", "{}", &v)
		if sessions[i] = v.ID; err == nil && status != http.StatusCreated {
			err = fmt.Errorf("a session is answered with %d", status)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := c.resident()
	open := make([]*streamed, streams)
	for batch := range slices.Chunk(open, 64) { // as many as the kernel's queue of new connections has room for
		first := slices.Index(open, nil)
		if err := each(len(batch), func(i int) (err error) {
			batch[i], err = c.stream(sessions[(first+i)%turns], 0)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, s := range open {
			s.conn.Close()
		}
	}()
	opened := c.resident()
	read := make(chan error, 1)
	go func() { read <- each(streams, func(i int) error { return open[i].until(rounds) }) }()
	began := time.Now()
	for round := range rounds {
		if err := each(turns, func(i int) error { return c.turn(h, sessions[i], fmt.Sprintf("in_%d", round), "hello") }); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	for i, session := range sessions {
		whole, err := c.stream(session, 0)
		if err == nil {
			err = whole.until(rounds)
			whole.conn.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for at := i; at < streams; at += turns {
			if !slices.Equal(open[at].seqs, whole.seqs) {
				t.Errorf("stream %d of session %s got %v, and there is %v", at, session, open[at].seqs, whole.seqs)
			}
		}
	}
	t.Logf("%d streams, %d turns at a time: %.0f turns/s with every event to %d streams each, %.1f KiB resident per open stream, %.1f MiB before, %.1f MiB in the end",
		streams, turns, float64(rounds*turns)/took.Seconds(), streams/turns, (opened-before)/float64(streams), before/1024, c.resident()/1024)
	c.end()
}

// turn gives a session an input and waits for the end of its turn.
func (c *child) turn(h *http.Client, session, id, text string) error {
	status, err := c.post(h, "/api/sessions/"+session+"/inputs", fmt.Sprintf(`{"input_id":%q,"text":%q}`, id, text), nil)
	if err != nil || status != http.StatusAccepted {
		return fmt.Errorf("input %s is answered with %d, %w", id, status, err)
	}
	var r messages.ResultJSON
	status, err = c.request(h, http.MethodGet, "/api/sessions/"+session+"/wait?input_id="+id, "", &r)
	if err == nil && (status != http.StatusOK || r.Outcome != "done" || r.Text != "You said "+text) {
		err = fmt.Errorf("turn %s came to %d %+v", id, status, r)
	}
	return err
}
