package troupe_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// lossy is a store that has lost all of its index, but for what is kept, and its timers.
type lossy struct {
	*memory.Store
	kept string   // what the keys begin with of those that are certain; "": none is
	made []string // what was made again
}

func (l *lossy) Lost() *persistence.Lost {
	return &persistence.Lost{
		Index: func(key string) (bool, error) { return l.kept == "" || !strings.HasPrefix(key, l.kept), nil },
		Timer: func(string) (bool, error) { return true, nil },
	}
}

func (l *lossy) Relisted(_ context.Context, prefixes ...string) error {
	l.made = prefixes
	return nil
}

// listings are all entries of a store's index, readable, and its timers. When an entry was last written is left out.
func listings(t *testing.T, store persistence.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	kinds := map[string]func() proto.Message{
		"ses": func() proto.Message { return &messages.SessionView{} }, "wrk": func() proto.Message { return &messages.WorkerView{} },
		"apr": func() proto.Message { return &messages.ApprovalView{} }, "rul": func() proto.Message { return &messages.RuleView{} },
		"run": func() proto.Message { return &messages.RunView{} }, "cnv": func() proto.Message { return &messages.SharedConversation{} },
	}
	err := store.Index(t.Context(), "", func(key string, value []byte) error {
		kind, _, _ := strings.Cut(key, "/")
		text := string(value)
		if empty := kinds[kind]; empty != nil {
			m := empty()
			if err := proto.Unmarshal(value, m); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			switch v := m.(type) {
			case *messages.WorkerView:
				if v.UpdatedAtUnixMs = 0; proto.Equal(v.GetUsage(), &messages.Usage{}) {
					v.Usage = nil
				}
			case *messages.RunView:
				v.UpdatedAtUnixMs = 0
			case *messages.ApprovalView:
				if v.GetTool() == "pipeline" { // it is asked at the time of its record, which is made a little later
					v.AtUnixMs = 0
				}
			case *messages.SessionView: // one that began without an input is called by its first from then on
				v.Title = ""
			}
			text = protojson.Format(m)
		}
		out[key] = strings.ReplaceAll(text, "  ", " ") // protojson changes its spaces from build to build
		return nil
	})
	if err == nil {
		err = store.Due(t.Context(), time.Unix(1<<40, 0), func(tm persistence.Timer) error {
			out[tm.ID] = tm.Due.UTC().Format(time.RFC3339)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestListingsAndTimersAreMadeAgainFromTheJournals loses all of them.
func TestListingsAndTimersAreMadeAgainFromTheJournals(t *testing.T) {
	store, data := memoryOf(t), t.TempDir()
	t.Cleanup(func() { _ = store.Close() })
	answers, asked := make(chan troupe.Decision, 1), make(chan bool, 1)
	rt, err := troupe.New(t.Context(), troupe.Options{Model: writesOnce{}, Store: store, DataDir: data, Approve: func(ctx context.Context, _ *troupe.Approval) troupe.Answer {
		asked <- true
		select {
		case d := <-answers:
			return troupe.Answer{Decision: d}
		case <-ctx.Done(): // it waits for another one
			return troupe.Answer{Decision: troupe.Rejected}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, decision := range []troupe.Decision{troupe.Approved, troupe.Rejected, 0} {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if decision == 0 { // it still waits
			go func() { _, _ = s.Run(ctx, "write it") }()
			<-asked
			continue
		}
		answers <- decision
		if r, err := s.Run(ctx, "write it"); err != nil || r.Outcome != "done" {
			t.Fatalf("%+v, %v", r, err)
		}
		<-asked
		if _, err := s.Remind(ctx, time.Now().Add(24*time.Hour), "tea", troupe.RemindOptions{ID: "tea"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	want := listings(t, store)
	l := loseListings(t, store, want, 2, 3*2+1+2)
	if rt, err = troupe.New(ctx, troupe.Options{Model: writesOnce{}, Store: l, DataDir: data, Still: true}); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	sameListings(t, listings(t, store), want)
	if !slices.Contains(l.made, "ses/") || slices.Contains(l.made, "tok/") {
		t.Errorf("made again %q", l.made)
	}
}

// loseListings removes the whole index and all timers of a store: so many timers, and at least so many entries.
func loseListings(t *testing.T, store *memory.Store, want map[string]string, timed, least int) *lossy {
	t.Helper()
	var index, timers []string
	for key := range want {
		if strings.HasPrefix(key, "tmr/") {
			timers = append(timers, key)
		} else {
			index = append(index, key)
		}
	}
	if len(timers) != timed || len(index) < least {
		t.Fatalf("%q is not what this is about", slices.Sorted(maps.Keys(want)))
	}
	if err := store.Delete(t.Context(), persistence.Deletion{Session: "none", Index: index, Timers: timers}); err != nil {
		t.Fatal(err)
	}
	return &lossy{Store: store}
}

func sameListings(t *testing.T, got, want map[string]string) {
	t.Helper()
	for key, text := range want {
		if got[key] != text {
			t.Errorf("%s is\n%s\ninstead of\n%s", key, got[key], text)
		}
	}
	for key := range got {
		if want[key] == "" && !strings.HasPrefix(key, "cpy/") { // whether one was imported is not in its journal: it may be
			t.Errorf("%s was not there before", key)
		}
	}
}

// TestRunsTheirQuestionsAndSharedConversationsAreListedAgain loses the listings of a run that is over, whose agents shared a conversation, of one that
// waits for a person, and of one that was answered.
func TestRunsTheirQuestionsAndSharedConversationsAreListedAgain(t *testing.T) {
	store, data, ctx := memoryOf(t), t.TempDir(), t.Context()
	options := troupe.Options{Model: talkModel(), Store: store, DataDir: data}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	run, err := rt.RunPipeline(ctx, planOf(t, talk), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "succeeded" {
		t.Fatalf("%v, %v", v, err)
	}
	for _, answered := range []bool{true, false} {
		run, err := rt.RunPipeline(ctx, planOf(t, "version: 1\nname: c\nsteps:\n  - {id: a, human: {message: Well?, choices: [yes, no]}}\n"), troupe.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for rev := uint64(0); ; {
			v, err := run.Changed(ctx, rev)
			if err != nil {
				t.Fatal(err)
			}
			if rev = v.GetRevision(); v.GetState() == "waiting" {
				break
			}
		}
		if !answered {
			continue
		}
		asked, err := rt.Approvals(ctx)
		if err != nil || len(asked) != 1 {
			t.Fatalf("asked: %v, %v", asked, err)
		}
		if err := rt.ResolveApproval(ctx, asked[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved, Message: "yes"}); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	want := listings(t, store)
	for _, kind := range []string{"run/", "cnv/", "apr/", "apd/"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool { return strings.HasPrefix(key, kind) }) {
			t.Fatalf("nothing is listed below %s", kind)
		}
	}
	options.Store, options.Still = loseListings(t, store, want, 0, 4), true
	if rt, err = troupe.New(ctx, options); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	sameListings(t, listings(t, store), want)
}

// TestMarksThatAreThereCountWhenListingsAreMadeAgain: a copy that was not finished is not listed, and an import is as much trusted as it is.
func TestMarksThatAreThereCountWhenListingsAreMadeAgain(t *testing.T) {
	store, data, ctx := memoryOf(t), t.TempDir(), t.Context()
	options := troupe.Options{Model: echo(), Store: store, DataDir: data}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, mark := range []string{"", "unfinished", "doomed", "restricted"} {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		ids[mark] = s.ID()
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	l := loseListings(t, store, listings(t, store), 0, 8)
	l.kept = "cpy/"
	b := persistence.Batch{}
	for mark, id := range ids {
		if mark != "" {
			b.Index = append(b.Index, persistence.IndexOp{Key: "cpy/" + id, Value: []byte(mark)})
		}
	}
	if b.Lease, err = store.Claim(ctx, "own/marks", "test"); err != nil {
		t.Fatal(err)
	}
	b.Expect = b.Lease.Next
	if _, err := store.Append(ctx, b); err != nil {
		t.Fatal(err)
	}
	options.Store, options.Still = l, true
	if rt, err = troupe.New(ctx, options); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	got := listings(t, store)
	for _, mark := range []string{"unfinished", "doomed"} {
		for key := range got {
			if strings.Contains(key, ids[mark]) {
				t.Errorf("%s of a session that is %s", key, mark)
			}
		}
	}
	for mark, trust := range map[string]string{"": "FULL", "restricted": "RESTRICTED"} {
		// its home is trusted either way
		if text := got["ses/"+ids[mark]]; !strings.Contains(text, `"`+trust+`"`) || mark == "" && strings.Contains(text, `"RESTRICTED"`) {
			t.Errorf("the session that is %q is listed as %s", mark, text)
		}
	}
}

// TestASharedConversationThatDoesNotFoldLeavesTheOthersListed has one record too many in there.
func TestASharedConversationThatDoesNotFoldLeavesTheOthersListed(t *testing.T) {
	store, data, ctx := memoryOf(t), t.TempDir(), t.Context()
	options := troupe.Options{Model: talkModel(), Store: store, DataDir: data}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	run, err := rt.RunPipeline(ctx, planOf(t, talk), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	want, broken := listings(t, store), ""
	for key := range want {
		if strings.HasPrefix(key, "cnv/") {
			broken = key
		}
	}
	j, err := persistence.OpenJournal(ctx, store, messages.ConversationStream(broken[strings.LastIndexByte(broken, '/')+1:]), run.Session(), "test")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := messages.NewConversationRecord(&messages.ConversationOpened{Name: "again"})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { written <- err }, persistence.Draft{Records: []*messages.Record{rec}})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	j.Release()
	options.Store, options.Still = loseListings(t, store, want, 0, 4), true
	if rt, err = troupe.New(ctx, options); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	delete(want, broken)
	sameListings(t, listings(t, store), want)
}

// nameless is a store that may have lost streams, with all that names them.
type nameless struct{ *memory.Store }

func (s nameless) Streams(ctx context.Context, prefix string, fn func(string) error) error {
	if err := s.Store.Streams(ctx, prefix, fn); err != nil {
		return err
	}
	return fmt.Errorf("streams of %q may be lost: %w", prefix, persistence.ErrCorrupt)
}

func TestWhereStreamsMayBeLostTheOthersAreLookedAt(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), DataDir: t.TempDir(), Store: nameless{memoryOf(t)}})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	v := ask[*messages.Verified](t, rt, &messages.Verify{})
	if len(v.GetFindings()) == 0 || !strings.Contains(v.GetFindings()[0].GetProblem(), "may be lost") {
		t.Errorf("found: %v", v)
	}
	a := ask[*messages.Audit](t, rt, &messages.ListAudit{})
	if n := len(a.GetEntries()); n == 0 || a.GetEntries()[n-1].GetKind() != "damage" {
		t.Errorf("audit: %v", a)
	}
	ask[*messages.Ack](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Close{Close: &messages.CloseSession{}}})
	for {
		gone, err := rt.Forget(ctx, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(gone, s.ID()) {
			return
		}
		<-time.After(5 * time.Millisecond) // it is in memory for a while
	}
}

var _ persistence.Relister = (*badger.Store)(nil)
