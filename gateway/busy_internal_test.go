package gateway

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

func TestWhoFindsNoRoomIsToldWhenToComeAgain(t *testing.T) {
	for _, c := range []struct {
		f      *messages.Failure
		status int
		after  string
	}{
		{messages.Busy("full", "", 1500*time.Millisecond), http.StatusServiceUnavailable, "2"},
		{messages.Fail(messages.CodeBusy, "a turn is open", ""), http.StatusConflict, ""},
		{messages.Fail(messages.CodeUnavailable, "it stops", ""), http.StatusServiceUnavailable, "1"},
	} {
		w := httptest.NewRecorder()
		a := &api{log: slog.New(slog.DiscardHandler)}
		a.problem(w, httptest.NewRequest(http.MethodPost, "/api/sessions", http.NoBody), 0, c.f)
		var p messages.ProblemJSON
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.status || w.Header().Get("Retry-After") != c.after || p.Failure().GetRetryAfterMs() != c.f.GetRetryAfterMs() {
			t.Errorf("%s: %d, Retry-After %q, %+v", c.f, w.Code, w.Header().Get("Retry-After"), p)
		}
	}
}
