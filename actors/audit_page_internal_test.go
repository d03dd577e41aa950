package actors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// counted counts the records that are read.
type counted struct {
	persistence.Store
	records int
}

func (c *counted) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	return c.Store.Read(ctx, stream, from, func(e persistence.Entry) error { c.records++; return fn(e) })
}

func (c *counted) ReadSession(ctx context.Context, session string, after uint64, fn func(persistence.Entry) error) error {
	return c.Store.ReadSession(ctx, session, after, func(e persistence.Entry) error { c.records++; return fn(e) })
}

// ledger writes sessions as an audit reads them.
type ledger struct {
	t        *testing.T
	store    persistence.Store
	rand     *rand.Rand
	now      int64
	sessions []string
	open     map[string][]string // exec ids, by worker
	n        int
	steady   bool // the clock only goes on
}

func newLedger(t *testing.T, seed uint64) *ledger {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	return &ledger{t: t, store: store, rand: rand.New(rand.NewPCG(seed, 1)), now: 1000, open: make(map[string][]string)} //nolint:gosec // the same each time
}

func (l *ledger) append(stream, session string, fact proto.Message) {
	l.t.Helper()
	r, err := messages.NewRecord(fact, "")
	switch fact.(type) {
	case *messages.RuleRemembered:
		r, err = messages.NewSystemRecord(fact)
	case *messages.RunStarted, *messages.HumanAnswered:
		r, err = messages.NewRunRecord(fact)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	r.AtUnixMs = l.now
	lease, err := l.store.Claim(l.t.Context(), stream, "test")
	if err == nil {
		_, err = l.store.Append(l.t.Context(), persistence.Batch{Lease: lease, Expect: lease.Next, Session: session, Records: []*messages.Record{r}})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) session(tenant string, run bool) string {
	id, made := messages.NewID(messages.SessionPrefix), &messages.SessionCreated{Agent: "default", Tenant: tenant, By: "ann"}
	if run {
		made.RunId = messages.RunOf(id)
		l.append(messages.RunStream(made.GetRunId()), "", &messages.RunStarted{Name: "nightly", By: "ann"})
	}
	l.append(messages.SessionStream(id), id, made)
	for _, w := range []string{"a", "b"} {
		l.append(messages.WorkerStream(id+w), id, &messages.WorkerCreated{WorkerId: id + w, SessionId: id, Agent: "first"})
	}
	l.sessions = append(l.sessions, id)
	return id
}

// step does something somewhere.
func (l *ledger) step() {
	s := l.sessions[l.rand.IntN(len(l.sessions))]
	w := s + []string{"a", "b"}[l.rand.IntN(2)]
	stream := messages.WorkerStream(w)
	l.now += int64(l.rand.IntN(3)) // many have one time
	if !l.steady && l.rand.IntN(40) == 0 {
		l.now -= 50 // somebody has put the clock right
	}
	l.n++
	switch k := l.rand.IntN(12); {
	case k < 4:
		exec := fmt.Sprint("exe_", l.n)
		l.append(stream, s, &messages.ToolPlanned{ExecId: exec, Tool: "exec", NeedsApproval: k == 0, DecidedBy: "trust"})
		if k == 0 {
			l.append(stream, s, &messages.ApprovalRequested{ExecId: exec, Tool: "exec", ApprovalId: "apr" + exec})
		}
		l.open[w] = append(l.open[w], exec)
	case k < 8 && len(l.open[w]) > 0:
		i := l.rand.IntN(len(l.open[w]))
		exec := l.open[w][i]
		if k == 4 {
			l.append(stream, s, &messages.ApprovalResolved{ExecId: exec, By: "ann", Decision: messages.Decision_APPROVED})
			return
		}
		l.append(stream, s, &messages.ToolFinished{ExecId: exec, Tool: "exec", Status: messages.ToolFinished_OK})
		l.open[w] = slices.Delete(l.open[w], i, i+1)
	case k == 8:
		l.append(stream, s, &messages.ConfigChanged{Agent: fmt.Sprint("agent", l.n), Tools: []string{"exec"}, By: "art"})
	case k == 9:
		l.append(messages.SessionStream(s), s, &messages.WorkspaceAttached{Uri: "local:/x", Trust: messages.Trust_FULL, By: "ann"})
	case k == 10:
		l.append(messages.SessionStream(s), s, &messages.WorkspaceDetached{Uri: "local:/x", By: "bob"})
	default:
		l.append(messages.SystemStream, "", &messages.RuleRemembered{RuleId: fmt.Sprint("rul_", l.n), Rule: "exec(ls)", SessionId: s, Scope: "always"})
	}
}

// whole is what Audit says of some sessions.
func (l *ledger) whole(session string, is func(string) bool) []*messages.AuditView {
	all, err := Audit(l.t.Context(), l.store, session)
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.DeleteFunc(all.GetEntries(), func(v *messages.AuditView) bool { return !is(v.GetSessionId()) })
}

// pages reads all pages of what is asked; between two pages something happens.
func (l *ledger) pages(a *Audits, m *messages.ListAudit, between func()) (all []*messages.AuditView) {
	l.t.Helper()
	for {
		page, err := a.Page(l.t.Context(), m)
		if err != nil || m.GetLimit() > 0 && len(page.GetEntries()) > int(m.GetLimit()) {
			l.t.Fatalf("%d entries: %v", len(page.GetEntries()), err)
		}
		all = append(page.GetEntries(), all...)
		if m.Before = page.GetNext(); m.GetBefore() == "" {
			return all
		}
		between()
	}
}

func same(a, b []*messages.AuditView) bool {
	return slices.EqualFunc(a, b, func(v, w *messages.AuditView) bool { return proto.Equal(v, w) })
}

// TestPagesOfAnAuditTogetherAreTheWhole of sessions whose calls end long after they began, whose clock was put back, of two tenants, with runs and
// with rules, while no more is remembered than of some of them.
func TestPagesOfAnAuditTogetherAreTheWhole(t *testing.T) {
	for seed := range uint64(3) {
		l := newLedger(t, seed)
		tenant := map[string]string{}
		for i := range 5 {
			of := []string{"", "b"}[i%2]
			tenant[l.session(of, i == 3)] = of
		}
		a := NewAudits(l.store)
		a.block, a.folds = 4, 2
		for range 4 {
			for range 60 {
				l.step()
			}
			for _, limit := range []int32{0, 1, 3, 50} {
				everybody := func(string) bool { return true }
				if got, want := l.pages(a, &messages.ListAudit{Limit: limit}, func() {}), l.whole("", everybody); !same(got, want) {
					t.Fatalf("seed %d, limit %d:\n%v\nwant\n%v", seed, limit, got, want)
				}
				b := "b"
				if got, want := l.pages(a, &messages.ListAudit{Limit: limit, Tenant: &b}, func() {}), l.whole("", func(s string) bool { return tenant[s] == b }); !same(got, want) {
					t.Fatalf("seed %d, limit %d, of a tenant:\n%v\nwant\n%v", seed, limit, got, want)
				}
				for _, s := range l.sessions {
					if got, want := l.pages(a, &messages.ListAudit{Limit: limit, SessionId: s}, func() {}), l.whole(s, everybody); !same(got, want) {
						t.Fatalf("seed %d, limit %d, of one:\n%v\nwant\n%v", seed, limit, got, want)
					}
				}
			}
		}
	}
}

// TestWhatComesWhilePagesAreReadMovesNoOtherEntry: with a clock that goes on, what was there before the first page is read just once.
func TestWhatComesWhilePagesAreReadMovesNoOtherEntry(t *testing.T) {
	l := newLedger(t, 1)
	s := l.session("", false)
	call := func(exec string) {
		l.now++
		l.append(messages.WorkerStream(s+"a"), s, &messages.ToolPlanned{ExecId: exec, Tool: "exec", DecidedBy: "trust"})
	}
	for i := range 30 {
		call(fmt.Sprint("exe_", i))
	}
	a, later := NewAudits(l.store), 0
	a.block = 4
	var got []string
	for _, v := range l.pages(a, &messages.ListAudit{Limit: 7}, func() { later++; call(fmt.Sprint("later_", later)) }) {
		if v.GetKind() == auditCall {
			got = append(got, v.GetExecId())
		}
	}
	for i := range 30 {
		if len(got) != 30 || got[i] != fmt.Sprint("exe_", i) {
			t.Fatalf("%d: %v", i, got)
		}
	}
}

// TestAPageOfAnAuditCostsWhatItHolds, and not what there is: once a session has been read, what a page reads is counted.
func TestAPageOfAnAuditCostsWhatItHolds(t *testing.T) {
	l := newLedger(t, 1)
	l.steady = true
	for range 4 {
		l.session("", false)
	}
	for range 2000 {
		l.step()
	}
	all := len(l.whole("", func(string) bool { return true }))
	store := &counted{Store: l.store}
	a := NewAudits(store)
	a.block = 32
	if _, err := a.Page(t.Context(), &messages.ListAudit{Limit: 10}); err != nil {
		t.Fatal(err)
	}
	most, pages := 0, 0
	for m := (&messages.ListAudit{Limit: 10}); pages == 0 || m.GetBefore() != ""; pages++ {
		store.records = 0
		page, err := a.Page(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		most, m.Before = max(most, store.records), page.GetNext()
	}
	// A page of ten has its entries in one block of each of the four sessions, or in two.
	if bound := 2 * 4 * (32 + 1); most > bound || most == 0 || pages < all/10 || all < bound {
		t.Errorf("of %d entries, a page reads %d records, and not up to %d; %d pages", all, most, bound, pages)
	}
	store.records = 0
	l.append(messages.WorkerStream(l.sessions[0]+"a"), l.sessions[0], &messages.CancelRequested{Reason: "enough"})
	page, err := a.Page(t.Context(), &messages.ListAudit{Limit: 1, SessionId: l.sessions[0]})
	if err != nil || len(page.GetEntries()) != 1 || store.records > 32+4 {
		t.Errorf("the newest entry of one session: %d records, %v", store.records, err)
	}
}

// TestAnAuditForgetsWhatIsTrimmedAway, also while its pages are read.
func TestAnAuditForgetsWhatIsTrimmedAway(t *testing.T) {
	l := newLedger(t, 1)
	s := l.session("", false)
	for i := range 20 {
		l.now++
		l.append(messages.WorkerStream(s+"a"), s, &messages.ToolPlanned{ExecId: fmt.Sprint("exe_", i), Tool: "exec", DecidedBy: "trust"})
	}
	a := NewAudits(l.store)
	a.block = 4
	m := &messages.ListAudit{Limit: 3}
	page, err := a.Page(t.Context(), m)
	if err != nil || page.GetTrimmed() || page.GetNext() == "" {
		t.Fatalf("%v: %v", page, err)
	}
	stream := messages.WorkerStream(s + "a")
	lease, err := l.store.Claim(t.Context(), stream, "test")
	for _, seq := range []uint64{10, 12} {
		err = errors.Join(err, l.store.PutSnapshot(t.Context(), lease, &messages.Snapshot{Stream: stream, Seq: seq}))
	}
	if err = errors.Join(err, l.store.Trim(t.Context(), lease, 10)); err != nil {
		t.Fatal(err)
	}
	m.Before = page.GetNext()
	got := append(l.pages(a, m, func() {}), page.GetEntries()...)
	want := l.whole("", func(string) bool { return true })
	ids := func(all []*messages.AuditView) (out []string) {
		for _, v := range all {
			out = append(out, v.GetKind()+v.GetExecId())
		}
		return out
	}
	if !slices.Equal(ids(got), ids(want)) || len(want) > 15 {
		t.Errorf("%v\nwant %v", ids(got), ids(want))
	}
	if page, err := a.Page(t.Context(), &messages.ListAudit{Limit: 3}); err != nil || !page.GetTrimmed() {
		t.Errorf("it does not say that something is gone: %v", err)
	}
}

// TestAnAuditOfNothingIsRefused, and leaves nothing in memory.
func TestAnAuditOfNothingIsRefused(t *testing.T) {
	l := newLedger(t, 1)
	s, a, b := l.session("", false), NewAudits(l.store), "b"
	for _, m := range []*messages.ListAudit{{SessionId: "ses_none", Limit: 1}, {Before: "1"}, {Before: "1.2.x.s"}, {Before: "x.2.0.s"}} {
		var f *messages.Failure
		if page, err := a.Page(t.Context(), m); !errors.As(err, &f) {
			t.Errorf("%v: %v %v", m, page, err)
		}
	}
	if page, err := a.Page(t.Context(), &messages.ListAudit{SessionId: s, Tenant: &b}); err != nil || len(page.GetEntries()) != 0 {
		t.Errorf("of another tenant: %v %v", page, err)
	}
	if _, err := a.Page(t.Context(), &messages.ListAudit{Limit: 1}); err != nil || len(a.logs) != 1 {
		t.Errorf("%d sessions are remembered: %v", len(a.logs), err)
	}
	if err := l.store.Delete(t.Context(), persistence.Deletion{Session: s, Streams: []string{messages.SessionStream(s)}}); err != nil {
		t.Fatal(err)
	}
	if page, err := a.Page(t.Context(), &messages.ListAudit{Limit: 1}); err != nil || len(page.GetEntries()) != 0 || len(a.logs) != 0 {
		t.Errorf("of a session that was deleted: %v %v", page, err)
	}
}

// brokenOff is a store whose reads of sessions are broken off behind their last record while it is told to.
type brokenOff struct {
	persistence.Store
	off bool
}

func (b *brokenOff) ReadSession(ctx context.Context, session string, after uint64, fn func(persistence.Entry) error) error {
	err := b.Store.ReadSession(ctx, session, after, fn)
	if err == nil && b.off {
		return context.Canceled
	}
	return err
}

// TestAPageThatIsBrokenOffLeavesNothingOutOfTheNext: whoever asked has gone when a session was read, and what people did with its run was not yet.
func TestAPageThatIsBrokenOffLeavesNothingOutOfTheNext(t *testing.T) {
	l := newLedger(t, 1)
	s := l.session("", true)
	store := &brokenOff{Store: l.store}
	a, m := NewAudits(store), &messages.ListAudit{SessionId: s, Limit: 100}
	if _, err := a.Page(t.Context(), m); err != nil { // it is known from here on
		t.Fatal(err)
	}
	a.logs[s].begin()
	store.off = true
	if page, err := a.Page(t.Context(), m); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v: %v", page, err)
	}
	store.off = false
	page, err := a.Page(t.Context(), m)
	if want := l.whole(s, func(string) bool { return true }); err != nil || !same(page.GetEntries(), want) {
		t.Errorf("%v: %v\nwant %v", err, page.GetEntries(), want)
	}
}
