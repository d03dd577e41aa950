package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// setTimer answers once the timer is durable. The same id again gets the same answer.
func (a *api) setTimer(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.SetTimerJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	v, err := ask[*messages.TimerView](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_SetTimer{SetTimer: m},
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusCreated, body: v.JSON()}, nil
}

func (a *api) timers(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker")
	if err != nil {
		return answer{}, err
	}
	l, err := ask[*messages.Timers](r.Context(), a, &messages.ToSession{
		SessionId: r.PathValue("id"), Command: &messages.ToSession_ListTimers{ListTimers: &messages.ListTimers{WorkerId: q.Get("worker")}},
	})
	if err != nil {
		return answer{}, err
	}
	return ok(l.JSON())
}

func (a *api) cancelTimer(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "worker", "by")
	if err != nil {
		return answer{}, err
	}
	return a.done(r, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_CancelTimer{
		CancelTimer: &messages.CancelTimer{WorkerId: q.Get("worker"), TimerId: r.PathValue("timer"), By: q.Get("by")},
	}})
}
