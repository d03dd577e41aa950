package gateway

import (
	"cmp"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// sessionPath is where a session's routes begin.
const sessionPath = "/api/sessions/"

func (a *api) alive(http.ResponseWriter, *http.Request) (answer, error) {
	return ok(map[string]string{"status": "ok"})
}

func (a *api) version(_ http.ResponseWriter, r *http.Request) (answer, error) {
	h, err := ask[*messages.Holder](r.Context(), a, &messages.Hello{})
	if err != nil {
		return answer{}, err
	}
	j := h.JSON()
	if j.Version == "" {
		j.Version = a.opts.Version
	}
	if j.StartedAt == "" {
		j.StartedAt = messages.FormatTime(a.started.UnixMilli())
	}
	return ok(j)
}

func (a *api) create(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.CreateJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.SessionView](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusCreated, body: v.JSON(), header: map[string]string{"Location": sessionPath + v.GetId()},
	}, nil
}

func (a *api) sessions(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "folder", "limit", "after")
	if err != nil {
		return answer{}, err
	}
	p, err := paging(q)
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Sessions](r.Context(), a, &messages.ListSessions{Folder: q.Get("folder"), Limit: p.most()})
	if err != nil {
		return answer{}, err
	}
	some, next := cut(p, r, l.GetSessions(), func(v *messages.SessionView) (int64, string) { return v.GetUpdatedAtUnixMs(), v.GetId() })
	return answer{status: http.StatusOK, body: (&messages.Sessions{Sessions: some}).JSON(), header: next}, nil
}

func (a *api) show(_ http.ResponseWriter, r *http.Request) (answer, error) {
	s, err := ask[*messages.Shown](r.Context(), a, &messages.Show{Id: r.PathValue("id")})
	if err != nil {
		return answer{}, err
	}
	return ok(s.JSON())
}

// open brings a session into memory: a turn that a crash cut off goes on.
func (a *api) open(w http.ResponseWriter, r *http.Request) (answer, error) {
	if err := a.read(w, r, &struct{}{}); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.SessionView](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

func (a *api) configure(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ConfigureJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.WorkerView](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_Configure{Configure: &messages.ConfigureWorker{
		WorkerId: body.Worker, Model: body.Model, Agent: body.Agent, System: body.System, Tools: body.Tools, Mcp: body.MCP, By: body.By,
	}}})
	if err != nil {
		return answer{}, err
	}
	return ok(v.JSON())
}

// compact answers when the older turns are replaced by a summary, which may wait for a turn's end: a long poll.
func (a *api) compact(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.CompactJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	c, err := ask[*messages.Compacted](ctx, a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_Compact{Compact: &messages.CompactHistory{
		WorkerId: body.Worker, By: body.By,
	}}})
	if err != nil {
		return answer{}, err
	}
	return ok(c.JSON())
}

// save makes durable what the session's policy has kept back.
func (a *api) save(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SaveJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_Save{Save: &messages.SaveHistory{WorkerId: body.Worker}}})
}

func (a *api) closeSession(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "reason", "forget", "by")
	if err != nil {
		return answer{}, err
	}
	forget, err := strconv.ParseBool(cmp.Or(q.Get("forget"), "false"))
	if err != nil {
		return answer{}, bad("query parameter forget: %q is neither true nor false", q.Get("forget"))
	}
	m := &messages.CloseSession{Reason: q.Get("reason"), Forget: forget, By: q.Get("by")}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_Close{Close: m}})
}

func (a *api) jobs(_ http.ResponseWriter, r *http.Request) (answer, error) {
	n, err := ask[*messages.JobCount](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}})
	if err != nil {
		return answer{}, err
	}
	return ok(n.JSON())
}

// endJob ends one command that an agent left running.
func (a *api) endJob(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "by", "reason")
	if err != nil {
		return answer{}, err
	}
	m := &messages.EndJob{JobId: r.PathValue("job"), By: q.Get("by"), Reason: q.Get("reason")}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_EndJob{EndJob: m}})
}

// idle answers when nothing is left to do: a long poll.
func (a *api) idle(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker")
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	return a.done(r.WithContext(ctx), &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_WaitIdle{WaitIdle: &messages.WaitIdle{WorkerId: q.Get("worker")}}})
}

// done asks for something that has no answer but that it was done.
func (a *api) done(r *http.Request, m proto.Message) (answer, error) {
	if _, err := a.askAny(r.Context(), m); err != nil {
		return answer{}, err
	}
	return nothing()
}
