package gateway_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func TestHostileRequestsAreRefusedBeforeTheHouseHears(t *testing.T) {
	const inputs = "/api/sessions/ses_1/inputs"
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code, says               string
	}{
		{"unknown field", "POST", inputs, `{"text":"x","txet":"y"}`, nil, 400, "bad_request", `unknown field "txet"`},
		{"unknown field deep inside", "POST", "/api/sessions", `{"input":{"text":"x","files":[{"name":"a","data":"b"}]}}`, nil, 400, "bad_request", `unknown field "data"`},
		{"two values", "POST", inputs, `{"text":"x"} {"text":"y"}`, nil, 400, "bad_request", "more after the first value"},
		{"broken json", "POST", inputs, `{"text":`, nil, 400, "bad_request", "ends early"},
		{"no object", "POST", inputs, `[1]`, nil, 400, "bad_request", `it cannot be an array, at byte`},
		{"an object for a text", "POST", inputs, `{"text":{}}`, nil, 400, "bad_request", `field "text" cannot be an object`},
		{"another type", "POST", inputs, `{"text":7}`, nil, 400, "bad_request", `field "text" cannot be a number`},
		{"a list", "POST", inputs, `[]`, nil, 400, "bad_request", "array"},
		{"a form", "POST", inputs, `text=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 400, "bad_request", "application/json"},
		{"plain text", "POST", inputs, `{"text":"x"}`, []string{"Content-Type", "text/plain"}, 400, "bad_request", "application/json"},
		{"too large", "POST", inputs, `{"text":"` + strings.Repeat("x", 2000) + `"}`, nil, 413, "too_large", "1000 bytes"},
		{"unknown mode", "POST", inputs, `{"text":"x","mode":"later"}`, nil, 400, "bad_request", `"later"`},
		{"unknown trust", "POST", "/api/sessions", `{"workspaces":[{"uri":"local:/a","trust":"Full"}]}`, nil, 400, "bad_request", `"Full"`},
		{"a tenant", "POST", "/api/sessions", `{"tenant":"other"}`, nil, 400, "bad_request", "tenant"},
		{"unprintable id", "POST", inputs, `{"text":"x","input_id":"a\u0000"}`, nil, 400, "bad_request", "cannot be printed"},
		{"arguments no object", "POST", "/api/sessions/ses_1/tools/exec", `{"arguments":[1]}`, nil, 400, "bad_request", "arguments"},
		{"unknown parameter", "GET", "/api/calls?sesion=ses_1", "", nil, 400, "bad_request", `"sesion"`},
		{"parameter twice", "GET", "/api/calls?state=a&state=b", "", nil, 400, "bad_request", "2 times"},
		{"negative limit", "GET", "/api/sessions?limit=-1", "", nil, 400, "bad_request", `"-1"`},
		{"limit too large", "GET", "/api/sessions?limit=2147483648", "", nil, 400, "bad_request", "limit"},
		{"control in a parameter", "GET", "/api/sessions?folder=a%00b", "", nil, 400, "bad_request", "control"},
		{"broken text in a parameter", "GET", "/api/sessions?folder=a%ffb", "", nil, 400, "bad_request", "UTF-8"},
		{"broken query", "GET", "/api/sessions?folder=%zz", "", nil, 400, "bad_request", "query"},
		{"control in the path", "GET", "/api/sessions/ses_1%0a", "", nil, 400, "bad_request", "control"},
		{"broken text in the path", "GET", "/api/sessions/%ff", "", nil, 400, "bad_request", "UTF-8"},
		{"cursor no number", "GET", "/api/sessions/ses_1/events?after=x", "", nil, 400, "bad_request", `"x"`},
		{"cursor over the end", "GET", "/api/sessions/ses_1/events?after=18446744073709551615", "", nil, 400, "bad_request", "after"},
		{"last id no number", "GET", "/api/sessions/ses_1/events", "", []string{"Last-Event-ID", "-"}, 400, "bad_request", "Last-Event-ID"},
		{"nothing there", "GET", "/api/session", "", nil, 404, "not_found", "/api/session"},
		{"unclean path", "GET", "/api//sessions", "", nil, 404, "not_found", "/api//sessions"},
		{"path upwards", "GET", "/api/sessions/../sessions", "", nil, 404, "not_found", "/api/sessions/../sessions"},
		{"closing slash", "GET", "/api/sessions/", "", nil, 404, "not_found", "/api/sessions/"},
		{"another method", "PUT", "/api/sessions", "", nil, 405, "bad_request", "PUT"},
		{"another origin", "POST", inputs, `{"text":"x"}`, []string{"Origin", "https://example.org"}, 403, "bad_request", "origin"},
		{"another site", "POST", inputs, `{"text":"x"}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, "bad_request", "origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := always(&messages.Ack{})
			s := serve(t, b, gateway.Options{MaxBody: 1000})
			res, body := s.do(t, c.method, c.path, c.body, c.header...)
			p := refused(t, res, body, c.status, c.code)
			if !strings.Contains(p.Detail, c.says) {
				t.Errorf("says %q, want something about %q", p.Detail, c.says)
			}
			if asked := b.questions(); len(asked) != 0 {
				t.Errorf("the house was asked %v", asked)
			}
		})
	}
}

func TestARefusedMethodNamesThoseThatAreServed(t *testing.T) {
	s := serve(t, always(&messages.Ack{}), gateway.Options{})
	res, body := s.do(t, "PUT", "/api/sessions/ses_1", "")
	refused(t, res, body, 405, messages.CodeBadRequest)
	if allow := res.Header.Get("Allow"); allow != "GET, PATCH, DELETE" {
		t.Errorf("Allow %q", allow)
	}
	res, _ = s.do(t, "HEAD", "/api/sessions/ses_1/events", "")
	if res.StatusCode != 405 || res.Header.Get("Allow") != "GET" {
		t.Errorf("HEAD: %s, Allow %q", res.Status, res.Header.Get("Allow"))
	}
}
