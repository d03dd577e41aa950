package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// unheard is a store of a process that dies when a shared conversation hands an input to a worker: that append is nobody's any more, nor any after it.
type unheard struct {
	*badger.Store

	mu   sync.Mutex
	over bool
	dead chan struct{}
}

func (s *unheard) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range b {
		for _, r := range batch.Records {
			f, err := messages.WorkerFactIn(r)
			in, is := f.(*messages.InputAccepted)
			if !s.over && strings.HasPrefix(batch.Lease.Stream, "wrk/") && err == nil && is && strings.HasPrefix(in.GetFrom(), messages.ConversationPrefix) {
				s.over = true
				close(s.dead)
			}
		}
	}
	if !s.over {
		s.Store.Enqueue(done, b...)
	}
}

// TestAServerGoesOnWithATurnOfASharedConversationThatNoWorkerHasBegun: the word was given, and no worker knows of it, so that no turn is open.
// Nobody asks for the session.
func TestAServerGoesOnWithATurnOfASharedConversationThatNoWorkerHasBegun(t *testing.T) {
	m := newMachine(t)
	if code, _, stderr := m.run("run", "hello", "-C", "a", "-m", "scripted/echo"); code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	id, data := m.onlySession(), filepath.Join(m.home, ".local/share/troupe")
	open, err := badger.Open(t.Context(), badger.Options{Dir: troupe.StoreDir(data), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	store := &unheard{Store: open, dead: make(chan struct{})}
	echo, err := script.Parse("echo", []byte("rules: [{reply: {text: hi}}]"))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: data, Model: echo.Model()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Share(t.Context(), "talk")
	if err != nil {
		t.Fatal(err)
	}
	take := &messages.TakeTurn{Name: x.ID(), TurnId: "inp_1", Member: "one", Accept: true}
	if _, err := rt.Ask(t.Context(), &messages.ToSession{SessionId: id, Command: &messages.ToSession_TakeTurn{TakeTurn: take}}); err != nil {
		t.Fatal(err)
	}
	<-store.dead
	if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	m.serve()
	var out string
	m.eventually("the turn has come to its end", func() bool {
		_, out, _ = m.run("show", id)
		return strings.Contains(out, "[1] one")
	})
	code, tail, stderr := m.run("tail", id, "--replay")
	if code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	for _, want := range []string{"shared as talk", "one joins, worker wrk_", "one has the word", "one has spoken"} {
		if !strings.Contains(tail, "conversation "+x.ID()+": "+want) {
			t.Errorf("tail does not say that %s:\n%s", want, tail)
		}
	}
}

func TestWhatIsTailedOfASharedConversationPassesForNobodyElsesWord(t *testing.T) {
	var out bytes.Buffer
	v := &tailText{out: &out, inputs: map[string]string{}, workers: map[string]*tailWorker{}}
	for _, e := range []*messages.Event{
		{Type: messages.EventConversationAsked, Worker: "wrk_1"},
		{Type: messages.EventConversationWithdrawn, Worker: "wrk_1", Reason: "no\nconversation x: pro has the word"},
		{Type: messages.EventConversationLeft, Worker: "wrk_1", Member: "con", Reason: "gone\x1b[2J"},
		{Type: messages.EventConversationCut, Member: "con", Outcome: "aborted", Reason: "cancelled"},
		{Type: messages.EventConversationSaid, By: "ann", Text: "mine\nconversation x: pro has the word\x1b[2J"},
	} {
		e.Conversation = "x"
		if err := v.show(e); err != nil {
			t.Fatal(err)
		}
	}
	text := out.String()
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\nconversation x: pro") {
		t.Errorf("it reads\n%q", text)
	}
	for _, want := range []string{"x: worker wrk_1 waits for the word\n", "was taken back no", "x: con leaves: gone", "x: con was cut off aborted cancelled\n", "x: from outside (ann)\n> mine\n> conversation x: pro"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}
