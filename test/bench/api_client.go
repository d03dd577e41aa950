package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/test/bench/load"
)

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

// ask sends a request and reads its answer.
func (s *served) ask(ctx context.Context, method, path string, body, into any, prefer ...string) error {
	var text strings.Builder
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path, strings.NewReader(text.String()))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, p := range prefer {
		req.Header.Set("Prefer", p)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, answer)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// create makes a session in the folder with the note.
func (s *served) create(ctx context.Context) (string, error) {
	var v messages.SessionJSON
	err := s.ask(ctx, http.MethodPost, "/api/sessions", messages.CreateJSON{
		Model: load.Model, Workspaces: []messages.AttachJSON{{URI: "local:" + s.folder, Trust: "full", Primary: true}},
	}, &v)
	return v.ID, err
}

func (s *served) submit(ctx context.Context, session, id, text string) error {
	return s.ask(ctx, http.MethodPost, "/api/sessions/"+session+"/inputs", messages.InputJSON{InputID: id, Text: text}, &messages.AcceptedJSON{})
}

// turnByPoll plays turn n and waits for its end in one request.
func (s *served) turnByPoll(ctx context.Context, session string, n int) error {
	id := fmt.Sprintf("in_%d", n)
	if err := s.submit(ctx, session, id, load.Prompt(n)); err != nil {
		return err
	}
	var res messages.ResultJSON
	if err := s.ask(ctx, http.MethodGet, "/api/sessions/"+session+"/wait?input_id="+id, nil, &res); err != nil {
		return err
	}
	return good(n, &res)
}

// turnByResult plays turn n in one request.
func (s *served) turnByResult(ctx context.Context, session string, n int) error {
	var res messages.ResultJSON
	in := messages.InputJSON{InputID: fmt.Sprintf("in_%d", n), Text: load.Prompt(n)}
	if err := s.ask(ctx, http.MethodPost, "/api/sessions/"+session+"/inputs", in, &res, "wait=60"); err != nil {
		return err
	}
	return good(n, &res)
}

func good(n int, res *messages.ResultJSON) error {
	if res.Outcome != "done" || len(res.ToolCalls) != 1 {
		return fmt.Errorf("turn %d came to %+v", n, res)
	}
	return nil
}

// play makes a session and plays its turns.
func (s *served) play(ctx context.Context, way string) error {
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	var e *events
	if way == byStream {
		if e, err = s.follow(ctx, id); err != nil {
			return err
		}
		defer e.close()
	}
	for n := range apiTurns {
		switch way {
		case byResult:
			err = s.turnByResult(ctx, id, n)
		case byPoll:
			err = s.turnByPoll(ctx, id, n)
		default:
			if err = s.submit(ctx, id, fmt.Sprintf("in_%d", n), load.Prompt(n)); err == nil {
				_, err = e.until(messages.EventTurnCompleted)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firstOverHTTP is how long the first text of an answer takes to the client of an event stream.
func (s *served) firstOverHTTP(ctx context.Context, n int) (load.Quantiles, error) {
	id, err := s.create(ctx)
	if err != nil {
		return load.Quantiles{}, err
	}
	e, err := s.follow(ctx, id)
	if err != nil {
		return load.Quantiles{}, err
	}
	defer e.close()
	var took []float64
	for i := range n {
		if err := s.submit(ctx, id, fmt.Sprintf("in_%d", i), load.Stamped); err != nil {
			return load.Quantiles{}, err
		}
		data, err := e.until(messages.EventTextDelta)
		us, is := load.Since(data)
		if err == nil && !is {
			err = fmt.Errorf("a text has no stamp: %s", data)
		}
		if err == nil {
			_, err = e.until(messages.EventTurnCompleted)
		}
		if err != nil {
			return load.Quantiles{}, err
		}
		took = append(took, us)
	}
	return load.QuantilesOf(took), nil
}

// events is an open event stream, on a connection of its own.
type events struct {
	conn net.Conn
	in   *bufio.Reader
}

func (s *served) follow(ctx context.Context, session string) (*events, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	e := &events{conn: conn, in: bufio.NewReaderSize(conn, 1<<10)}
	err = conn.SetDeadline(time.Now().Add(2 * most))
	if err == nil {
		_, err = fmt.Fprintf(conn, "GET /api/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", session)
	}
	var line string
	if err == nil {
		line, err = e.in.ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		err = fmt.Errorf("the stream is answered with %q", line)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return e, nil
}

func (e *events) close() { _ = e.conn.Close() }

// until reads up to the next event of a type and gives its data.
func (e *events) until(kind string) (data string, err error) {
	for found := false; ; {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "event: "+kind+"\n" {
			found = true
		}
		if data, is := strings.CutPrefix(line, "data: "); is && found {
			return data, nil
		}
	}
}
