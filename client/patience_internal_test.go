package client

import "time"

// Patience is set by tests of servers that stay away.
func (c *Client) Patience(d time.Duration) { c.patience = d }

// Forget drops connections that are kept: on one that is just being closed nobody knows what went out.
func (c *Client) Forget() { c.http.CloseIdleConnections() }
