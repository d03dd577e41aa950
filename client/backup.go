package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Backup writes a backup of the holder's store to w, as Runtime.Backup does. After an error what was
// written is of no use.
func (c *Client) Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) error {
	q := &call{method: http.MethodGet, path: "/api/backup", query: url.Values{}}
	if since != nil {
		raw, err := proto.Marshal(since)
		if err != nil {
			return fmt.Errorf("encode the mark: %w", err)
		}
		q.query.Set("since", base64.RawURLEncoding.EncodeToString(raw))
	}
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	err := c.stream(ctx, q, w)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var refused *messages.Failure
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("back up the store of %s: %w", c.who, err)
}

func (c *Client) stream(ctx context.Context, q *call, w io.Writer) error {
	res, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read to its end, or is of no use
	if res.StatusCode >= http.StatusMultipleChoices {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
		if err != nil {
			return fmt.Errorf("read the reply: %w", err)
		}
		return refusal(res, body)
	}
	_, err = io.Copy(w, res.Body)
	return err
}
