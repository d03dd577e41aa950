package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// forked makes a fork, which must not be refused, and returns it and its worker.
func forked(t *testing.T, h *actortest.House, m *messages.ForkSession) (*messages.Forked, string) {
	t.Helper()
	f, err := actors.Fork(t.Context(), h.Svc, m)
	if err != nil {
		t.Fatal(err)
	}
	return f, f.GetSession().GetWorkers()[0].GetId()
}

// write puts facts at the end of a worker's journal, as a process that is gone would have.
func write(t *testing.T, store persistence.Store, session, worker string, records ...*messages.Record) {
	t.Helper()
	l, err := store.Claim(t.Context(), messages.WorkerStream(worker), "test")
	if err == nil {
		_, err = store.Append(t.Context(), persistence.Batch{Lease: l, Expect: l.Next, Session: session, Records: records})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func recordOf(t *testing.T, fact proto.Message) *messages.Record {
	t.Helper()
	r, err := messages.NewRecord(fact, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAForkOfACallInDoubtDecidesNothingForTheOriginal(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.waits()
	f, w := forked(t, p.h, &messages.ForkSession{SessionId: p.s})
	if f.GetClosedCalls() != 1 || f.GetClosedTurns() != 1 {
		t.Errorf("%v", f)
	}
	done := actortest.Of[*messages.ToolFinished](p.h.Facts(w))
	if len(done) != 1 || done[0].GetContent() != conversation.InterruptedText || done[0].GetExecId() == p.exec {
		t.Errorf("%v", done)
	}
	works(t, p.h, f.GetSession().GetId())
	if all := p.listed(); len(all) != 1 || all[0].GetExecId() != p.exec {
		t.Errorf("in doubt: %v", all)
	}
	p.waits()
	if err := p.say(messages.CallResolved_DONE, ""); err != nil {
		t.Fatal(err)
	}
	works(t, p.h, p.s)
}

// TestAForkOfWhatAPersonHasSettledKeepsTheirWord forks behind the word and ahead of the result.
func TestAForkOfWhatAPersonHasSettledKeepsTheirWord(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.waits()
	p.h.Stop()
	write(t, p.store, p.s, p.w, recordOf(t, &messages.CallResolved{ExecId: p.exec, Resolution: messages.CallResolved_DONE, By: "me"}))
	p.next()
	_, w := forked(t, p.h, &messages.ForkSession{SessionId: p.s})
	done := actortest.Of[*messages.ToolFinished](p.h.Facts(w))
	if len(done) != 1 || done[0].GetContent() != conversation.HappenedText {
		t.Errorf("%v", done)
	}
}

func TestAQuarantinedSessionIsForkedAndTheForkWorks(t *testing.T) {
	store := memory.New()
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "plain")
	h.Stop()
	for range 3 {
		write(t, store, s, w, recordOf(t, &messages.Panicked{Reason: "boom", Quarantined: true}))
	}
	store = store.Reopen()
	t.Cleanup(func() { _ = store.Close() })
	h = actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	if _, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("x")}); actortest.Code(err) != messages.CodeQuarantined {
		t.Fatalf("the original: %v", err)
	}
	f, _ := forked(t, h, &messages.ForkSession{SessionId: s})
	works(t, h, f.GetSession().GetId())
	if _, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("x")}); actortest.Code(err) != messages.CodeQuarantined {
		t.Errorf("the original afterwards: %v", err)
	}
}

// TestADamagedSessionIsForkedAsFarAsItCanBeRead has a record that no version knows behind its first turn.
func TestADamagedSessionIsForkedAsFarAsItCanBeRead(t *testing.T) {
	store := memory.New()
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "plain")
	h.Stop()
	good, err := store.Cursor(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	write(t, store, s, w, &messages.Record{Type: 9999, Body: []byte{0xfa, 0xff, 0x07, 0}})
	store = store.Reopen()
	t.Cleanup(func() { _ = store.Close() })
	h = actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	f, _ := forked(t, h, &messages.ForkSession{SessionId: s})
	if f.GetAt() != good || f.GetDamage() == "" {
		t.Errorf("%v", f)
	}
	works(t, h, f.GetSession().GetId())
	_, err = actors.Fork(t.Context(), h.Svc, &messages.ForkSession{SessionId: s, At: good + 1})
	if actortest.Code(err) != messages.CodeCorrupt || !strings.Contains(err.Error(), "from 1 to ") {
		t.Errorf("beyond the damage: %v", err)
	}
}

func TestAForkOfACompactedConversationIsCompactedToo(t *testing.T) {
	const window, turns = 3000, 20
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply { return actortest.Reply{Text: "the gist"} }), window}})
	s, w := h.Create(&messages.CreateSession{})
	for i := range turns {
		h.Run(s, prompt(i))
	}
	n := len(actortest.Of[*messages.HistoryCompacted](h.Facts(w)))
	if n == 0 {
		t.Fatal("nothing was compacted")
	}
	f, fw := forked(t, h, &messages.ForkSession{SessionId: s})
	id := f.GetSession().GetId()
	if got := len(actortest.Of[*messages.HistoryCompacted](h.Facts(fw))); got != n {
		t.Errorf("%d compactions, want %d", got, n)
	}
	h.Run(id, prompt(turns))
	after := q.last()
	said := ""
	for _, m := range after.Prompt.Messages {
		said += m.Text + "\n"
	}
	if q.largest > window || !strings.Contains(said, "the gist") || strings.Contains(said, prompt(0)) {
		t.Errorf("the largest request has %d tokens; the fork's says %.300q", q.largest, said)
	}
	wholeHistory(t, actortest.Ask[*messages.History](h, id, &messages.ReadHistory{}), turns+1)
}

// TestAForkOfWorkersInterleavedKeepsEachOfThem has two workers whose records alternate, more of them than one append takes.
func TestAForkOfWorkersInterleavedKeepsEachOfThem(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	second := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId()
	for range 60 {
		for _, worker := range []string{w, second} {
			in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: worker, Parts: actortest.Text("plain")})
			actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: worker, InputId: in.GetInputId()})
		}
	}
	f, _ := forked(t, h, &messages.ForkSession{SessionId: s})
	id := f.GetSession().GetId()
	was, is := cursors(t, store, s), cursors(t, store, id)
	if len(is) != len(was) || len(f.GetSession().GetWorkers()) != 2 {
		t.Fatalf("%d records, want %d; workers %v", len(is), len(was), f.GetSession().GetWorkers())
	}
	for i := range was {
		if was[i].GetType() != is[i].GetType() || was[i].GetSeq() != is[i].GetSeq() || was[i].GetAtUnixMs() != is[i].GetAtUnixMs() && i > 0 {
			t.Fatalf("record %d: %v, want %v", i+1, is[i], was[i])
		}
	}
	for _, v := range f.GetSession().GetWorkers() {
		h2 := actortest.Ask[*messages.History](h, id, &messages.ReadHistory{WorkerId: v.GetId()})
		if len(h2.GetTurns()) != 60 {
			t.Errorf("worker %s has %d turns", v.GetId(), len(h2.GetTurns()))
		}
	}
	works(t, h, id)
}

func cursors(t *testing.T, store persistence.Store, session string) []*messages.Record {
	t.Helper()
	var out []*messages.Record
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		out = append(out, e.Record)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAForkOfATimerLeavesItToTheOriginal: it fires there, and there alone.
func TestAForkOfATimerLeavesItToTheOriginal(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(time.Second), messages.TimerSet_FIRE)
	f, fw := forked(t, h, &messages.ForkSession{SessionId: s})
	pass(t, clock, time.Second, "it has fired", func() bool { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) == 1 })
	works(t, h, f.GetSession().GetId())
	if n := len(actortest.Of[*messages.TimerFired](h.Facts(fw))); n != 0 || dueTimers(t, store) != 0 {
		t.Errorf("the fork's fired %d times, %d are left", n, dueTimers(t, store))
	}
}

func TestAWorkerThatWasDeletedStaysSoInAForkAndADeletedSessionHasNone(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	second := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId()
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: second})
	head, err := store.Cursor(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for at := uint64(1); at <= head; at++ {
		f, _ := forked(t, h, &messages.ForkSession{SessionId: s, At: at})
		live := actortest.Ask[*messages.SessionView](h, f.GetSession().GetId(), &messages.DescribeSession{})
		if len(live.GetWorkers()) != len(f.GetSession().GetWorkers()) || live.GetWorkers()[0].GetId() == w {
			t.Errorf("fork at %d: %v, said %v", at, live.GetWorkers(), f.GetSession().GetWorkers())
		}
		if n := len(live.GetWorkers()); at >= head-1 && n != 1 {
			t.Errorf("fork at %d, of a worker that was deleted: %d workers", at, n)
		}
		works(t, h, f.GetSession().GetId())
	}
	actortest.Ask[*messages.Ack](h, s, &messages.CloseSession{})
	if _, err := actors.Fork(t.Context(), h.Svc, &messages.ForkSession{SessionId: s}); actortest.Code(err) != messages.CodeNotFound {
		t.Errorf("fork of what was deleted: %v", err)
	}
}
