package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/troupe-dev/troupe/messages"
)

// Bearer lets in who sends a token that Find knows.
type Bearer struct {
	// Find gives the token of a hash that counts at this moment, or a Failure `not_found`.
	Find func(ctx context.Context, hash [sha256.Size]byte) (*messages.Token, error)
	// Open says whether nobody needs a token; nil: everybody does.
	Open func() bool
	// Rate is how many requests a second one token may send, in bursts of four times as many; 0: 100.
	Rate int

	mu     sync.Mutex
	tokens map[string]*rate.Limiter // by name and tenant: as many as there are tokens
	failed *rate.Limiter
}

const (
	defaultRate = 100
	// maxBearer is the longest token that is looked at, in bytes.
	maxBearer = 1 << 10
	// failures is how many requests a second may fail for want of a token before they are told to wait.
	failures = 20
)

// Authenticate is an Authenticator.
func (b *Bearer) Authenticate(r *http.Request) (Principal, error) {
	if b.Open != nil && b.Open() {
		return Owner(), nil
	}
	t, err := b.token(r)
	if err != nil {
		return Principal{}, err
	}
	if !admitted(r) && !b.limiter(t.GetTenant()+"/"+t.GetName()).Allow() {
		return Principal{}, messages.Fail(messages.CodeRate, "this token sends too many requests", "wait a moment")
	}
	p := Principal{Name: t.GetName(), Tenant: t.GetTenant()}
	for _, s := range t.GetScopes() {
		p.Scopes = append(p.Scopes, Scope(s))
	}
	return p, nil
}

// token finds that of a request.
func (b *Bearer) token(r *http.Request) (*messages.Token, error) {
	all := r.Header.Values("Authorization")
	if len(all) == 0 {
		return nil, b.refused(r, "no token was sent", "send it as Authorization: Bearer TOKEN")
	}
	kind, secret, _ := strings.Cut(all[0], " ")
	secret = strings.TrimSpace(secret)
	if len(all) > 1 || !strings.EqualFold(kind, "Bearer") || secret == "" || len(secret) > maxBearer {
		return nil, b.refused(r, "what was sent is no token", "send it as Authorization: Bearer TOKEN")
	}
	t, err := b.Find(r.Context(), sha256.Sum256([]byte(secret)))
	var none *messages.Failure
	if errors.As(err, &none) && none.GetCode() == messages.CodeNotFound {
		return nil, b.refused(r, "the token does not count: it is unknown, expired or revoked", "")
	}
	return t, err
}

// refused says the same of every token that does not count. Who tries many is told to wait, and nobody else is.
func (b *Bearer) refused(r *http.Request, what, hint string) error {
	if admitted(r) { // it guesses nothing
		return messages.Fail(messages.CodeUnauthorized, what, hint)
	}
	b.mu.Lock()
	if b.failed == nil {
		b.failed = rate.NewLimiter(failures, 5*failures)
	}
	b.mu.Unlock()
	if !b.failed.Allow() {
		return messages.Fail(messages.CodeRate, "too many requests without a token that counts", "wait a moment")
	}
	return messages.Fail(messages.CodeUnauthorized, what, hint)
}

// admitted says whether a request was let in already, and is looked at again: that is no further request.
func admitted(r *http.Request) bool {
	_, is := r.Context().Value(principalKey{}).(Principal)
	return is
}

func (b *Bearer) limiter(token string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		b.tokens = make(map[string]*rate.Limiter)
	}
	l := b.tokens[token]
	if l == nil {
		n := b.Rate
		if n <= 0 {
			n = defaultRate
		}
		l = rate.NewLimiter(rate.Limit(n), 4*n)
		b.tokens[token] = l
	}
	return l
}

// recheck is how often a request that lasts is looked at again: a token that was revoked ends its streams.
const recheck = 3 * time.Second

// while is the context of a request for as long as its principal may send it.
func (a *api) while(r *http.Request, s Scope) (*http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var again *time.Timer
	var mu sync.Mutex
	ended := false
	look := func() { //nolint:contextcheck // it asks in the name of the request, and ends with it
		who, err := a.opts.Authenticate(r)
		if f := (*messages.Failure)(nil); errors.As(err, &f) && f.GetCode() == messages.CodeRate {
			err = nil // it is no fault of the stream
			who = PrincipalOf(r.Context())
		}
		if err == nil && !who.May(s) {
			err = messages.Fail(messages.CodeForbidden, "the token's scope was changed", "")
		}
		if err != nil {
			cancel(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			again.Reset(recheck)
		}
	}
	mu.Lock()
	again = time.AfterFunc(recheck, look)
	mu.Unlock()
	return r.WithContext(ctx), func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		again.Stop()
		cancel(nil)
	}
}
