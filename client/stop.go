package client

import (
	"context"
	"net/http"
)

// Stop asks a server to end in order. It returns when that has begun. A holder that is no server refuses.
func (c *Client) Stop(ctx context.Context) error {
	ctx, cancel := c.untilClosed(ctx)
	defer cancel()
	_, err := c.do(ctx, &call{method: http.MethodPost, path: "/api/stop", read: acked})
	return err
}
