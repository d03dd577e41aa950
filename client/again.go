package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

const (
	// tooMany is how often a request is sent at most that came too soon after others of the same token.
	tooMany = 5
	// patience is for how long a request is sent again, and a stream of events is asked for again, while the server is away: it starts anew, say.
	patience = 8 * time.Second
	// Between two tries, while it is away: at first firstPause, then later and later, and at most longestRest, whatever it says.
	firstPause  = 50 * time.Millisecond
	longestRest = time.Second
	// longestTurn is how long a request waits for its turn when there were too many.
	longestTurn = time.Minute
)

// patiently sends a request again that was refused as there were too many, and one that the server was not there for, or was going away,
// as long as it is certain that it is not done twice.
func (c *Client) patiently(ctx context.Context, q *call) (proto.Message, error) {
	var away time.Time // since when the server is, and not since the request was sent: that may wait for long
	gone := false      // it was seen to be, since then
	soon := 0          // tries that came too soon
	var seen witness
	for try := 1; ; try++ {
		began := time.Now()
		reply, err := c.watched(ctx, q, &seen)
		if err == nil || ctx.Err() != nil {
			return reply, err
		}
		now := time.Now()
		gone = gone || isGone(err)
		if gone && now.Sub(began) > c.patience/8 && wasThere(err) { // it was back meanwhile, and has gone once more
			away, gone, try = now, false, 1
		}
		switch {
		case tooSoon(err): // it is there
			away, gone, try = time.Time{}, false, 1
			soon++
		case !away.IsZero():
		case unsent(err):
			away = began
		default:
			away = now
		}
		rest, again := q.again(err, try, soon)
		if !again || !tooSoon(err) && now.Sub(away)+rest > c.patience {
			return nil, err
		}
		pause := time.NewTimer(rest)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

// again says whether a request may be sent again after an error, and when: at its try since the server was there last, when so many came too soon.
func (q *call) again(err error, try, soon int) (rest time.Duration, again bool) {
	rest = min(firstPause<<min(try-1, 10), longestRest)
	var refused *messages.Failure
	switch {
	case errors.Is(err, ErrEnds):
		return 0, false
	case tooSoon(err): // nothing of it was done, whatever it is
		return inTurn(err, soon)
	case errors.As(err, &refused):
		return max(rest, time.Duration(min(refused.GetRetryAfterMs(), longestRest.Milliseconds()))*time.Millisecond), refused.GetCode() == messages.CodeUnavailable && q.repeatable()
	case unsent(err):
		return rest, true
	}
	return rest, broken(err) && q.repeatable()
}

// inTurn says whether a request may be sent again that came too soon, so often by now, and when.
func inTurn(err error, soon int) (rest time.Duration, again bool) {
	var refused *messages.Failure
	errors.As(err, &refused)
	return time.Duration(refused.GetRetryAfterMs()) * time.Millisecond, soon < tooMany && refused.GetRetryAfterMs() <= longestTurn.Milliseconds()
}

// wasThere says that the server itself had the request, before it went away.
func wasThere(err error) bool {
	var other proxied
	var refused *messages.Failure
	return !errors.As(err, &other) && (errors.As(err, &refused) || broken(err) && !unsent(err))
}

// isGone says that there was no server, or none any more: it has said nothing itself.
func isGone(err error) bool {
	var other proxied
	var refused *messages.Failure
	return errors.As(err, &other) || !errors.As(err, &refused)
}

// repeatable says whether a request may be sent again when nobody knows whether it was done.
func (q *call) repeatable() bool { return q.safe || q.key != "" || q.method == http.MethodGet }

func tooSoon(err error) bool {
	var refused *messages.Failure
	return errors.As(err, &refused) && refused.GetCode() == messages.CodeRate
}

// unsent says that there was no connection which a request could have gone out on.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrNoHolder) || errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &op) && op.Op == "dial"
}

// broken says that the connection ended before the reply was there.
func broken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &op)
}
