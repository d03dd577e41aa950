package troupe_test

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// TestOneJobIsEndedAndTheOthersGoOn: whose it is ever, and its agent reads who ended it.
func TestOneJobIsEndedAndTheOthersGoOn(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	other, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 300) // in bytes it is cut in the middle of one
	for range 2 {
		prompted(ctx, t, s, `exec {"command":"sleep 1000; echo `+long+`","background":true}`)
	}
	jobs := func() []*messages.BackgroundJob {
		return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}).GetJobs()
	}
	end := func(session, job string) error {
		_, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: job, By: "ann", Reason: "enough\nof " + long}}})
		return err
	}
	all := jobs()
	if len(all) != 2 {
		t.Fatalf("%v", all)
	}
	for _, j := range all {
		if c := j.GetCommand(); !strings.HasPrefix(c, "sleep 1000; echo ü") || !strings.HasSuffix(c, "ü…") || len(c) > 210 || strings.Contains(c, "\n") {
			t.Errorf("it is shown as %q", c)
		}
	}
	first := all[0].GetJobId()
	if err := end(other.ID(), first); failureCode(err) != messages.CodeNotFound {
		t.Errorf("by another session: %v", err)
	}
	if err := end(s.ID(), first); err != nil {
		t.Fatal(err)
	}
	if left := jobs(); len(left) != 1 || left[0].GetJobId() != all[1].GetJobId() {
		t.Errorf("left are %v", left)
	}
	for _, none := range []string{first, "", "job_none"} {
		if err := end(s.ID(), none); failureCode(err) != messages.CodeNotFound {
			t.Errorf("%q: %v", none, err)
		}
	}
	ended := 0
	told, err := rt.Audit(ctx, s.ID())
	for _, e := range told {
		if e.GetKind() != "job" {
			continue
		}
		if ended++; e.GetDecision() != "ended" || e.GetBy() != "ann" || e.GetJobId() != first || !strings.HasPrefix(e.GetWhat(), "sleep 1000") ||
			!strings.HasPrefix(e.GetWhy(), "enough of üü") || e.GetWorkspace() == "" || e.GetAgent() == "" {
			t.Errorf("the audit says %v", e)
		}
	}
	if err != nil || ended != 1 { // what was refused is no act
		t.Errorf("%d ends in the audit: %v", ended, err)
	}
	if said := prompted(ctx, t, s, fmt.Sprintf(`job_output {"job_id":%q}`, first)); !strings.Contains(said, "[killed: ended by ann: enough of üü") {
		t.Errorf("its agent reads %q", said)
	}
}

// TestWhoEndsAllCommandsIsWrittenDown: each of them, whether a turn is open or not, of all agents or of one; and those of another session are not this one's to end.
func TestWhoEndsAllCommandsIsWrittenDown(t *testing.T) {
	dir := t.TempDir()
	o := troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: dir}
	rt, err := troupe.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.NewWorker(ctx, troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, of := range []*troupe.Worker{s.Worker, s.Worker, w} {
		if res, err := of.Run(ctx, fmt.Sprintf(`exec {"command":"sleep 100%d","background":true}`, i)); err != nil || res.Outcome != "done" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	cancel := func(session string, m *messages.CancelSession) (*messages.Cancelled, error) {
		m.Jobs = true
		r, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Cancel{Cancel: m}})
		c, _ := r.(*messages.Cancelled)
		return c, err
	}
	if _, err := cancel(other.ID(), &messages.CancelSession{WorkerId: w.ID()}); failureCode(err) != messages.CodeNotFound {
		t.Errorf("by another session: %v", err)
	}
	if c, err := cancel(other.ID(), &messages.CancelSession{}); err != nil || c.GetEnded() != 0 {
		t.Errorf("of another session: %v, %v", c, err)
	}
	if c, err := cancel(s.ID(), &messages.CancelSession{WorkerId: w.ID(), By: "ann", Reason: "enough\nof it"}); err != nil || c.GetEnded() != 1 {
		t.Errorf("of one agent: %v, %v", c, err)
	}
	if c, err := cancel(s.ID(), &messages.CancelSession{By: "limit"}); err != nil || c.GetEnded() != 2 { // nobody may call himself that
		t.Errorf("of all: %v, %v", c, err)
	}
	if c, err := cancel(s.ID(), &messages.CancelSession{}); err != nil || c.GetEnded() != 0 { // and nothing is written down
		t.Errorf("again: %v, %v", c, err)
	}
	want := map[string]string{"sleep 1002": "ann: enough of it", "sleep 1000": "user: ", "sleep 1001": "user: "}
	for _, again := range []bool{false, true} {
		got := map[string]string{}
		for _, id := range []string{s.ID(), other.ID()} {
			told, err := rt.Audit(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range told {
				if e.GetKind() == "job" {
					got[e.GetWhat()] += e.GetBy() + ": " + e.GetWhy()
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("after a restart: %v: the audit says %v", again, got)
		}
		if err := rt.Close(ctx); err != nil || again {
			break
		}
		if rt, err = troupe.New(ctx, o); err != nil {
			t.Fatal(err)
		}
		if _, err := rt.Open(ctx, s.ID()); err != nil {
			t.Fatal(err)
		}
	}
	wantSkippable(t, dir, s.ID(), 3)
}

// noEnds is a store that refuses what says who ended a job while it is told to.
type noEnds struct {
	persistence.Store
	full atomic.Bool
}

func (n *noEnds) Enqueue(done func(persistence.Receipt, error), all ...persistence.Batch) {
	for _, b := range all {
		for _, r := range b.Records {
			if f, err := messages.SessionFactIn(r); err == nil && n.full.Load() && strings.HasPrefix(b.Lease.Stream, messages.SessionStream("")) {
				if _, is := f.(*messages.JobEnded); is {
					done(persistence.Receipt{}, fmt.Errorf("no room: %w", persistence.ErrFull))
					return
				}
			}
		}
	}
	n.Store.Enqueue(done, all...)
}

// TestACommandWhoseEndCannotBeWrittenDownRunsOn, and whoever asked for it is told so; it ends when there is room again.
func TestACommandWhoseEndCannotBeWrittenDownRunsOn(t *testing.T) {
	store := &noEnds{Store: memoryOf(t)}
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir(), Store: store})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		prompted(ctx, t, s, `exec {"command":"sleep 1000","background":true}`)
	}
	do := func(cmd *messages.ToSession) (proto.Message, error) {
		cmd.SessionId = s.ID()
		return rt.Ask(ctx, cmd)
	}
	jobs := func() []*messages.BackgroundJob {
		return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}).GetJobs()
	}
	one := jobs()[0].GetJobId()
	endOne := func() (proto.Message, error) {
		return do(&messages.ToSession{Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: one}}})
	}
	endAll := func() (proto.Message, error) {
		return do(&messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{Jobs: true}}})
	}
	store.full.Store(true)
	for what, end := range map[string]func() (proto.Message, error){"one": endOne, "all": endAll} {
		if _, err := end(); failureCode(err) != messages.CodeUnavailable || len(jobs()) != 2 {
			t.Errorf("%s: %v; %d run", what, err, len(jobs()))
		}
	}
	store.full.Store(false)
	if _, err := endOne(); err != nil || len(jobs()) != 1 {
		t.Errorf("one, with room: %v; %d run", err, len(jobs()))
	}
	if _, err := endAll(); err != nil || len(jobs()) != 0 {
		t.Errorf("all, with room: %v; %d run", err, len(jobs()))
	}
}

// wantSkippable reads a closed store: what says who ended a job is left out by a release that does not know it, and stops no session.
func wantSkippable(t *testing.T, dir, session string, want int) {
	t.Helper()
	store, err := badger.Open(t.Context(), badger.Options{Dir: troupe.StoreDir(dir), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }() // it was only read
	n := 0
	err = store.Read(t.Context(), messages.SessionStream(session), 1, func(e persistence.Entry) error {
		f, err := messages.SessionFactIn(e.Record)
		if _, is := f.(*messages.JobEnded); is {
			if n++; !e.Record.GetIgnorable() {
				t.Errorf("record %d stops an older release", e.Record.GetSeq())
			}
		}
		return err
	})
	if err != nil || n != want {
		t.Errorf("%d ends: %v", n, err)
	}
}
