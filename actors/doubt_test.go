package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// payment is a session whose call `pay` was cut off by the end of its process, and what came back.
type payment struct {
	t       testing.TB
	h       *actortest.House
	store   *memory.Store
	s, w    string
	in      string // input of the turn
	exec    string
	dir     []*messages.WorkspaceSpec
	ask     messages.UnknownOutcome_Policy
	mu      sync.Mutex
	ran     []string // exec ids since then
	dataDir string   // kept from process to process, when it is set
}

// cutOff runs a turn up to the middle of a call, ends the process, and starts the next one.
func cutOff(t testing.TB, policy messages.UnknownOutcome_Policy) *payment {
	t.Helper()
	p := &payment{t: t, store: memory.New(), ask: policy}
	t.Cleanup(func() { _ = p.store.Close() })
	p.dir = []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	gate := actortest.NewGate()
	p.h = actortest.New(t, p.options(func(tc *tools.Context) (string, error) { return "", gate.Pass(tc.Signal) }))
	p.s, p.w = p.h.Create(&messages.CreateSession{Workspaces: p.dir})
	p.in = submit(p.h, p.s, "go")
	actortest.Wait(t, "the payment", gate.Came)
	p.exec = actortest.Of[*messages.ToolPlanned](p.h.Facts(p.w))[0].GetExecId()
	p.next()
	return p
}

func (p *payment) options(pay func(tc *tools.Context) (string, error)) actortest.Options {
	p.t.Helper()
	spec := tools.Spec{Name: "pay", Description: "Pays. Example: `{\"name\": \"x\"}`", Effect: atMostOnce, Unknown: p.ask}
	made, err := tools.Func(spec, func(tc *tools.Context, _ nameArg) (*tools.Result, error) {
		content, err := pay(tc)
		if err != nil {
			return nil, err
		}
		return &tools.Result{Content: content}, nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return actortest.Options{
		Store: p.store, DataDir: p.dataDir, Tools: []tools.Tool{made},
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "pay", `{"name":"x"}`))),
	}
}

// next ends the process and starts another one on the same journal.
func (p *payment) next() {
	p.t.Helper()
	p.h.Stop()
	p.store = p.store.Reopen()
	store := p.store
	p.t.Cleanup(func() { _ = store.Close() })
	p.h = actortest.New(p.t, p.options(func(tc *tools.Context) (string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ran = append(p.ran, tc.ExecID)
		return "paid", nil
	}))
}

func (p *payment) runs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ran)
}

// waits wakes the session and waits until its call is in doubt.
func (p *payment) waits() {
	p.t.Helper()
	actortest.Until(p.t, "the turn waits for a person", func() bool {
		v := p.h.Worker(p.s)
		return v.GetState() == "waiting" && v.GetInDoubt() == 1
	})
}

func (p *payment) listed() []*messages.CallView {
	p.t.Helper()
	all, err := actors.CallsInDoubt(context.Background(), p.store, "")
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func (p *payment) say(r messages.CallResolved_Resolution, note string) error {
	_, err := actortest.Try[*messages.Ack](p.h, p.s, &messages.ResolveCall{WorkerId: p.w, ExecId: p.exec, Resolution: r, Note: note})
	return err
}

func TestACallInDoubtWaitsForAPersonAndItsWorkspaceIsFree(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	for range 3 { // and it stays so, whatever ends
		p.waits()
		other, _ := p.h.Create(&messages.CreateSession{Workspaces: p.dir})
		works(t, p.h, other)
		all := p.listed()
		if len(all) != 1 || all[0].GetExecId() != p.exec || all[0].GetState() != "in_doubt" || all[0].GetWorkerId() != p.w || all[0].GetTool() != "pay" {
			t.Fatalf("listed: %v", all)
		}
		p.next()
	}
	facts := p.h.Facts(p.w)
	if n := len(actortest.Of[*messages.CallDoubted](facts)); n != 1 {
		t.Errorf("put in doubt %d times", n)
	}
	if n := len(actortest.Of[*messages.ToolFinished](facts)); n != 0 || p.runs() != 0 {
		t.Errorf("%d results, %d runs", n, p.runs())
	}
}

func TestAPersonsWordSettlesACallInDoubt(t *testing.T) {
	for _, c := range []struct {
		word  messages.CallResolved_Resolution
		note  string
		reads string
		runs  int
	}{
		{messages.CallResolved_RETRY, "", "paid\n", 1},
		{messages.CallResolved_DONE, "I saw it", conversation.HappenedText + "\nTheir note: I saw it\n", 0},
		{messages.CallResolved_FAIL, "", conversation.NotHappenedText + "\n", 0},
	} {
		for _, asleep := range []bool{false, true} {
			t.Run(fmt.Sprint(conversation.ResolutionName(c.word), " asleep=", asleep), func(t *testing.T) {
				p := cutOff(t, messages.UnknownOutcome_ASK)
				p.waits()
				if asleep {
					p.next()
				}
				if err := p.say(c.word, c.note); err != nil {
					t.Fatal(err)
				}
				if asleep {
					for _, a := range actortest.Ask[*messages.Tree](p.h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
						if a.GetId() == p.s {
							t.Errorf("the session was woken: %v", a)
						}
					}
				}
				if all := p.listed(); len(all) != 0 {
					t.Errorf("still listed: %v", all)
				}
				if err := p.say(messages.CallResolved_FAIL, ""); actortest.Code(err) != messages.CodeResolved {
					t.Errorf("a second word: %v", err)
				}
				r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in})
				if r.GetOutcome() != messages.TurnCompleted_DONE || r.GetText() != c.reads || p.runs() != c.runs {
					t.Errorf("%v %q after %d runs", r.GetOutcome(), r.GetText(), p.runs())
				}
				p.dispatched(c.word == messages.CallResolved_RETRY)
				if err := p.say(messages.CallResolved_FAIL, ""); actortest.Code(err) != messages.CodeResolved {
					t.Errorf("a word after the turn: %v", err)
				}
				works(t, p.h, p.s)
				if v := p.h.Worker(p.s); v.GetInDoubt() != 0 {
					t.Errorf("%v", v)
				}
			})
		}
	}
}

// dispatched checks the dispatches of the call: a retry has the same exec id, the next attempt and a newer token.
func (p *payment) dispatched(again bool) {
	p.t.Helper()
	all := actortest.Of[*messages.ToolDispatched](p.h.Facts(p.w))
	if !again {
		if len(all) != 1 {
			p.t.Errorf("dispatched %d times", len(all))
		}
		return
	}
	if len(all) != 2 || all[1].GetExecId() != p.exec || all[1].GetAttempt() != 2 || all[1].GetLease().GetToken() <= all[0].GetLease().GetToken() {
		p.t.Errorf("dispatched as %v", all)
	}
	if p.ran[0] != p.exec {
		p.t.Errorf("it ran as %s, not %s", p.ran[0], p.exec)
	}
}

func TestWordsOnCallsThatNobodyAskedAboutAreRefused(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	for range 2 { // of a session in memory, and of one that is not
		for code, m := range map[string]*messages.ResolveCall{
			messages.CodeNotFound:   {WorkerId: p.w, ExecId: "exe_none", Resolution: messages.CallResolved_DONE},
			messages.CodeBadRequest: {WorkerId: p.w, ExecId: p.exec},
		} {
			p.waits()
			if _, err := actortest.Try[*messages.Ack](p.h, p.s, m); actortest.Code(err) != code {
				t.Errorf("%v: %v", m, err)
			}
		}
		p.next()
	}
	if _, err := actortest.Try[*messages.Ack](p.h, "ses_none", &messages.ResolveCall{WorkerId: "wrk_none", ExecId: p.exec, Resolution: messages.CallResolved_DONE}); err == nil {
		t.Error("a word for a worker that does not exist was taken")
	}
	if len(p.listed()) != 1 {
		t.Errorf("listed: %v", p.listed())
	}
}

func TestACancelClosesWhatIsInDoubt(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.waits()
	if c := actortest.Ask[*messages.Cancelled](p.h, p.s, &messages.CancelSession{By: "user"}); c.GetTurns() != 1 {
		t.Errorf("%v", c)
	}
	facts := p.h.Facts(p.w)
	f := actortest.Of[*messages.ToolFinished](facts)
	if len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_INTERRUPTED_UNKNOWN || f[0].GetContent() != conversation.InterruptedText {
		t.Errorf("closed as %v", f)
	}
	if end := actortest.Of[*messages.TurnCompleted](facts); len(end) != 1 || end[0].GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("ended as %v", end)
	}
	if len(p.listed()) != 0 || p.h.Worker(p.s).GetInDoubt() != 0 {
		t.Errorf("listed: %v", p.listed())
	}
	if err := p.say(messages.CallResolved_RETRY, ""); actortest.Code(err) != messages.CodeNotFound {
		t.Errorf("a word after the cancel: %v", err)
	}
	works(t, p.h, p.s)
	if p.runs() != 0 {
		t.Errorf("%d runs", p.runs())
	}
}

func TestAPanicWhileACallIsInDoubtLeavesItSo(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.waits()
	p.h.Sys.Root.Stop(p.h.Sys.NewLocalPID("troupe/" + p.s + "/" + p.w))
	actortest.Until(t, "the successor waits, too", func() bool {
		v := p.h.Worker(p.s)
		return v.GetRestarts() == 1 && v.GetState() == "waiting" && v.GetInDoubt() == 1
	})
	if err := p.say(messages.CallResolved_DONE, ""); err != nil {
		t.Error(err)
	}
	if r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("%v", r)
	}
}

func TestEachPolicyDecidesAboutACallThatWasCutOff(t *testing.T) {
	for policy, want := range map[messages.UnknownOutcome_Policy]struct {
		outcome messages.TurnCompleted_Outcome
		text    string
		runs    int
	}{
		messages.UnknownOutcome_REPORT: {messages.TurnCompleted_DONE, conversation.InterruptedText + "\n", 0},
		messages.UnknownOutcome_RETRY:  {messages.TurnCompleted_DONE, "paid\n", 1},
		messages.UnknownOutcome_FAIL:   {messages.TurnCompleted_ERROR, "", 0},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			p := cutOff(t, policy)
			r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in})
			if r.GetOutcome() != want.outcome || r.GetText() != want.text || p.runs() != want.runs {
				t.Errorf("%v %q after %d runs", r.GetOutcome(), r.GetText(), p.runs())
			}
			if policy == messages.UnknownOutcome_FAIL && (!strings.Contains(r.GetReason(), p.exec) || !strings.Contains(r.GetReason(), "pay")) {
				t.Errorf("the reason is %q", r.GetReason())
			}
			if policy == messages.UnknownOutcome_RETRY {
				p.dispatched(true)
			}
			works(t, p.h, p.s)
		})
	}
}

func TestAResultThatWasNotStoredIsTakenFromTheLedger(t *testing.T) {
	store := &actortest.Store{Store: memory.New()}
	p := &payment{t: t, ask: messages.UnknownOutcome_ASK, dataDir: t.TempDir()}
	t.Cleanup(func() { _ = store.Close() })
	p.dir = []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	o := p.options(func(tc *tools.Context) (string, error) { return "paid once as " + tc.ExecID, nil })
	o.Store = store
	p.h = actortest.New(t, o)
	p.s, p.w = p.h.Create(&messages.CreateSession{Workspaces: p.dir})
	came, _ := store.Hold(actortest.Is[*messages.ToolFinished])
	p.in = submit(p.h, p.s, "go")
	actortest.Wait(t, "the result", came) // it never gets to the disk
	p.store = store.Store.(*memory.Store)
	p.exec = actortest.Of[*messages.ToolPlanned](p.h.Facts(p.w))[0].GetExecId()
	p.next()
	r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in})
	if r.GetText() != "paid once as "+p.exec+"\n" || p.runs() != 0 {
		t.Errorf("%q after %d more runs", r.GetText(), p.runs())
	}
	d := actortest.Of[*messages.Activated](p.h.Facts(p.w))
	if last := d[len(d)-1].GetDecisions(); len(last) != 1 || last[0].GetAction() != messages.RecoveryDecision_KNOWN {
		t.Errorf("decided %v", last)
	}
	works(t, p.h, p.s)
}

func TestACallThatAnOrderlyStopEndedIsRecordedAsStopped(t *testing.T) {
	p := &payment{t: t, store: memory.New(), ask: messages.UnknownOutcome_ASK, dataDir: t.TempDir()}
	t.Cleanup(func() { _ = p.store.Close() })
	gate := actortest.NewGate()
	p.h = actortest.New(t, p.options(func(tc *tools.Context) (string, error) { return "", gate.Pass(tc.Signal) }))
	p.s, p.w = p.h.Create(&messages.CreateSession{})
	p.in = submit(p.h, p.s, "go")
	actortest.Wait(t, "the payment", gate.Came)
	p.next()
	r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in})
	f := actortest.Of[*messages.ToolFinished](p.h.Facts(p.w))
	if len(f) != 1 || f[0].GetStatus() != messages.ToolFinished_CANCELLED || !strings.HasPrefix(r.GetText(), "Stopped before it finished") || p.runs() != 0 {
		t.Errorf("%v, the model reads %q, %d runs", f, r.GetText(), p.runs())
	}
}

// TestACallThatDoesNotEndIsPutInDoubt: it hears neither its cancel nor the end of its time; the person who says retry
// waits with it until it has ended, as its workspace does not pass on before.
func TestACallThatDoesNotEndIsPutInDoubt(t *testing.T) {
	stuck := make(chan struct{})
	var mu sync.Mutex
	running, most, runs := 0, 0, 0
	spec := tools.Spec{
		Name: "pay", Description: "Pays. Example: `{\"name\": \"x\"}`", Effect: atMostOnce, Unknown: messages.UnknownOutcome_ASK, Timeout: 200 * time.Millisecond,
	}
	pay, err := tools.Func(spec, func(*tools.Context, nameArg) (*tools.Result, error) {
		mu.Lock()
		running++
		runs++
		most = max(most, running)
		mu.Unlock()
		<-stuck
		mu.Lock()
		defer mu.Unlock()
		running--
		return &tools.Result{Content: "paid"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := actortest.New(t, actortest.Options{
		Tools: []tools.Tool{pay}, Limits: actors.Limits{Grace: time.Millisecond},
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "pay", `{"name":"x"}`))),
	})
	p := &payment{t: t, h: h}
	p.s, p.w = h.Create(&messages.CreateSession{})
	p.in = submit(h, p.s, "go")
	p.waits()
	p.exec = actortest.Of[*messages.ToolPlanned](h.Facts(p.w))[0].GetExecId()
	if err := p.say(messages.CallResolved_RETRY, ""); err != nil {
		t.Fatal(err)
	}
	h.State(p.s, "waiting") // for the workspace
	close(stuck)
	done := actortest.Later[*messages.TurnResult](h, p.s, &messages.AwaitTurn{InputId: p.in})
	actortest.Until(t, "the turn is done", func() bool {
		_ = p.say(messages.CallResolved_RETRY, "") // on a slow machine the second run is given up, too
		return h.Worker(p.s).GetTurns() == 1
	})
	r := actortest.Wait(t, "the turn", done).Reply
	mu.Lock()
	defer mu.Unlock()
	if r.GetText() != "paid\n" && !strings.HasPrefix(r.GetText(), "Timed out") || most != 1 {
		t.Errorf("%q after %d runs, %d at a time", r.GetText(), runs, most)
	}
}

// TestACallThatItsToolLostTrackOfGoesByThePolicy: a server of tools that ends during a call is such a one.
func TestACallThatItsToolLostTrackOfGoesByThePolicy(t *testing.T) {
	spec := tools.Spec{Name: "pay", Description: "Pays. Example: `{\"name\": \"x\"}`", Effect: atMostOnce, Unknown: messages.UnknownOutcome_ASK}
	pay, err := tools.Func(spec, func(*tools.Context, nameArg) (*tools.Result, error) {
		return nil, tools.ErrorUnknown("the server ended")
	})
	if err != nil {
		t.Fatal(err)
	}
	h := actortest.New(t, actortest.Options{Tools: []tools.Tool{pay}, Model: plainOr(actortest.CallThenSay(actortest.Call("1", "pay", `{"name":"x"}`)))})
	p := &payment{t: t, h: h}
	p.s, p.w = h.Create(&messages.CreateSession{})
	p.in = submit(h, p.s, "go")
	p.waits()
	if n := len(actortest.Of[*messages.CallDoubted](h.Facts(p.w))); n != 1 || len(actortest.Of[*messages.ToolFinished](h.Facts(p.w))) != 0 {
		t.Errorf("put in doubt %d times", n)
	}
}

// TestWhatBecomesOfAnUnknownOutcomeIsDecidedWhenTheCallIsPlanned: a rule goes before the tool's configuration, that before
// the agent, that before the tool's own word; and what is configured later changes no planned call.
func TestWhatBecomesOfAnUnknownOutcomeIsDecidedWhenTheCallIsPlanned(t *testing.T) {
	planned := func(own messages.UnknownOutcome_Policy, agent, configured policy.Unknown, rules ...string) messages.UnknownOutcome_Policy {
		t.Helper()
		p := &payment{t: t, store: memory.New(), ask: own}
		t.Cleanup(func() { _ = p.store.Close() })
		o := p.options(func(*tools.Context) (string, error) { return "paid", nil })
		o.Agents = []actors.Agent{{Name: "payer", Unknown: agent}}
		h := actortest.New(t, o)
		if configured != "" {
			h.Svc.Unknown = map[string]policy.Unknown{"pay": configured, "other": policy.UnknownFail}
		}
		s, w := h.Create(&messages.CreateSession{Agent: "payer", Rules: rules})
		h.Run(s, "go")
		return actortest.Of[*messages.ToolPlanned](h.Facts(w))[0].GetUnknown()
	}
	for _, c := range []struct {
		got, want messages.UnknownOutcome_Policy
	}{
		{planned(messages.UnknownOutcome_RETRY, "", ""), messages.UnknownOutcome_RETRY},
		{planned(messages.UnknownOutcome_RETRY, policy.UnknownFail, ""), messages.UnknownOutcome_FAIL},
		{planned(messages.UnknownOutcome_RETRY, policy.UnknownFail, policy.UnknownReport), messages.UnknownOutcome_REPORT},
		{planned(messages.UnknownOutcome_RETRY, policy.UnknownFail, policy.UnknownReport, "pay unknown=ask"), messages.UnknownOutcome_ASK},
		{planned(messages.UnknownOutcome_RETRY, "", "", "write_file unknown=ask"), messages.UnknownOutcome_RETRY},
	} {
		if c.got != c.want {
			t.Errorf("planned with %v, want %v", c.got, c.want)
		}
	}
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.ask = messages.UnknownOutcome_RETRY // from now on
	p.next()
	p.waits()
}

func TestOfManyWordsAtOnceOneCounts(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		p := cutOff(t, messages.UnknownOutcome_ASK)
		p.waits()
		if asleep {
			p.next()
		}
		var all []<-chan actortest.Answer[*messages.Ack]
		for i := range 20 {
			word := messages.CallResolved_Resolution(i%3 + 1)
			all = append(all, actortest.Later[*messages.Ack](p.h, p.s, &messages.ResolveCall{WorkerId: p.w, ExecId: p.exec, Resolution: word}))
		}
		cancel := actortest.Later[*messages.Cancelled](p.h, p.s, &messages.CancelSession{})
		taken := 0
		for _, ch := range all {
			switch a := actortest.Wait(t, "an answer", ch); actortest.Code(a.Err) {
			case "":
				taken++
			case messages.CodeResolved, messages.CodeNotFound: // the second is after the cancel
			default:
				t.Errorf("asleep %v: %v", asleep, a.Err)
			}
		}
		actortest.Wait(t, "the cancel", cancel)
		facts := p.h.Facts(p.w)
		words, results := len(actortest.Of[*messages.CallResolved](facts)), len(actortest.Of[*messages.ToolFinished](facts))
		if taken > 1 || words != taken || results != 1 || p.runs() > 1 {
			t.Errorf("asleep %v: %d taken, %d in the journal, %d results, %d runs", asleep, taken, words, results, p.runs())
		}
		works(t, p.h, p.s)
	}
}

// TestAWaitForAPersonIsNoPartOfTheWallTime: the turn has a second, and the word comes an hour later.
func TestAWaitForAPersonIsNoPartOfTheWallTime(t *testing.T) {
	p := cutOff(t, messages.UnknownOutcome_ASK)
	p.h.Stop()
	p.store = p.store.Reopen()
	store := p.store
	t.Cleanup(func() { _ = store.Close() })
	clock := actortest.NewClock(time.Now())
	o := p.options(func(*tools.Context) (string, error) { return "paid", nil })
	o.Clock, o.Now, o.Limits = clock, clock.Now, actors.Limits{Wall: 20 * time.Second}
	p.h = actortest.New(t, o)
	p.waits()
	clock.Advance(time.Hour)
	if v := p.h.Worker(p.s); v.GetState() != "waiting" || v.GetInDoubt() != 1 {
		t.Fatalf("after an hour: %v", v)
	}
	if err := p.say(messages.CallResolved_RETRY, ""); err != nil {
		t.Fatal(err)
	}
	if r := actortest.Ask[*messages.TurnResult](p.h, p.s, &messages.AwaitTurn{InputId: p.in}); r.GetText() != "paid\n" {
		t.Errorf("%v", r)
	}
}
