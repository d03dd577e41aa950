package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

const ownsX = `{"type":"attach","session":"s","workspace":"lap:/x","name":"x","trust":"full"}`

// previewer is an owner that may be asked what a call would change.
type previewer interface {
	Preview(ctx context.Context, m *messages.Execute) (*messages.ToolReply, error)
}

// ownerOf makes a connection the owner of lap:/x.
func ownerOf(t *testing.T, b *owning, features string) (*websocket.Conn, gateway.WorkspaceOwner) {
	t.Helper()
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"client":"me","features":[`+features+`]}`, ownsX)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"workspace":"lap:/x"`, `"epoch":7`, `"trust":"full"`)
	return ws, <-b.owners
}

// came is what Deliver or Preview came to.
type came struct {
	reply *messages.ToolReply
	err   error
}

func deliver(ctx context.Context, o gateway.WorkspaceOwner, m *messages.Execute, progress func(*messages.Progress)) <-chan came {
	out := make(chan came, 1)
	go func() {
		r, err := o.Deliver(ctx, m, progress)
		out <- came{r, err}
	}()
	return out
}

// An error of an owner has the status that the house gives the same error of its own; older owners have no code, and their texts tell.
func TestWhatAnOwnerSendsIsReadAsTheHouseMeansIt(t *testing.T) {
	ws, owner := ownerOf(t, takesOwners(), "")
	for _, c := range []struct {
		sent, code, content string
		status              messages.ToolFinished_Status
	}{
		{`"error":"e","error_code":"interrupted"`, "interrupted", "e", messages.ToolFinished_INTERRUPTED_UNKNOWN},
		{`"error":"e","error_code":"timeout","message":"m"`, "timeout", "m", messages.ToolFinished_TIMEOUT},
		{`"error":"e","error_code":"cancelled"`, "cancelled", "e", messages.ToolFinished_CANCELLED},
		{`"error":"e","error_code":"invalid_arguments"`, "invalid_arguments", "e", messages.ToolFinished_BAD_ARGS},
		{`"error":"e","error_code":"permission_denied"`, "permission_denied", "e", messages.ToolFinished_DENIED},
		{`"error":"e","error_code":"user_rejected"`, "user_rejected", "e", messages.ToolFinished_DENIED},
		{`"error":"File not found: a"`, "file_not_found", "File not found: a", messages.ToolFinished_ERROR},
		{`"error":"Access denied: a"`, "permission_denied", "Access denied: a", messages.ToolFinished_DENIED},
		{`"error":"Operation rejected by user"`, "user_rejected", "Operation rejected by user", messages.ToolFinished_DENIED},
		{`"error":"it broke","details":["no object"]`, "internal_error", "it broke", messages.ToolFinished_ERROR},
		{`"result":"plain"`, "", "plain", messages.ToolFinished_OK},
		{`"result":{"content":"c","meta":[1]}`, "", "c", messages.ToolFinished_OK},
		{`"result":{"lines":3}`, "", `{"lines":3}`, messages.ToolFinished_OK},
	} {
		done := deliver(t.Context(), owner, &messages.Execute{ExecId: "e", CallId: "c", Tool: "t", Arguments: `{"a":1}`, SessionId: "s"}, nil)
		hear(t, ws, `"type":"tool_call"`, `"call_id":"e"`, `"arguments":{"a":1}`)
		say(t, ws, `{"type":"tool_result","call_id":"e",`+c.sent+`}`)
		got := <-done
		r := got.reply
		if got.err != nil || r.GetErrorCode() != c.code || r.GetContent() != c.content || r.GetStatus() != c.status ||
			r.GetCallId() != "c" || r.GetDetailsJson() != "" || r.GetMetaJson() != "" {
			t.Errorf("%s: %v %v", c.sent, r, got.err)
		}
	}
}

func TestASecondAttemptHasAnIdOfItsOwnAndArgumentsThatAreNoJSONAreAText(t *testing.T) {
	ws, owner := ownerOf(t, takesOwners(), "")
	done := deliver(t.Context(), owner, &messages.Execute{ExecId: "e", Attempt: 2, Tool: "t", Arguments: `{"a":`}, nil)
	hear(t, ws, `"call_id":"e.2"`, `"attempt":2`, `"arguments":"{\"a\":"`)
	say(t, ws, `{"type":"tool_result","call_id":"e","result":"of the first"}`)
	hear(t, ws, `"code":"unknown_call"`)
	say(t, ws, `{"type":"tool_result","call_id":"e.2","result":"of the second"}`)
	if got := <-done; got.err != nil || got.reply.GetContent() != "of the second" {
		t.Errorf("%v %v", got.reply, got.err)
	}
	owner.Settle("e", 2)
	hear(t, ws, `"type":"request_resolved"`, `"call_id":"e.2"`, `"state":"settled"`)

	done = deliver(t.Context(), owner, &messages.Execute{ExecId: "n", Tool: "t"}, nil)
	hear(t, ws, `"call_id":"n"`, `"arguments":{}`)
	say(t, ws, `{"type":"tool_result","call_id":"n","result":"x"}`)
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

func TestAnOwnerIsToldOfTheCallThatIsCancelledAndOfNoOther(t *testing.T) {
	ws, owner := ownerOf(t, takesOwners(), "")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := deliver(ctx, owner, &messages.Execute{ExecId: "e", Tool: "t"}, nil)
	hear(t, ws, `"call_id":"e"`)
	owner.Cancel("another")
	owner.Cancel("e")
	hear(t, ws, `"call_id":"e"`, `"state":"cancelled"`)
	why := errors.New("nobody waits any more")
	cancel(why)
	if got := <-done; !errors.Is(got.err, why) {
		t.Errorf("%v %v", got.reply, got.err)
	}
	owner.Cancel("e") // it is over, and not told again
	say(t, ws, `{"type":"tool_result","call_id":"e","result":"late"}`)
	hear(t, ws, `"code":"unknown_call"`)
}

func TestACallWhoseOwnerGoesAwayEndsAndThePlaceIsNotGivenUp(t *testing.T) {
	b := takesOwners()
	ws, owner := ownerOf(t, b, "")
	done := deliver(t.Context(), owner, &messages.Execute{ExecId: "e", Tool: "t"}, nil)
	hear(t, ws, `"call_id":"e"`)
	_ = ws.CloseNow()
	if got := <-done; got.err == nil {
		t.Errorf("it came to %v", got.reply)
	}
	if <-b.left {
		t.Error("its place was given up for good: the owner may come back")
	}
}

func TestAnOwnerThatGoesAwayWhileItIsConnectedHoldsNothing(t *testing.T) {
	b, asked := takesOwners(), make(chan struct{})
	b.connect = func(ctx context.Context, _ *messages.ConnectOwner) error {
		close(asked)
		<-ctx.Done()
		return nil // it was too late to refuse
	}
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, ownsX)
	<-asked
	_ = ws.CloseNow()
	if <-b.left {
		t.Error("its place was given up for good")
	}
}

func TestAnOwnerThatLeavesGivesItsPlaceUpForGood(t *testing.T) {
	b := takesOwners()
	ws, _ := ownerOf(t, b, "")
	say(t, ws, `{"type":"attach","session":"s","workspace":"lap:/x","leave":true}`)
	hear(t, ws, `"type":"attach"`, `"leave":true`)
	if !<-b.left {
		t.Error("its place is kept")
	}
	_ = ws.CloseNow()
	late := socketTo(t, serve(t, b, gateway.Options{})) // of a place that it has not, nothing is given up
	say(t, late, `{"type":"attach","session":"s","workspace":"lap:/x","leave":true}`)
	hear(t, late, `"leave":true`)
	if len(b.left) != 0 {
		t.Errorf("given up again, for good: %t", <-b.left)
	}
}

func TestAPlaceThatIsTakenIsRefusedUnlessItIsStolen(t *testing.T) {
	b := takesOwners()
	b.connect = func(_ context.Context, m *messages.ConnectOwner) error {
		if m.GetSessionId() != "s" || m.GetUri() != "lap:/x" || m.GetClient() != "me" {
			t.Errorf("the house was asked %v", m)
		}
		if !m.GetSteal() {
			return messages.Fail(messages.CodeConflict, "another program owns it", "take it with steal")
		}
		return nil
	}
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"client":"me"}`, ownsX)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"code":"conflict"`, `another program owns it`, `take it with steal`, `"session":"s"`)
	say(t, ws, strings.Replace(ownsX, `"trust"`, `"steal":true,"trust"`, 1))
	hear(t, ws, `"workspace":"lap:/x"`, `"epoch":7`)
}

// overtaken is a house in which another program takes a place before who has taken it is answered.
type overtaken struct{ *owning }

func (o overtaken) ConnectOwner(ctx context.Context, m *messages.ConnectOwner, owner gateway.WorkspaceOwner) (uint64, func(bool), error) {
	epoch, leave, err := o.owning.ConnectOwner(ctx, m, owner)
	if err == nil {
		owner.(interface{ Taken(session, uri string) }).Taken(m.GetSessionId(), m.GetUri()) //nolint:forcetypeassert // every connection is told
	}
	return epoch, leave, err
}

// TestWhoIsRobbedBeforeItIsAnsweredIsToldThatAlone: of two that steal a place at once one has it in the end, and the other is not told afterwards that it has.
func TestWhoIsRobbedBeforeItIsAnsweredIsToldThatAlone(t *testing.T) {
	b := takesOwners()
	ws := socketTo(t, serve(t, overtaken{b}, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"client":"me"}`, strings.Replace(ownsX, `"trust"`, `"steal":true,"trust"`, 1))
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"code":"conflict"`, `another program has taken the workspace lap:/x`)
	if forGood := <-b.left; forGood {
		t.Error("it gives up for good what another one has")
	}
	say(t, ws, `{"type":"attach","session":"s"}`)
	if next := hear(t, ws, `"type":"attach"`, `"session":"s"`); strings.Contains(next, "epoch") || strings.Contains(next, "lap:/x") {
		t.Errorf("then it is told %s", next)
	}
}

func TestAWorkspaceOfAnotherMachineThatIsAttachedIsNotAttachedAgain(t *testing.T) {
	b := takesOwners()
	b.answer = houseOf(&messages.Workspaces{Workspaces: []*messages.SessionWorkspace{
		{Workspace: &messages.WorkspaceGrant{Uri: "host:/x", Kind: "server"}},
		{Workspace: &messages.WorkspaceGrant{Uri: "lap:/x", Name: "older", Kind: "client", Owner: "lap"}},
	}}, nil)
	ws := socketTo(t, serve(t, b, gateway.Options{}))
	say(t, ws, ownsX)
	hear(t, ws, `"workspace":"lap:/x"`, `"name":"older"`)
	if n := len(askedFor[*messages.ToSession](b.backend)); n != 0 {
		t.Errorf("it was attached %d times more", n)
	}
	say(t, ws, `{"type":"attach","session":"s","workspace":"HOST:/y"}`)
	hear(t, ws, `is the server's own`)
}

func TestOnlyAnOwnerThatShowsPreviewsIsAskedForOne(t *testing.T) {
	_, silent := ownerOf(t, takesOwners(), "")
	if r, err := silent.(previewer).Preview(t.Context(), &messages.Execute{ExecId: "e", Tool: "t", Preview: true}); r != nil || err != nil {
		t.Errorf("%v %v", r, err)
	}
	ws, owner := ownerOf(t, takesOwners(), `"preview"`)
	done := make(chan came, 1)
	go func() {
		r, err := owner.(previewer).Preview(t.Context(), &messages.Execute{ExecId: "e", Tool: "t", Preview: true})
		done <- came{r, err}
	}()
	hear(t, ws, `"call_id":"preview_e"`, `"preview":true`)
	say(t, ws, `{"type":"tool_result","call_id":"preview_e","result":{"content":"","diff":"+a","preview":"diff"}}`)
	if got := <-done; got.err != nil || !got.reply.GetPreviewed() || got.reply.GetPreviewKind() != "diff" || got.reply.GetDiff() != "+a" {
		t.Errorf("%v %v", got.reply, got.err)
	}
}

func TestASignOfLifeIsShortenedAndCountsFromItsOwner(t *testing.T) {
	b := takesOwners()
	base := serve(t, b, gateway.Options{})
	ws, other := socketTo(t, base), socketTo(t, base)
	say(t, ws, `{"type":"hello","version":1,"client":"me"}`, ownsX)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"epoch":7`)
	owner := <-b.owners
	seen := make(chan *messages.Progress, 2)
	done := deliver(t.Context(), owner, &messages.Execute{ExecId: "e", Tool: "t"}, func(p *messages.Progress) { seen <- p })
	hear(t, ws, `"call_id":"e"`)
	text, err := json.Marshal(strings.Repeat("ä", 4000))
	if err != nil {
		t.Fatal(err)
	}
	say(t, other, `{"type":"progress","call_id":"e","done":8}`, `{"type":"ping","id":"p"}`)
	hear(t, other, `"pong":true`) // it was read, and is another connection's call
	say(t, ws, `{"type":"progress","call_id":"another","done":9}`, `{"type":"progress","call_id":"e","done":1,"total":2,"unit":"`+strings.Repeat("u", 99)+`","text":`+string(text)+`}`)
	if p := <-seen; p.GetDone() != 1 || p.GetTotal() != 2 || len(p.GetUnit()) != 32 || len(p.GetText()) != 4096 {
		t.Errorf("%d of %d, a unit of %d bytes, a text of %d", p.GetDone(), p.GetTotal(), len(p.GetUnit()), len(p.GetText()))
	}
	say(t, ws, `{"type":"tool_result","call_id":"e","result":"x"}`)
	<-done
}
