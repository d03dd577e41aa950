package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// TestAListIsReadPageByPage has ten entries, some of the same millisecond, and one that moves to the front between two pages.
func TestAListIsReadPageByPage(t *testing.T) {
	for _, list := range []string{"/api/sessions", "/api/pipelines/runs"} {
		times := []int64{9, 8, 8, 8, 8, 5, 4, 4, 3, 1}
		moved := false
		b := &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
			sessions, runs := &messages.Sessions{}, &messages.Runs{}
			order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
			if moved {
				order = []int{2, 0, 1, 3, 4, 5, 6, 7, 8, 9}
			}
			for _, i := range order {
				at := times[i]
				if moved && i == 2 {
					at = 20
				}
				sessions.Sessions = append(sessions.Sessions, &messages.SessionView{Id: fmt.Sprintf("e%d", i), UpdatedAtUnixMs: at})
				runs.Runs = append(runs.Runs, &messages.RunView{RunId: fmt.Sprintf("e%d", i), StartedAtUnixMs: at})
			}
			if l, asks := m.(*messages.ListSessions); asks {
				if n := int(l.GetLimit()); n > 0 && n < len(sessions.GetSessions()) {
					sessions.Sessions = sessions.Sessions[:n]
				}
				return sessions, nil
			}
			return runs, nil
		}}
		s := serve(t, b, gateway.Options{})
		var seen []string
		pages := 0
		for next := list + "?limit=3"; next != ""; pages++ {
			res, text := s.do(t, "GET", next, "")
			var got []struct{ ID string }
			if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != http.StatusOK || len(got) > 3 {
				t.Fatalf("%s: %s %s", next, res.Status, text)
			}
			for _, v := range got {
				seen = append(seen, v.ID)
			}
			if next, _, _ = strings.Cut(strings.TrimPrefix(res.Header.Get("Link"), "<"), ">"); next != "" && !strings.HasSuffix(res.Header.Get("Link"), `>; rel="next"`) {
				t.Fatalf("Link: %s", res.Header.Get("Link"))
			}
			moved = true
		}
		if want := []string{"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9"}; !slices.Equal(seen, want) || pages != 4 {
			t.Errorf("%s: %v in %d pages", list, seen, pages)
		}
		if res, _ := s.do(t, "GET", list+"?limit=10", ""); res.Header.Get("Link") != "" {
			t.Errorf("%s: behind the last entry is %s", list, res.Header.Get("Link"))
		}
		for _, wrong := range []string{"?after=x", "?after=1.", "?after=e1", "?after=.e1", "?limit=-1", "?limit=2000000000"} {
			if res, text := s.do(t, "GET", list+wrong, ""); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %s %s", list, wrong, res.Status, text)
			}
		}
	}
}
