package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// addBudget gives the session more to spend.
func (a *api) addBudget(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.AddBudgetJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto()
	if err != nil {
		return answer{}, err
	}
	x, err := ask[*messages.BudgetView](r.Context(), a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_AddBudget{AddBudget: m}})
	if err != nil {
		return answer{}, err
	}
	return ok(x.JSON())
}
