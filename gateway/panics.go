package gateway

import (
	"bufio"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/troupe-dev/troupe/messages"
)

// recovered answers for a handler that panics, behind what counts and traces: they see its 500. Once a part of the answer has been sent the connection is
// cut, or the client would take the part for the whole.
func (a *api) recovered(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			switch p := recover(); {
			case p == nil:
			case p == http.ErrAbortHandler: //nolint:errorlint // it is compared as net/http does
				panic(p) //nolint:forbidigo // net/http asks for it: the connection is cut
			default:
				a.logOf(r).Error("request panicked", "route", r.Method+" "+r.URL.Path, "err", p, "stack", string(debug.Stack()))
				if seen.begun() {
					panic(http.ErrAbortHandler) //nolint:forbidigo // as above
				}
				clear(w.Header())
				a.problem(w, r, 0, messages.Fail(messages.CodeInternal, "the request failed in a way that nobody expected", "see the log"))
			}
		}()
		next(seen, r)
	}
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	taken  bool // the connection is somebody else's
}

// WriteHeader notes the status. One below 200 is not the answer's, but for that of a protocol that takes its place.
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write notes an answer that says no status.
func (s *statusWriter) Write(p []byte) (int, error) {
	s.sent()
	return s.ResponseWriter.Write(p)
}

// FlushError notes an answer that begins without a body.
func (s *statusWriter) FlushError() error {
	s.sent()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Hijack hands the connection over: nobody answers on it here any more.
func (s *statusWriter) Hijack() (c net.Conn, rw *bufio.ReadWriter, err error) {
	c, rw, err = http.NewResponseController(s.ResponseWriter).Hijack()
	s.taken = s.taken || err == nil
	return c, rw, err
}

// Unwrap gives http.ResponseController its way to deadlines.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) sent() {
	if s.status == 0 {
		s.status = http.StatusOK
	}
}

// begun says whether the client has got a part of the answer.
func (s *statusWriter) begun() bool { return s.status != 0 || s.taken }

// code is the status that the answer counts with; done is false when its handler did not return.
func (s *statusWriter) code(done bool) int {
	switch {
	case !done:
		return http.StatusInternalServerError
	case s.status == 0:
		return http.StatusOK
	}
	return s.status
}
