package troupe_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// office is a runtime behind a server with tokens.
type office struct {
	t   *testing.T
	rt  *troupe.Runtime
	srv *httptest.Server
	dir string // a root of the server, links resolved
}

func newOffice(t *testing.T) *office {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return officeIn(t, root, troupe.Options{Model: writesOnce{}})
}

func officeIn(t *testing.T, root string, with troupe.Options) *office {
	t.Helper()
	rt, err := troupe.New(t.Context(), with)
	if err != nil {
		t.Fatal(err)
	}
	b := rt.Bearer()
	b.Rate = 10000
	o := &office{t: t, rt: rt, dir: root, srv: httptest.NewServer(rt.Handler(gateway.Options{Authenticate: b.Authenticate, Roots: []string{root}}))}
	t.Cleanup(func() {
		o.srv.CloseClientConnections()
		o.srv.Close()
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return o
}

// token makes one and gives its secret, which is its name here.
func (o *office) token(name, tenant string, scopes ...string) string {
	o.t.Helper()
	sum := sha256.Sum256([]byte(name))
	_, err := o.rt.Ask(o.t.Context(), &messages.CreateToken{Token: &messages.Token{Name: name, Hash: sum[:], Scopes: scopes, Tenant: tenant}})
	if err != nil {
		o.t.Fatal(err)
	}
	return name
}

func allScopes() []string { return []string{"read", "prompt", "approve", "admin"} }

// do sends a request with a token.
func (o *office) do(token, method, path, body string) (int, string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, o.srv.URL+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := o.srv.Client().Do(req)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}

// get decodes an answer.
func get[T any](o *office, token, path string) (out T) {
	o.t.Helper()
	status, text := o.do(token, "GET", path, "")
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != 200 {
		o.t.Fatalf("%s: %d %s", path, status, text)
	}
	return out
}

// begin makes a session whose agent asks to write a file, and waits until it does.
func (o *office) begin(token string) (messages.SessionJSON, messages.ApprovalJSON) {
	o.t.Helper()
	return o.beginIn(token, filepath.Join(o.dir, token))
}

// wait waits for the end of a session's turn.
func (o *office) wait(token, session string) {
	o.t.Helper()
	if status, text := o.do(token, "GET", "/api/sessions/"+session+"/wait", ""); status != 200 {
		o.t.Fatalf("%d %s", status, text)
	}
}

func (o *office) beginIn(token, dir string) (messages.SessionJSON, messages.ApprovalJSON) {
	o.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		o.t.Fatal(err)
	}
	body, err := json.Marshal(messages.CreateJSON{Ask: new(true), Workspaces: []messages.AttachJSON{{URI: "local:" + filepath.ToSlash(dir)}}, Input: &messages.InputJSON{Text: "a secret of " + token}})
	if err != nil {
		o.t.Fatal(err)
	}
	status, text := o.do(token, "POST", "/api/sessions", string(body))
	var v messages.SessionJSON
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
		o.t.Fatalf("%d %s", status, text)
	}
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); {
		if waiting := get[[]messages.ApprovalJSON](o, token, "/api/approvals?session="+v.ID); len(waiting) == 1 {
			return v, waiting[0]
		}
	}
	o.t.Fatal("the agent does not ask")
	return v, messages.ApprovalJSON{}
}

// share makes a shared conversation, in which something is said, and gives its path.
func (o *office) share(token, session string) string {
	o.t.Helper()
	path := "/api/sessions/" + session + "/conversations"
	if status, text := o.do(token, "POST", path, `{"name":"talk"}`); status != 200 {
		o.t.Fatalf("%d %s", status, text)
	}
	if status, text := o.do(token, "POST", path+"/talk/words", `{"text":"a secret of `+token+`"}`); status != 201 {
		o.t.Fatalf("%d %s", status, text)
	}
	return path + "/talk"
}

// bodies are what routes with a body are sent, so that they are refused for no other reason.
func bodies() map[string]string {
	return map[string]string{
		"POST /api/sessions/{id}/inputs": `{"text":"x"}`, "POST /api/approvals/{approval}": `{"decision":"approved"}`, "POST /api/calls/{exec}": `{"resolution":"done"}`,
		"PUT /api/sessions/{id}/fields/{name}": `{"value":1}`, "PUT /api/sessions/{id}/fields": `{"schema":"{}"}`, "POST /api/sessions/{id}/timers": `{"id":"t","at":"2030-01-01T00:00:00.000Z","text":"x"}`,
		"POST /api/sessions/{id}/workspaces": `{"uri":"local:/x"}`, "POST /api/sessions/{id}/budget": `{"tokens":1}`,
		"POST /api/sessions/{id}/conversations": `{"name":"other"}`, "POST /api/sessions/{id}/conversations/{conversation}/words": `{"text":"x"}`,
	}
}

// TestNothingOfAnotherTenantIsThere walks the whole table of routes: with an id of another tenant each answers as with one that never was.
func TestNothingOfAnotherTenantIsThere(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "a", allScopes()...)
	o.token("bob", "b", allScopes()...)
	v, asked := o.begin("ann")
	ids := map[string]string{"id": v.ID, "approval": asked.ID, "exec": asked.ExecID, "worker": asked.Worker, "rule": "", "project": "p", "token": "ann", "input": "i", "timer": "t", "job": "job_1", "workspace": v.Workspaces[0].ID, "name": "n", "path...": "x", "run": o.run("ann", question, "").ID, "turn": "inp_turn"}
	talk := get[messages.ConversationJSON](o, "ann", o.share("ann", v.ID))
	ids["conversation"] = talk.ID
	hole := regexp.MustCompile(`\{([^}]*)\}`)
	walked := 0
	for _, r := range gateway.Routes() {
		holes := hole.FindAllStringSubmatch(r.Path, -1)
		if len(holes) == 0 {
			continue
		}
		fill := func(own bool) string {
			return hole.ReplaceAllStringFunc(r.Path, func(h string) string {
				id := ids[strings.Trim(h, "{}")]
				if _, known := ids[strings.Trim(h, "{}")]; !known {
					t.Errorf("%s: the test knows no %s", r.Path, h)
				}
				if prefix, rest, cut := strings.Cut(id, "_"); !own && cut {
					return prefix + "_" + strings.Repeat("0", len(rest))
				}
				return id
			})
		}
		pattern := r.Method + " " + r.Path
		if strings.HasPrefix(r.Path, "/api/rules/") {
			continue // below
		}
		walked++
		status, text := o.do("bob", r.Method, fill(true), bodies()[pattern])
		never, other := o.do("bob", r.Method, fill(false), bodies()[pattern])
		text, other = hide(text, ids), hide(other, ids)
		switch {
		case status != never || text != other:
			t.Errorf("%s: with an id of another tenant %d %s\nwith one that never was %d %s", pattern, status, text, never, other)
		case status != 404 && status != 403:
			t.Errorf("%s: %d %s", pattern, status, text)
		case strings.Contains(text, "secret of ann"):
			t.Errorf("%s tells %s", pattern, text)
		}
	}
	if walked < 30 {
		t.Errorf("only %d routes were walked", walked)
	}
	for _, r := range gateway.Routes() {
		if r.Method != "GET" || strings.Contains(r.Path, "{") || r.Path == "/api/backup" {
			continue
		}
		_, text := o.do("bob", "GET", r.Path, "")
		for what, id := range ids {
			if len(id) > 4 && strings.Contains(text, id) {
				t.Errorf("GET %s tells of %s %s: %s", r.Path, what, id, text)
			}
		}
		if strings.Contains(text, "secret of ann") {
			t.Errorf("GET %s tells %s", r.Path, text)
		}
	}
	for _, filter := range []string{"/api/workers", "/api/conversations", "/api/calls", "/api/approvals", "/api/rules", "/api/audit"} {
		if status, text := o.do("bob", "GET", filter+"?session="+v.ID, ""); status != 404 {
			t.Errorf("%s of another tenant's session: %d %s", filter, status, text)
		}
	}
	if got := get[[]messages.SessionJSON](o, "ann", "/api/sessions"); len(got) != 2 || !slices.ContainsFunc(got, func(s messages.SessionJSON) bool { return s.ID == v.ID }) {
		t.Errorf("ann sees %v: the test shows nothing", got)
	}
	if got := get[[]messages.SessionJSON](o, "ann", "/api/sessions?limit=1"); len(got) != 1 {
		t.Errorf("of one session at most ann sees %v", got)
	}
	// What is one's own may be asked about on every route: none was forgotten where tokens are checked.
	if status, text := o.do("ann", "POST", "/api/sessions/"+v.ID+"/cancel", "{}"); status != 200 {
		t.Errorf("cancel: %d %s", status, text)
	}
	for _, r := range gateway.Routes() {
		if strings.HasSuffix(r.Path, "/events") || r.Path == "/api/backup" {
			continue
		}
		path := hole.ReplaceAllStringFunc(r.Path, func(h string) string { return ids[strings.Trim(h, "{}")] })
		if _, text := o.do("ann", r.Method, path, bodies()[r.Method+" "+r.Path]); strings.Contains(text, "may not be asked by a token") {
			t.Errorf("%s %s: %s", r.Method, r.Path, text)
		}
	}
	// The id is taken, by nobody that bob could know.
	status, text := o.do("bob", "POST", "/api/sessions", `{"id":"`+v.ID+`"}`)
	if status != 400 || strings.Contains(text, "exists") {
		t.Errorf("a session under the id of another tenant's: %d %s", status, text)
	}
	if status, text := o.do("bob", "POST", "/api/sessions", `{"workspaces":[{"uri":"troupe:/sessions/`+v.ID+`"}]}`); status != 404 {
		t.Errorf("another tenant's session is attached as a workspace: %d %s", status, text)
	}
}

// hide takes ids out of a text that echoes them.
func hide(text string, ids map[string]string) string {
	for _, id := range ids {
		if prefix, rest, cut := strings.Cut(id, "_"); cut {
			text = strings.ReplaceAll(strings.ReplaceAll(text, id, "ID"), prefix+"_"+strings.Repeat("0", len(rest)), "ID")
		}
	}
	return text
}

func TestARuleHoldsForItsTenantAlone(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "a", allScopes()...)
	o.token("bob", "b", allScopes()...)
	v, asked := o.begin("ann")
	if status, text := o.do("ann", "POST", "/api/approvals/"+asked.ID, `{"decision":"approved","scope":"always"}`); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	rules := get[[]messages.RuleJSON](o, "ann", "/api/rules")
	if len(rules) != 1 || rules[0].Tenant != "a" || rules[0].By != "ann" {
		t.Fatalf("ann's rules: %+v", rules)
	}
	if got := get[[]messages.RuleJSON](o, "bob", "/api/rules"); len(got) != 0 {
		t.Errorf("bob sees %+v", got)
	}
	if status, _ := o.do("bob", "DELETE", "/api/rules/"+rules[0].ID, ""); status != 404 {
		t.Errorf("bob revokes ann's rule: %d", status)
	}
	// The same call in the same folder, by the other tenant, asks; by ann it does not.
	o.wait("ann", v.ID)
	shared := filepath.Join(o.dir, "ann")
	if err := os.Remove(filepath.Join(shared, "a")); err != nil {
		t.Fatal(err)
	}
	if _, asked := o.beginIn("bob", shared); asked.Tool != "write_file" {
		t.Errorf("bob is asked about %+v", asked)
	}
	audit := get[[]messages.AuditJSON](o, "ann", "/api/audit")
	if !slices.ContainsFunc(audit, func(a messages.AuditJSON) bool { return a.Decision == "approved" && a.By == "ann" }) {
		t.Errorf("the audit does not say that ann approved: %+v", audit)
	}
	// It outlives the session that it was made in, and so does who may take it back.
	if status, text := o.do("ann", "DELETE", "/api/sessions/"+v.ID+"?forget=true", ""); status != 204 && status != 200 {
		t.Fatalf("forget: %d %s", status, text)
	}
	if status, _ := o.do("bob", "DELETE", "/api/rules/"+rules[0].ID, ""); status != 404 {
		t.Errorf("bob revokes ann's rule when its session is gone: %d", status)
	}
	if status, text := o.do("ann", "DELETE", "/api/rules/"+rules[0].ID, ""); status != 204 && status != 200 {
		t.Errorf("ann revokes her rule when its session is gone: %d %s", status, text)
	}
}

func TestScopesAndRootsBoundWhatATokenMayDo(t *testing.T) {
	o := newOffice(t)
	o.token("reader", "", "read")
	o.token("prompter", "", "read", "prompt")
	o.token("admin", "", allScopes()...)
	o.token("boss", "t", allScopes()...)
	outside, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(o.dir, "link")); err != nil {
		t.Fatal(err)
	}
	at := func(path, more string) string {
		uri, _ := json.Marshal("local:" + filepath.ToSlash(path))
		return `{"workspaces":[{"uri":` + string(uri) + more + `}]}`
	}
	for _, c := range []struct {
		what, token, method, path, body string
		status                          int
	}{
		{"a reader makes no session", "reader", "POST", "/api/sessions", "{}", 403},
		{"a reader lists", "reader", "GET", "/api/sessions", "", 200},
		{"a prompter works below a root", "prompter", "POST", "/api/sessions", at(o.dir, ""), 201},
		{"a prompter works nowhere else", "prompter", "POST", "/api/sessions", at(outside, ""), 403},
		{"nor by a link that leads out", "prompter", "POST", "/api/sessions", at(filepath.Join(o.dir, "link"), ""), 403},
		{"nor learns what is there", "prompter", "POST", "/api/sessions", at(filepath.Join(outside, "none"), ""), 403},
		{"a prompter gives no full trust", "prompter", "POST", "/api/sessions", at(o.dir, `,"trust":"full"`), 403},
		{"a prompter brings no rules", "prompter", "POST", "/api/sessions", `{"rules":["exec(*)"]}`, 403},
		{"a prompter reads no file as a script", "prompter", "POST", "/api/sessions", `{"model":"scripted//etc/passwd"}`, 403},
		{"a prompter reads no file as a recording", "prompter", "POST", "/api/sessions", `{"model":"replay//etc/passwd"}`, 403},
		{"a prompter checks no store", "prompter", "POST", "/api/verify", "{}", 403},
		{"a prompter makes no token", "prompter", "POST", "/api/tokens", "{}", 403},
		{"an admin works anywhere, with trust", "admin", "POST", "/api/sessions", at(outside, `,"trust":"full"`), 201},
		{"an admin checks the store", "admin", "POST", "/api/verify", "{}", 200},
		{"an admin of a tenant does not", "boss", "POST", "/api/verify", "{}", 403},
		{"nor makes tokens", "boss", "POST", "/api/tokens", "{}", 403},
		{"nor sees projects", "boss", "POST", "/api/projects", "{}", 403},
		{"nor takes a backup", "boss", "GET", "/api/backup", "", 403},
		{"a token that never was", "nobody", "GET", "/api/sessions", "", 401},
	} {
		if status, text := o.do(c.token, c.method, c.path, c.body); status != c.status {
			t.Errorf("%s: %d %s", c.what, status, text)
		}
	}
}

func TestARevokedTokenIsRefusedAtOnceAndItsStreamEnds(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "a", allScopes()...)
	v, _ := o.begin("ann")
	req, err := http.NewRequestWithContext(t.Context(), "GET", o.srv.URL+"/api/sessions/"+v.ID+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ann")
	res, err := o.srv.Client().Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	if _, err := o.rt.Ask(t.Context(), &messages.RevokeToken{Name: "ann", By: "test"}); err != nil {
		t.Fatal(err)
	}
	if status, _ := o.do("ann", "GET", "/api/sessions", ""); status != 401 {
		t.Errorf("a revoked token lists: %d", status)
	}
	if text, err := io.ReadAll(res.Body); err != nil || !bytes.Contains(text, []byte("session.created")) { // until the server ends it
		t.Errorf("the stream ended with %v after %s", err, text)
	}
	sum := sha256.Sum256([]byte("ann"))
	if _, err := o.rt.Ask(t.Context(), &messages.FindToken{Hash: sum[:]}); err == nil {
		t.Error("the token is still found")
	}
}

func TestATokenCountsUntilItExpiresAndOutlivesTheProcess(t *testing.T) {
	now := time.Now()
	var later atomic.Int64 // the runtime reads the clock whenever it likes
	clock := func() time.Time { return now.Add(time.Duration(later.Load())) }
	dir := t.TempDir()
	open := func() *troupe.Runtime {
		rt, err := troupe.New(t.Context(), troupe.Options{DataDir: dir, Model: echo(), Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	rt := open()
	sum := sha256.Sum256([]byte("x"))
	m := &messages.Token{Name: "x", Hash: sum[:], Scopes: []string{"read"}, ExpiresAtUnixMs: now.Add(time.Hour).UnixMilli()}
	if _, err := rt.Ask(t.Context(), &messages.CreateToken{Token: m}); err != nil {
		t.Fatal(err)
	}
	_, err := rt.Ask(t.Context(), &messages.CreateToken{Token: m})
	wantCode(t, "a second of its name", err, messages.CodeAlreadyExists)
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt = open()
	defer rt.Close(context.WithoutCancel(t.Context()))
	if _, err := rt.Ask(t.Context(), &messages.FindToken{Hash: sum[:]}); err != nil {
		t.Errorf("it does not outlive the process: %v", err)
	}
	later.Store(int64(time.Hour))
	_, err = rt.Ask(t.Context(), &messages.FindToken{Hash: sum[:]})
	wantCode(t, "once it has expired", err, messages.CodeNotFound)
	if all := rt.Tokens(); len(all) != 1 || len(all[0].GetHash()) != 0 {
		t.Errorf("tokens are listed as %v", all)
	}
}
