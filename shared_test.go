package troupe_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// debateModel answers each member by its name and the number of its turn.
func debateModel() troupe.Model {
	return scripted(`
rules:
  - {match: '^You are pro ', turn: 1, reply: {text: 'Tabs adapt.'}}
  - {match: '^You are con ', turn: 1, reply: {text: 'Spaces stay.'}}
  - {match: 'agent con:\n> Spaces stay', turn: 2, reply: {text: 'So do they.'}}
`)
}

// debated is a session of which two workers have shared a conversation.
func debated(t *testing.T, rt *troupe.Runtime, ctx context.Context) (*troupe.Session, *troupe.Shared) { //nolint:revive // as runtimeOf gives them
	t.Helper()
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	con, err := s.NewWorker(ctx, troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Share(ctx, "debate")
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range []struct {
		w    *troupe.Worker
		name string
	}{{s.Worker, "pro"}, {con, "con"}, {s.Worker, "pro"}} {
		if res, err := x.Turn(ctx, turn.w, turn.name, "Tabs or spaces?"); err != nil || res.Outcome != "done" {
			t.Fatalf("%s: %v, %v", turn.name, res, err)
		}
	}
	return s, x
}

// transcript is a shared conversation in a line for each turn.
func transcript(t *testing.T, x *troupe.Shared) string {
	t.Helper()
	v, err := x.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, turn := range v.GetTurns() {
		fmt.Fprintf(&b, "%d %s: %s%s\n", turn.GetNumber(), turn.GetMember(), turn.GetTurn().GetText(), turn.GetCut().GetOutcome())
	}
	return b.String()
}

const debate = "1 pro: Tabs adapt.\n2 con: Spaces stay.\n3 pro: So do they.\n"

func TestASharedConversationGoesAlongWithForksAndFilesAndIsDeletedWithItsSession(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: debateModel()})
	s, x := debated(t, rt, ctx)
	if got := transcript(t, x); got != debate {
		t.Fatalf("the transcript is\n%s", got)
	}
	again := func(what, session string) {
		copied, err := rt.Open(ctx, session)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		y, err := copied.Share(ctx, "debate")
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := transcript(t, y); got != debate {
			t.Errorf("%s: the transcript is\n%s", what, got)
		}
		if session != s.ID() && y.ID() == x.ID() {
			t.Errorf("%s: two conversations have the id %s", what, x.ID())
		}
		v, err := y.Read(ctx)
		if err != nil || len(v.GetMembers()) != 2 {
			t.Fatalf("%s: %v, %v", what, v, err)
		}
		workers, err := copied.Workers(ctx)
		if err != nil || len(workers) != 2 || v.GetMembers()[0].GetWorkerId() != workers[0].ID() || v.GetSessionId() != session {
			t.Errorf("%s: the members of %s are %v", what, v.GetSessionId(), v.GetMembers())
		}
	}
	fork, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again("the fork", fork.ID())
	var file bytes.Buffer
	if err := rt.Export(ctx, s.ID(), &file); err != nil {
		t.Fatal(err)
	}
	other, octx := runtimeOf(t, troupe.Options{Model: debateModel()})
	came, err := other.Import(octx, bytes.NewReader(file.Bytes()), troupe.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rt = other
	again("the import", came.ID())
	v, err := rt.Ask(ctx, &messages.Verify{})
	if err != nil || len(v.(*messages.Verified).GetFindings()) > 0 { //nolint:forcetypeassert // the reply of Verify
		t.Errorf("the copy: %v, %v", v, err)
	}
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}}}); err != nil {
		t.Fatal(err)
	}
	left, err := rt.Ask(ctx, &messages.ListConversations{})
	if err != nil || len(left.(*messages.Conversations).GetConversations()) != 0 { //nolint:forcetypeassert // the reply of ListConversations
		t.Errorf("after it was deleted: %v, %v", left, err)
	}
}

// What a member was told at the record of a fork, and had not begun with, is of a turn that the fork cuts off: nobody speaks there.
func TestAForkAtAnyRecordOfASharedConversationLeavesNobodyATurnOfIt(t *testing.T) {
	store := memoryOf(t)
	rt, ctx := runtimeOf(t, troupe.Options{Model: debateModel(), Store: store, DataDir: t.TempDir()})
	s, _ := debated(t, rt, ctx)
	read := func(session string, each func(persistence.Entry, proto.Message)) {
		t.Helper()
		err := store.ReadSession(ctx, session, 0, func(e persistence.Entry) error {
			var f proto.Message
			var err error
			if strings.HasPrefix(e.Stream, messages.WorkerStream("")) {
				f, err = messages.WorkerFactIn(e.Record)
			}
			each(e, f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var records []uint64
	read(s.ID(), func(e persistence.Entry, _ proto.Message) { records = append(records, e.Cursor) })
	waited := 0
	for _, at := range records {
		fork, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{At: at})
		if err != nil {
			continue // before it was whole
		}
		waits := map[string]bool{}
		read(fork.ID(), func(_ persistence.Entry, f proto.Message) {
			switch f := f.(type) {
			case *messages.InputAccepted:
				waits[f.GetInputId()] = true
			case *messages.TurnStarted:
				for _, id := range f.GetInputIds() {
					delete(waits, id)
				}
			case *messages.InputWithdrawn:
				waited++
				delete(waits, f.GetInputId())
			}
		})
		if len(waits) > 0 {
			t.Errorf("forked at %d, %d inputs wait", at, len(waits))
		}
	}
	if waited == 0 {
		t.Error("no input waited at any record")
	}
}

func TestASessionIsShownWithWhatItsMembersSaid(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: debateModel()})
	s, x := debated(t, rt, ctx)
	got, err := rt.Ask(ctx, &messages.Show{Id: s.ID()})
	if err != nil {
		t.Fatal(err)
	}
	all := got.(*messages.Shown).GetSession().GetConversations() //nolint:forcetypeassert // the reply of Show
	if len(all) != 1 || all[0].GetConversationId() != x.ID() || len(all[0].GetTurns()) != 3 || all[0].GetTurns()[1].GetTurn().GetText() != "Spaces stay." {
		t.Errorf("it is shown with %v", all)
	}
}

// held is a model that answers when it is let.
type held struct{ came, open chan struct{} }

func (h held) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		h.came <- struct{}{}
		select {
		case <-h.open:
		case <-ctx.Done():
			yield(model.Event{}, ctx.Err())
			return
		}
		_ = yield(model.Event{Kind: model.Text, Text: "yes"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
	}
}

func TestACopyTakesBackWhatWaitsForTheWord(t *testing.T) {
	m := held{make(chan struct{}, 16), make(chan struct{})}
	rt, ctx := runtimeOf(t, troupe.Options{Model: m})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Share(ctx, "talk")
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range []string{"inp_1", "inp_2"} {
		take := &messages.TakeTurn{Name: "talk", TurnId: turn, Accept: true}
		if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_TakeTurn{TakeTurn: take}}); err != nil {
			t.Fatal(err)
		}
	}
	<-m.came
	fork, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if y, err := fork.Share(ctx, "talk"); err != nil {
		t.Error(err)
	} else if v, err := y.Read(ctx); err != nil || v.GetSpeaking() != "" || v.GetWaiting() != 0 || len(v.GetTurns()) != 1 || v.GetTurns()[0].GetCut() == nil {
		t.Errorf("the copy is %v, %v", v, err)
	}
	if v, err := x.Read(ctx); err != nil || v.GetSpeaking() == "" || v.GetWaiting() != 1 {
		t.Errorf("the original is %v, %v", v, err)
	}
	close(m.open)
	for _, turn := range []string{"inp_1", "inp_2"} {
		await := &messages.AwaitSharedTurn{Name: "talk", TurnId: turn}
		got, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_AwaitSharedTurn{AwaitSharedTurn: await}})
		if r, is := got.(*messages.TurnResult); err != nil || !is || r.GetText() != "yes" {
			t.Errorf("%s came to %v, %v", turn, got, err)
		}
	}
	if v, err := rt.Ask(ctx, &messages.Verify{}); err != nil || len(v.(*messages.Verified).GetFindings()) > 0 { //nolint:forcetypeassert // the reply of Verify
		t.Errorf("the store: %v, %v", v, err)
	}
}
