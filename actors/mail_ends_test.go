package actors_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// glasshouse is a house whose children in the background panic, whenever they work, until they are let.
func glasshouse(t *testing.T, o actortest.Options, do actortest.Model) (*actortest.House, *brittle) {
	t.Helper()
	b := &brittle{One: actortest.One{Model: apart(do, delegate("1", "x", `,"background":true,"agent":"glass"`))}}
	b.panics.Store(1 << 20)
	o.Models, o.Agents = b, []actors.Agent{{Name: "glass", Model: "brittle"}}
	return actortest.New(t, o), b
}

func TestAParentIsToldOnceOfAChildThatIsQuarantined(t *testing.T) {
	h, _ := glasshouse(t, actortest.Options{IdleAfter: time.Millisecond}, actortest.Say("never"))
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	actortest.Until(t, "the parent is told", func() bool { return len(mailTo(h, w)) == 1 })
	in := mailTo(h, w)[0]
	if text := in.GetParts()[0].GetText(); in.GetMail().GetOutcome() != messages.TurnCompleted_ERROR || !strings.Contains(text, "failed again and again (as the test wants it)") {
		t.Errorf("it was told %v", in)
	}
	asleep(t, h) // and begins anew
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: workers(h, s)[1].GetId()})
	asleep(t, h)
	if v := listedWorker(t, h.Store, s, w); len(mailTo(h, w)) != 1 || v.GetTurns() != 2 {
		t.Errorf("in the end it was told %v in %d turns", mailTo(h, w), v.GetTurns())
	}
}

// TestASessionRestsWhenAParentHasHeardOfItsChild asks while the parent rests and the child works, and again before the child is there.
func TestASessionRestsWhenAParentHasHeardOfItsChild(t *testing.T) {
	child, parent := actortest.NewGate(), actortest.NewGate()
	does := apart(behind(child), inBackground("1", "x"))
	h := actortest.New(t, actortest.Options{Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		if strings.HasPrefix(actortest.Asked(r), "The task that you delegated") {
			return actortest.Reply{Err: parent.Pass(ctx), Text: "heard"}
		}
		return does(ctx, r)
	})})
	s, _ := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	early := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	actortest.Wait(t, "the child works", child.Came)
	actortest.Until(t, "the parent rests", func() bool { return workers(h, s)[0].GetTurns() == 1 })
	late := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	child.Open()
	actortest.Wait(t, "the parent hears", parent.Came)
	actortest.Until(t, "the child rests", func() bool { return workers(h, s)[1].GetState() == "inactive" })
	if n := len(early) + len(late); n != 0 {
		t.Fatalf("%d were told that all rest, and the parent hears of its child", n)
	}
	parent.Open()
	for _, idle := range []<-chan actortest.Answer[*messages.Ack]{early, late} {
		if a := actortest.Wait(t, "the rest", idle); a.Err != nil {
			t.Error(a.Err)
		}
	}
	if n := workers(h, s)[0].GetTurns(); n != 2 {
		t.Errorf("%d turns", n)
	}
}

// TestASessionDoesNotRestWhileAChildIsStarted holds its session up between the word to the parent that the child is there and the child's start, until the
// parent has ended its turn.
func TestASessionDoesNotRestWhileAChildIsStarted(t *testing.T) {
	child, going := actortest.NewGate(), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(going) })
	var works atomic.Bool
	does := apart(behind(child), inBackground("1", "x"))
	h := actortest.New(t, actortest.Options{
		Now: func() time.Time {
			if works.Load() && calledBy("(*Session).start") {
				<-going
			}
			return time.Now()
		},
		Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
			works.Store(true)
			return does(ctx, r)
		}),
	})
	t.Cleanup(goOn)
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	idle := actortest.Later[*messages.Ack](h, s, &messages.WaitIdle{})
	actortest.Until(t, "the parent rests", func() bool { return len(actortest.Of[*messages.TurnCompleted](h.Facts(w))) == 1 })
	select {
	case a := <-idle:
		t.Fatalf("it was told that all rest, and a child begins: %v", a.Err)
	case <-time.After(50 * time.Millisecond): // in which it is told, if it is
	}
	goOn()
	actortest.Wait(t, "the child works", child.Came)
	child.Open()
	if a := actortest.Wait(t, "the rest", idle); a.Err != nil {
		t.Error(a.Err)
	}
	if got := mailTo(h, w); len(got) != 1 {
		t.Errorf("the parent was told %v", got)
	}
}

// calledBy says whether a function is under way in this goroutine.
func calledBy(name string) bool {
	var pcs [32]uintptr
	for frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])]); ; {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

func TestAParentThatHasNotedItsChildsEndIsNotWokenByItsDeletion(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{IdleAfter: time.Millisecond, Model: apart(behind(gate), inBackground("1", "x"))})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	actortest.Wait(t, "the child works", gate.Came)
	actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{})
	actortest.Until(t, "its end is noted", func() bool { return len(actortest.Of[*messages.ChildEnded](h.Facts(w))) == 1 })
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: workers(h, s)[1].GetId()})
	asleep(t, h)
	if in := mailTo(h, w); len(in) != 0 {
		t.Errorf("the parent was told %v", in)
	}
}

// TestAParentIsToldAfterARestartOfAChildThatWasDeleted has the process die between the child's end and the word of it.
func TestAParentIsToldAfterARestartOfAChildThatWasDeleted(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	gate := actortest.NewGate()
	o := actortest.Options{Store: store, Model: apart(behind(gate), inBackground("1", "x"))}
	h := actortest.New(t, o)
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	actortest.Wait(t, "the child works", gate.Came)
	child := workers(h, s)[1].GetId()
	h.Stop()
	l, err := store.Claim(t.Context(), messages.SessionStream(s), "test")
	if err == nil {
		end := []*messages.Record{recordOf(t, &messages.WorkerEnded{WorkerId: child})}
		_, err = store.Append(t.Context(), persistence.Batch{Lease: l, Expect: l.Next, Session: s, Records: end})
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it knows
		h = actortest.New(t, o)
		actortest.Ask[*messages.History](h, s, &messages.ReadHistory{})
		actortest.Until(t, "the parent has heard", func() bool { return workers(h, s)[0].GetTurns() == 2 })
		if in := mailTo(h, w); len(in) != 1 || !strings.Contains(in[0].GetParts()[0].GetText(), "it was deleted") {
			t.Errorf("the parent was told %v", in)
		}
		h.Stop()
	}
}

// TestAnAnswerThatIsFasterThanItsCallIsNotWaitedForAgain holds the call up until the child has told.
func TestAnAnswerThatIsFasterThanItsCallIsNotWaitedForAgain(t *testing.T) {
	came, told := make(chan actors.Call, 2), make(chan struct{})
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{Children: 1}, Model: apart(actortest.Say("slow"), inBackground("1", "x"))})
	h.Svc.Hooks.AfterCall = func(ctx context.Context, call actors.Call, _ *tools.Context, _ *messages.ToolReply) {
		came <- call
		select {
		case <-told:
		case <-ctx.Done():
		}
	}
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "go")
	exec := actortest.Wait(t, "the call", came).ExecID
	id := strings.TrimPrefix(exec, messages.ExecPrefix)
	mail := &messages.Mail{MessageId: "msg_" + id, Kind: messages.Mail_RESULT, WorkerId: messages.WorkerPrefix + id, ExecId: exec}
	text := actortest.Text("The task that you delegated is done")
	if _, err := deliver(t, h, s, &messages.DeliverMail{WorkerId: w, Mail: &messages.OutboxEnqueued{MessageId: mail.GetMessageId(), To: w, Mail: mail, Parts: text}}); err != nil {
		t.Fatal(err)
	}
	close(told)
	quiet(h, t, s, 3)
	if got := h.Run(s, "again").GetText(); !strings.Contains(got, "has begun") {
		t.Errorf("another one is refused: %q", got)
	}
	quiet(h, t, s, 6)
}

func TestAChildOfAQuarantinedParentEndsWhenThatIsDeleted(t *testing.T) {
	gate := actortest.NewGate()
	b := &brittle{One: actortest.One{Model: apart(behind(gate), inBackground("1", "x"))}}
	h := actortest.New(t, actortest.Options{Models: b})
	s, w := h.Create(&messages.CreateSession{})
	h.Run(s, "go")
	actortest.Wait(t, "the child works", gate.Came)
	child := workers(h, s)[1].GetId()
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Model: "brittle"})
	b.panics.Store(1 << 20)
	actortest.Until(t, "the parent is quarantined", func() bool {
		_, err := actortest.Try[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: w, Parts: actortest.Text("fall")})
		return actortest.Code(err) == messages.CodeQuarantined
	})
	actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: w})
	actortest.Until(t, "the child has ended", func() bool { return listedWorker(t, h.Store, s, child).GetLastOutcome() == "aborted" })
}

func TestTheTimeOfAChildInTheBackgroundCountsInTheBudgetOfItsSession(t *testing.T) {
	gate, clock := actortest.NewGate(), actortest.NewClock(time.Unix(1<<30, 0))
	h := actortest.New(t, actortest.Options{Clock: clock, Model: apart(behind(gate), inBackground("1", "x"))})
	s, _ := h.Create(&messages.CreateSession{Budget: &messages.Budget{Most: &messages.Amounts{WallMs: 15_000}}})
	h.Run(s, "go")
	actortest.Wait(t, "the child works", gate.Came)
	clock.Advance(10 * time.Second)
	gate.Open()
	quiet(h, t, s, 3)
	v := actortest.Ask[*messages.SessionView](h, s, &messages.DescribeSession{})
	if got := v.GetBudget().GetSpent().GetWallMs(); got != 10_000 {
		t.Errorf("the session has spent %d ms", got)
	}
	if got := actortest.Of[*messages.BudgetSettled](h.Facts(v.GetWorkers()[1].GetId())); !slices.ContainsFunc(got, func(f *messages.BudgetSettled) bool { return f.GetWallMs() == 10_000 }) {
		t.Errorf("the child has settled %v", got)
	}
}

// deliver puts a message into a worker's hands, and waits for its answer.
func deliver(t *testing.T, h *actortest.House, session string, m *messages.DeliverMail) (*messages.InputReply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), actortest.Patience)
	defer cancel()
	return act.Ask[*messages.InputReply](ctx, h.Sys, h.Sys.NewLocalPID("troupe/"+session), m)
}
