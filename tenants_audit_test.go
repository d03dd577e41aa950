package troupe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestTheAuditNamesTheToken has one token do what no call of a tool says.
func TestTheAuditNamesTheToken(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "a", allScopes()...)
	v, asked := o.begin("ann")
	if status, text := o.do("ann", "POST", "/api/approvals/"+asked.ID, `{"decision":"approved","scope":"always"}`); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	o.wait("ann", v.ID)
	rules := get[[]messages.RuleJSON](o, "ann", "/api/rules")
	if len(rules) != 1 {
		t.Fatalf("rules: %+v", rules)
	}
	other := filepath.Join(o.dir, "other")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	in := "/api/sessions/" + v.ID
	for _, c := range [][3]string{
		{"DELETE", "/api/rules/" + rules[0].ID, ""},
		{"POST", in + "/workspaces", `{"uri":"local:` + filepath.ToSlash(other) + `","trust":"full"}`},
		{"POST", in + "/timers", `{"id":"t","at":"2130-01-01T00:00:00.000Z","text":"x"}`},
		{"DELETE", in + "/timers/t?by=bob", ""},
		{"DELETE", in + "?reason=enough&by=bob", ""},
	} {
		if status, text := o.do("ann", c[0], c[1], c[2]); status >= 300 {
			t.Fatalf("%s %s: %d %s", c[0], c[1], status, text)
		}
	}
	said := map[string]string{}
	for _, a := range get[[]messages.AuditJSON](o, "ann", "/api/audit") {
		if a.Session != v.ID {
			t.Errorf("an entry of session %q", a.Session)
		}
		said[a.Kind+" "+a.What+" "+a.Decision+" "+a.Workspace] = a.By
	}
	for _, what := range []string{
		"trust restricted set local:" + filepath.ToSlash(filepath.Join(o.dir, "ann")), "trust full set local:" + filepath.ToSlash(other),
		"rule " + rules[0].Rule + " revoked ", "timer t set ", "timer t cancelled ", "session enough closed ",
	} {
		if said[what] != "ann" {
			t.Errorf("%s: by %q in %v", what, said[what], said)
		}
	}
}

// TestTheAuditSaysWhoMadeASessionAndWhoCancelledATurn: of a fork it is who forked, and not who made what it was forked from.
func TestTheAuditSaysWhoMadeASessionAndWhoCancelledATurn(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "a", allScopes()...)
	o.token("art", "a", allScopes()...)
	v, _ := o.begin("ann")
	if status, text := o.do("art", "POST", "/api/sessions/"+v.ID+"/cancel", `{"reason":"too slow","by":"ann"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	var f messages.ForkedJSON
	if status, text := o.do("art", "POST", "/api/sessions/"+v.ID+"/fork", `{}`); status != 201 || json.Unmarshal([]byte(text), &f) != nil {
		t.Fatalf("%d %s", status, text)
	}
	said := func(session string) map[string]string {
		out := map[string]string{}
		for _, a := range get[[]messages.AuditJSON](o, "ann", "/api/audit?session="+session) {
			out[a.Kind+" "+a.Decision+" "+a.What] = a.By
		}
		return out
	}
	for session, want := range map[string]map[string]string{
		v.ID:         {"session created agent default": "ann", "turn cancelled too slow": "art"},
		f.Session.ID: {"session created agent default": "art", "turn cancelled too slow": "art"},
	} {
		got := said(session)
		for what, by := range want {
			if got[what] != by {
				t.Errorf("%s: by %q in %v", what, got[what], got)
			}
		}
	}
}
