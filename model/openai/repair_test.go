package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

func TestStreamsAreReadHoweverTheyAreFramed(t *testing.T) {
	hello := delta(`{"role":"assistant","content":""}`) + delta(`{"content":"Hel"}`) + delta(`{"content":"lo"}`) + stop + done
	for name, body := range map[string]string{
		"LF":                         hello,
		"CRLF":                       strings.ReplaceAll(hello, "\n", "\r\n"),
		"CR":                         strings.ReplaceAll(hello, "\n", "\r"),
		"a byte order mark":          "\ufeff" + hello,
		"no space after the colon":   strings.ReplaceAll(hello, "data: ", "data:"),
		"comments and other fields":  ": hi\n" + strings.ReplaceAll(hello, "data: ", "event: message\nid: 1\nretry: 5\n:x\ndata: "),
		"400 keepalives":             strings.Repeat(": keepalive\n\n", 400) + hello,
		"400 keepalives in between":  delta(`{"content":"Hello"}`) + strings.Repeat("\n\n: ping\n\n", 400) + stop + done,
		"400 empty events":           strings.Repeat("data:\n\n", 400) + hello,
		"a document over many lines": strings.ReplaceAll(hello, `"choices":[`, "\ndata: \"choices\":\ndata:   ["),
		"no blank lines":             strings.ReplaceAll(hello, "\n\n", "\n"),
		"no blank line at the end":   strings.TrimRight(hello, "\n"),
		"no [DONE]":                  strings.TrimSuffix(hello, done),
		"no [DONE], no end of line":  strings.TrimRight(strings.TrimSuffix(hello, done), "\n"),
		"words after [DONE]":         hello + delta(`{"content":"ghost"}`),
		"pings as events":            "event: ping\ndata: {\"type\": \"ping\"}\n\n" + hello,
		"a huge line":                `data: {"pad":"` + strings.Repeat("x", 1<<20) + `","choices":[]}` + "\n\n" + hello,
		"other choices":              `data: {"choices":[{"index":1,"delta":{"content":"no"}}]}` + "\n\n" + hello,
	} {
		for _, size := range []int{0, 1, 7} {
			if size == 1 && len(body) > 1<<16 {
				continue // as many flushes as bytes
			}
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				got, err := ask(t, provider(t, openai.Options{}, says(body, size)))
				if err != nil || got.Text != "Hello" || got.Reason != "stop" || got.Meta.RequestID != "req-1" || got.Meta.Attempts != 1 {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
	}
}

func TestDeltasAreReadHoweverTheyAreSpelled(t *testing.T) {
	for name, tc := range map[string]struct {
		body, text, reasoning, reason string
	}{
		"reasoning":               {delta(`{"reasoning":"why"}`) + delta(`{"content":"a"}`) + stop, "a", "why", "stop"},
		"reasoning_content":       {delta(`{"reasoning_content":"why"}`) + delta(`{"content":"a"}`) + stop, "a", "why", "stop"},
		"both, the same":          {delta(`{"reasoning":"why","reasoning_content":"why"}`) + stop, "", "why", "stop"},
		"parts":                   {delta(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`) + stop, "ab", "", "stop"},
		"thinking parts":          {delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"why"}]},{"type":"text","text":"a"}]}`) + stop, "a", "why", "stop"},
		"a refusal":               {delta(`{"refusal":"no"}`) + stop, "no", "", "stop"},
		"invalid UTF-8":           {delta("{\"content\":\"a\xffb\"}") + delta("{\"content\":\"c\xf0\x9f\"}") + stop, "a\ufffdbc\ufffd\ufffd", "", "stop"},
		"a whole message":         {`data: {"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", "a", "", "stop"},
		"numbers as strings":      {`data: {"created":"now","choices":[{"index":"0","delta":{"content":"a"}}]}` + "\n\n" + stop, "a", "", "stop"},
		"an empty finish":         {`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}` + "\n\n" + stop, "a", "", "stop"},
		"length":                  {delta(`{"content":"a"}`) + strings.Replace(stop, "stop", "length", 1), "a", "", "length"},
		"MAX_TOKENS":              {delta(`{"content":"a"}`) + strings.Replace(stop, "stop", "MAX_TOKENS", 1), "a", "", "length"},
		"a filter":                {delta(`{"content":"a"}`) + strings.Replace(stop, "stop", "content_filter", 1), "a", "", "content_filter"},
		"a word of its own":       {delta(`{"content":"a"}`) + strings.Replace(stop, "stop", "eos", 1), "a", "", "stop"},
		"content in the finish":   {`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", "a", "", "stop"},
		"tool_calls without any":  {delta(`{"content":"a"}`) + calls, "a", "", "stop"},
		"empty choices":           {`data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}` + "\n\n" + delta(`{"content":"a"}`) + stop, "a", "", "stop"},
		"unreadable usage":        {delta(`{"content":"a"}`) + stop + `data: {"choices":[],"usage":"much"}` + "\n\n", "a", "", "stop"},
		"half a surrogate, twice": {delta(`{"content":"x"}`) + delta(`{"content":"\ud83d"}`) + delta(`{"content":"\ude00"}`) + stop, "x\ufffd\ufffd", "", "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, provider(t, openai.Options{}, says(tc.body+done, 0)))
			if err != nil || got.Text != tc.text || got.Reasoning != tc.reasoning || got.Reason != tc.reason {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestUsageIsReadUnderEveryName(t *testing.T) {
	for name, tc := range map[string]struct {
		usage           string
		in, out, cached int64
	}{
		"OpenAI":   {`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":null}`, 10, 5, 4},
		"DeepSeek": {`{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4}`, 10, 5, 4},
		"Claude":   {`{"input_tokens":10,"output_tokens":5,"cache_read_input_tokens":4}`, 10, 5, 4},
		"floats":   {`{"prompt_tokens":10.0,"completion_tokens":5e0}`, 10, 5, 0},
		"nonsense": {`{"prompt_tokens":-1,"completion_tokens":1e300}`, 0, 1e12, 0},
	} {
		t.Run(name, func(t *testing.T) {
			body := delta(`{"content":"a"}`) + stop + `data: {"choices":[],"usage":` + tc.usage + "}\n\n" + done
			got, err := ask(t, provider(t, openai.Options{}, says(body, 0)))
			if err != nil || got.Usage.GetInputTokens() != tc.in || got.Usage.GetOutputTokens() != tc.out || got.Usage.GetCachedTokens() != tc.cached {
				t.Errorf("got %v, %v", got.Usage, err)
			}
			if got.Meta.Model != "gpt-real" {
				t.Errorf("model %q", got.Meta.Model)
			}
		})
	}
}

func tool(inner ...string) string { return delta(`{"tool_calls":[` + strings.Join(inner, ",") + `]}`) }

func TestToolCallsAreKeptApartWhateverTheirIndexesAndIDs(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"as it should be": {
			tool(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`) + tool(`{"index":0,"function":{"arguments":"{\"x\""}}`) +
				tool(`{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}`) + tool(`{"index":0,"function":{"arguments":":1}"}}`) + tool(`{"index":1,"function":{"arguments":"{}"}}`),
			`a f {"x":1}; b g {}`,
		},
		"no index": {
			tool(`{"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"id":"b","function":{"name":"g","arguments":"{"}}`) + tool(`{"function":{"arguments":"}"}}`),
			`a f {}; b g {}`,
		},
		"no index, one event":    {tool(`{"id":"a","function":{"name":"f","arguments":"{}"}}`, `{"id":"b","function":{"name":"g","arguments":"{}"}}`), `a f {}; b g {}`},
		"index 0 for all":        {tool(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}`) + tool(`{"index":0,"function":{"arguments":"}"}}`), `a f {}; b g {}`},
		"from 1, with a gap":     {tool(`{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":7,"id":"b","function":{"name":"g","arguments":"{}"}}`), `a f {}; b g {}`},
		"the same id twice":      {tool(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}`) + tool(`{"index":2,"id":"a_2","function":{"name":"h","arguments":"{}"}}`), `a f {}; a_2 g {}; a_2_2 h {}`},
		"the same id, no index":  {tool(`{"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`), `a f {}; a_2 f {"x":1}`},
		"id and name every time": {tool(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`) + tool(`{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`), `a f {}`},
		"arguments as an object": {tool(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x": [1]}}}`), `a f {"x":[1]}`},
		"null arguments":         {tool(`{"index":0,"id":"a","function":{"name":"f","arguments":null}}`), `a f `},
		"the name last":          {tool(`{"index":0,"id":"a","function":{"arguments":"{"}}`) + tool(`{"index":0,"function":{"name":"f"}}`) + tool(`{"index":0,"function":{"arguments":"}"}}`), `a f {}`},
		"the old form":           {delta(`{"function_call":{"name":"f","arguments":"{"}}`) + delta(`{"function_call":{"arguments":"}"}}`), `call_ f {}`},
		"an id that is a number": {tool(`{"index":0,"id":7,"function":{"name":"f","arguments":"{}"}}`), `7 f {}`},
		"no ids":                 {tool(`{"index":0,"function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":1,"function":{"name":"g","arguments":"{}"}}`), `call_ f {}; call_ g {}`},
		"one call, no list":      {delta(`{"tool_calls":{"id":"a","function":{"name":"f","arguments":"{}"}}}`), `a f {}`},
		"index null":             {tool(`{"index":null,"id":"a","function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":null,"id":"b","function":{"name":"g","arguments":"{}"}}`), `a f {}; b g {}`},
	} {
		for _, end := range []string{calls, stop} { // some say stop although there are calls
			t.Run(name, func(t *testing.T) {
				got, err := ask(t, provider(t, openai.Options{}, says(tc.body+end+done, 0)))
				if err != nil {
					t.Fatal(err)
				}
				var have []string
				for _, c := range got.ToolCalls {
					id := c.GetId()
					if strings.HasPrefix(id, "call_") {
						id = "call_"
					}
					have = append(have, id+" "+c.GetName()+" "+c.GetArguments())
				}
				if s := strings.Join(have, "; "); s != tc.want || got.Reason != "tool_calls" {
					t.Errorf("got %s (%s), want %s", s, got.Reason, tc.want)
				}
			})
		}
	}
}

func TestNothingButAFinishIsASuccess(t *testing.T) {
	half := delta(`{"content":"half"}`)
	for name, tc := range map[string]struct {
		body string
		want model.Class
	}{
		"an empty body":           {"", model.Truncated},
		"only keepalives":         {": x\n\n: x\n\n", model.Truncated},
		"no finish":               {half, model.Truncated},
		"[DONE] without a finish": {half + done, model.Truncated},
		"an empty finish":         {strings.Replace(half, `}]}`, `,"finish_reason":""}]}`, 1) + done, model.Truncated},
		"cut in an event":         {half + `data: {"choices":[{"index":0,"del`, model.Truncated},
		"garbage data":            {half + "data: {garbage}\n\n" + stop + done, model.Protocol},
		"a number":                {half + "data: 7\n\n", model.Protocol},
		"another protocol":        {"hello there\nhow are you\n", model.Protocol},
		"a page":                  {"<html><body>502</body></html>", model.Protocol},
		"a document":              {`{"id":"x","choices":[]}`, model.Protocol},
		"content that is no text": {delta(`{"content":7}`) + stop + done, model.Protocol},
		"calls that are none":     {delta(`{"tool_calls":"f"}`) + stop + done, model.Protocol},
		"a call without a name":   {tool(`{"index":0,"id":"a","function":{"arguments":"{}"}}`) + calls + done, model.Protocol},
		"an error":                {half + `data: {"error":{"message":"no","type":"server_error"}}` + "\n\n", model.Overloaded},
		"an error, spaced":        {half + `data: { "error" : { "message" : "no", "code" : 429 } }` + "\n\n", model.RateLimited},
		"an error, text":          {half + `data: {"error":"the engine died"}` + "\n\n", model.Overloaded},
		"an error, pretty":        {half + "data: {\ndata:   \"error\": {\"message\": \"no\", \"code\": \"context_length_exceeded\"}\ndata: }\n\n", model.ContextLength},
		"an error event":          {half + "event: error\ndata: {\"message\":\"no\",\"type\":\"overloaded_error\"}\n\n", model.Overloaded},
		"an error event, text":    {half + "event: error\ndata: boom\n\n", model.Overloaded},
		"an error field":          {half + `error: {"code":400,"message":"no","type":"invalid_request_error"}` + "\n\n", model.BadRequest},
		"an error object":         {half + `data: {"object":"error","message":"no","code":400}` + "\n\n", model.BadRequest},
		"an error type":           {half + `data: {"type":"error","error":{"type":"overloaded_error","message":"no"}}` + "\n\n", model.Overloaded},
		"an error beside choices": {half + `data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"no"}}` + "\n\n", model.Overloaded},
		"an error in a choice":    {half + `data: {"choices":[{"index":0,"delta":{},"error":{"code":429,"message":"no"}}]}` + "\n\n", model.RateLimited},
		"a finish in error":       {half + strings.Replace(stop, "stop", "error", 1), model.Overloaded},
		"an error, in a list":     {half + `data: [{"error":{"code":503,"status":"UNAVAILABLE","message":"no"}}]` + "\n\n", model.Overloaded},
		"an error, unframed":      {"{\n  \"error\": {\n    \"message\": \"no\", \"code\": \"rate_limit_exceeded\"\n  }\n}\n", model.RateLimited},
		"an error, no blank line": {half + `data: {"error":{"message":"no","code":"invalid_api_key"}}`, model.Auth},
		"a detail":                {half + `data: {"detail":"no such thing"}` + "\n\n", model.Overloaded},
	} {
		for _, size := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				got, err := ask(t, provider(t, openai.Options{MaxAttempts: 1}, says(tc.body, size)))
				if class(err) != tc.want {
					t.Fatalf("got %+v, %v, want class %s", got, err, tc.want)
				}
				if strings.HasPrefix(tc.body, half) && got.Text != "half" {
					t.Errorf("what had arrived is lost: %+v", got)
				}
			})
		}
	}
}

func TestAConnectionThatBreaksIsTruncatedUnlessTheFinishWasSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want model.Class
	}{
		"before the finish": {delta(`{"content":"Hello"}`), model.Truncated},
		"after the finish":  {delta(`{"content":"Hello"}`) + stop, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, provider(t, openai.Options{MaxAttempts: 1}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Content-Length", "100000")
				_, _ = io.WriteString(w, tc.body)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}))
			if class(err) != tc.want || got.Text != "Hello" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestAnEventLargerThanTheLimitEndsTheStream(t *testing.T) {
	_, err := ask(t, provider(t, openai.Options{MaxAttempts: 1}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: ")
		page := strings.Repeat("x", 1<<20)
		for range 40 {
			if _, err := io.WriteString(w, page); err != nil {
				return
			}
		}
	}))
	if class(err) != model.Protocol || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}
