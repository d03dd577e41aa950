package troupe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// Handler is the HTTP API and the console of a runtime, for a server of the program's own. Without o.Authenticate whoever reaches it is
// the owner of everything: Bearer makes one of the runtime's tokens. It is made for the root of a host; its streams and long polls last as long as
// their requests, so a server that stops should end those (gateway.Serve does).
func (rt *Runtime) Handler(o gateway.Options) http.Handler {
	o.Logger = cmp.Or(o.Logger, rt.svc.Log)
	if o.TracerProvider == nil {
		o.TracerProvider = rt.traces
	}
	if o.Ready == nil {
		o.Ready = rt.Room
	}
	return gateway.New(rt, o)
}

// Bearer lets in who sends one of the runtime's tokens, which CreateToken makes.
func (rt *Runtime) Bearer() *gateway.Bearer {
	return &gateway.Bearer{Find: func(_ context.Context, hash [sha256.Size]byte) (*messages.Token, error) {
		m, err := rt.findToken(&messages.FindToken{Hash: hash[:]})
		if err != nil {
			return nil, err
		}
		t, _ := m.(*messages.Token)
		return t, nil
	}}
}
