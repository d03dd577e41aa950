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

// TestAnAuditIsReadBackwardsPageByPage has entries of the same record, one that comes while pages are read, and damage, which stands behind all.
func TestAnAuditIsReadBackwardsPageByPage(t *testing.T) {
	entry := func(what string, at int64, session string, seq uint64) *messages.AuditView {
		return &messages.AuditView{What: what, AtUnixMs: at, SessionId: session, Cursor: seq, Kind: "call"}
	}
	for limit, want := range map[string][]string{
		"?limit=3": {"f g damage", "c d e", "x a b"}, "?limit=1": {"damage", "g", "f", "e", "d", "c", "b", "a", "x"}, "": {"x a b c d e f g damage"},
	} {
		more := false
		s := serve(t, &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
			all := []*messages.AuditView{
				entry("x", 1, "", 0), entry("a", 1, "s1", 0), entry("b", 1, "s1", 0), entry("c", 1, "s1", 0), entry("d", 1, "s1", 4), entry("e", 1, "s2", 2), entry("f", 2, "s1", 5), entry("g", 3, "s1", 6),
			}
			if more {
				all = append(all, entry("late", 4, "s1", 7))
			}
			all = append(all, &messages.AuditView{What: "damage", Kind: messages.AuditDamage, AtUnixMs: 1, SessionId: "s1", Cursor: 1})
			if q, ok := m.(*messages.ListAudit); ok && q.GetLimit() > 0 {
				all = all[max(len(all)-int(q.GetLimit()), 0):]
			}
			return &messages.Audit{Entries: all}, nil
		}}, gateway.Options{})
		var pages []string
		for next := "/api/audit" + limit; next != ""; more = limit == "?limit=3" {
			res, text := s.do(t, "GET", next, "")
			var got []messages.AuditJSON
			if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s %s", next, res.Status, text)
			}
			var page []string
			for _, v := range got {
				page = append(page, v.What)
			}
			pages = append(pages, strings.Join(page, " "))
			next, _, _ = strings.Cut(strings.TrimPrefix(res.Header.Get("Link"), "<"), ">")
		}
		if !slices.Equal(pages, want) {
			t.Errorf("limit %q: %q", limit, pages)
		}
		for _, wrong := range []string{"?before=1", "?before=1.2.x.s", "?before=x.2.0.s", "?limit=-1", "?limit=2000000000"} {
			if res, text := s.do(t, "GET", "/api/audit"+wrong, ""); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s %s", wrong, res.Status, text)
			}
		}
	}
}

// TestPagesOfAnAuditLeaveNothingOut where a page begins among entries of one record, or what is damaged fills more than one.
func TestPagesOfAnAuditLeaveNothingOut(t *testing.T) {
	for what, all := range map[string][]*messages.AuditView{
		"calls of one answer": {{What: "a", AtUnixMs: 1, SessionId: "s", Cursor: 3}, {What: "b", AtUnixMs: 2, SessionId: "s", Cursor: 7}, {What: "c", AtUnixMs: 2, SessionId: "s", Cursor: 7}, {What: "d", AtUnixMs: 2, SessionId: "s", Cursor: 7}, {What: "e", AtUnixMs: 2, SessionId: "s", Cursor: 7}},
		"damage":              {{What: "a", AtUnixMs: 9, SessionId: "s", Cursor: 3}, {What: "b", Kind: messages.AuditDamage}, {What: "c", Kind: messages.AuditDamage, AtUnixMs: 1, SessionId: "s", Cursor: 3}, {What: "d", Kind: messages.AuditDamage, AtUnixMs: 2, SessionId: "r"}, {What: "e", Kind: messages.AuditDamage, AtUnixMs: 1, SessionId: "t"}},
	} {
		s := serve(t, &backend{answer: func(_ context.Context, m proto.Message) (proto.Message, error) {
			got := slices.Clone(all)
			if q, ok := m.(*messages.ListAudit); ok && q.GetLimit() > 0 {
				got = got[max(len(got)-int(q.GetLimit()), 0):]
			}
			return &messages.Audit{Entries: got}, nil
		}}, gateway.Options{})
		for limit, want := range []string{1: "e d c b a ", 2: "de bc a ", 3: "cde ab ", 4: "bcde a "} {
			if limit == 0 {
				continue
			}
			pages := ""
			for next := fmt.Sprint("/api/audit?limit=", limit); next != ""; pages += " " {
				res, text := s.do(t, "GET", next, "")
				var page []messages.AuditJSON
				if err := json.Unmarshal([]byte(text), &page); err != nil || len(pages) > 20 {
					t.Fatalf("%s: %s %s", next, res.Status, text)
				}
				for _, v := range page {
					pages += v.What
				}
				next, _, _ = strings.Cut(strings.TrimPrefix(res.Header.Get("Link"), "<"), ">")
			}
			if pages != want {
				t.Errorf("%s, %d on a page: %q, want %q", what, limit, pages, want)
			}
		}
	}
}
