package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// LoopbackHosts are the names by which this machine calls itself. A page of another name that was made to lead here (DNS rebinding)
// sends its own name along, and is refused.
func LoopbackHosts(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// OnLoopback puts a handler behind LoopbackHosts. Bodies have a minute to arrive.
func OnLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !LoopbackHosts(r.Host) {
			http.Error(w, "the request is for another host", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, timed(w, r, readTime))
	})
}

// hosted refuses requests for other names than those of the server.
func (a *api) hosted(next http.Handler) http.Handler {
	if a.opts.Hosts == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.opts.Hosts(r.Host) {
			a.problem(w, r, http.StatusMisdirectedRequest, messages.Fail(messages.CodeBadRequest, "the request is for another host than this server", ""))
			return
		}
		next.ServeHTTP(w, r)
	})
}
