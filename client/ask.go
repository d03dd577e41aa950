package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/messages"
)

// socketOrigin stands in addresses; the connection goes to the socket whatever it says.
const socketOrigin = "http://troupe"

// maxReply is the most that one reply may hold, in bytes.
const maxReply = 256 << 20

// call is one request, and how its reply is read.
type call struct {
	method string
	path   string // escaped
	query  url.Values
	body   any    // nil: none
	raw    bool   // body is bytes, which go as they are
	key    string // set: sending it twice is like sending it once
	safe   bool   // it changes nothing that a second time would change further
	read   reader
}

// reader makes a reply of what came back.
type reader func(body []byte, h http.Header) (proto.Message, error)

// Ask puts a command or question of package messages to the holder, as Runtime.Ask does. A refusal is
// a *messages.Failure; ErrNoHolder says that the holder is gone, and stayed away for some 8 s: what is not done twice when it is asked twice is asked
// again until then, so that it outlives a restart of the server. It waits as long as ctx allows for what takes its time, such as the end of a turn.
func (c *Client) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	if cmd, is := m.(*messages.ToSession); is {
		switch {
		case cmd.GetTakeTurn() != nil && !cmd.GetTakeTurn().GetAccept():
			return c.turn(ctx, cmd.GetSessionId(), cmd.GetTakeTurn())
		case cmd.GetReadConversation() != nil && cmd.GetReadConversation().GetLimit() == 0:
			return c.transcript(ctx, cmd.GetSessionId(), cmd.GetReadConversation())
		}
	}
	return c.askOnce(ctx, m)
}

// askOnce is Ask for what is one request.
func (c *Client) askOnce(ctx context.Context, m proto.Message) (proto.Message, error) {
	call, err := route(m)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	reply, err := c.patiently(ctx, call)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var refused *messages.Failure
	switch {
	case err == nil:
		return reply, nil
	case errors.As(err, &refused):
		return nil, refused
	}
	return nil, fmt.Errorf("ask %s: %w", c.who, err)
}

func (c *Client) do(ctx context.Context, q *call) (proto.Message, error) {
	res, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end, or is of no use
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the reply: %w", err)
	case len(body) > maxReply:
		return nil, fmt.Errorf("read the reply: it is larger than %d bytes", maxReply)
	case res.StatusCode >= http.StatusMultipleChoices:
		return nil, refusal(res, body)
	}
	return q.read(body, res.Header)
}

func (c *Client) send(ctx context.Context, q *call) (*http.Response, error) {
	var body io.Reader
	kind := "application/json"
	switch b, ok := q.body.([]byte); {
	case q.raw && ok:
		body, kind = bytes.NewReader(b), "application/octet-stream"
	case q.body != nil:
		b, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	address := c.origin + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, address, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", kind)
	}
	if q.key != "" {
		// net/http then sends it again when a kept connection turns out to be closed.
		req.Header.Set("Idempotency-Key", url.QueryEscape(q.key))
	}
	telemetry.Leave(ctx, req.Header)
	return c.roundTrip(req)
}

// roundTrip adds the token and who only watches, and leaves the address out of errors.
func (c *Client) roundTrip(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	c.watches(req)
	res, err := c.http.Do(req)
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return res, err
}

// proxied is a refusal of somebody else than the server: who stands before it.
type proxied struct{ *messages.Failure }

func (p proxied) Unwrap() error { return p.Failure }

// refusal makes a Failure of a problem detail, or of whatever else was answered.
func refusal(res *http.Response, body []byte) error {
	var p messages.ProblemJSON
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err == nil && kind == messages.ProblemType && json.Unmarshal(body, &p) == nil && p.Code != "" {
		f := p.Failure()
		if f.GetCode() == messages.CodeRate && f.GetRetryAfterMs() == 0 {
			f.RetryAfterMs = 1000
			if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 8); err == nil {
				f.RetryAfterMs = int64(seconds) * 1000 //nolint:gosec // of eight bits
			}
		}
		return f
	}
	code := messages.CodeInternal
	if res.StatusCode == http.StatusServiceUnavailable { // who stands before the server says so, too
		code = messages.CodeUnavailable
	}
	return proxied{messages.Fail(code, fmt.Sprintf("%s answered %s", res.Request.URL.Path, res.Status), "")}
}

// as reads a reply of one JSON form, whose way back is a message.
func as[J interface{ Proto() M }, M proto.Message](body []byte, _ http.Header) (proto.Message, error) {
	var j J
	if err := json.Unmarshal(body, &j); err != nil {
		return nil, fmt.Errorf("decode the reply: %w", err)
	}
	return j.Proto(), nil
}

// listed reads a reply that is an array.
func listed[J interface{ Proto() M }, M proto.Message](whole func([]M) proto.Message) reader {
	return func(body []byte, _ http.Header) (proto.Message, error) {
		var j []J
		if err := json.Unmarshal(body, &j); err != nil {
			return nil, fmt.Errorf("decode the reply: %w", err)
		}
		var views []M
		for _, v := range j {
			views = append(views, v.Proto())
		}
		return whole(views), nil
	}
}

func acked([]byte, http.Header) (proto.Message, error) { return &messages.Ack{}, nil }
