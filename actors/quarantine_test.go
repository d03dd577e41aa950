package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// listedWorker is a worker as the store lists it.
func listedWorker(t *testing.T, store persistence.Store, session, worker string) *messages.WorkerView {
	t.Helper()
	v := &messages.WorkerView{}
	err := store.Index(context.Background(), actors.WorkerKey(session, worker), func(_ string, value []byte) error { return proto.Unmarshal(value, v) })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAQuarantineOutlivesTheProcessAndAReleaseEndsItUntilTheNextThreePanics(t *testing.T) {
	store := memory.New()
	b := &brittle{One: actortest.One{Model: actortest.Say("ok")}}
	b.panics.Store(1 << 20)
	h := actortest.New(t, actortest.Options{Store: store, Models: b})
	s, w := h.Create(&messages.CreateSession{Model: "brittle"})
	watch := h.Watch(s)
	in := submit(h, s, "go")
	events := watch.Until(messages.EventWorkerEnded)
	if e := events[len(events)-1]; e.GetStatus() != "quarantined" || e.GetWorker() != w || !strings.Contains(e.GetReason(), "as the test wants it") || e.GetSeq() == 0 {
		t.Errorf("watchers are told %v", e)
	}
	quarantined := func(v *messages.WorkerView) {
		t.Helper()
		if v.GetState() != "inactive_failed" || !v.GetQuarantined() || !strings.Contains(v.GetLastError(), "as the test wants it") {
			t.Errorf("shown as %v", v)
		}
	}
	quarantined(listedWorker(t, store, s, w))
	quarantined(h.Worker(s))
	h.Stop()

	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	h = actortest.New(t, actortest.Options{Store: again, Models: b})
	quarantined(listedWorker(t, again, s, w)) // nobody was woken
	before := b.panics.Load()
	_, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if actortest.Code(err) != messages.CodeQuarantined || !strings.Contains(err.Error(), "troupe workers release "+w) {
		t.Errorf("who waits is told %v", err)
	}
	if b.panics.Load() != before {
		t.Error("it was tried again by itself")
	}
	quarantined(h.Worker(s))
	for range 2 { // released, it may panic three times more
		before = b.panics.Load()
		v := actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w, By: "somebody"})
		if v.GetQuarantined() {
			t.Errorf("released as %v", v)
		}
		_, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
		if n := before - b.panics.Load(); n != 3 || actortest.Code(err) != messages.CodeQuarantined {
			t.Errorf("%d panics, then %v", n, err)
		}
	}
	b.panics.Store(0)
	watch = h.Watch(s)
	actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w, By: "somebody"})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	events = watch.Until(messages.EventWorkerSpawned)
	if e := events[len(events)-1]; e.GetStatus() != "released" || e.GetReason() != "somebody" {
		t.Errorf("watchers are told %v", e)
	}
	if v := listedWorker(t, again, s, w); v.GetQuarantined() || v.GetState() != "inactive" || v.GetLastError() != "" {
		t.Errorf("listed as %v", v)
	}
	actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{}) // what is free stays so
	if r := actortest.Of[*messages.Released](h.Facts(w)); len(r) != 3 || r[0].GetBy() != "somebody" {
		t.Errorf("written down %v", r)
	}
	works(t, h, s)
}

// TestAnOrderlyStopInTheMiddleOfATurnIsNoDeath stops a house twelve times while a model is asked, with a death now and then:
// only the deaths count, and only what the turn made no progress after.
func TestAnOrderlyStopInTheMiddleOfATurnIsNoDeath(t *testing.T) {
	for _, persist := range []messages.Persist_Policy{messages.Persist_MESSAGE, messages.Persist_TASK} {
		store := memory.New()
		t.Cleanup(func() { _ = store.Close() })
		var session, worker string
		for life := range 21 {
			gate, m := gated()
			h := actortest.New(t, actortest.Options{Store: store, Model: m})
			if session == "" {
				session, worker = h.Create(&messages.CreateSession{Persist: persist})
				submit(h, session, "slow")
			}
			if v := h.Worker(session); v.GetQuarantined() {
				t.Fatalf("%v: quarantined in life %d: %v", persist, life, v)
			}
			actortest.Wait(t, "the model is asked", gate.Came)
			if life >= 12 { // nine deaths: one more would be too many
				dead := store.Reopen()
				h.Stop()
				store = dead
				continue
			}
			h.Stop()
			store = store.Reopen()
		}
		gate, m := gated()
		h := actortest.New(t, actortest.Options{Store: store, Model: m})
		h.Worker(session)
		actortest.Wait(t, "the model is asked once more", gate.Came)
		gate.Open()
		if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{}); r.GetText() != "said slow" {
			t.Errorf("%v: %v", persist, r)
		}
		before := len(h.Facts(worker))
		h.Stop()
		if after := len(h.Facts(worker)); after != before {
			t.Errorf("%v: a stop between two turns wrote %d records", persist, after-before)
		}
	}
}

// TestAPromptThatKillsTheProcessIsQuarantinedAtTheTenthTime ends the house in the middle of a model call again and
// again, without a word to anybody: what is in the store then is what a dead process leaves.
func TestAPromptThatKillsTheProcessIsQuarantinedAtTheTenthTime(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	var session, worker string
	deaths := 0
	for ; deaths < 20; deaths++ {
		gate, m := gated()
		h := actortest.New(t, actortest.Options{Store: store, Model: m})
		if session == "" {
			session, worker = h.Create(&messages.CreateSession{})
			submit(h, session, "deadly")
		} else if v := h.Worker(session); v.GetQuarantined() {
			break
		}
		quarantined := false
		actortest.Until(t, "the model is asked, or the worker is quarantined", func() bool {
			quarantined = h.Worker(session).GetQuarantined() && listedWorker(t, store, session, worker).GetQuarantined() // a death before that is one more
			return quarantined || len(gate.Came) > 0
		})
		dead := store.Reopen() // the house has no store any more to say anything to
		h.Stop()
		store = dead
		if quarantined {
			break
		}
	}
	if deaths != 10 {
		t.Errorf("quarantined after %d deaths", deaths)
	}
	if v := listedWorker(t, store, session, worker); !v.GetQuarantined() || !strings.Contains(v.GetLastError(), "the process ended 10 times") {
		t.Errorf("listed as %v", v)
	}
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Store: store, Model: m})
	actortest.Ask[*messages.WorkerView](h, session, &messages.ReleaseWorker{})
	actortest.Wait(t, "the model is asked again", gate.Came)
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{}); r.GetText() != "said deadly" {
		t.Errorf("%v", r)
	}
}

func TestAWorkerWhoseJournalDoesNotFoldIsListedAsQuarantinedAndStaysSoWhenItIsReleased(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "one")
	h.Stop()
	j, err := persistence.OpenJournal(context.Background(), store, messages.WorkerStream(w), s, "test")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := messages.NewRecord(&messages.ToolFinished{ExecId: "exe_none"}, "")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{Records: []*messages.Record{rec}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	h = actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	h.State(s, "inactive_failed")
	if v := listedWorker(t, store, s, w); !v.GetQuarantined() || v.GetTurns() != 1 || v.GetLastError() == "" {
		t.Errorf("listed as %v", v)
	}
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w}); actortest.Code(err) != messages.CodeQuarantined {
		t.Errorf("released: %v", err)
	}
}

// explosive is a store whose reads of a worker's journal panic so many times.
type explosive struct {
	persistence.Store
	left, blown atomic.Int64
}

func (s *explosive) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	if strings.HasPrefix(stream, messages.WorkerStream("")) && s.left.Add(-1) >= 0 {
		s.blown.Add(1)
		panic("a fold that cannot go on")
	}
	return s.Store.Read(ctx, stream, from, fn)
}

func (s *explosive) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

// TestAWorkerWhoseOpeningPanicsIsTriedThreeTimesAndQuarantined: it is listed, and released it is tried three times
// more, in this process and in the next.
func TestAWorkerWhoseOpeningPanicsIsTriedThreeTimesAndQuarantined(t *testing.T) {
	store := &explosive{Store: kept(t)}
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	works(t, h, s)
	h.Stop()
	store.left.Store(1 << 30)
	h = actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	tried := func(doing string, err error, times int64) {
		t.Helper()
		if n := store.blown.Swap(0); n != times || actortest.Code(err) != messages.CodeQuarantined || !strings.Contains(err.Error(), "panicked 3 times") {
			t.Errorf("%s: %d tries, %v", doing, n, err)
		}
	}
	_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	tried("a prompt", err, 3)
	if !strings.Contains(err.Error(), "a fold that cannot go on") {
		t.Errorf("refused with %v", err)
	}
	_, err = actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	tried("another prompt", err, 0)
	if v := h.Worker(s); !v.GetQuarantined() || v.GetState() != "inactive_failed" {
		t.Errorf("described as %v", v)
	}
	if v := listedWorker(t, store, s, w); !v.GetQuarantined() || v.GetTurns() != 1 || !strings.Contains(v.GetLastError(), "a fold that cannot go on") {
		t.Errorf("listed as %v", v)
	}
	_, err = actortest.Try[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w})
	tried("released", err, 3)
	store.left.Store(2) // it may still fail twice
	if v := actortest.Ask[*messages.WorkerView](h, s, &messages.ReleaseWorker{WorkerId: w}); v.GetQuarantined() {
		t.Errorf("released as %v", v)
	}
	if v := listedWorker(t, store, s, w); v.GetQuarantined() || v.GetLastError() != "" {
		t.Errorf("then listed as %v", v)
	}
	works(t, h, s)
}
