package openai_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-secret-0123456789"

// provider is an HTTP server that answers with what handle writes, and a Model that speaks to
// it. Both end with the test.
func provider(t testing.TB, opts openai.Options, handle http.HandlerFunc) *openai.Model {
	t.Helper()
	srv := httptest.NewServer(handle)
	opts.BaseURL = srv.URL + "/v1"
	if opts.APIKey == nil {
		opts.APIKey = openai.Key(key)
	}
	if opts.Sleep == nil {
		opts.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	m, err := openai.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return m
}

// says answers every request with body as an event stream, cut into writes of size bytes.
func says(body string, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("X-Request-Id", "req-1")
		rest := body
		for len(rest) > 0 && size > 0 {
			n := min(size, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
		_, _ = io.WriteString(w, rest)
	}
}

func ask(t *testing.T, m model.Model) (*model.Completion, error) {
	t.Helper()
	return model.Collect(m.Stream(t.Context(), request("hi")), nil)
}

func request(text string) *model.Request {
	return &model.Request{Model: "gpt-test", Agent: "coder", Prompt: &messages.Prompt{
		System:   "be brief",
		Messages: []*messages.Message{{Role: messages.User, Text: text}},
	}}
}

func class(err error) model.Class {
	var me *model.Error
	if errors.As(err, &me) {
		return me.Class
	}
	return ""
}

func delta(inner string) string {
	return `data: {"id":"c1","model":"gpt-real","choices":[{"index":0,"delta":` + inner + "}]}\n\n"
}

const (
	stop  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	calls = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
	done  = "data: [DONE]\n\n"
)
