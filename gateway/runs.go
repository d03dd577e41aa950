package gateway

import (
	"net/http"
	"strconv"

	"github.com/troupe-dev/troupe/messages"
)

func (a *api) runRows() []row {
	return []row{
		{pattern: "POST /api/pipelines/runs", begins: true, scope: ScopePrompt, summary: "Run a pipeline", in: messages.StartRunJSON{}, out: messages.RunJSON{}, status: http.StatusCreated, serve: a.startRun},
		{pattern: "GET /api/pipelines/runs", scope: ScopeRead, summary: "Runs of pipelines, the newest first; with run that one alone, if it is there", query: []string{"limit", "after", "run"}, out: []messages.RunJSON{}, serve: a.runs},
		{pattern: "GET /api/pipelines/runs/{run}", scope: ScopeRead, summary: "What a run has come to; with wait, when it has changed after a revision, or what its items wait for is not as waits has it, or is over; then with items=asking without the items that ask nobody", query: []string{"wait", "after", "waits", "items"}, out: messages.RunJSON{}, serve: a.run},
		{pattern: "POST /api/pipelines/runs/{run}/resume", scope: ScopePrompt, summary: "Let a run try again what has not succeeded", in: messages.RunWordJSON{}, out: messages.RunJSON{}, serve: a.resumeRun},
		{pattern: "POST /api/pipelines/runs/{run}/cancel", scope: ScopePrompt, summary: "End a run and what it has under way", in: messages.RunWordJSON{}, out: messages.RunJSON{}, serve: a.cancelRun},
	}
}

func (a *api) startRun(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.StartRunJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	if _, err := ask[*messages.SessionView](r.Context(), a, m); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.RunView](r.Context(), a, &messages.ShowRun{RunId: m.GetRun().GetRunId()})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: v.JSON(), header: map[string]string{"Location": "/api/pipelines/runs/" + v.GetRunId()}}, nil
}

func (a *api) runs(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "limit", "after", "run")
	if err != nil {
		return answer{}, err
	}
	p, err := paging(q)
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Runs](r.Context(), a, &messages.ListRuns{RunId: q.Get("run")})
	if err != nil {
		return answer{}, err
	}
	some, next := cut(p, r, l.GetRuns(), func(v *messages.RunView) (int64, string) { return v.GetStartedAtUnixMs(), v.GetRunId() })
	return answer{status: http.StatusOK, body: (&messages.Runs{Runs: some}).JSON(), header: next}, nil
}

// run shows one run. wait=change waits for a revision above after, wait=end for the end: a long poll.
func (a *api) run(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "wait", "after", "waits", "items")
	if err != nil {
		return answer{}, err
	}
	after, err := strconv.ParseUint("0"+q.Get("after"), 10, 64)
	if err != nil {
		return answer{}, bad("after %q is no revision", q.Get("after"))
	}
	if items := q.Get("items"); items != "" && items != "asking" {
		return answer{}, bad("items %q is not known: asking, or all when it is left out", items)
	}
	var waits *uint32
	if word := q.Get("waits"); word != "" {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return answer{}, bad("waits %q is not what a run has shown as waits", word)
		}
		known := uint32(n)
		waits = &known
	}
	id := r.PathValue("run")
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	var v *messages.RunView
	switch q.Get("wait") {
	case "":
		v, err = ask[*messages.RunView](ctx, a, &messages.ShowRun{RunId: id})
	case "change", "end":
		v, err = ask[*messages.RunView](ctx, a, &messages.AwaitRun{RunId: id, After: after, Changes: q.Get("wait") == "change", Waits: waits, Brief: q.Get("items") == "asking"})
	default:
		return answer{}, bad("wait %q is not known: one of change, end", q.Get("wait"))
	}
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

func (a *api) resumeRun(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.RunWordJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Resume(r.PathValue("run"))
	if err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.RunView](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

func (a *api) cancelRun(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.RunWordJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.RunView](r.Context(), a, &messages.CancelRun{RunId: r.PathValue("run"), By: body.By, Reason: body.Reason})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}
