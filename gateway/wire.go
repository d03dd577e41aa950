package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
)

// read decodes a body strictly: JSON by its content type, one value, no unknown field. An empty
// body is the zero value.
func (a *api) read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.opts.MaxBody))
	if err != nil {
		return a.unread(err)
	}
	if len(body) == 0 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return bad("the body is %q: send it as application/json", r.Header.Get("Content-Type"))
	}
	if !utf8.Valid(body) { // the decoder would put other letters there
		return bad("decode the body: it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return bad("decode the body: %s", decodeText(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("decode the body: there is more after the first value, at byte %d", dec.InputOffset())
	}
	return nil
}

// unread says why a body was not read to its end.
func (a *api) unread(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refusal(messages.CodeTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bad("the body did not arrive within %s", a.opts.BodyTime)
	}
	return bad("read the body: %v", err)
}

// decodeText says what is wrong with a JSON text, in the words of JSON rather than of Go.
func decodeText(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("%s, at byte %d", syntax.Error(), syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf("%s, at byte %d", messages.WrongKind(kind), kind.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON text ends early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// query reads the parameters of an address. Unknown and repeated ones are refused: a misspelled
// filter would otherwise list everything.
func query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query of the address cannot be read: %v", err)
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			hint := "no parameter is known here"
			if len(known) > 0 {
				hint = "known: " + strings.Join(known, ", ")
			}
			return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("unknown query parameter %q", name), hint)
		}
		if len(values) > 1 {
			return nil, bad("query parameter %q is given %d times", name, len(values))
		}
		if err := printable("query parameter "+name, values[0]); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// number reads a parameter that counts something; without it, 0.
func number(name, s string, bits int) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return 0, bad("%s %q is no number from 0 to %d", name, s, uint64(1)<<bits-1)
	}
	return n, nil
}

// fail writes an error: a Failure as it is, anything else as what the caller can do about it.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *messages.Failure
	switch {
	case errors.As(err, &f):
	case errors.As(context.Cause(r.Context()), &f): // the token was revoked meanwhile
	case errors.Is(err, errStopping), errors.Is(context.Cause(r.Context()), errStopping):
		f = messages.Fail(messages.CodeUnavailable, errStopping.Error(), "try again")
	case errors.Is(err, context.Canceled): // half of the connection was closed, or all of it, and nobody reads this; or the server is cut off
		f = messages.Fail(messages.CodeUnavailable, "the request was given up", "try again, and keep the connection open until the answer is there")
	case errors.Is(err, context.DeadlineExceeded):
		f = messages.Fail(messages.CodeUnavailable, "it took too long: "+err.Error(), "try again")
	default:
		a.logOf(r).Error("request failed", "route", r.Pattern, "err", err)
		f = messages.Fail(messages.CodeInternal, err.Error(), "")
	}
	a.problem(w, r, 0, f)
}

// problem writes a problem detail. Status 0 is the one of the code.
func (a *api) problem(w http.ResponseWriter, r *http.Request, status int, f *messages.Failure) {
	switch after := f.GetRetryAfterMs(); {
	case after > 0:
		w.Header().Set("Retry-After", strconv.FormatInt((after+999)/1000, 10))
		if status == 0 && f.GetCode() == messages.CodeBusy { // it is the house that has no room, and not this session's turn that is open
			status = http.StatusServiceUnavailable
		}
	case f.GetCode() == messages.CodeUnavailable || f.GetCode() == messages.CodeRate:
		w.Header().Set("Retry-After", "1")
	}
	if f.GetCode() == messages.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="troupe"`)
	}
	p := problemOf(status, f)
	if id := r.PathValue("id"); f.GetResumeAfter() > 0 && id != "" { // what is left of the session, which a client begins anew with
		p.Snapshot = sessionPath + url.PathEscape(id)
	}
	a.write(w, r, p.Status, messages.ProblemType, p)
}

func problemOf(status int, f *messages.Failure) messages.ProblemJSON {
	if status == 0 {
		status = statusOf(f.GetCode())
	}
	return messages.ProblemJSON{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: f.GetCode(), Detail: short(f.GetMessage()), Hint: short(f.GetHint()),
		Retry: f.GetRetryAfterMs(), ResumeAfter: f.GetResumeAfter(),
	}
}

// maxDetail is how much of what was wrong is said again, in bytes.
const maxDetail = 8 << 10

func short(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + fmt.Sprintf(" ... and %d bytes more", len(s)-maxDetail)
}

func statusOf(code string) int {
	switch code {
	case messages.CodeNotFound, messages.CodeNoTurn, messages.CodeNoWorkspace, messages.CodeFieldNotFound:
		return http.StatusNotFound
	case messages.CodeBadRequest, messages.CodeInvalidURI, messages.CodeInvalidPath:
		return http.StatusBadRequest
	case messages.CodeConflict, messages.CodeCommitted, messages.CodeBusy, messages.CodeAlreadyExists, messages.CodeStaleLease,
		messages.CodeQuarantined, messages.CodeResolved:
		return http.StatusConflict
	case messages.CodeClosed, messages.CodeWithdrawn, messages.CodeTrimmed:
		return http.StatusGone
	case messages.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case messages.CodeFieldReadOnly:
		return http.StatusForbidden
	case messages.CodeModel, messages.CodeAgent, messages.CodeValidationFailed, messages.CodeSandbox:
		return http.StatusUnprocessableEntity
	case messages.CodeUnavailable:
		return http.StatusServiceUnavailable
	case messages.CodeFull:
		return http.StatusInsufficientStorage
	case messages.CodeDenied, messages.CodeNetworkDenied, messages.CodeForbidden:
		return http.StatusForbidden
	case messages.CodeUnauthorized:
		return http.StatusUnauthorized
	case messages.CodeRate:
		return http.StatusTooManyRequests
	case messages.CodeNetwork:
		return http.StatusBadGateway
	case messages.CodeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

func (a *api) write(w http.ResponseWriter, r *http.Request, status int, kind string, body any) {
	a.begin(w)
	if body == nil {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil {
		a.logOf(r).Error("answer cannot be encoded", "route", r.Pattern, "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	send(w, status, kind, b)
}

func send(w http.ResponseWriter, status int, kind string, b []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

func (a *api) begin(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
}
