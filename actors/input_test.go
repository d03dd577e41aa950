package actors_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// gated answers "plain" with ok and holds everything else at a gate.
func gated() (*actortest.Gate, actortest.Model) {
	g := actortest.NewGate()
	return g, plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: "said " + actortest.Asked(r), Err: g.Pass(ctx)}
	})
}

func states(h *actortest.House, session string) string {
	var out []string
	for _, in := range actortest.Ask[*messages.Inputs](h, session, &messages.ListInputs{}).GetInputs() {
		out = append(out, in.GetText()+" "+in.GetState())
	}
	return strings.Join(out, ", ")
}

func TestTheSameInputIdAgainGetsTheSameAnswerAndOneTurn(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	in := &messages.SubmitInput{InputId: "inp_mine", Parts: actortest.Text("once")}
	var all []<-chan actortest.Answer[*messages.InputReply]
	for range 20 {
		all = append(all, actortest.Later[*messages.InputReply](h, s, proto.Clone(in)))
	}
	fresh := 0
	var seq uint64
	for _, ch := range all {
		a := actortest.Wait(t, "an answer", ch)
		if a.Err != nil || seq != 0 && a.Reply.GetSeq() != seq {
			t.Fatalf("%v %v, want seq %d", a.Reply, a.Err, seq)
		}
		seq = a.Reply.GetSeq()
		if !a.Reply.GetDuplicate() {
			fresh++
		}
	}
	if n := len(actortest.Of[*messages.InputAccepted](h.Facts(w))); fresh != 1 || n != 1 {
		t.Errorf("%d fresh answers, %d records", fresh, n)
	}
	other := &messages.SubmitInput{InputId: "inp_mine", Parts: actortest.Text("something else")}
	if _, err := actortest.Try[*messages.InputReply](h, s, other); actortest.Code(err) != messages.CodeConflict {
		t.Errorf("other content under the same id: %v", err)
	}
}

func TestInputsQueueInOrderAndAStagedOneCanBeTakenBack(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "one")
	actortest.Wait(t, "the first call", gate.Came)
	two, three := submit(h, s, "two"), submit(h, s, "three")
	if got := states(h, s); got != "one running, two staged, three staged" {
		t.Errorf("inputs: %s", got)
	}
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: two})
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawInput{InputId: two})
	if _, err := actortest.Try[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: two}); actortest.Code(err) != messages.CodeWithdrawn {
		t.Errorf("await what was withdrawn: %v", err)
	}
	if a := actortest.Wait(t, "who waited for it", waits); actortest.Code(a.Err) != messages.CodeWithdrawn {
		t.Errorf("who waited was told %v %v", a.Reply, a.Err)
	}
	if _, err := actortest.Try[*messages.Ack](h, s, &messages.WithdrawInput{InputId: "inp_unknown"}); actortest.Code(err) != messages.CodeNotFound {
		t.Errorf("withdraw of what never was: %v", err)
	}
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: three}); r.GetText() != "said three" {
		t.Errorf("%v", r)
	}
	if n := len(actortest.Of[*messages.TurnStarted](h.Facts(w))); n != 2 {
		t.Errorf("%d turns", n)
	}
	if _, err := actortest.Try[*messages.Ack](h, s, &messages.WithdrawInput{InputId: three}); actortest.Code(err) != messages.CodeCommitted {
		t.Errorf("withdraw of what was answered: %v", err)
	}
}

func TestAnInputThatTheModelHasNotAnsweredCanBeTakenBack(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, _ := h.Create(&messages.CreateSession{})
	in := submit(h, s, "never mind")
	actortest.Wait(t, "the call", gate.Came)
	actortest.Ask[*messages.Ack](h, s, &messages.WithdrawInput{InputId: in})
	works(t, h, s)
	got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
	if len(got.GetTurns()) != 1 || strings.Contains(got.String(), "never mind") {
		t.Errorf("the conversation knows it: %v", got)
	}
}

func TestAStagedInputSurvivesARestart(t *testing.T) {
	store := memory.New()
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Store: store, Model: m})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "one")
	actortest.Wait(t, "the call", gate.Came)
	two := submit(h, s, "two")
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	free, m := gated()
	h = actortest.New(t, actortest.Options{Store: again, Model: m})
	waits := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: two})
	actortest.Wait(t, "the first turn goes on", free.Came)
	if got := states(h, s); got != "one running, two staged" {
		t.Errorf("inputs: %s", got)
	}
	dup := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{InputId: two, Parts: actortest.Text("two")})
	if !dup.GetDuplicate() || dup.GetSeq() == 0 {
		t.Errorf("sent again after the restart: %v", dup)
	}
	free.Open()
	if a := actortest.Wait(t, "the staged turn", waits); a.Err != nil || a.Reply.GetText() != "said two" {
		t.Errorf("%v %v", a.Reply, a.Err)
	}
}

func TestAnInterruptingInputEndsTheTurnAndTakesItsPlace(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, _ := h.Create(&messages.CreateSession{})
	one := submit(h, s, "one")
	actortest.Wait(t, "the call", gate.Came)
	first := actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: one})
	in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{Mode: messages.InputAccepted_INTERRUPT, Parts: actortest.Text("plain")})
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in.GetInputId()}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	if a := actortest.Wait(t, "the first turn", first); a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("the first turn: %v %v", a.Reply, a.Err)
	}
	works(t, h, s)
}

func TestABusyWorkerRefusesAnInputThatWillNotWait(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "one")
	actortest.Wait(t, "the call", gate.Came)
	_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{Mode: messages.InputAccepted_REJECT, Parts: actortest.Text("now")})
	if actortest.Code(err) != messages.CodeBusy || len(actortest.Of[*messages.InputAccepted](h.Facts(w))) != 1 {
		t.Errorf("%v", err)
	}
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
	actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
	actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{Mode: messages.InputAccepted_REJECT, Parts: actortest.Text("plain")})
}

func TestHostileInputsAreRefusedAndHarmNobody(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	before := len(h.Facts(w))
	for name, in := range map[string]*messages.SubmitInput{
		"nothing":    {},
		"blanks":     {Parts: actortest.Text(" \n\t")},
		"not UTF-8":  {Parts: actortest.Text("\xff\xfe")},
		"a bad file": {Parts: []*messages.Part{{Kind: &messages.Part_File{File: &messages.FilePart{Name: "\xff", Text: "x"}}}}},
		"a bad id":   {InputId: "\xff", Parts: actortest.Text("x")},
		"a long id":  {InputId: strings.Repeat("x", 129), Parts: actortest.Text("x")},
		"bad origin": {From: "\xff", Parts: actortest.Text("x")},
	} {
		if _, err := actortest.Try[*messages.InputReply](h, s, in); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := &messages.SubmitInput{Parts: actortest.Text(strings.Repeat("x", 65<<20))}
	if _, err := actortest.Try[*messages.InputReply](h, s, large); actortest.Code(err) != messages.CodeTooLarge {
		t.Errorf("65 MiB: %v", err)
	}
	for name, call := range map[string]*messages.CallTool{
		"a bad tool": {Tool: "\xff", Arguments: "{}"}, "bad arguments": {Tool: "todo", Arguments: "{\"a\":\"\xff\"}"}, "no tool": {Arguments: "{}"},
	} {
		if _, err := actortest.Try[*messages.ToolReply](h, s, call); actortest.Code(err) != messages.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v := h.Worker(s); v.GetRestarts() != 0 || len(h.Facts(w)) != before {
		t.Errorf("the worker was restarted %d times, %d facts after %d", v.GetRestarts(), len(h.Facts(w)), before)
	}
	_, err := actortest.Try[*messages.SessionView](h, "", &messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("\xff")}})
	if actortest.Code(err) != messages.CodeBadRequest {
		t.Errorf("a session that begins with no UTF-8: %v", err)
	}
	works(t, h, s)
}

func TestWhatToolsAndModelsSayIsMadeFitForTheJournal(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Model: plainOr(func(_ context.Context, r *model.Request) actortest.Reply {
			if res := actortest.Results(r); res != nil {
				return actortest.Reply{Text: "got " + res[0].Text + " \xff"}
			}
			return actortest.Reply{Text: "\xfe", Calls: []*messages.ToolCall{actortest.Call("\xff", "look", `{"name":"x"}`), actortest.Call("2", "l\xffk", "{\"n\":\"\xff\"}")}}
		}),
		Tools: []tools.Tool{tool(t, "look", pure, func(context.Context, string) (string, error) { return "bytes \xff\x00", nil })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	r := h.Run(s, "go")
	if r.GetText() != "got bytes \uFFFD\x00 \uFFFD" {
		t.Errorf("%q %v", r.GetText(), r)
	}
	if v := h.Worker(s); v.GetRestarts() != 0 {
		t.Errorf("%d restarts: %s", v.GetRestarts(), v.GetLastError())
	}
	works(t, h, s)
}

func TestAResultThatNoModelCouldReadIsCut(t *testing.T) {
	var runs atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "look", `{"name":"x"}`))),
		Tools: []tools.Tool{tool(t, "look", pure, func(context.Context, string) (string, error) {
			runs.Add(1)
			return strings.Repeat("é", 40<<20), nil
		})},
	})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	f := actortest.Of[*messages.ToolFinished](h.Facts(w))
	if len(f) != 1 || !f[0].GetTruncated() || len(f[0].GetContent()) > 2<<20 || !strings.Contains(f[0].GetContent(), "truncated") {
		t.Errorf("%d results, truncated %v, %d bytes", len(f), f[0].GetTruncated(), len(f[0].GetContent()))
	}
	if v := h.Worker(s); v.GetRestarts() != 0 || runs.Load() != 1 {
		t.Errorf("%d restarts, %d runs", v.GetRestarts(), runs.Load())
	}
	works(t, h, s)
}

func TestAProgramsCallIsJournaledDecidedOnAndAnswered(t *testing.T) {
	var runs atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: actortest.Say("ok"),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { runs.Add(1); return "did " + a, nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	call := &messages.CallTool{Tool: "act", Arguments: `{"name":"x"}`, CallId: "call_1"}
	r := actortest.Ask[*messages.ToolReply](h, s, proto.Clone(call))
	if r.GetContent() != "did x" || r.GetStatus() != messages.ToolFinished_OK || r.GetCallId() != "call_1" {
		t.Errorf("%v", r)
	}
	works(t, h, s)
	// The same id again, with other turns in between, is the same call.
	again := actortest.Ask[*messages.ToolReply](h, s, proto.Clone(call))
	if again.GetExecId() != r.GetExecId() || again.GetContent() != "did x" || runs.Load() != 1 {
		t.Errorf("sent again: %v after %d runs", again, runs.Load())
	}
	facts := h.Facts(w)
	if len(actortest.Of[*messages.ToolPlanned](facts)) != 1 || len(actortest.Of[*messages.ToolDispatched](facts)) != 1 || len(actortest.Of[*messages.ToolFinished](facts)) != 1 {
		t.Error("the call is not in the journal once")
	}
	if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}); strings.Contains(got.String(), "did x") {
		t.Errorf("a program's call became part of the conversation: %v", got)
	}
	if r := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{Tool: "none", Arguments: `{}`}); r.GetErrorCode() != tools.CodeToolNotFound {
		t.Errorf("a tool that does not exist: %v", r)
	}
	r2, _ := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir()}}})
	if r := actortest.Ask[*messages.ToolReply](h, r2, &messages.CallTool{Tool: "act", Arguments: `{"name":"x"}`}); r.GetErrorCode() != tools.CodePermissionDenied {
		t.Errorf("in a restricted folder: %v", r)
	}
}

func TestACallSentTwiceAtOnceRunsOnce(t *testing.T) {
	gate := actortest.NewGate()
	var runs atomic.Int32
	h := actortest.New(t, actortest.Options{
		Model: actortest.Say("ok"),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { runs.Add(1); return "did", gate.Pass(ctx) })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	call := &messages.CallTool{Tool: "act", Arguments: `{"name":"x"}`, CallId: "call_1"}
	one := actortest.Later[*messages.ToolReply](h, s, proto.Clone(call))
	actortest.Wait(t, "the call", gate.Came)
	two := actortest.Later[*messages.ToolReply](h, s, proto.Clone(call))
	gate.Open()
	for _, ch := range []<-chan actortest.Answer[*messages.ToolReply]{one, two} {
		if a := actortest.Wait(t, "an answer", ch); a.Err != nil || a.Reply.GetContent() != "did" {
			t.Errorf("%v %v", a.Reply, a.Err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestACancelledProgramsCallIsAnsweredAsACall(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Model: actortest.Say("ok"),
		Tools: []tools.Tool{tool(t, "act", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "", gate.Pass(ctx) })},
	})
	s, _ := h.Create(&messages.CreateSession{})
	ch := actortest.Later[*messages.ToolReply](h, s, &messages.CallTool{Tool: "act", Arguments: `{"name":"x"}`})
	actortest.Wait(t, "the call", gate.Came)
	actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{})
	if a := actortest.Wait(t, "an answer", ch); a.Err != nil || a.Reply.GetStatus() != messages.ToolFinished_CANCELLED {
		t.Errorf("%v %v", a.Reply, a.Err)
	}
	works(t, h, s)
}
