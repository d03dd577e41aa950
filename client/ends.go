package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// ErrEnds says that a server ended each time while it had the same request, and was back each time: it is not sent again.
var ErrEnds = errors.New("the server ended each time that it had this request")

// mostEnds is of how many servers in a row a request is the last thing that they have.
const mostEnds = 5

// witness tells a request that a server ends of from one that waits while a server is away, by who answers before it is sent again.
type witness struct {
	cut  bool   // the request was cut off once: from then on its server is asked who it is
	who  string // has the newest; "": it does not say
	had  bool   // the newest was cut off
	ends int    // of servers that had it, in a row
}

// before asks who is there, once a request was cut off. Its error says that nobody is, or that the request has ended enough of them.
func (w *witness) before(ctx context.Context, c *Client) error {
	if !w.cut {
		return nil
	}
	who, err := c.answering(ctx)
	c.http.CloseIdleConnections() // net/http sends a request again by itself when a kept one breaks: that would be the end of two servers
	switch {
	case err != nil:
		return err
	case who == "" || w.who == "": // nothing to tell them apart by
	case w.had && who == w.who: // a connection broke, and no server ended
		w.ends = 0
	case w.had:
		w.ends++
	}
	w.who, w.had = who, false
	if w.ends >= mostEnds {
		return fmt.Errorf("%w, %d times in a row, and was back each time; it is not sent again: see in the server's log what it ended of before you repeat it", ErrEnds, w.ends)
	}
	return nil
}

// after notes what came of the request. A server that says itself that it cannot has not ended of it. One that is gone right after it has said who it
// is had the request, whatever the error says.
func (w *witness) after(err error) {
	w.had = err != nil && isGone(err)
	w.cut = w.cut || w.had && !unsent(err)
}

// answering names the process that answers, as no other one is named; "" when it does not say, or who stands before it answers. The error says that
// nobody is there.
func (c *Client) answering(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	q, err := route(&messages.Hello{})
	if err != nil {
		return "", err
	}
	m, err := c.do(ctx, q)
	if err != nil && unsent(err) {
		return "", err
	}
	h, ok := m.(*messages.Holder)
	if err != nil || !ok || h.GetStartedAtUnixMs() == 0 {
		return "", nil // somebody is there, and the request itself says what is wrong
	}
	return fmt.Sprint(h.GetPid(), " ", h.GetStartedAtUnixMs()), nil
}

// watched sends a request, unless it has ended enough servers.
func (c *Client) watched(ctx context.Context, q *call, w *witness) (proto.Message, error) {
	if err := w.before(ctx, c); err != nil {
		return nil, err
	}
	reply, err := c.do(ctx, q)
	w.after(err)
	return reply, err
}
