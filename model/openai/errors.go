package openai

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/troupe-dev/troupe/model"
)

// typed makes any failure of a try a *model.Error without the key in it.
func (t *try) typed(err error) *model.Error {
	var e *model.Error
	cause := t.late()
	switch {
	case errors.Is(cause, errLong):
		e = &model.Error{
			Class: model.Timeout, Err: errLong,
			Message: fmt.Sprintf("%s did not end its answer within %s", t.m.host, t.m.opts.RequestTimeout),
		}
	case errors.Is(cause, errSlow):
		e = &model.Error{Class: model.Timeout, Err: errSlow, Message: t.silence()}
	case errors.As(err, &e):
	case !t.sent:
		e = &model.Error{Class: model.BadRequest, Message: err.Error(), Err: err}
	default:
		e = &model.Error{Class: model.Protocol, Message: "read the answer: " + err.Error(), Err: err}
	}
	if e.RequestID == "" {
		e.RequestID = t.requestID
	}
	if e.Hint == "" {
		e.Hint = t.hint(e)
	}
	e.Message, e.Hint = t.redact(e.Message), t.redact(e.Hint)
	if e.Err != nil && t.redact(e.Err.Error()) != e.Err.Error() {
		e.Err = errors.New(t.redact(e.Err.Error()))
	}
	return e
}

func (t *try) silence() string {
	if t.began.Load() {
		return fmt.Sprintf("%s sent nothing for %s in the middle of its answer", t.m.host, t.m.opts.IdleTimeout)
	}
	return fmt.Sprintf("%s sent no answer within %s", t.m.host, t.m.opts.FirstByteTimeout)
}

// redact takes the key out of foreign text.
func (t *try) redact(s string) string {
	if len(t.key) < 4 {
		return s
	}
	return strings.ReplaceAll(s, t.key, "[redacted]")
}

func (t *try) hint(e *model.Error) string {
	switch e.Class {
	case model.Auth:
		if e.Status == http.StatusTooManyRequests || e.Status == http.StatusPaymentRequired {
			return "the account's quota or credit is used up; waiting does not help"
		}
		return "check the API key of the provider at " + t.m.host
	case model.NotFound:
		return fmt.Sprintf("check the model's name (%q) and the provider's base URL", t.req.Model)
	case model.ContextLength:
		return "compact the conversation, or use a model with a larger context"
	case model.Overloaded:
		if e.Status == 0 {
			return "is the provider running at " + t.m.opts.BaseURL + "?"
		}
	case model.Protocol:
		return "check that the base URL is that of an OpenAI-compatible API that can stream"
	case model.RateLimited, model.BadRequest, model.Truncated, model.Timeout, model.Unmatched:
	}
	return ""
}

// unreachable types the failure to get any response.
func (t *try) unreachable(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	class := model.Overloaded
	var ne net.Error
	var ce *tls.CertificateVerificationError
	var he x509.HostnameError
	var re tls.RecordHeaderError
	switch {
	case errors.As(err, &ce), errors.As(err, &he), errors.As(err, &re):
		class = model.Protocol
	case errors.As(err, &ne) && ne.Timeout():
		class = model.Timeout
	}
	return &model.Error{Class: class, Message: fmt.Sprintf("connect to %s: %v", t.m.host, err), Err: err}
}

// refused types a response that is no stream.
func (t *try) refused(resp *http.Response, said []byte) error {
	f := readFault(said)
	e := t.fault(f)
	e.RetryAfter = retryAfter(resp.Header, t.m.opts.Now())
	if resp.StatusCode == http.StatusOK {
		if !f.said {
			e.Class = model.Protocol
			e.Message = fmt.Sprintf("the answer is %q, not an event stream: %s", cut([]byte(resp.Header.Get("Content-Type")), 60), cut(said, 200))
		}
		return e
	}
	e.Status = resp.StatusCode
	if e.Class != model.Unmatched {
		e.Class = f.class(resp.StatusCode)
	}
	if f.message == "" {
		e.Message = http.StatusText(resp.StatusCode)
	}
	if resp.StatusCode/100 == 3 {
		e.Message = "the provider redirects to " + cut([]byte(resp.Header.Get("Location")), 200)
	}
	return e
}

// fault types what the provider said was wrong.
func (t *try) fault(f fault) *model.Error {
	e := &model.Error{Class: f.class(0), Message: cut([]byte(f.message), 2000), Status: f.status}
	if e.Message == "" {
		e.Message = "the provider reported an error without saying which"
	}
	if t.scripted != "" && f.code == "unmatched" {
		e.Class, e.Hint = model.Unmatched, f.hint
	}
	return e
}

// broken types a failure to read on. Whoever ended the request is found by its context.
func (t *try) broken(err error) error {
	return &model.Error{Class: model.Truncated, Message: "the connection broke in the middle of the answer: " + err.Error(), Err: err}
}
