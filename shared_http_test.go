package troupe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

// TestAConversationIsSharedOverHTTP has two workers of a session speak, by a token of their tenant, and reads what they said.
func TestAConversationIsSharedOverHTTP(t *testing.T) {
	o := officeIn(t, t.TempDir(), troupe.Options{Model: debateModel()})
	o.token("ann", "a", "read", "prompt")
	o.token("bob", "b", allScopes()...)
	post := func(path, body string, want int, into any) {
		t.Helper()
		status, text := o.do("ann", "POST", path, body)
		if status != want {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var s messages.SessionJSON
	post("/api/sessions", `{}`, 201, &s)
	var con messages.WorkerJSON
	post("/api/sessions/"+s.ID+"/workers", `{}`, 201, &con)
	var talk, again messages.ConversationJSON
	post("/api/sessions/"+s.ID+"/conversations", `{"name":"debate"}`, 200, &talk)
	post("/api/sessions/"+s.ID+"/conversations", `{"name":"debate"}`, 200, &again)
	if talk.ID == "" || again.ID != talk.ID || talk.Session != s.ID {
		t.Fatalf("shared as %+v and %+v", talk, again)
	}
	at := "/api/sessions/" + s.ID + "/conversations/" + talk.ID
	var done messages.ResultJSON
	for i, turn := range []struct{ worker, name string }{{"", "pro"}, {con.ID, "con"}, {"", "pro"}} {
		body := fmt.Sprintf(`{"turn":"inp_%d","worker":%q,"member":%q,"prompt":"Tabs or spaces?"}`, i, turn.worker, turn.name)
		var a messages.TurnAcceptedJSON
		post(at+"/turns", body, 202, &a)
		if a.Turn != fmt.Sprint("inp_", i) || a.Conversation != talk.ID || a.Worker == "" {
			t.Errorf("accepted as %+v", a)
		}
		done = get[messages.ResultJSON](o, "ann", at+"/turns/"+a.Turn)
	}
	if done.Text != "So do they." || done.Outcome != "done" {
		t.Errorf("the last turn came to %+v", done)
	}
	var word messages.SharedTurnJSON
	post(at+"/words", `{"turn":"inp_word","text":"Enough.","by":"carl"}`, 201, &word)
	post(at+"/words", `{"turn":"inp_word","text":"Enough.","by":"carl"}`, 201, &word)
	if word.Number != 4 || word.Said.By != "ann_carl" {
		t.Errorf("the word from outside is %+v, %+v", word, word.Said)
	}
	var said []string
	for next := uint64(0); ; {
		page := get[messages.ConversationJSON](o, "ann", fmt.Sprint(at, "?limit=3&after=", next))
		for _, turn := range page.Turns {
			said = append(said, fmt.Sprint(turn.Number, " ", turn.Member, turn.Said.By, ": ", turn.Said.Text))
		}
		if next = page.Next; next == 0 {
			break
		}
		if len(page.Turns) != 3 || page.Count != 4 {
			t.Errorf("a page of 3 has %d of %d turns", len(page.Turns), page.Count)
		}
	}
	if got := strings.Join(said, "\n"); got != strings.TrimSpace(debate)+"\n4 ann_carl: Enough." {
		t.Errorf("the transcript is\n%s", got)
	}
	for _, path := range []string{"/api/conversations", "/api/sessions/" + s.ID + "/conversations"} {
		if all := get[[]messages.ConversationJSON](o, "ann", path); len(all) != 1 || all[0].ID != talk.ID || len(all[0].Members) != 2 || len(all[0].Turns) > 0 || all[0].Speaking != "" {
			t.Errorf("%s: %+v", path, all)
		}
	}
	if all := get[[]messages.ConversationJSON](o, "bob", "/api/conversations"); len(all) > 0 {
		t.Errorf("another tenant sees %+v", all)
	}
	for path, status := range map[string]int{"?limit=1001": 400, "?limit=x": 400, "?of=x": 400, "/turns/inp_none": 404} {
		if got, text := o.do("ann", "GET", at+path, ""); got != status {
			t.Errorf("GET %s: %d %s", path, got, text)
		}
	}
	if got, text := o.do("ann", "DELETE", at+"/turns/inp_1", ""); got != http.StatusConflict {
		t.Errorf("a turn that is over is taken back: %d %s", got, text)
	}
}

// TestAProgramSharesAConversationThroughAServer asks through the client package as it would ask a runtime of its own, and watches.
func TestAProgramSharesAConversationThroughAServer(t *testing.T) {
	o := officeIn(t, t.TempDir(), troupe.Options{Model: debateModel()})
	c, err := client.Connect(t.Context(), client.Server{URL: o.srv.URL, Token: o.token("ann", "a", "read", "prompt")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := asked[*messages.SessionView](t, c, &messages.CreateSession{})
	of := func(m *messages.ToSession) *messages.ToSession {
		m.SessionId = s.GetId()
		return m
	}
	talk := asked[*messages.SharedConversation](t, c, of(&messages.ToSession{Command: &messages.ToSession_ShareConversation{ShareConversation: &messages.ShareConversation{Name: "a/b"}}}))
	for i := range 1001 { // more than one page
		asked[*messages.SharedTurn](t, c, of(&messages.ToSession{Command: &messages.ToSession_SubmitTurn{SubmitTurn: &messages.SubmitTurn{Name: "a/b", Text: fmt.Sprint("word ", i)}}}))
	}
	turn := &messages.TakeTurn{Name: "a/b", TurnId: "inp_1", Member: "pro", Prompt: "Tabs or spaces?", By: "carl"}
	for range 2 {
		if r := asked[*messages.TurnResult](t, c, of(&messages.ToSession{Command: &messages.ToSession_TakeTurn{TakeTurn: turn}})); r.GetText() != "Tabs adapt." {
			t.Errorf("the turn came to %v", r)
		}
	}
	v := asked[*messages.SharedConversation](t, c, of(&messages.ToSession{Command: &messages.ToSession_ReadConversation{ReadConversation: &messages.ReadConversation{Name: "a/b"}}}))
	if n := len(v.GetTurns()); n != 1002 || v.GetTurns()[n-1].GetMember() != "pro" || v.GetTurns()[1000].GetTurn().GetText() != "word 1000" || v.GetConversationId() != talk.GetConversationId() {
		t.Errorf("%d turns of %v", n, v.GetConversationId())
	}
	if all := asked[*messages.Conversations](t, c, &messages.ListConversations{SessionId: s.GetId()}); len(all.GetConversations()) != 1 || all.GetConversations()[0].GetCount() != 1002 {
		t.Errorf("listed as %v", all)
	}
	if _, err := c.Ask(t.Context(), of(&messages.ToSession{Command: &messages.ToSession_WithdrawTurn{WithdrawTurn: &messages.WithdrawTurn{Name: "a/b", TurnId: "inp_1"}}})); err == nil {
		t.Error("a turn that is over was taken back")
	}
	var told []string
	for e, err := range c.Events(t.Context(), s.GetId(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.GetType(), "conversation.") && !strings.HasPrefix(e.GetText(), "word ") {
			told = append(told, fmt.Sprintf("%s %s%s %s %v", e.GetType(), e.GetName(), e.GetMember(), e.GetText()+e.GetBy(), e.GetSeq() > 0 && e.GetConversation() == talk.GetConversationId()))
		}
		if e.GetType() == messages.EventConversationSaid && e.GetMember() == "pro" {
			break
		}
	}
	want := "conversation.shared a/b  true\nconversation.joined pro  true\nconversation.given pro ann/carl true\nconversation.said pro Tabs adapt. true"
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("told was\n%s\nwant\n%s", got, want)
	}
}

// asked asks through a client.
func asked[T proto.Message](t *testing.T, c *client.Client, m proto.Message) T {
	t.Helper()
	reply, err := c.Ask(t.Context(), m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	got, is := reply.(T)
	if !is {
		t.Fatalf("%T: answered %T", m, reply)
	}
	return got
}
