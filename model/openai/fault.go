package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/model"
)

// fault is an error as a provider spells it.
type fault struct {
	said    bool // it is an error at all
	status  int
	code    string
	kind    string
	message string
	hint    string
}

type rawFault struct {
	Error   json.RawMessage   `json:"error"`
	Errors  []json.RawMessage `json:"errors"`
	Choices []struct {
		Error json.RawMessage `json:"error"`
	} `json:"choices"`
	Object  json.RawMessage `json:"object"`
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  json.RawMessage `json:"status"`
	Message json.RawMessage `json:"message"`
	Msg     json.RawMessage `json:"msg"`
	Detail  json.RawMessage `json:"detail"`
	Hint    json.RawMessage `json:"hint"`
}

// readFault finds the error in a JSON document, in any of the spellings seen in the wild:
// {"error":{...}}, {"error":"..."}, {"object":"error",...}, {"type":"error","error":{...}},
// {"detail":...}, {"message":...,"code":...}, {"errors":[...]}, [{"error":...}], and an error
// inside of a choice. What is no JSON is a message as it stands, and not known to be an error.
func readFault(data []byte) fault {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(data, &list) == nil && len(list) > 0 {
			return readFault(list[0])
		}
	}
	var r rawFault
	if len(data) == 0 || data[0] != '{' || !decode(data, &r) {
		return fault{message: string(data)}
	}
	inner := r.Error
	if void(inner) && len(r.Errors) > 0 {
		inner = r.Errors[0]
	}
	for i := range r.Choices {
		if void(inner) {
			inner = r.Choices[i].Error
		}
	}
	f := r.own()
	switch {
	case !void(inner) && string(inner) != "false":
		f.said = true
		f.merge(inner)
	case scalar(r.Object) == "error", scalar(r.Type) == "error":
		f.said = true
	case f.message != "" && len(r.Choices) == 0:
		f.said = !void(r.Detail) || f.code != "" || f.status != 0 || f.kind != ""
	}
	return f
}

// decode takes what fits: a field of an unexpected type does not lose the others.
func decode(data []byte, into *rawFault) bool {
	return json.Unmarshal(data, into) == nil || json.Valid(data)
}

// own is what the document says at its top.
func (r *rawFault) own() fault {
	f := fault{code: scalar(r.Code), kind: scalar(r.Type), hint: scalar(r.Hint)}
	for _, m := range []json.RawMessage{r.Message, r.Msg, r.Detail} {
		if f.message == "" && !void(m) {
			f.message = scalar(m)
			if f.message == "" {
				f.message = string(m)
			}
		}
	}
	for _, s := range []string{scalar(r.Status), f.code} {
		if n, err := strconv.Atoi(s); err == nil && n >= 400 && n < 600 && f.status == 0 {
			f.status = n
		}
	}
	if f.code == "" {
		f.code = scalar(r.Status) // Google's RESOURCE_EXHAUSTED
	}
	return f
}

// merge takes the inner error over the outer words.
func (f *fault) merge(inner json.RawMessage) {
	var r rawFault
	if inner[0] != '{' || !decode(inner, &r) {
		if s := scalar(inner); s != "" {
			f.message = s
		} else {
			f.message = string(inner)
		}
		return
	}
	in := r.own()
	if in.message == "" {
		in.message = f.message
	}
	if in.message == "" {
		in.message = string(inner)
	}
	if in.hint == "" {
		in.hint = f.hint
	}
	if in.status == 0 {
		in.status = f.status
	}
	in.said = true
	*f = in
}

// class sorts a fault. Codes and types decide before the status, because gateways send one
// status for everything. A quota that is used up is auth: no waiting mends it.
func (f *fault) class(status int) model.Class {
	if status == 0 || status == http.StatusOK {
		status = f.status
	}
	word := strings.ToLower(f.code + " " + f.kind)
	says := func(words ...string) bool { return contains(word, words) }
	message := strings.ToLower(f.message)
	switch {
	case says("context_length", "context_window", "context_size", "string_above_max_length", "request_too_large"),
		status/100 != 5 && status != http.StatusTooManyRequests && tooLong(message):
		return model.ContextLength
	case says("insufficient_quota", "billing", "insufficient_balance", "payment"), status == http.StatusPaymentRequired:
		return model.Auth
	case says("rate_limit", "resource_exhausted", "too_many_requests", "throttl"):
		return model.RateLimited
	case says("invalid_api_key", "authentication", "permission", "unauthenticated", "unauthorized"):
		return model.Auth
	case says("model_not_found", "not_found_error"):
		return model.NotFound
	case says("overloaded", "server_error", "unavailable", "internal"):
		return model.Overloaded
	}
	if status == 0 {
		if says("invalid_request", "bad_request", "invalid_argument", "badrequest") {
			return model.BadRequest
		}
		return model.Overloaded // the provider broke off and did not say why
	}
	return classOfStatus(status)
}

// tooLong knows the sentences that servers without codes have for it.
func tooLong(message string) bool {
	return contains(message, []string{
		"maximum context length", "context window", "context length", "context size",
		"prompt is too long", "too many tokens",
	})
}

func contains(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

func classOfStatus(status int) model.Class {
	switch status {
	case http.StatusTooManyRequests:
		return model.RateLimited
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusPaymentRequired, http.StatusProxyAuthRequired:
		return model.Auth
	case http.StatusNotFound:
		return model.NotFound
	case http.StatusRequestTimeout:
		return model.Timeout
	case http.StatusRequestEntityTooLarge:
		return model.ContextLength
	case http.StatusConflict, http.StatusTooEarly:
		return model.Overloaded // both mean: again, later
	}
	switch {
	case status >= 500:
		return model.Overloaded
	case status >= 400:
		return model.BadRequest
	default:
		return model.Protocol
	}
}

// cut shortens foreign text for a message: printable, at most n bytes.
func cut(b []byte, n int) string {
	s := strings.ToValidUTF8(string(b[:min(len(b), n)]), "")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(b) > n {
		s += "..."
	}
	return s
}
