package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// maxGarbage is the largest body of the servers here.
const maxGarbage = 64 << 10

// faults are what a log says at the level of errors: nothing that a client sends is one.
type faults struct {
	mu   sync.Mutex
	text strings.Builder
}

func (f *faults) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(p)
}

func (f *faults) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.text.Reset()
	return f.text.String()
}

// exposed is a runtime that anybody may reach: on a TCP address and on a socket.
type exposed struct {
	t       *testing.T
	rt      *troupe.Runtime
	faults  *faults
	address string       // of TCP
	tcp     *http.Client // each speaks with one of the two
	unix    *http.Client
	folder  string // of its sessions
	close   func()
}

// expose starts one.
func expose(t *testing.T, o gateway.Options, times gateway.Times) *exposed {
	t.Helper()
	x := &exposed{t: t, faults: &faults{}, folder: t.TempDir()}
	o.Logger, o.MaxBody = slog.New(slog.NewTextHandler(x.faults, &slog.HandlerOptions{Level: slog.LevelError})), maxGarbage
	rt, err := troupe.New(t.Context(), troupe.Options{Model: model(t), DataDir: t.TempDir(), Logger: o.Logger})
	if err != nil {
		t.Fatal(err)
	}
	x.rt = rt
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.address = tcp.Addr().String()
	unix, path, err := gateway.ListenSocket(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 2)
	for _, l := range []net.Listener{tcp, unix} {
		go func() { served <- gateway.ServeWithin(ctx, l, gateway.New(rt, o), times) }()
	}
	x.tcp, x.unix = clientTo("tcp", x.address), clientTo("unix", path)
	x.close = sync.OnceFunc(func() {
		x.tcp.CloseIdleConnections()
		x.unix.CloseIdleConnections()
		stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(<-served, <-served, rt.Close(ctx)); err != nil {
			t.Errorf("close what is exposed: %v", err)
		}
	})
	t.Cleanup(x.close)
	return x
}

func clientTo(network, address string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// attempt is one request that is no good.
type attempt struct {
	what, method, path, body string
	kind                     string // of the body; "": JSON
	header                   map[string]string
	fine                     bool // it may as well be answered
}

// send sends one and says what is wrong with the answer; "": nothing.
func (x *exposed) send(c *http.Client, a attempt) string {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute) // who hangs longer than this hangs
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, "http://localhost"+a.path, strings.NewReader(a.body))
	if err != nil {
		return "the test: " + err.Error()
	}
	if a.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.kind != "" {
		req.Header.Set("Content-Type", a.kind)
	}
	for name, v := range a.header {
		req.Header.Set(name, v)
	}
	res, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	if res.Header.Get("X-Smuggled") != "" {
		return "a header was smuggled into the answer"
	}
	if res.StatusCode < 300 || res.StatusCode == http.StatusSwitchingProtocols {
		if a.fine {
			return "" // a stream is not read to its end
		}
		return "it is answered with " + res.Status
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return fmt.Sprintf("%s, and then %v", res.Status, err)
	}
	var p messages.ProblemJSON
	switch err := json.Unmarshal(text, &p); {
	case res.StatusCode >= 500 || res.StatusCode < 400:
	case err != nil || res.Header.Get("Content-Type") != messages.ProblemType:
	case p.Status != res.StatusCode || p.Code == "" || p.Code == messages.CodeInternal || p.Detail == "":
	case len(p.Detail) > 9<<10:
	default:
		return ""
	}
	return fmt.Sprintf("%s: %.600s", res.Status, text)
}

// bodiesOf are bodies that are no good, for a route whose body has these members.
func bodiesOf(members map[string]string) []attempt {
	long := strings.Repeat("x", maxGarbage)
	all := []attempt{
		{what: "truncated", body: `{"a`},
		{what: "no JSON", body: `text=x&id=y`},
		{what: "zeros", body: strings.Repeat("\x00", 100)},
		{what: "deeply nested lists", body: strings.Repeat("[", 30_000)},
		{what: "deeply nested objects", body: strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000)},
		{what: "a list", body: `[]`},
		{what: "a text", body: `"x"`},
		{what: "a number without end", body: "1" + strings.Repeat("0", 5000)},
		{what: "an unknown member", body: `{"x_unknown":1}`},
		{what: "letters that are none", body: "{\"x\":\"\xff\xfe\"}"},
		{what: "two values", body: `{} {}`},
		{what: "too large", body: `{"x":"` + long + `"}`},
		{what: "another content type", body: `{}`, kind: "text/plain"},
		{what: "a content type that is none", body: `{}`, kind: ";;="},
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		for kind, v := range map[string]string{"string": `"x"`, "integer": `7`, "number": `7.5`, "boolean": `true`, "array": `[[[]]]`, "object": `{"x":[{}]}`} {
			of := members[name]
			a := attempt{what: kind + " in " + name, body: fmt.Sprintf(`{%q:%s}`, name, v)}
			a.fine = of == "" || of == kind || of == "number" && kind == "integer"
			all = append(all, a)
		}
		all = append(all,
			attempt{what: "null in " + name, body: fmt.Sprintf(`{%q:null}`, name), fine: true},
			attempt{what: "control characters in " + name, body: fmt.Sprintf(`{%q:"a\u0000b\r\nX-Smuggled: 1\r\n\r\n"}`, name), fine: true},
			attempt{what: "half a letter in " + name, body: fmt.Sprintf(`{%q:"\ud800"}`, name), fine: true},
			attempt{what: "a long text in " + name, body: fmt.Sprintf(`{%q:%q}`, name, long[:maxGarbage-1000]), fine: true},
			attempt{what: "a huge number in " + name, body: fmt.Sprintf(`{%q:1e400}`, name)},
			attempt{what: "a negative number in " + name, body: fmt.Sprintf(`{%q:-9223372036854775808}`, name), fine: true},
			attempt{what: "nested values in " + name, body: fmt.Sprintf(`{%q:%s1%s}`, name, strings.Repeat(`{"a":`, 5_000), strings.Repeat("}", 5_000)), fine: members[name] == ""},
		)
	}
	return all
}

// addressesOf are addresses that are no good, for a route with holes.
func addressesOf(path string) []attempt {
	hole := regexp.MustCompile(`\{[^}]*\}`)
	var all []attempt
	for what, id := range map[string]string{
		"an unknown id": "ses_00000000000000000000000000", "a long id": strings.Repeat("x", 20_000), "slashes": "a%2f..%2f..%2fb", "dots": "%2e%2e", "a dot": "%2e",
		"NUL": "a%00b", "a new line": "a%0d%0aX-Smuggled:%201", "letters that are none": "%ff%fe", "an emptiness": "%20", "quotes": "%22%27%3Cscript%3E", "a direction": "%E2%80%AEx",
	} {
		if hole.MatchString(path) {
			all = append(all, attempt{what: what, path: hole.ReplaceAllString(path, id)})
		}
	}
	plain := hole.ReplaceAllString(path, "x")
	return append(all,
		attempt{what: "an unknown parameter", path: plain + "?x_unknown=1"},
		attempt{what: "half an escape", path: plain + "?a=%f"},
		attempt{what: "a new line in the query", path: plain + "?worker=a%0d%0aX-Smuggled:%201"},
		attempt{what: "semicolons", path: plain + "?a;b;c"},
		attempt{what: "many parameters", path: plain + "?" + strings.Repeat("a=1&", 5000)},
		attempt{what: "a slash at the end", path: plain + "/"},
		attempt{what: "a closing slash and dots", path: plain + "/../x"},
	)
}

// operation is a route as its description says it.
type operation struct {
	method, path string
	body         string            // content type; "": it has none
	members      map[string]string // of a body that is JSON, with their types; "": any
	query        []string
}

// operations reads them from the description of a server.
func (x *exposed) operations() []operation {
	x.t.Helper()
	res, err := x.tcp.Get("http://localhost/openapi.json")
	if err != nil {
		x.t.Fatal(err)
	}
	defer res.Body.Close()
	type schema struct {
		Ref        string `json:"$ref"`
		Type       string
		Properties map[string]struct {
			Ref  string `json:"$ref"`
			Type string
		}
	}
	var d struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := json.NewDecoder(res.Body).Decode(&d); err != nil {
		x.t.Fatal(err)
	}
	named := func(ref string) schema { return d.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]] }
	var all []operation
	for path, methods := range d.Paths {
		for method, op := range methods {
			o := operation{method: strings.ToUpper(method), path: path, members: make(map[string]string)}
			for _, p := range op.Parameters {
				if p.In == "query" {
					o.query = append(o.query, p.Name)
				}
			}
			for kind, c := range op.RequestBody.Content {
				o.body = kind
				s := c.Schema
				if s.Ref != "" {
					s = named(s.Ref)
				}
				for name, m := range s.Properties {
					o.members[name] = m.Type
					if m.Ref != "" {
						o.members[name] = named(m.Ref).Type
					}
				}
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// garbage is everything that is sent to one route.
func (x *exposed) garbage(o operation) []attempt {
	session := x.begin() // one for each route: some of them end it
	path := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllStringFunc(o.path, func(h string) string {
		if h == "{id}" {
			return session
		}
		return "x"
	})
	var all []attempt
	add := func(a attempt) {
		if a.method == "" {
			a.method = o.method
		}
		if a.path == "" {
			a.path = path
		}
		all = append(all, a)
	}
	takesAny := o.body != "" && o.body != "application/json"
	for _, b := range bodiesOf(o.members) {
		if takesAny {
			b.kind, b.fine = o.body, b.what != "too large" || strings.HasSuffix(o.path, "/import")
		}
		add(b)
	}
	for _, a := range addressesOf(o.path) {
		a.fine = true // what it says must be right, and it may be that nothing is asked of the id
		add(a)
	}
	for _, name := range o.query {
		for what, v := range map[string]string{"a long text": strings.Repeat("x", 20_000), "a number": "18446744073709551616", "a sign": "-1", "NUL": "%00", "half a letter": "%ff", "a new line": "%0d%0aX-Smuggled:%201"} {
			add(attempt{what: what + " in " + name, path: path + "?" + name + "=" + v, fine: true})
		}
		add(attempt{what: name + " twice", path: path + "?" + name + "=a&" + name + "=b"})
	}
	add(attempt{what: "a method that is none", method: "BREW"})
	add(attempt{what: "another method", method: http.MethodOptions})
	add(attempt{what: "another site", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.org"}, fine: o.method == http.MethodGet})
	for _, h := range []string{"Last-Event-ID", "Authorization", "If-None-Match", "Range", "X-Forwarded-For", "Upgrade", "Sec-WebSocket-Key", "Accept-Encoding", "Cookie"} {
		add(attempt{what: "a strange " + h, header: map[string]string{h: strings.Repeat("\x80;,=\"", 1000)}, fine: true})
	}
	add(attempt{what: "nothing", fine: true})
	return all
}

// TestGarbageOnEveryRouteIsRefused walks the description of the API, over TCP and over the socket: whatever is sent is refused with a
// problem, or answered where there is nothing wrong with it; nothing panics, nothing hangs, nothing is left over.
func TestGarbageOnEveryRouteIsRefused(t *testing.T) {
	before := holdings()
	x := expose(t, gateway.Options{}, gateway.Times{})
	routes, sent := x.operations(), 0
	for i, c := range []*http.Client{x.tcp, x.unix} {
		for _, o := range routes {
			if i > 0 && testing.Short() && o.method == http.MethodGet {
				continue // the same handler behind another listener
			}
			for _, a := range x.garbage(o) {
				sent++
				if wrong := x.send(c, a); wrong != "" {
					t.Errorf("%s %s with %s, %.200s: %s", o.method, o.path, a.what, a.body, wrong)
				}
				if said := x.faults.take(); said != "" {
					t.Errorf("%s %s with %s, %.200s: the log says %s", o.method, o.path, a.what, a.body, said)
				}
			}
		}
	}
	if len(routes) < 60 || sent < 3000 {
		t.Errorf("%d requests were sent to %d routes: too few to say anything", sent, len(routes))
	}
	session := x.begin()
	ask[*messages.InputReply](t, x.rt, submit(session, "one", "hello"))
	if status, text := x.get("/api/sessions/" + session + "/wait?input_id=one"); status != http.StatusOK || !strings.Contains(text, "You said hello") {
		t.Errorf("in the end a turn is answered with %d %s", status, text)
	}
	x.close()
	before.back(t)
}

// begin makes a session, with a folder.
func (x *exposed) begin() string {
	x.t.Helper()
	return ask[*messages.SessionView](x.t, x.rt, &messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + x.folder, Primary: true}}}).GetId()
}

// get asks for an address over TCP.
func (x *exposed) get(path string) (int, string) {
	x.t.Helper()
	res, err := x.tcp.Get("http://localhost" + path)
	if err != nil {
		x.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// held is what a process has.
type held struct{ goroutines, files int }

func holdings() held {
	h := held{goroutines: runtime.NumGoroutine()}
	if all, err := os.ReadDir("/proc/self/fd"); err == nil { // else it is no Linux
		h.files = len(all)
	}
	return h
}

// back waits until nothing more is held than before. What is held for ever is found by the test's own bound.
func (h held) back(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; <-tick.C {
		now := holdings()
		// The actor library counts dead letters in a goroutine of its own for a second.
		if now.goroutines <= h.goroutines+1 && now.files <= h.files {
			return
		}
		if time.Now().After(limit) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("before %+v, and after it %+v:\n%s", h, now, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
