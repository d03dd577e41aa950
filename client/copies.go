package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/troupe-dev/troupe/messages"
)

// maxProblem is the most that a refusal may hold, in bytes.
const maxProblem = 1 << 20

// Export writes a session as the holder exports it. An error means that what was written is not whole; a refusal is
// a *messages.Failure.
func (c *Client) Export(ctx context.Context, session string, w io.Writer) error {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	err := c.stream(ctx, get("/api/sessions/"+segment(session)+"/export", nil), w)
	if err != nil {
		return c.blame(ctx, err)
	}
	return nil
}

// ImportSession hands an exported session to the holder. A refusal is a *messages.Failure.
func (c *Client) ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error) {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	q := url.Values{"new_id": {strconv.FormatBool(m.GetNewId())}, "keep_trust": {strconv.FormatBool(m.GetKeepTrust())}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.origin+"/api/sessions/import?"+q.Encode(), io.NopCloser(in))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	res, err := c.roundTrip(req)
	if err != nil {
		return nil, c.blame(ctx, err)
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end, or is of no use
	if res.StatusCode >= http.StatusMultipleChoices {
		return nil, refused(res)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return nil, c.blame(ctx, err)
	}
	reply, err := as[messages.ImportedJSON](body, res.Header)
	if err != nil {
		return nil, err
	}
	imported, ok := reply.(*messages.Imported)
	if !ok {
		return nil, fmt.Errorf("import: answered %T", reply)
	}
	return imported, nil
}

func refused(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	return refusal(res, body)
}

// blame says whose error it is: the caller's, whose time is over, or the holder's.
func (c *Client) blame(ctx context.Context, err error) error {
	var said *messages.Failure
	switch {
	case errors.As(err, &said):
		return said
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it broke off")
	}
	return fmt.Errorf("ask %s: %w", c.who, err)
}
