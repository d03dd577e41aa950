package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

func answers(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Request-Id", "req-9")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestEveryRefusalHasItsClass(t *testing.T) {
	const js = "application/json"
	for name, tc := range map[string]struct {
		status     int
		kind, body string
		want       model.Class
		says       string
	}{
		"rate limit":             {429, js, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, model.RateLimited, "slow down"},
		"quota":                  {429, js, `{"error":{"message":"pay","code":"insufficient_quota"}}`, model.Auth, "pay"},
		"payment":                {402, js, `{"error":{"message":"Insufficient Balance"}}`, model.Auth, "Balance"},
		"bad key":                {401, js, `{"error":{"message":"bad key","code":"invalid_api_key"}}`, model.Auth, "bad key"},
		"forbidden":              {403, "text/html", `<h1>no</h1>`, model.Auth, "no"},
		"no such model":          {404, js, `{"error":{"message":"no model","code":"model_not_found"}}`, model.NotFound, "no model"},
		"no such page":           {404, "text/plain", `404 page not found`, model.NotFound, "page"},
		"context":                {400, js, `{"error":{"message":"too long","code":"context_length_exceeded"}}`, model.ContextLength, "too long"},
		"context in words":       {400, js, `{"message":"This model's maximum context length is 4096 tokens","code":400}`, model.ContextLength, "4096"},
		"too large":              {413, js, `{}`, model.ContextLength, ""},
		"tokens per minute":      {413, js, `{"error":{"message":"TPM","code":"rate_limit_exceeded"}}`, model.RateLimited, "TPM"},
		"bad request":            {400, js, `{"error":{"message":"bad","type":"invalid_request_error"}}`, model.BadRequest, "bad"},
		"validation":             {422, js, `{"detail":[{"loc":["body"],"msg":"bad"}]}`, model.BadRequest, "bad"},
		"server error":           {500, js, `{"error":"boom"}`, model.Overloaded, "boom"},
		"bad gateway":            {502, "text/html", `<html>`, model.Overloaded, ""},
		"overloaded":             {529, js, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, model.Overloaded, "busy"},
		"no body":                {503, "", "", model.Overloaded, "Service Unavailable"},
		"redirect":               {307, "", "", model.Protocol, "https://elsewhere.example/"},
		"no content":             {204, "", "", model.Protocol, ""},
		"200, JSON error":        {200, js, `{"error":{"message":"no credit","code":"insufficient_quota"}}`, model.Auth, "no credit"},
		"200, error as a string": {200, js, `{"error":"overloaded"}`, model.Overloaded, "overloaded"},
		"200, framed as events":  {200, "text/event-stream", `{"error":{"message":"bad","type":"invalid_request_error"}}`, model.BadRequest, "bad"},
		"200, a page":            {200, "text/html", `<html>welcome</html>`, model.Protocol, "text/html"},
		"200, not streamed":      {200, js, `{"object":"chat.completion","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`, model.Protocol, "event stream"},
	} {
		t.Run(name, func(t *testing.T) {
			m := provider(t, openai.Options{MaxAttempts: 1}, answers(tc.status, tc.kind, tc.body, "Location", "https://elsewhere.example/"))
			_, err := ask(t, m)
			var me *model.Error
			if !errors.As(err, &me) || me.Class != tc.want || !strings.Contains(me.Message, tc.says) {
				t.Fatalf("got %v, want class %s", err, tc.want)
			}
			if me.RequestID != "req-9" || me.Attempts != 1 || (tc.status != 200 && me.Status != tc.status) {
				t.Errorf("got %+v", me)
			}
		})
	}
}

func TestARefusedConnectionIsOverloaded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	m, err := openai.New(openai.Options{BaseURL: "http://" + addr, MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, m)
	var me *model.Error
	if !errors.As(err, &me) || me.Class != model.Overloaded || !strings.Contains(me.Hint, addr) {
		t.Errorf("got %+v", err)
	}
}

func TestTheKeyIsInNoError(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"echoed in a refusal": answers(401, "application/json", `{"error":{"message":"key `+key+` is bad"}}`),
		"echoed in a page":    answers(200, "text/html", `<b>`+key+`</b>`),
		"echoed in a stream":  says(`data: {"error":{"message":"`+key+`"}}`+"\n\n", 0),
		"echoed as garbage":   says("data: "+key+"\n\n", 0),
		"echoed unframed":     says(key+"\n", 0),
		"echoed by redirect":  answers(302, "", "", "Location", "/"+key),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(t, provider(t, openai.Options{MaxAttempts: 1}, h))
			if all := fmt.Sprintf("%v %+v %#v %v", err, err, err, errors.Unwrap(err)); err == nil || strings.Contains(all, key) {
				t.Errorf("got %s", all)
			}
		})
	}
}

func TestNewRefusesAddressesThatCarrySecretsOrLeadNowhere(t *testing.T) {
	for _, u := range []string{"http://user:pw@h/v1", "https://h/v1?key=" + key, "ftp://h", "h:80", "://", "http://"} {
		if _, err := openai.New(openai.Options{BaseURL: u}); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := openai.New(openai.Options{API: "assistants"}); err == nil {
		t.Error("an unknown api was taken")
	}
}

func TestRetriesWaitAsAskedAndEndWithTheAnswer(t *testing.T) {
	var n atomic.Int32
	var paused []time.Duration
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	replies := []http.HandlerFunc{
		answers(503, "", "", "Retry-After", "7"),
		answers(503, "", "", "Retry-After", now.Add(20*time.Second).Format(http.TimeFormat)),
		answers(500, "", ""),
		answers(503, "", "", "Retry-After", "100000"),
		says("", 0), // truncated before anything was given out
		says(delta(`{"content":"Hello"}`)+stop+done, 0),
	}
	m := provider(t, openai.Options{
		MaxAttempts: 10,
		Now:         func() time.Time { return now },
		Sleep:       func(_ context.Context, d time.Duration) error { paused = append(paused, d); return nil },
	}, func(w http.ResponseWriter, r *http.Request) { replies[n.Add(1)-1](w, r) })
	got, err := ask(t, m)
	if err != nil || got.Text != "Hello" || got.Meta.Attempts != 6 {
		t.Fatalf("got %+v, %v", got, err)
	}
	bounds := [][2]float64{{7, 9}, {20, 25}, {1, 2}, {60, 60}, {4, 8}}
	for i, b := range bounds {
		if i >= len(paused) || paused[i].Seconds() < b[0] || paused[i].Seconds() > b[1] {
			t.Fatalf("pause %d of %v is not within %v to %v s", i, paused, b[0], b[1])
		}
	}
}

func TestWhatCannotGetBetterIsNotTriedAgain(t *testing.T) {
	for _, body := range []http.HandlerFunc{
		answers(400, "", "{}"), answers(401, "", "{}"), answers(404, "", "{}"),
		answers(429, "application/json", `{"error":{"code":"insufficient_quota"}}`),
		answers(429, "", "", "Retry-After", "3"), // whoever asks waits for all
		says("data: x\n\n", 0),
		says(delta(`{"content":"half"}`), 0), // the caller has seen a part
	} {
		var n atomic.Int32
		_, err := ask(t, provider(t, openai.Options{}, func(w http.ResponseWriter, r *http.Request) { n.Add(1); body(w, r) }))
		if err == nil || n.Load() != 1 {
			t.Errorf("%d requests, %v", n.Load(), err)
		}
	}
}

// TestWhoAsksOnceIsToldAtOnce: who holds something that others wait for repeats a request himself; Attempts says how often it is worth it.
func TestWhoAsksOnceIsToldAtOnce(t *testing.T) {
	for _, body := range []http.HandlerFunc{answers(503, "", "", "Retry-After", "7"), answers(500, "", ""), says("", 0)} {
		var n atomic.Int32
		m := provider(t, openai.Options{MaxAttempts: 4, Sleep: func(context.Context, time.Duration) error {
			t.Error("it waits")
			return nil
		}}, func(w http.ResponseWriter, r *http.Request) { n.Add(1); body(w, r) })
		_, err := model.Collect(m.Stream(t.Context(), &model.Request{Model: "m", Prompt: &messages.Prompt{}, Once: true}), nil)
		var failed *model.Error
		if !errors.As(err, &failed) || n.Load() != 1 || failed.Attempts != 1 || model.Attempts(m) != 4 {
			t.Errorf("%d requests, %v, and it is worth %d", n.Load(), err, model.Attempts(m))
		}
	}
}

func TestRetriesEnd(t *testing.T) {
	var n atomic.Int32
	m := provider(t, openai.Options{MaxAttempts: 3}, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		answers(503, "", "", "Retry-After", "3")(w, r)
	})
	_, err := ask(t, m)
	var me *model.Error
	if !errors.As(err, &me) || me.Attempts != 3 || n.Load() != 3 || me.RetryAfter != 3*time.Second {
		t.Errorf("%d requests, %+v", n.Load(), err)
	}
}

func TestARetryAfterThatSaysNothingIsNone(t *testing.T) {
	for said, want := range map[string]time.Duration{"Inf": 0, "+Infinity": 0, "NaN": 0, "-5": 0, "soon": 0, "": 0, "2.5": 2500 * time.Millisecond, "36000": time.Hour, "Thu, 01 Jan 1970 00:00:00 GMT": 0} {
		_, err := ask(t, provider(t, openai.Options{}, answers(429, "", "", "Retry-After", said)))
		var me *model.Error
		if !errors.As(err, &me) || me.RetryAfter != want {
			t.Errorf("%q: %+v", said, err)
		}
	}
}

func TestCancelEndsACallPromptlyWhereverItIs(t *testing.T) {
	held := func(before string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if before != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, before)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done() // until the client goes
		}
	}
	t.Run("while the provider thinks", func(t *testing.T) {
		m := provider(t, openai.Options{FirstByteTimeout: 20 * time.Millisecond, MaxAttempts: 1}, held(""))
		if _, err := ask(t, m); class(err) != model.Timeout {
			t.Errorf("got %v", err)
		}
	})
	t.Run("between two deltas", func(t *testing.T) {
		m := provider(t, openai.Options{IdleTimeout: 20 * time.Millisecond}, held(delta(`{"content":"a"}`)))
		got, err := ask(t, m)
		if class(err) != model.Timeout || got.Text != "a" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("after too long", func(t *testing.T) {
		m := provider(t, openai.Options{RequestTimeout: 20 * time.Millisecond, MaxAttempts: 1}, held(delta(`{"content":"a"}`)))
		if _, err := ask(t, m); class(err) != model.Timeout {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a finish without an end", func(t *testing.T) {
		m := provider(t, openai.Options{IdleTimeout: 20 * time.Millisecond}, held(delta(`{"content":"a"}`)+stop))
		if got, err := ask(t, m); err != nil || got.Text != "a" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("by the caller", func(t *testing.T) {
		m := provider(t, openai.Options{}, held(delta(`{"content":"a"}`)))
		ctx, cancel := context.WithCancel(t.Context())
		_, err := model.Collect(m.Stream(ctx, request("hi")), func(model.Event) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("before it began", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := model.Collect(provider(t, openai.Options{}, held("")).Stream(ctx, request("hi")), nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("in a pause", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := provider(t, openai.Options{Sleep: func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }}, answers(503, "", ""))
		_, err := model.Collect(m.Stream(ctx, request("hi")), nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("by leaving the loop", func(t *testing.T) {
		gone := make(chan struct{})
		m := provider(t, openai.Options{}, func(w http.ResponseWriter, r *http.Request) {
			held(delta(`{"content":"a"}`))(w, r)
			close(gone)
		})
		for _, err := range m.Stream(t.Context(), request("hi")) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		<-gone
	})
}

func TestAnswersShareAConnection(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(says(delta(`{"content":"a"}`)+stop+done, 11))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	m, err := openai.New(openai.Options{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 5 {
		if _, err := ask(t, m); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 5 calls", n)
	}
}

// sent makes one call and returns the request as the provider got it.
func sent(t *testing.T, opts openai.Options, req *model.Request) (map[string]any, *http.Request) {
	t.Helper()
	var got *http.Request
	doc := capture(t, opts, req, func(r *http.Request) { got = r.Clone(context.Background()) }, delta(`{"content":"a"}`)+stop+done)
	return doc, got
}

func capture(t *testing.T, opts openai.Options, req *model.Request, see func(*http.Request), answer string) map[string]any {
	t.Helper()
	var body []byte
	var length int64
	m := provider(t, opts, func(w http.ResponseWriter, r *http.Request) {
		see(r)
		length = r.ContentLength
		body, _ = io.ReadAll(r.Body)
		says(answer, 0)(w, r)
	})
	if _, err := model.Collect(m.Stream(t.Context(), req), nil); err != nil {
		t.Fatal(err)
	}
	if int64(len(body)) != length {
		t.Errorf("%d bytes, announced as %d", len(body), length)
	}
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return doc
}

func history() []*messages.Message {
	return []*messages.Message{
		{Role: messages.User, Text: "do \"it\"\n<now>\x01\xff é😀"},
		{Role: messages.Assistant, Reasoning: "hm", ToolCalls: []*messages.ToolCall{
			{Id: "a", Name: "f"}, {Id: "b", Name: "g", Arguments: "null"}, {Id: "c", Name: "h", Arguments: `{"x":1}`}, {Id: "d", Name: "i", Arguments: `{"x":`},
		}},
		{Role: messages.ToolRole, ToolCallID: "a"},
		{Role: messages.ToolRole, ToolCallID: "b", Text: "out"},
		{Role: messages.Assistant, Text: "done"},
	}
}

func TestTheRequestSaysTheWholeConversation(t *testing.T) {
	req := &model.Request{
		Model: `m"messages":null`, MaxTokens: 77, Agent: "cod\ner",
		Prompt: &messages.Prompt{System: "be\u2028brief", Messages: history()},
		Tools:  []model.ToolDef{{Name: "f", Description: "does", Schema: json.RawMessage(`{"type": "object"}`)}, {Name: "g"}},
	}
	doc, r := sent(t, openai.Options{}, req)
	want := `[{"role":"system","content":"be\u2028brief"},
		{"role":"user","content":"do \"it\"\n<now>\u0001\ufffd é😀"},
		{"role":"assistant","content":null,"tool_calls":[
			{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
			{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}},
			{"id":"c","type":"function","function":{"name":"h","arguments":"{\"x\":1}"}},
			{"id":"d","type":"function","function":{"name":"i","arguments":"{\"invalid_json\":\"{\\\"x\\\":\"}"}}]},
		{"role":"tool","tool_call_id":"a","content":"(no output)"},
		{"role":"tool","tool_call_id":"b","content":"out"},
		{"role":"assistant","content":"done"}]`
	same(t, doc["messages"], want)
	same(t, doc["tools"], `[{"type":"function","function":{"name":"f","description":"does","parameters":{"type":"object"}}},
		{"type":"function","function":{"name":"g","description":"","parameters":{"type":"object","properties":{}}}}]`)
	same(t, doc["stream_options"], `{"include_usage":true}`)
	if doc["model"] != req.Model || doc["stream"] != true || doc["max_tokens"] != 77.0 {
		t.Errorf("got %v", doc)
	}
	if r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("X-Troupe-Agent") != "cod_er" || r.URL.Path != "/v1/chat/completions" {
		t.Errorf("got %s %v", r.URL, r.Header)
	}
	if req.Model = "gpt-5-x"; true {
		doc, _ = sent(t, openai.Options{EchoReasoning: true}, req)
	}
	if doc["max_completion_tokens"] != 77.0 || doc["max_tokens"] != nil {
		t.Errorf("got %v", doc)
	}
	msg, _ := doc["messages"].([]any)[2].(map[string]any)
	if msg["reasoning_content"] != "hm" {
		t.Errorf("got %v", msg)
	}
}

func TestAPromptWithoutASystemMessageBeginsWithItsFirst(t *testing.T) {
	doc, _ := sent(t, openai.Options{}, &model.Request{Model: "m", Prompt: &messages.Prompt{Messages: history()[:1]}})
	if l, _ := doc["messages"].([]any); len(l) != 1 || doc["tools"] != nil {
		t.Errorf("got %v", doc)
	}
	doc, _ = sent(t, openai.Options{}, &model.Request{Model: "m", Prompt: &messages.Prompt{System: "s"}})
	same(t, doc["messages"], `[{"role":"system","content":"s"}]`)
}

func same(t *testing.T, got any, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	g, _ := json.Marshal(got)
	if w, _ := json.Marshal(w); !bytes.Equal(g, w) {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

func TestACallDoesNotEncodeTheHistoryAgain(t *testing.T) {
	msgs := history()
	for range 5 {
		msgs = append(msgs, slices.Clone(history())...)
	}
	m := provider(t, openai.Options{}, says(delta(`{"content":"a"}`)+stop+done, 0))
	req := &model.Request{Model: "m", Prompt: &messages.Prompt{Messages: msgs}}
	for range 3 {
		if _, err := model.Collect(m.Stream(t.Context(), req), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, msg := range msgs {
		msg.Wire("openai-chat", func(*messages.Message) []byte { t.Errorf("message %d was not kept", i); return nil })
	}
}

func TestTheKeyIsAskedForBeforeEachRequest(t *testing.T) {
	n := 0
	m := provider(t, openai.Options{APIKey: func(context.Context) (string, error) {
		if n++; n > 1 {
			return "", errors.New("the command failed")
		}
		return "first", nil
	}}, answers(500, "", ""))
	if _, err := ask(t, m); class(err) != model.Auth || !strings.Contains(err.Error(), "the command failed") {
		t.Errorf("got %v", err)
	}
}
