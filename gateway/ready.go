package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// ready answers 503 while the server is not what it should be: it recovers, it stops, or its disk is full.
func (a *api) ready(http.ResponseWriter, *http.Request) (answer, error) {
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			return answer{}, messages.Fail(messages.CodeUnavailable, err.Error(), "")
		}
	}
	return ok(map[string]string{"status": "ready"})
}

// stopServer begins an orderly stop: no content, and what is under way may end.
func (a *api) stopServer(w http.ResponseWriter, r *http.Request) (answer, error) {
	if err := a.read(w, r, &struct{}{}); err != nil {
		return answer{}, err
	}
	if a.opts.Stop == nil {
		return answer{}, messages.Fail(messages.CodeNotFound, "this process is no server: it ends when its own command is done", "")
	}
	a.opts.Stop()
	return nothing()
}

// beginning refuses what begins something new while the server stops.
func (a *api) beginning(next http.HandlerFunc) http.HandlerFunc {
	if a.opts.Stopping == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if a.opts.Stopping() {
			a.fail(w, r, errStopping)
			return
		}
		next(w, r)
	}
}
