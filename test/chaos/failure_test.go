package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/model/script"
)

// talk answers everything; what is asked for decides how much.
const talk = `
name: talk
rules:
  - match: '^flood$'
    reply: {text: 'FLOOD', chunk_size: 65536}
  - match: '^calls$'
    steps:
      - tool_calls: [CALLS]
      - text: after the calls
  - match: '^filtered$'
    reply: {text: 'half of', finish: content_filter}
  - match: '^cut$'
    reply: {text: 'half of', finish: length}
  - match: '^unmatched$'
    turn: 99
    reply: {text: never}
  - match: '^(hello|again)$'
    reply: {text: 'the answer to ${user} is long enough to be cut in the middle of it'}
`

func talkScript(t *testing.T) *script.Script {
	t.Helper()
	text := strings.ReplaceAll(talk, "FLOOD", strings.Repeat("0123456789abcdef", 17<<16))
	call := "{name: list_files, arguments: {}}"
	text = strings.ReplaceAll(text, "[CALLS]", "["+strings.Repeat(call+", ", 299)+call+"]")
	s, err := script.Parse("talk.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// provider makes a URL the machine's provider `fake`, which is tried once. Only where its silence is
// what a test is about is it not waited for as long as it takes.
func (m *machine) provider(url string, silent bool) {
	m.t.Helper()
	dir := m.home + "/.config/troupe"
	timeout := patience
	if silent {
		timeout = 2 * time.Second
	}
	text := fmt.Sprintf("providers:\n  fake:\n    base_url: %s/v1\n    limits: {attempts: 1, timeout: %s}\n", url, timeout)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/config.yaml", []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func fake(text string, more ...string) []string {
	return append([]string{"run", text, "-m", "fake/x", "--trust", "full", "--no-input"}, more...)
}

// served starts a server that ends with the test.
func served(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		_ = srv.Config.Close()
		srv.Close()
	})
	return srv.URL
}

// TestARateLimitWithoutAnEndLastsAsLongAsATurnMay: a wait may cure it, so the turn waits for as long as it may, and says for what.
func TestARateLimitWithoutAnEndLastsAsLongAsATurnMay(t *testing.T) {
	s, m := talkScript(t), newMachine(t)
	m.provider(served(t, script.Handler(s, script.ServeOptions{FailFirst: 1 << 30, FailStatus: http.StatusTooManyRequests})), false)
	before := m.env
	m.env = append(before[:len(before):len(before)], "TROUPE_LIMITS__TURN=3s")
	e := m.run(fake("hello")...)
	if e.code != 124 || !strings.Contains(e.err, "outcome timeout") || !strings.Contains(e.err, "rate_limited (HTTP 429)") {
		t.Errorf("want 124, and why: %s", e)
	}
	id := m.session()
	m.provider(served(t, script.Handler(s, script.ServeOptions{})), false)
	m.env = before
	if e := m.run("run", "-s", id, "again"); e.code != 0 || !strings.Contains(e.out, "the answer to again is long enough") {
		t.Errorf("the next turn %s", e)
	}
	m.sound(id)
}

// modelFailure is a way in which a model fails for good.
type modelFailure struct {
	name, prompt, says string
	h                  http.Handler // nil: nobody listens
}

func modelFailures(s *script.Script) []modelFailure {
	does := func(o script.ServeOptions) http.Handler { return script.Handler(s, o) }
	status := func(n int) http.Handler { return does(script.ServeOptions{FailFirst: 1 << 30, FailStatus: n}) }
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>log in first</html>"))
	})
	silent := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
	})
	return []modelFailure{
		{"500", "hello", "overloaded (HTTP 500)", status(500)},
		{"503", "hello", "overloaded (HTTP 503)", status(503)},
		{"401", "hello", "auth", status(401)},
		{"404", "hello", "not_found", status(404)},
		{"400", "hello", "bad_request", status(400)},
		{"cut in the text", "hello", "truncated", does(script.ServeOptions{TruncateAfter: 700, ChunkSize: 4})},
		{"empty stream", "hello", "truncated", silent},
		{"garbage", "hello", "protocol", does(script.ServeOptions{Garbage: true})},
		{"a page", "hello", "protocol", page},
		{"no first byte", "hello", "timeout", does(script.ServeOptions{Latency: time.Hour})},
		{"a stall in the text", "hello", "timeout", does(script.ServeOptions{ChunkDelay: 700 * time.Millisecond, ChunkSize: 4})},
		{"nobody there", "hello", "connection refused", nil},
		{"an answer of 17 MiB", "flood", "larger than", does(script.ServeOptions{})},
		{"300 calls", "calls", "256", does(script.ServeOptions{})},
		{"a prompt without a rule", "unmatched", "unmatched", does(script.ServeOptions{})},
	}
}

func TestFailingModelEndsTheTurnAndNotTheSession(t *testing.T) {
	s := talkScript(t)
	healthy := served(t, script.Handler(s, script.ServeOptions{}))
	for _, f := range modelFailures(s) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if f.h == nil {
				m.provider(nobody(t), false)
			} else {
				m.provider(served(t, f.h), f.says == "timeout")
			}
			e := m.run(fake(f.prompt)...)
			if e.code != 1 || !strings.Contains(e.err, "outcome error") || !strings.Contains(e.err, f.says) {
				t.Errorf("want 1 and %q: %s", f.says, e)
			}
			id := m.session()
			var shown struct{ Session, Outcome, Reason string }
			e = m.run("run", "-s", id, "-o", "json")
			if err := json.Unmarshal([]byte(e.out), &shown); err != nil || e.code != 1 || shown.Outcome != "error" || !strings.Contains(shown.Reason, f.says) {
				t.Errorf("shown again: %v, %s", err, e)
			}
			m.provider(healthy, false)
			if e := m.run("run", "-s", id, "again"); e.code != 0 || !strings.Contains(e.out, "the answer to again is long enough") {
				t.Errorf("the next turn %s", e)
			}
			m.sound(id)
		})
	}
}

// nobody is an address on which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + l.Addr().String()
}

// first lets the first requests go elsewhere.
type first struct {
	bad, good http.Handler
	left      atomic.Int32
}

func (f *first) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.left.Add(-1) >= 0 {
		f.bad.ServeHTTP(w, r)
		return
	}
	f.good.ServeHTTP(w, r)
}

func TestPassingFailuresOfTheModelDoNotShowInTheAnswer(t *testing.T) {
	s := talkScript(t)
	for name, o := range map[string]script.ServeOptions{
		"rate limit": {FailFirst: 1 << 30, FailStatus: 429, RetryAfter: 50 * time.Millisecond},
		"overload":   {FailFirst: 1 << 30, FailStatus: 500},
		"cut":        {TruncateAfter: 700, ChunkSize: 4, ChunkDelay: 5 * time.Millisecond},
		"stall":      {ChunkDelay: 700 * time.Millisecond, ChunkSize: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			f := &first{bad: script.Handler(s, o), good: script.Handler(s, script.ServeOptions{})}
			f.left.Store(2)
			m.provider(served(t, f), name == "stall")
			e := m.run(fake("hello", "-o", "json")...)
			var shown struct{ Text, Outcome string }
			if err := json.Unmarshal([]byte(e.out), &shown); err != nil || e.code != 0 || shown.Outcome != "done" ||
				shown.Text != "the answer to hello is long enough to be cut in the middle of it" {
				t.Errorf("%v, %s", err, e)
			}
			if f.left.Load() >= 0 {
				t.Error("the failures were not asked for")
			}
			m.sound(m.session())
		})
	}
}

// What a person saw of an answer that never came to be is said to be void.
func TestTextOfACutAnswerIsSaidToBeVoid(t *testing.T) {
	s := talkScript(t)
	m := newMachine(t)
	cut := script.ServeOptions{TruncateAfter: 700, ChunkSize: 4, ChunkDelay: 5 * time.Millisecond}
	f := &first{bad: script.Handler(s, cut), good: script.Handler(s, script.ServeOptions{})}
	f.left.Store(1)
	m.provider(served(t, f), false)
	e := m.run(fake("hello")...)
	if e.code != 0 || !strings.Contains(e.err, "is void") || !strings.HasSuffix(e.out, "\nthe answer to hello is long enough to be cut in the middle of it\n") {
		t.Errorf("the run %s", e)
	}
}

func TestAnswersThatTheProviderEndedEarlyAreNotLost(t *testing.T) {
	s := talkScript(t)
	m := newMachine(t)
	m.provider(served(t, script.Handler(s, script.ServeOptions{})), false)
	for _, c := range []struct {
		prompt, says string
		code         int
	}{{"filtered", "outcome error: the provider's content filter", 1}, {"cut", "outcome limit: the answer was cut", 2}} {
		if e := m.run(fake(c.prompt)...); e.code != c.code || e.out != "half of\n" || !strings.Contains(e.err, c.says) {
			t.Errorf("%s: want %d and %q: %s", c.prompt, c.code, c.says, e)
		}
	}
}
