package gateway

import (
	"cmp"
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// Pages of transcripts, in turns.
const (
	pageTurns = 100
	maxPage   = 1000
)

func (a *api) conversationRows() []row {
	const one = "/api/sessions/{id}/conversations/{conversation}"
	return []row{
		{pattern: "GET /api/conversations", scope: ScopeRead, summary: "Conversations that workers share, of all sessions or of one, without their turns", query: []string{"session"}, out: []messages.ConversationJSON{}, serve: a.conversations},
		{pattern: "GET /api/sessions/{id}/conversations", scope: ScopeRead, summary: "Conversations that the workers of a session share, without their turns: members, who has the word, how many wait", out: []messages.ConversationJSON{}, serve: a.conversations},
		{pattern: "POST /api/sessions/{id}/conversations", begins: true, scope: ScopePrompt, summary: "Share a conversation among the workers of a session, or find the one of that name", in: messages.ShareJSON{}, out: messages.ConversationJSON{}, serve: a.share},
		{pattern: "GET " + one, scope: ScopeRead, summary: "A shared conversation by its id or name, with a page of its turns: those behind the record after, limit of them (100, at most 1000); next is the after of the next page", query: []string{"after", "limit"}, out: messages.ConversationJSON{}, serve: a.conversation},
		{pattern: "POST " + one + "/words", begins: true, scope: ScopePrompt, summary: "Say something from outside, which the members read with their next turns", in: messages.WordJSON{}, out: messages.SharedTurnJSON{}, status: http.StatusCreated, serve: a.say},
		{pattern: "POST " + one + "/turns", begins: true, scope: ScopePrompt, summary: "Give a worker the word, when those that asked before have had it; answers once that is durable", in: messages.TakeTurnJSON{}, out: messages.TurnAcceptedJSON{}, status: http.StatusAccepted, waits: messages.ResultJSON{}, serve: a.takeTurn},
		{pattern: "GET " + one + "/turns/{turn}", scope: ScopeRead, summary: "Answers when a turn is over, with what it came to", out: messages.ResultJSON{}, serve: a.awaitTurn},
		{pattern: "DELETE " + one + "/turns/{turn}", scope: ScopePrompt, summary: "Take a turn back that waits for the word, or end the one that has it", query: []string{"by", "reason"}, serve: a.withdrawTurn},
	}
}

func (a *api) conversations(_ http.ResponseWriter, r *http.Request) (answer, error) {
	names := []string{"session"}
	if r.PathValue("id") != "" {
		names = nil
	}
	q, err := query(r, names...)
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Conversations](r.Context(), a, &messages.ListConversations{SessionId: cmp.Or(r.PathValue("id"), q.Get("session"))})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

func (a *api) share(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ShareJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.SharedConversation](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_ShareConversation{ShareConversation: &messages.ShareConversation{Name: body.Name}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

// conversation reads one page of a transcript.
func (a *api) conversation(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "after", "limit")
	if err != nil {
		return answer{}, err
	}
	after, err := number("after", q.Get("after"), 63)
	if err != nil {
		return answer{}, err
	}
	limit, err := number("limit", q.Get("limit"), 31)
	if err != nil {
		return answer{}, err
	}
	if limit > maxPage {
		return answer{}, bad("limit %d is more than %d", limit, maxPage)
	}
	v, err := ask[*messages.SharedConversation](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"),
		Command: &messages.ToSession_ReadConversation{ReadConversation: &messages.ReadConversation{
			Name: r.PathValue("conversation"), After: after, Limit: int32(cmp.Or(limit, pageTurns)),
		}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

// say adds a word from outside.
func (a *api) say(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.WordJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	t, err := ask[*messages.SharedTurn](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_SubmitTurn{SubmitTurn: body.Proto(r.PathValue("conversation"))},
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: t.JSON()}, nil
}

// takeTurn accepts a turn: 202 once it is durable, or 200 with its result when the client prefers to wait for that.
func (a *api) takeTurn(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.TakeTurnJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m := body.Proto(r.PathValue("conversation"))
	m.Accept = true
	t, err := ask[*messages.TurnAccepted](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_TakeTurn{TakeTurn: m}})
	if err != nil {
		return answer{}, err
	}
	ans, over := a.preferred(r, awaitShared(r.PathValue("id"), t.GetConversationId(), t.GetTurnId()))
	if !over {
		ans = answer{status: http.StatusAccepted, body: t.JSON(), header: map[string]string{}}
	}
	if t.GetDuplicate() {
		ans.header[ReplayedHeader] = "true"
	}
	return ans, nil
}

func awaitShared(session, conversation, turn string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_AwaitSharedTurn{AwaitSharedTurn: &messages.AwaitSharedTurn{Name: conversation, TurnId: turn}}}
}

// awaitTurn is a long poll: it answers when a turn is over.
func (a *api) awaitTurn(_ http.ResponseWriter, r *http.Request) (answer, error) {
	if _, err := query(r); err != nil {
		return answer{}, err
	}
	return a.outcome(r, awaitShared(r.PathValue("id"), r.PathValue("conversation"), r.PathValue("turn")))
}

func (a *api) withdrawTurn(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by", "reason")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_WithdrawTurn{WithdrawTurn: &messages.WithdrawTurn{
		Name: r.PathValue("conversation"), TurnId: r.PathValue("turn"), By: q.Get("by"), Reason: q.Get("reason"),
	}}})
}
