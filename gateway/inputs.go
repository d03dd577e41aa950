package gateway

import (
	"fmt"
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// ReplayedHeader marks the answer to an input that was accepted before under the same id. The
// body is the same both times.
const ReplayedHeader = "Idempotent-Replayed"

// submit accepts an input: 202 once it is durable, or 200 with the result of its turn when the client prefers to wait for that.
func (a *api) submit(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.InputJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	in, err := ask[*messages.InputReply](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_Submit{Submit: m},
	})
	if err != nil {
		return answer{}, err
	}
	ans, over := a.preferred(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_AwaitTurn{
		AwaitTurn: &messages.AwaitTurn{WorkerId: in.GetWorkerId(), InputId: in.GetInputId()},
	}})
	if !over {
		ans = answer{status: http.StatusAccepted, body: in.JSON(), header: map[string]string{}}
	}
	if in.GetDuplicate() {
		ans.header[ReplayedHeader] = "true"
	}
	return ans, nil
}

func (a *api) inputs(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker")
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Inputs](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{WorkerId: q.Get("worker")}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

// withdraw takes a staged input back.
func (a *api) withdraw(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker", "by")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_WithdrawInput{
		WithdrawInput: &messages.WithdrawInput{WorkerId: q.Get("worker"), InputId: r.PathValue("input"), By: q.Get("by")},
	}})
}

// wait is a long poll: it answers when the turn of an input, or the open or last turn, is done.
func (a *api) wait(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker", "input_id")
	if err != nil {
		return answer{}, err
	}
	return a.outcome(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_AwaitTurn{
		AwaitTurn: &messages.AwaitTurn{WorkerId: q.Get("worker"), InputId: q.Get("input_id")},
	}})
}

// callTool runs one tool for a program, in its place in the queue of turns: a long poll.
func (a *api) callTool(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.CallToolJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto(r.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	return a.outcome(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_CallTool{CallTool: m}})
}

// outcome waits for a turn. The turn of a program's call comes to its tool's reply.
func (a *api) outcome(r *http.Request, m *messages.ToSession) (answer, error) {
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	reply, err := a.askAny(ctx, m)
	if err != nil {
		return answer{}, err
	}
	switch x := reply.(type) {
	case *messages.TurnResult:
		return ok(x.JSON())
	case *messages.ToolReply:
		return ok(x.JSON())
	}
	return answer{}, fmt.Errorf("ask %T: answered %T", m.GetCommand(), reply)
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.CancelJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	c, err := ask[*messages.Cancelled](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"),
		Command: &messages.ToSession_Cancel{
			Cancel: &messages.CancelSession{WorkerId: body.Worker, By: body.By, Reason: body.Reason, Inputs: body.Inputs, Jobs: body.Jobs},
		},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(messages.CancelledJSON{Turns: c.GetTurns(), Inputs: c.GetInputs(), Messages: c.GetMessages(), Jobs: c.GetJobs(), Ended: c.GetEnded()})
}

// history is a conversation's; without a worker in the address, that of the session's first.
func (a *api) history(_ http.ResponseWriter, r *http.Request) (answer, error) {
	if _, err := query(r); err != nil {
		return answer{}, err
	}
	h, err := ask[*messages.History](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"),
		Command:   &messages.ToSession_History{History: &messages.ReadHistory{WorkerId: r.PathValue("worker")}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(h.JSON())
}

func (a *api) spawn(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SpawnJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.WorkerView](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_SpawnWorker{SpawnWorker: body.Proto()},
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: v.JSON()}, nil
}

func (a *api) deleteWorker(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by", "reason")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_DeleteWorker{
		DeleteWorker: &messages.DeleteWorker{WorkerId: r.PathValue("worker"), By: q.Get("by"), Reason: q.Get("reason")},
	}})
}

// release lets a quarantined worker try again.
func (a *api) release(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ReleaseJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.WorkerView](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"),
		Command:   &messages.ToSession_ReleaseWorker{ReleaseWorker: &messages.ReleaseWorker{WorkerId: r.PathValue("worker"), By: body.By}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

// workers lists those of one session, by its address or as a filter, or all.
func (a *api) workers(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "session")
	if err != nil {
		return answer{}, err
	}
	session := q.Get("session")
	if id := r.PathValue("id"); id != "" {
		session = id
	}
	l, err := ask[*messages.Workers](r.Context(), a, &messages.ListWorkers{SessionId: session})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

func (a *api) calls(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "session", "state")
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Calls](r.Context(), a, &messages.ListCalls{SessionId: q.Get("session"), State: q.Get("state")})
	if err != nil {
		return answer{}, err
	}
	ans := answer{status: http.StatusOK, body: l.JSON(), header: map[string]string{}}
	if unread := l.UnreadHeader(); unread != "" {
		ans.header[messages.UnreadHeader] = unread
	}
	return ans, nil
}

// tree is the live tree; with depth=1 the children of its root alone.
func (a *api) tree(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "depth")
	if err != nil {
		return answer{}, err
	}
	if d := q.Get("depth"); d != "" && d != "1" {
		return answer{}, bad("depth %q is not served", d)
	}
	t, err := ask[*messages.Tree](r.Context(), a, &messages.DescribeTree{Deep: q.Get("depth") == ""})
	if err != nil {
		return answer{}, err
	}
	return ok(t.GetRoot().JSON())
}

// damage says what the store is known to have lost.
func (a *api) damage(_ http.ResponseWriter, r *http.Request) (answer, error) {
	d, err := ask[*messages.Damage](r.Context(), a, &messages.ListDamage{})
	if err != nil {
		return answer{}, err
	}
	return ok(d.JSON())
}

// verify checks the store; how long that takes depends on its size.
func (a *api) verify(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.VerifyJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.Verified](r.Context(), a, &messages.Verify{SessionIds: body.Sessions})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}
