package gateway

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Scope is what a request needs, and what a Principal may have.
type Scope string

// The scopes. None includes another one.
const (
	ScopeNone    Scope = ""        // open to whoever reaches the server
	ScopeRead    Scope = "read"    // lists, conversations, events
	ScopePrompt  Scope = "prompt"  // sessions and inputs, and what belongs to them
	ScopeApprove Scope = "approve" // answers to approvals, and calls in doubt
	ScopeAdmin   Scope = "admin"   // full trust, folders outside the server's roots, the store and the tokens
)

// Scopes are all that there are, without ScopeNone.
func Scopes() []Scope { return []Scope{ScopeRead, ScopePrompt, ScopeApprove, ScopeAdmin} }

// Principal is who sends a request. The zero value may do nothing.
type Principal struct {
	Name   string // of the token, for the record; "" is the owner
	Tenant string // whose sessions it sees; "" is the default tenant
	Scopes []Scope
	Owner  bool // the user of the process: every scope, and every tenant's sessions
}

// Owner is the user whose process this is.
func Owner() Principal { return Principal{Owner: true} }

// May says whether a principal has a scope.
func (p Principal) May(s Scope) bool {
	return s == ScopeNone || p.Owner || slices.Contains(p.Scopes, s)
}

// Authenticator says who sends a request. A refusal is a *messages.Failure of code `unauthorized`.
type Authenticator func(*http.Request) (Principal, error)

// Mount is a handler of somebody else's beside the routes of the API: behind the same checks of host, origin and
// address, and for who has the scope. PrincipalOf tells it who that is. A body may take as long as it likes to arrive, unless
// BodyTime bounds it or the handler does; what the handler leaves of it has the time that a body of the API has.
type Mount struct {
	Pattern  string // as ServeMux takes it, with its method
	Scope    Scope
	Handler  http.Handler
	BodyTime time.Duration // for a request's body to arrive; 0: no bound
}

type principalKey struct{}

// PrincipalOf is who sends the request of a context; nobody, when it was not asked.
func PrincipalOf(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// admit lets a request through to its route, with its principal, when that has the scope.
func (a *api) admit(s Scope, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := Owner()
		if a.opts.Authenticate != nil {
			who = Principal{}
			if s != ScopeNone {
				var err error
				if who, err = a.opts.Authenticate(r); err != nil {
					a.fail(w, r, err)
					return
				}
			}
		}
		if !who.May(s) {
			a.fail(w, r, messages.Fail(messages.CodeForbidden, "this needs scope "+string(s), "use a token that has it"))
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), principalKey{}, who))
		if a.opts.Authenticate != nil && s != ScopeNone {
			var done context.CancelFunc
			r, done = a.while(r, s)
			defer done()
		}
		next(w, r)
	}
}
