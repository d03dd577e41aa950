package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/messages"
)

// Rows 16, 17, 40, 45: the whole way, in a turn of a model.
func TestACallOnTheWebSocketRunsInTheFolderOfItsOwnerAndTheTurnGoesOn(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := ask[*messages.SessionView](t, c, &messages.CreateSession{})
	l := newLaptop(t, s.GetId())
	end := l.share(t, c)
	m := &messages.ToSession{SessionId: s.GetId(), Command: &messages.ToSession_Run{Run: &messages.RunInput{Input: &messages.SubmitInput{InputId: "i", Parts: say("share")}}}}
	r := ask[*messages.TurnResult](t, h.rt, m)
	if b, err := os.ReadFile(filepath.Join(l.dir, "main.swift")); err != nil || string(b) != "print(1)" {
		t.Errorf("main.swift: %q %v", b, err)
	}
	if r.GetOutcome() != messages.TurnCompleted_DONE || !strings.HasPrefix(r.GetText(), "It says: Created main.swift") {
		t.Errorf("the turn came to %v", r)
	}
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	reply := ask[*messages.ToolReply](t, c, toolCall(s.GetId(), "gone", "read_file", `{"path":"main.swift","workspace_id":"lap"}`))
	if reply.GetErrorCode() != "workspace_not_available" || reply.GetContent() != "No active project" {
		t.Errorf("when its owner has left: %v", reply)
	}
}

// Row 43 and 85: who announces nothing gets the old form, and its errors are known by their texts.
func TestAClientThatAnnouncesNothingGetsTheOldForm(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Ask: true})
	w := h.wire(t, fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:/x","name":"lap","trust":"full"}`, s.GetId()))
	if f := w.hear("attach"); f["epoch"] == nil || f["workspace"] != "lap:/x" {
		t.Fatalf("attached: %v", f)
	}
	for i, c := range []struct{ answer, code, text string }{
		{`"error":"File not found: a"`, "file_not_found", "File not found: a"},
		{`"error":"Access denied: a"`, "permission_denied", "Access denied: a"},
		{`"error":"Invalid path: a"`, "invalid_path", "Invalid path: a"},
		{`"error":"File too large: a"`, "file_too_large", "File too large: a"},
		{`"error":"Operation rejected by user"`, "user_rejected", "Operation rejected by user"},
		{`"error":"Tool execution failed: a"`, "internal_error", "Tool execution failed: a"},
		{`"error":"Tool execution failed: x","error_code":"edit_no_match","message":"no match"`, "edit_no_match", "no match"},
		{`"result":"plain text"`, "", "plain text"},
		{`"result":{"content":"an object","truncated":true}`, "", "an object"},
		{`"result":[1,2]`, "", "[1,2]"},
	} {
		got := later(t, h.rt, toolCall(s.GetId(), fmt.Sprint("c", i), "read_file", `{"path":"a","workspace_id":"lap"}`))
		f := w.hear("tool_call")
		if f["tool_name"] != "read_file" || f["requires_approval"] != false || f["arguments"].(map[string]any)["path"] != "a" {
			t.Errorf("the call: %v", f)
		}
		w.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,%s}`, f["call_id"], c.answer))
		if r := <-got; r.GetErrorCode() != c.code || r.GetContent() != c.text {
			t.Errorf("%s came to %v", c.answer, r)
		}
	}
	// A call of its own: the older name of the flag asks, and the approval expires.
	w.say(`{"type":"tool_call","call_id":"mine","tool_name":"write_file","arguments":{"path":"a","content":"x"},"requires_confirmation":true}`)
	v := h.pending(t, s.GetId(), 1)[0]
	if left := v.GetExpiresAtUnixMs() - v.GetAtUnixMs(); left != 300_000 {
		t.Errorf("the approval waits for %d ms", left)
	}
	ask[*messages.Ack](t, h.rt, &messages.ResolveApproval{ApprovalId: v.GetApprovalId(), Decision: messages.Decision_REJECTED, Message: "no"})
	f := w.hear("tool_result")
	if f["call_id"] != "mine" || f["error"] != "Operation rejected by user" || f["error_code"] != nil || f["result"] != nil {
		t.Errorf("the result in the old form: %v", f)
	}
}

// TestHowLongACallOfAClientThatShowsNothingMayBeAskedAboutIsConfigured: less than what is usual, and as long as any.
func TestHowLongACallOfAClientThatShowsNothingMayBeAskedAboutIsConfigured(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Ask: true})
	for i, c := range []struct {
		given time.Duration
		waits int64
	}{{90 * time.Second, 90_000}, {-1, 0}} {
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		h.options.ClientApproval = c.given
		h.stop, _ = h.serve(t)
		w := h.wire(t, fmt.Sprintf(`{"type":"tool_call","session":%q,"call_id":"c%d","tool_name":"write_file","arguments":{"path":"a","content":"x"},"requires_approval":true}`, s.GetId(), i))
		v := h.pending(t, s.GetId(), 1)[0]
		if c.waits == 0 && v.GetExpiresAtUnixMs() != 0 || c.waits > 0 && v.GetExpiresAtUnixMs()-v.GetAtUnixMs() != c.waits {
			t.Errorf("%s: %v", c.given, v)
		}
		ask[*messages.Ack](t, h.rt, &messages.ResolveApproval{ApprovalId: v.GetApprovalId(), Decision: messages.Decision_REJECTED})
		w.hear("tool_result")
	}
}

// pending waits for a number of approvals of a session.
func (h *house) pending(t *testing.T, session string, n int) []*messages.ApprovalView {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for ev, err := range h.rt.Events(ctx, session, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetType() != messages.EventApprovalRequested {
			continue
		}
		if all := ask[*messages.Approvals](t, h.rt, &messages.ListApprovals{SessionId: session}).GetApprovals(); len(all) >= n {
			return all
		}
	}
	return nil
}

func TestAResultIsTakenOnceAndFromTheConnectionThatHasTheCall(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	attach := fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:/x","name":"lap","trust":"full"}`, s.GetId())
	w := h.wire(t, attach)
	w.hear("attach")
	other := h.wire(t, fmt.Sprintf(`{"type":"attach","session":%q}`, s.GetId()))
	other.hear("attach")
	got := later(t, h.rt, toolCall(s.GetId(), "c", "read_file", `{"path":"a","workspace_id":"lap"}`))
	id := w.hear("tool_call")["call_id"]
	result := func(text string) string {
		return fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":%q}`, id, text)
	}
	w.say(`{"type":"tool_result","call_id":"nope","result":{}}`)
	if f := w.hear("error"); f["code"] != "unknown_call" || f["call_id"] != "nope" {
		t.Errorf("of no call: %v", f)
	}
	other.say(result("theirs"))
	if f := other.hear("error"); f["code"] != "permission_denied" {
		t.Errorf("of another's call: %v", f)
	}
	w.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":"a","error":"b"}`, id))
	if f := w.hear("error"); f["code"] != "invalid_message" {
		t.Errorf("both: %v", f)
	}
	w.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q}`, id))
	if f := w.hear("error"); f["code"] != "invalid_message" {
		t.Errorf("neither: %v", f)
	}
	w.say(result("first"))
	if r := <-got; r.GetContent() != "first" {
		t.Errorf("came to %v", r)
	}
	w.say(result("first"))
	w.say(result("second"))
	if f := w.hear("error"); f["code"] != "already_resolved" {
		t.Errorf("another one: %v", f)
	}
	w.say(`{"type":"ping","id":"p"}`)
	if f := w.hear("ping"); f["id"] != "p" || f["pong"] != true {
		t.Errorf("%v", f)
	}
	// The place is taken, until it is stolen; the call goes to the newer one then.
	thief := h.wire(t, attach)
	if f := thief.hear("error"); f["code"] != "conflict" || f["about"] != "attach" {
		t.Errorf("a taken place: %v", f)
	}
	got = later(t, h.rt, toolCall(s.GetId(), "c2", "read_file", `{"path":"a","workspace_id":"lap"}`))
	id = w.hear("tool_call")["call_id"]
	thief.say(strings.Replace(attach, `"name"`, `"steal":true,"name"`, 1))
	thief.hear("attach")
	if f := w.hear("error"); f["code"] != "conflict" || f["about"] != "attach" || f["session"] != s.GetId() {
		t.Errorf("who had the place is told %v", f)
	}
	if again := thief.hear("tool_call")["call_id"]; again != id {
		t.Errorf("the call came again as %v, not as %v", again, id)
	}
	w.say(result("too late"))
	if f := w.hear("error"); f["code"] != "permission_denied" {
		t.Errorf("a result of an epoch that is over: %v", f)
	}
	thief.say(result("of the thief"))
	if r := <-got; r.GetContent() != "of the thief" {
		t.Errorf("came to %v", r)
	}
	// A name that is the server's is nobody else's.
	for _, uri := range []string{"troupe:/x", "Troupe:/sessions/" + s.GetId(), "local:" + h.folder, "git:github.com/a/b"} {
		thief.say(fmt.Sprintf(`{"type":"attach","session":%q,"workspace":%q,"name":"y"}`, s.GetId(), uri))
		if f := thief.hear("error"); f["about"] != "attach" || f["code"] != "permission_denied" {
			t.Errorf("%s: %v", uri, f)
		}
	}
}

func TestApprovalsArePushedToEverybodyAndTheFirstAnswerCounts(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Ask: true})
	hello := `{"type":"hello","version":7,"client":"%s","name":"%s","features":["approvals","error_code","telepathy"]}`
	attach := fmt.Sprintf(`{"type":"attach","session":%q}`, s.GetId())
	one := h.wire(t, fmt.Sprintf(hello, "1", "one"), attach)
	if f := one.hear("hello"); f["version"] != 1.0 || fmt.Sprint(f["features"]) != "[approvals error_code]" {
		t.Errorf("agreed on %v", f)
	}
	one.hear("attach")
	m := toolCall(s.GetId(), "c", "write_file", `{"path":"a","content":"x"}`)
	m.GetCallTool().RequiresApproval = true
	got := later(t, h.rt, m)
	asked := one.hear("approval_request")["approval"].(map[string]any)
	two := h.wire(t, fmt.Sprintf(hello, "2", "two"), attach) // asked again of who connects
	if again := two.hear("approval_request")["approval"].(map[string]any); again["id"] != asked["id"] || again["tool"] != "write_file" {
		t.Errorf("asked %v, then %v", asked, again)
	}
	elsewhere := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	stranger := h.wire(t, fmt.Sprintf(hello, "3", "three"), fmt.Sprintf(`{"type":"attach","session":%q}`, elsewhere.GetId()))
	stranger.hear("attach")
	answer := func(decision string) string {
		return fmt.Sprintf(`{"type":"approval_response","approval_id":%q,"decision":%q}`, asked["id"], decision)
	}
	stranger.say(answer("approved"))
	if f := stranger.hear("error"); f["code"] != "permission_denied" || f["approval_id"] != asked["id"] {
		t.Errorf("an answer from another session: %v", f)
	}
	one.say(answer("perhaps"))
	if f := one.hear("error"); f["about"] != "approval_response" {
		t.Errorf("no decision: %v", f)
	}
	two.say(answer("rejected"))
	for _, w := range []*wire{one, two} {
		if f := w.hear("request_resolved"); f["approval_id"] != asked["id"] || f["decision"] != "rejected" {
			t.Errorf("resolved: %v", f)
		}
	}
	if r := <-got; r.GetErrorCode() != "user_rejected" {
		t.Errorf("rejected: %v", r)
	}
	one.say(answer("approved"))
	if f := one.hear("error"); f["code"] != "already_resolved" {
		t.Errorf("a second answer: %v", f)
	}
}

func TestFramesThatAreNoneAreRefusedAndTheConnectionGoesOn(t *testing.T) {
	h := newHouse(t)
	w := h.wire(t)
	for _, bad := range []string{
		``, `x`, `[]`, `null`, `"hello"`, `{}`, `{"type":1}`, `{"type":"nonsense"}`, `{"type":"hello"}{"type":"hello"}`, `{"type":"hello","version":"1"}`,
		`{"type":"attach","session":{}}`, `{"type":"tool_call","call_id":[]}`, `{"type":"tool_call"}`, `{"type":"tool_call","call_id":"a","tool_name":"x"}`,
		`{"type":"tool_call","call_id":"a","tool_name":"x","session":"s","arguments":7}`, `{"type":"attach"}`, `{"type":"attach","session":"ses_nobody"}`,
		`{"type":"approval_response","approval_id":"apr_none","decision":"approved"}`, `{"type":"event","event":{}}`, "{\"type\":\"\xff\"}", strings.Repeat("[", 100_000),
	} {
		if bad == "{\"type\":\"\xff\"}" {
			continue // no text frame can hold it
		}
		w.say(bad)
		if f := w.hear("error"); f["code"] == "" || f["message"] == "" || f["code"] == "internal_error" {
			t.Errorf("%.60s: %v", bad, f)
		}
	}
	w.say(`{"type":"hello","version":1}`)
	if f := w.hear("error"); f["about"] != "hello" {
		t.Errorf("a late hello: %v", f)
	}
	w.say(`{"type":"tool_result","call_id":"c","result":"` + strings.Repeat("x", messages.MaxFrame) + `"}`)
	if f := w.hear("error"); f["code"] != "message_too_large" {
		t.Errorf("too large: %v", f)
	}
	if _, _, err := w.ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("and then %v", err)
	}
}

// A call that no frame can hold has an answer, and the connection goes on.
func TestACallThatIsTooLargeForAFrameIsAnsweredAndNotSent(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	w := h.wire(t, fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:/x","name":"lap","trust":"full"}`, s.GetId()))
	w.hear("attach")
	large := fmt.Sprintf(`{"path":"a","content":%q,"workspace_id":"lap"}`, strings.Repeat("x", messages.MaxFrame))
	if r := ask[*messages.ToolReply](t, h.rt, toolCall(s.GetId(), "large", "write_file", large)); r.GetErrorCode() != messages.CodeMessageTooLarge {
		t.Errorf("the large call came to %.300v", r)
	}
	got := later(t, h.rt, toolCall(s.GetId(), "small", "read_file", `{"path":"a","workspace_id":"lap"}`))
	f := w.hear("tool_call")
	if f["tool_name"] != "read_file" {
		t.Errorf("sent %.300v", f)
	}
	w.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":"small"}`, f["call_id"]))
	if r := <-got; r.GetContent() != "small" {
		t.Errorf("then %v", r)
	}
}

// Row 86: what is passed on is bounded, and leaves no trace.
func TestProgressOfAnOwnersCallIsPassedOnAndBounded(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	w := h.wire(t, fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"lap:/x","name":"lap","trust":"full"}`, s.GetId()))
	w.hear("attach")
	o := h.wire(t, `{"type":"hello","version":1,"features":["events","progress"]}`, fmt.Sprintf(`{"type":"attach","session":%q,"after":0}`, s.GetId()))
	for f := o.hear("event"); f["event"].(map[string]any)["type"] != "session.created"; {
		f = o.hear("event")
	}
	got := later(t, h.rt, toolCall(s.GetId(), "c", "read_file", `{"path":"a","workspace_id":"lap"}`))
	id := w.hear("tool_call")["call_id"]
	for i := range 1000 {
		w.say(fmt.Sprintf(`{"type":"progress","call_id":%q,"done":%d,"total":1000,"unit":"bytes"}`, id, i+1))
	}
	w.say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":"x"}`, id))
	<-got
	var seen []map[string]any
	for {
		e := o.hear("event")["event"].(map[string]any)
		if e["type"] == "tool.progress" {
			seen = append(seen, e)
		}
		if e["type"] == "turn.completed" {
			break
		}
	}
	if len(seen) == 0 || len(seen) > 100 || seen[0]["done"] != 1.0 || seen[0]["total"] != 1000.0 || seen[0]["unit"] != "bytes" || seen[0]["seq"] != nil {
		t.Errorf("%d signs of life of a thousand: %v", len(seen), seen)
	}
}

func TestTwoFoldersOfOneSessionGetTheirOwnCalls(t *testing.T) {
	h := newHouse(t)
	s := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{})
	wires := map[string]*wire{}
	for _, name := range []string{"lap", "desk"} {
		wires[name] = h.wire(t, fmt.Sprintf(`{"type":"attach","session":%q,"workspace":"%s:/x","name":%q,"trust":"full"}`, s.GetId(), name, name))
		wires[name].hear("attach")
	}
	for i, name := range []string{"desk", "lap", "desk"} {
		got := later(t, h.rt, toolCall(s.GetId(), fmt.Sprint(i), "read_file", fmt.Sprintf(`{"path":"a","workspace_id":%q}`, name)))
		f := wires[name].hear("tool_call")
		wires[name].say(fmt.Sprintf(`{"type":"tool_result","call_id":%q,"result":"of %s"}`, f["call_id"], name))
		if r := <-got; f["workspace"] != name+":/x" || r.GetContent() != "of "+name {
			t.Errorf("%v came to %v", f, r)
		}
	}
}
