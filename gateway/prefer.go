package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// maxPrefer bounds what a client may prefer to wait.
const maxPrefer = 10 * time.Minute

// preferred is how long a client would rather wait for the end of what it begins than hear that it was accepted: `Prefer: wait=30`,
// in seconds (RFC 7240). 0: it did not say, or not in a way that can be read, which counts as nothing.
func preferred(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for p := range strings.SplitSeq(line, ",") {
			p, _, _ = strings.Cut(p, ";") // parameters of a preference
			name, value, _ := strings.Cut(p, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err != nil { // the first one counts
				return 0
			}
			return min(time.Duration(n)*time.Second, maxPrefer)
		}
	}
	return 0
}

// preferred is the end of the turn of what was accepted, when the client prefers to wait for it, may read it, and it comes in time. Whatever comes
// between changes nothing of what was accepted: the client hears that it was, and may ask again. What is a fault of the server's is logged.
func (a *api) preferred(r *http.Request, await *messages.ToSession) (answer, bool) {
	d := preferred(r.Header)
	if d == 0 || !PrincipalOf(r.Context()).May(ScopeRead) {
		return answer{}, false
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	ans, err := a.outcome(r.WithContext(ctx), await)
	if err != nil {
		if refused := new(messages.Failure); !errors.As(err, &refused) && ctx.Err() == nil { // nobody else would hear of it
			a.logOf(r).Error("the result of an accepted input is not told", "route", r.Pattern, "session", r.PathValue("id"), "worker", await.GetAwaitTurn().GetWorkerId(), "err", err)
		}
		return answer{}, false
	}
	ans.header = map[string]string{"Preference-Applied": "wait"}
	return ans, true
}
