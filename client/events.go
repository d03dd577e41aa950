package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

const (
	// silence is how long a stream may say nothing before it counts as broken: the server sends a
	// comment every 15 s.
	silence = 45 * time.Second
	// maxEvent is the most that one event may hold, in bytes.
	maxEvent = 128 << 20
)

// Events yields the events of a session with a seq above after, then live ones, until ctx ends or the
// loop is left, as Runtime.Events does. A broken connection is made again, and the
// stream goes on after the last event: without gap or duplicate of those with a seq; deltas of that
// time are lost. When the holder stays away for as long as Ask waits for it (8 s), the last thing is an error. A connection that
// comes too soon after other requests of the same token waits for its turn, as Ask does.
func (c *Client) Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error] {
	return func(yield func(*messages.Event, error) bool) {
		ctx, cancel := c.untilClosed(ctx)
		defer cancel()
		f := &following{c: c, session: session, last: after, yield: yield}
		for {
			err := f.next(ctx)
			switch {
			case err == nil: // the loop was left
				return
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case f.again(ctx, err):
				continue
			}
			var refused *messages.Failure
			if errors.As(err, &refused) {
				yield(nil, refused)
			} else {
				yield(nil, fmt.Errorf("read events of %s: %w", session, err))
			}
			return
		}
	}
}

// following is one walk along a session's events, over as many connections as it takes.
type following struct {
	c       *Client
	session string
	last    uint64 // seq of the last event that was yielded
	yield   func(*messages.Event, error) bool
	begun   bool      // a connection was made before
	failed  int       // connections that brought nothing, in a row
	away    time.Time // since when the holder is
	soon    int       // those that came too soon, in a row
	seen    witness
}

// finalError is why there is nothing more to read: the connection is not just broken.
type finalError struct{ why *messages.Failure }

func (e finalError) Error() string { return e.why.Error() }
func (e finalError) Unwrap() error { return e.why }

// again waits before the next connection; it is false when there should be none.
func (f *following) again(ctx context.Context, err error) bool {
	var final finalError
	var refused *messages.Failure
	rest := min(firstPause<<min(f.failed, 10), longestRest)
	if f.away.IsZero() {
		f.away = time.Now()
	}
	switch {
	case errors.As(err, &final), errors.Is(err, ErrEnds):
		return false
	case tooSoon(err): // the server is there
		var may bool
		f.soon++
		f.failed, f.away = 0, time.Time{}
		if rest, may = inTurn(err, f.soon); !may {
			return false
		}
	case !f.begun, time.Since(f.away)+rest > f.c.patience, errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable:
		return false
	default:
		f.failed++
	}
	pause := time.NewTimer(rest)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return true // the next try ends with the context's cause
	}
}

// next makes another connection, unless enough servers have ended of those before. One that lived for long says nothing of the session.
func (f *following) next(ctx context.Context) error {
	if err := f.seen.before(ctx, f.c); err != nil {
		return err
	}
	began, last := time.Now(), f.last
	err := f.once(ctx)
	f.seen.after(err)
	if f.last > last || time.Since(began) > longestTurn {
		f.seen = witness{}
	}
	return err
}

// once yields what one connection brings. It returns nil only when the loop was left.
func (f *following) once(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := f.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // of no use any more
	f.begun = true
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	defer f.was(ctx, time.Now())
	r := bufio.NewReaderSize(res.Body, 64<<10)
	for {
		e, err := readEvent(r, func() {
			f.failed, f.soon, f.away = 0, 0, time.Time{}
			quiet.Reset(silence)
		})
		if err != nil {
			return err
		}
		quiet.Stop() // what the caller takes its time for is not the server's silence
		more, err := f.take(e)
		if err != nil || !more {
			return err
		}
		quiet.Reset(silence)
	}
}

// was notes the end of a connection. One that lived for a while shows that the holder was back, whether it had something to say or not; one that was
// given up for its silence shows nothing.
func (f *following) was(ctx context.Context, since time.Time) {
	if ctx.Err() == nil && time.Since(since) > f.c.patience/8 {
		f.failed, f.soon, f.away = 0, 0, time.Time{}
	}
}

func (f *following) connect(ctx context.Context) (*http.Response, error) {
	address := f.c.origin + "/api/sessions/" + segment(f.session) + "/events?after=" + strconv.FormatUint(f.last, 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if f.begun {
		req.Header.Set("Last-Event-ID", strconv.FormatUint(f.last, 10))
	}
	res, err := f.c.roundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = res.Body.Close() }() // it was read to its end
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		if err != nil {
			return nil, fmt.Errorf("read the refusal: %w", err)
		}
		return nil, refusal(res, body)
	}
	return res, nil
}

// take yields one event, unless it was yielded before. It is false when the loop was left.
func (f *following) take(e sse) (bool, error) {
	if e.kind == "error" {
		var p messages.ProblemJSON
		if err := json.Unmarshal(e.data, &p); err != nil {
			return false, fmt.Errorf("decode the end of the stream: %w", err)
		}
		return false, finalError{p.Failure()}
	}
	ev := &messages.Event{}
	if err := json.Unmarshal(e.data, ev); err != nil {
		return false, finalError{messages.Fail(messages.CodeInternal, err.Error(), "client and server are of different versions")}
	}
	if ev.GetSeq() != 0 {
		if ev.GetSeq() <= f.last {
			return true, nil
		}
		f.last = ev.GetSeq()
	}
	return f.yield(ev, nil), nil
}

// sse is one server-sent event.
type sse struct {
	kind string
	data []byte
}

// readEvent reads up to the end of one whole event; alive is called for every line. A stream that ends
// before is broken, and what had come of the event is dropped.
func readEvent(r *bufio.Reader, alive func()) (sse, error) {
	var e sse
	some := false
	for {
		line, err := readLine(r, maxEvent-len(e.data))
		if err != nil {
			return sse{}, err
		}
		alive()
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && some:
			return e, nil
		case name == "event":
			e.kind = value
		case name == "data":
			if some {
				e.data = append(e.data, '\n')
			}
			e.data, some = append(e.data, value...), true
		}
	}
}

func readLine(r *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return "", finalError{messages.Fail(messages.CodeTooLarge, fmt.Sprintf("an event is larger than %d bytes", maxEvent), "")}
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}
