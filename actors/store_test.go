package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

func TestADamagedJournalIsQuarantinedAndNotGuessedAt(t *testing.T) {
	unknown, err := proto.Marshal(&messages.WorkerFact{})
	if err != nil {
		t.Fatal(err)
	}
	unknown = append(unknown, 0xfa, 0x3f, 0x00) // field 1023: of a later version
	for name, r := range map[string]*messages.Record{
		"a fact of a later version":     {Type: 1023, Body: unknown},
		"a fact that cannot follow":     record(t, &messages.TurnCompleted{TurnId: "trn_none"}),
		"a body that is no fact at all": {Type: 1, Body: []byte{0xff, 0xff}},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
			s, w := h.Create(&messages.CreateSession{})
			h.Run(s, "go")
			h.Stop()
			again := store.Reopen()
			t.Cleanup(func() { _ = again.Close() })
			j, err := persistence.OpenJournal(context.Background(), again, messages.WorkerStream(w), s, "test")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			j.Append(func(_ persistence.Receipt, err error) { done <- err }, persistence.Draft{Records: []*messages.Record{r}})
			if err := actortest.Wait(t, "the append", done); err != nil {
				t.Fatal(err)
			}
			h = actortest.New(t, actortest.Options{Store: again, Model: actortest.Say("ok")})
			_, err = actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
			if actortest.Code(err) != messages.CodeQuarantined || !strings.Contains(err.Error(), "verify") {
				t.Errorf("an input: %v", err)
			}
			if v := h.Worker(s); v.GetState() != "inactive_failed" || v.GetLastError() == "" {
				t.Errorf("%v", v)
			}
			sibling := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId()
			in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: sibling, Parts: actortest.Text("go")})
			if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: sibling, InputId: in.GetInputId()}); r.GetText() != "ok" {
				t.Errorf("its sibling: %v", r)
			}
		})
	}
}

func record(t *testing.T, f proto.Message) *messages.Record {
	t.Helper()
	r, err := messages.NewRecord(f, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAStoreThatFailsForGoodIsReportedAndNothingIsAcknowledged(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	before := len(h.Facts(w))
	store.Break(fmt.Errorf("write: input/output error: %w", persistence.ErrUnavailable))
	_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	if actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("an input: %v", err)
	}
	if err := actortest.Wait(t, "the report", h.Failed()); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("reported %v", err)
	}
	if n := len(h.Facts(w)); n != before {
		t.Errorf("%d facts after %d", n, before)
	}
}

func TestAFullDiskIsOutlived(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	s, _ := h.Create(&messages.CreateSession{})
	full := fmt.Errorf("append: %w", persistence.ErrFull)
	store.Refuse(func(proto.Message) error { return full })
	in := &messages.SubmitInput{InputId: "inp_1", Parts: actortest.Text("plain")}
	if _, err := actortest.Try[*messages.InputReply](h, s, proto.Clone(in)); actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("on a full disk: %v", err)
	}
	if _, err := actortest.Try[*messages.WorkerView](h, s, &messages.SpawnWorker{}); actortest.Code(err) != messages.CodeUnavailable {
		t.Errorf("a worker on a full disk: %v", err)
	}
	store.Refuse(nil)
	r := actortest.Ask[*messages.InputReply](h, s, proto.Clone(in))
	if r.GetDuplicate() {
		t.Error("what was refused counts as accepted")
	}
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "inp_1"}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{})
	select {
	case err := <-h.Failed():
		t.Errorf("a full disk was called fatal: %v", err)
	default:
	}
	works(t, h, s)
}

func TestAnAppendThatFailsInTheMiddleOfATurnIsTakenUpByTheSuccessor(t *testing.T) {
	for _, at := range []struct {
		name string
		fact func(proto.Message) bool
	}{
		{"the answer", actortest.Is[*messages.GenerationCompleted]},
		{"the result", actortest.Is[*messages.ToolFinished]},
		{"the end", actortest.Is[*messages.TurnCompleted]},
	} {
		t.Run(at.name, func(t *testing.T) {
			store := &actortest.Store{Store: memory.New()}
			t.Cleanup(func() { _ = store.Close() })
			var runs, failed atomic.Int32
			h := actortest.New(t, actortest.Options{
				Store: store,
				Model: plainOr(actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`))),
				Tools: []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { runs.Add(1); return "did", nil })},
			})
			s, w := h.Create(&messages.CreateSession{})
			store.Refuse(func(f proto.Message) error {
				if at.fact(f) && failed.Add(1) == 1 {
					return fmt.Errorf("append: %w", persistence.ErrFull)
				}
				return nil
			})
			r := h.Run(s, "go")
			if r.GetOutcome() != messages.TurnCompleted_DONE || runs.Load() != 1 {
				t.Errorf("%v after %d runs", r, runs.Load())
			}
			if r.GetText() != "did\n" { // a result that was not written is in the executor's ledger
				t.Errorf("the model was told %q", r.GetText())
			}
			if v := h.Worker(s); v.GetRestarts() != 1 || v.GetId() != w {
				t.Errorf("%v", v)
			}
			works(t, h, s)
		})
	}
}

func TestASecondRuntimeOnTheStoreFencesTheFirst(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	gate, m := gated()
	one := actortest.New(t, actortest.Options{Store: store, Model: m, Node: "one"})
	s, w := one.Create(&messages.CreateSession{})
	in := submit(one, s, "go")
	actortest.Wait(t, "the first runtime's call", gate.Came)
	waits := actortest.Later[*messages.TurnResult](one, s, &messages.AwaitTurn{InputId: in})

	two := actortest.New(t, actortest.Options{Store: store, Model: plainOr(actortest.Say("the second's")), Node: "two"})
	r := actortest.Ask[*messages.TurnResult](two, s, &messages.AwaitTurn{InputId: in})
	if r.GetText() != "the second's" {
		t.Errorf("%v", r)
	}
	before := len(two.Facts(w))
	gate.Open()
	if a := actortest.Wait(t, "who waits at the first", waits); actortest.Code(a.Err) != messages.CodeQuarantined {
		t.Errorf("told %v %v", a.Reply, a.Err)
	}
	if n := len(two.Facts(w)); n != before {
		t.Errorf("%d facts after %d: the first wrote on", n, before)
	}
	_, err := actortest.Try[*messages.InputReply](one, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	if actortest.Code(err) != messages.CodeQuarantined {
		t.Errorf("an input at the first: %v", err)
	}
	works(t, two, s)
}

type doubtful struct {
	tools.Tool
	ask func() error
}

func (d doubtful) Reconcile(*tools.Context, json.RawMessage, []*messages.FileHash) (*tools.Result, error) {
	return nil, d.ask()
}

func TestACallOfUnknownOutcomeEndsItsTurnWhenItsPolicySaysSo(t *testing.T) {
	store := memory.New()
	began, looking := actortest.NewGate(), actortest.NewGate()
	var generations atomic.Int32
	options := func(s persistence.Store, run func(context.Context) error, ask func() error) actortest.Options {
		spec := tools.Spec{Name: "pay", Description: "Pays. Example: `{\"name\": \"x\"}`", Effect: messages.Effect_RECONCILABLE, Unknown: messages.UnknownOutcome_FAIL}
		pay, err := tools.Func(spec, func(tc *tools.Context, _ nameArg) (*tools.Result, error) { return nil, run(tc.Signal) })
		if err != nil {
			t.Fatal(err)
		}
		return actortest.Options{
			Store: s,
			Model: plainOr(func(_ context.Context, r *model.Request) actortest.Reply {
				generations.Add(1)
				return actortest.CallThenSay(actortest.Call("1", "pay", `{"name":"x"}`), actortest.Call("2", "look", `{"name":"y"}`))(context.Background(), r)
			}),
			Tools: []tools.Tool{doubtful{pay, ask}, tool(t, "look", pure, func(ctx context.Context, _ string) (string, error) { return "", looking.Pass(ctx) })},
		}
	}
	h := actortest.New(t, options(store, began.Pass, nil))
	s, w := h.Create(&messages.CreateSession{})
	in := submit(h, s, "go")
	actortest.Wait(t, "the payment", began.Came)
	actortest.Wait(t, "the look", looking.Came)
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	h = actortest.New(t, options(again, func(context.Context) error { t.Error("paid again"); return nil }, func() error {
		<-looking.Came // the other call runs again while this one is asked about
		return errors.New("the bank does not say")
	}))
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if r.GetOutcome() != messages.TurnCompleted_ERROR || r.GetErrorCode() != tools.CodeInterrupted {
		t.Errorf("%v", r)
	}
	if generations.Load() != 1 {
		t.Errorf("the model was asked %d times", generations.Load())
	}
	for _, f := range actortest.Of[*messages.ToolFinished](h.Facts(w)) {
		if f.GetStatus() == messages.ToolFinished_OK {
			t.Errorf("%v", f)
		}
	}
	works(t, h, s)
}
