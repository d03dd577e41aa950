package script_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/model/script"
)

const talk = `
name: talk
rules:
  - match: hi
    reply: {text: hello there}
  - match: work
    after_tool: {name: exec}
    reply: {text: 'it said ${tool.content}'}
  - match: agent
    agent: coder
    reply: {text: yes}
  - match: limit
    reply: {text: fine, fail: {class: rate_limited, retry_after: 1500ms, times: 1}}
`

// post sends a chat completion request and returns status, headers and body.
func post(t *testing.T, h http.Handler, body string, header ...string) (*http.Response, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer srv.Client().CloseIdleConnections()
	got, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return resp, string(got)
}

func msgs(list string) string { return `{"model":"m","messages":[` + list + `]}` }

const (
	askWork = `{"role":"user","content":"work"}`
	twoCall = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"read_file","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"exec","arguments":"{}"}}]}`
	resA    = `{"role":"tool","tool_call_id":"a","content":"A"}`
	resB    = `{"role":"tool","tool_call_id":"b","content":"B"}`
)

func TestWhatAStrictProviderRefusesIsRefusedWithAReason(t *testing.T) {
	h := script.Handler(parse(t, talk), script.ServeOptions{})
	for name, tc := range map[string]struct{ body, want string }{
		"not JSON":               {`{"model":`, "not the JSON"},
		"not UTF-8":              {"{\"model\":\"\xff\"}", "not UTF-8"},
		"no model":               {`{"messages":[` + askWork + `]}`, "model parameter"},
		"no messages":            {msgs(""), "messages is empty"},
		"two choices":            {`{"model":"m","n":2,"messages":[` + askWork + `]}`, "n is 2"},
		"options, no stream":     {`{"model":"m","stream_options":{},"messages":[` + askWork + `]}`, "only allowed when stream"},
		"an unknown role":        {msgs(`{"role":"wizard","content":"x"}`), `"wizard" is no role`},
		"no content":             {msgs(`{"role":"user","content":null}`), "messages[0] has no content"},
		"odd content":            {msgs(`{"role":"user","content":7}`), "neither text nor parts"},
		"an empty assistant":     {msgs(askWork + `,{"role":"assistant"}`), "neither content nor tool_calls"},
		"a dangling call":        {msgs(askWork + "," + twoCall), "no response: a, b"},
		"a call half answered":   {msgs(askWork + "," + twoCall + "," + resA), "no response: b"},
		"a user between":         {msgs(askWork + "," + twoCall + "," + resA + "," + askWork + "," + resB), "before messages[3] these have none: b"},
		"an answer twice":        {msgs(askWork + "," + twoCall + "," + resA + "," + resB + "," + resA), `answers "a", which is not open`},
		"an answer to nothing":   {msgs(askWork + "," + resA), "must be a response to a preceding message"},
		"an answer too late":     {msgs(askWork + "," + twoCall + "," + resA + "," + resB + `,{"role":"assistant","content":"x"},` + resA), "which is not open"},
		"an empty result":        {msgs(askWork + "," + twoCall + `,{"role":"tool","tool_call_id":"a","content":""}`), "empty content"},
		"a result without an id": {msgs(askWork + "," + twoCall + `,{"role":"tool","content":"x"}`), "no tool_call_id"},
		"a call without an id":   {msgs(askWork + "," + strings.Replace(twoCall, `"id":"a",`, "", 1)), "tool_calls[0] has no id"},
		"a call without a name":  {msgs(askWork + "," + strings.Replace(twoCall, `"name":"read_file",`, "", 1)), "has no name"},
		"a call's odd name":      {msgs(askWork + "," + strings.Replace(twoCall, `"name":"read_file",`, `"name":"read file",`, 1)), `"read file" of messages[1].tool_calls[0] has other characters`},
		"a call's long id":       {msgs(askWork + "," + strings.Replace(twoCall, `"id":"a",`, `"id":"`+strings.Repeat("a", 41)+`",`, 1)), "an id of 41 characters"},
		"a call's id twice":      {msgs(askWork + "," + strings.Replace(twoCall, `"id":"b",`, `"id":"a",`, 1)), `another call of the message has: "a"`},
		"a call without a type":  {msgs(askWork + "," + strings.Replace(twoCall, `"type":"function",`, "", 1)), `of type ""`},
		"empty arguments":        {msgs(askWork + "," + strings.Replace(twoCall, `"{}"`, `""`, 1)), "not JSON"},
		"no arguments":           {msgs(askWork + "," + strings.Replace(twoCall, `,"arguments":"{}"`, "", 1)), "not JSON"},
		"a user with calls":      {msgs(strings.Replace(twoCall, `"assistant","content":null`, `"user","content":"x"`, 1)), "no assistant's message"},
		"a tool twice":           {`{"model":"m","messages":[` + askWork + `],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]}`, "given to two tools"},
		"a tool's bad name":      {`{"model":"m","messages":[` + askWork + `],"tools":[{"type":"function","function":{"name":"f.g"}}]}`, `"f.g" has other characters`},
		"a tool that is none":    {`{"model":"m","messages":[` + askWork + `],"tools":[{"type":"x"}]}`, "is no function"},
		"a tool's bad schema":    {`{"model":"m","messages":[` + askWork + `],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]}`, "no schema of an object"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := post(t, h, tc.body)
			var doc struct{ Error struct{ Message string } }
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(doc.Error.Message, tc.want) {
				t.Errorf("got %s: %s, want %s", resp.Status, body, tc.want)
			}
		})
	}
}

func TestResultsMayComeInAnyOrderAndKnowTheirTool(t *testing.T) {
	h := script.Handler(parse(t, talk), script.ServeOptions{})
	for _, order := range []string{resA + "," + resB, resB + "," + resA} {
		resp, body := post(t, h, msgs(askWork+","+twoCall+","+order))
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "it said B") {
			t.Errorf("got %s: %s", resp.Status, body)
		}
		if resp.Header.Get("X-Troupe-Scripted") != "talk" || resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("got %v", resp.Header)
		}
	}
}

func TestTheEndpointMisbehavesAsItsOptionsSay(t *testing.T) {
	hi := msgs(`{"role":"user","content":"hi"}`)
	streamed := strings.Replace(hi, `{"model"`, `{"stream":true,"stream_options":{"include_usage":true},"model"`, 1)
	for name, tc := range map[string]struct {
		opts   script.ServeOptions
		body   string
		status int
		want   string
		not    string
	}{
		"whole":                  {script.ServeOptions{}, hi, 200, `"content":"hello there"`, "data:"},
		"streamed":               {script.ServeOptions{}, streamed, 200, "data: [DONE]", "\x00"},
		"with usage":             {script.ServeOptions{}, streamed, 200, `"choices":[],"usage":{"prompt_tokens":1`, "\x00"},
		"in pieces":              {script.ServeOptions{ChunkSize: 5, Latency: time.Nanosecond, ChunkDelay: time.Nanosecond}, streamed, 200, `"content":" ther"`, "hello there"},
		"truncated":              {script.ServeOptions{TruncateAfter: 200}, streamed, 200, "data: ", "[DONE]"},
		"truncated, whole":       {script.ServeOptions{TruncateAfter: 20}, hi, 200, `{"id"`, "hello"},
		"garbage":                {script.ServeOptions{Garbage: true}, streamed, 200, "data: {not json}", "[DONE]"},
		"garbage, whole":         {script.ServeOptions{Garbage: true}, hi, 200, "{not json}", "hello"},
		"first refused":          {script.ServeOptions{FailFirst: 1, RetryAfter: time.Second}, hi, 429, "rate_limit_exceeded", "hello"},
		"first failed":           {script.ServeOptions{FailFirst: 1, FailStatus: 500}, hi, 500, "server_error", "hello"},
		"a wrong key":            {script.ServeOptions{APIKey: "other"}, hi, 401, "invalid_api_key", "hello"},
		"too large":              {script.ServeOptions{MaxBody: 10}, hi, 413, "read the body", "hello"},
		"unmatched, with a rule": {script.ServeOptions{}, msgs(`{"role":"user","content":"what?"}`), 400, `"code":"unmatched","hint":"  - match: '^what\\?$'`, "hello"},
		"by agent":               {script.ServeOptions{}, msgs(`{"role":"user","content":"agent"}`), 200, "yes", "\x00"},
		"a rule's failure":       {script.ServeOptions{}, msgs(`{"role":"user","content":"limit"}`), 429, "rate_limit_exceeded", "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := post(t, script.Handler(parse(t, talk), tc.opts), tc.body, "Authorization", "Bearer key", "X-Troupe-Agent", agentFor(name))
			if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) || strings.Contains(body, tc.not) {
				t.Errorf("got %s: %s", resp.Status, body)
			}
			if tc.status == 429 && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("Retry-After-Ms") == "") {
				t.Errorf("got %v", resp.Header)
			}
		})
	}
}

func agentFor(test string) string {
	if test == "by agent" {
		return "coder"
	}
	return ""
}

func TestTheEndpointSaysWhatItServesAndWhatItDid(t *testing.T) {
	h := script.Handler(parse(t, talk), script.ServeOptions{})
	post(t, h, msgs(`{"role":"user","content":"hi"}`))
	post(t, h, msgs(""))
	post(t, h, msgs(`{"role":"user","content":"what?"}`))
	for path, want := range map[string]string{
		"/v1/models":      `"id":"talk"`,
		"/v1/models/talk": `"object":"model"`,
		"/v1/models/x":    "model_not_found",
		"/v1/files":       "unknown request URL",
		"/stats":          `{"requests":3,"answered":1,"refused":1,"unmatched":1,"failed":0}`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %s", path, w.Body)
		}
	}
}

func TestARequestOfTheResponsesAPIIsAnsweredWholeAndRefusedAsStrictly(t *testing.T) {
	srv := httptest.NewServer(script.Handler(parse(t, talk), script.ServeOptions{}))
	defer srv.Close()
	const called = `{"type":"function_call","call_id":"b","name":"exec","arguments":"{}"}`
	for body, want := range map[string]string{
		`{"model":"m","input":"hi"}`: `"status":"completed","output":[{"type":"message","role":"assistant","content":[{"text":"hello there","type":"output_text"}]}]`,
		`{"model":"m","input":[{"role":"user","content":"work"},` + called + `,{"type":"function_call_output","call_id":"b","output":"B"}]}`: "it said B",
		`{"model":"m","input":[{"role":"user","content":"work"},` + called + `]}`:                                                            "no response: b",
		`{"model":"m","input":[{"type":"wizard"}]}`:                                                                                          `\"wizard\" is no type of item`,
		`{"model":"m","input":7}`: "neither text nor a list",
		`{"model":"m"}`:           "neither text nor a list",
		`{"model":"m","input":"hi","tools":[{"type":"x"}]}`: "is no function",
		`{"input":"hi"}`:                       "model parameter",
		`{"model":"m","input":"nobody knows"}`: `"code":"unmatched"`,
		`{"model":`:                            "not the JSON",
		"{\"model\":\"\xff\"}":                 "not UTF-8",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/responses", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if cerr := resp.Body.Close(); err != nil || cerr != nil || !strings.Contains(string(got), want) || resp.Header.Get("X-Troupe-Scripted") != "talk" {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	srv.Client().CloseIdleConnections()
}
