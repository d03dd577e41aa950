package actors_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// noon is when the clocks of these tests begin.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// clocked is a house whose time is the test's; every answer says back what it was asked.
func clocked(t *testing.T, store persistence.Store, clock *actortest.Clock, o actortest.Options) *actortest.House {
	t.Helper()
	o.Store, o.Clock = store, clock
	if o.Model == nil {
		o.Model = plainOr(func(_ context.Context, r *model.Request) actortest.Reply {
			return actortest.Reply{Text: "heard " + actortest.Asked(r)}
		})
	}
	return actortest.New(t, o)
}

func remind(h *actortest.House, session, id string, due time.Time, misfire messages.TimerSet_Misfire) *messages.TimerView {
	return actortest.Ask[*messages.TimerView](h, session, &messages.SetTimer{
		TimerId: id, DueUnixMs: due.UnixMilli(), Parts: actortest.Text("remember " + id), Misfire: misfire,
	})
}

// heard are the texts of all completed turns, in order.
func heard(h *actortest.House, session string) []string {
	var out []string
	for _, turn := range actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}).GetTurns() {
		out = append(out, turn.GetMessages()[0].GetContent())
	}
	return out
}

// pass lets time pass in small steps until something holds. What is due by a step has a while of ours before the next: were the clock to run
// ahead of what follows, a turn that is held up by the test would end for its own time.
func pass(t *testing.T, clock *actortest.Clock, step time.Duration, what string, ok func() bool) {
	t.Helper()
	const while = 5 * time.Millisecond
	var next time.Time
	actortest.Until(t, what, func() bool {
		if ok() {
			return true
		}
		if now := time.Now(); now.After(next) {
			clock.Advance(step)
			next = now.Add(while)
		}
		return false
	})
}

func TestATimerSubmitsItsInputOnceAtItsTimeAndNeverBefore(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	v := remind(h, s, "tea", noon().Add(90*time.Second), messages.TimerSet_FIRE)
	if v.GetState() != "set" || v.GetWorkerId() != w || v.GetMisfire() != "fire" {
		t.Errorf("%v", v)
	}
	if l := actortest.Ask[*messages.Timers](h, s, &messages.ListTimers{}).GetTimers(); len(l) != 1 || l[0].GetText() != "remember tea" {
		t.Errorf("%v", l)
	}
	clock.Advance(89 * time.Second)
	// The Timers have looked once more, and found nothing due.
	actortest.Until(t, "they wait for the last second", func() bool { return clock.Waits() > 0 })
	if f := actortest.Of[*messages.TimerFired](h.Facts(w)); len(f) != 0 {
		t.Fatalf("fired early: %v", f)
	}
	pass(t, clock, time.Second, "it has fired", func() bool { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) > 0 })
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{})
	if r.GetText() != "heard remember tea" {
		t.Errorf("%v", r)
	}
	in := actortest.Of[*messages.InputAccepted](h.Facts(w))
	if len(in) != 1 || in[0].GetOrigin() != messages.InputAccepted_TIMER {
		t.Errorf("inputs: %v", in)
	}
	clock.Advance(time.Hour)
	again := actortest.Ask[*messages.TimerView](h, s, &messages.FireTimer{TimerId: "tea"}) // as a second Timers might
	if again.GetState() != "fired" || len(actortest.Of[*messages.InputAccepted](h.Facts(w))) != 1 {
		t.Errorf("told again: %v", again)
	}
}

// TestATimeOfDayThatJumpsFiresNothingEarlyAndLosesNothing sets the clock an hour forward and an hour back.
func TestATimeOfDayThatJumpsFiresNothingEarlyAndLosesNothing(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	at := func(d time.Duration) time.Time { return noon().Add(d) }
	fired := func() int { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) }
	check := func() {
		for _, f := range actortest.Of[*messages.TimerFired](h.Facts(w)) {
			if f.GetLateMs() < 0 {
				t.Errorf("%s fired %d ms early", f.GetTimerId(), -f.GetLateMs())
			}
		}
	}
	remind(h, s, "soon", at(10*time.Second), messages.TimerSet_FIRE)
	remind(h, s, "half", at(30*time.Minute), messages.TimerSet_FIRE)
	remind(h, s, "missed", at(31*time.Minute), messages.TimerSet_SKIP)
	remind(h, s, "later", at(90*time.Minute), messages.TimerSet_FIRE)

	clock.Jump(-time.Hour) // 11:00: what slept until 12:00:10 wakes, and sees that it is not the time
	clock.Advance(20 * time.Second)
	actortest.Until(t, "they look again", func() bool { return clock.Waits() > 0 })
	if n := fired(); n != 0 {
		t.Fatalf("%d fired an hour early", n)
	}
	clock.Jump(2 * time.Hour) // 13:00:20: three are due, one of them too late
	actortest.Until(t, "what was missed is made up for", func() bool {
		if fired() == 3 {
			return true
		}
		clock.Advance(time.Second)
		if clock.Now().After(at(89 * time.Minute)) { // whoever is slow finds it early enough: the last one is not due
			clock.Jump(-time.Second)
		}
		return false
	})
	check()
	rests(h, s)
	clock.Jump(-time.Hour) // 12:00 again: nothing a second time
	for range 20 {
		clock.Advance(time.Minute)
	}
	if n := fired(); n != 3 {
		t.Errorf("%d fired after the clock was set back", n)
	}
	pass(t, clock, time.Minute, "the last one fires", func() bool { return fired() == 4 })
	check()
	rests(h, s)
	if got := fmt.Sprint(heard(h, s)); got != "[remember soon remember half remember later]" {
		t.Errorf("heard %s", got)
	}
	for _, f := range actortest.Of[*messages.TimerFired](h.Facts(w)) {
		if f.GetSkipped() != (f.GetTimerId() == "missed") {
			t.Errorf("%v", f)
		}
	}
}

// TestWhatWasMissedIsHeardInTheOrderInWhichItWasDue: all of it is found at once.
func TestWhatWasMissedIsHeardInTheOrderInWhichItWasDue(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	var want []string
	for n := range 24 { // more than are told at once
		id := fmt.Sprintf("t%02d", 99-n)
		remind(h, s, id, noon().Add(time.Duration(n+1)*time.Minute), messages.TimerSet_FIRE)
		want = append(want, "remember "+id)
	}
	clock.Jump(time.Hour)
	pass(t, clock, time.Second, "all have fired", func() bool {
		return len(actortest.Of[*messages.TimerFired](h.Facts(w))) == len(want)
	})
	rests(h, s)
	if got := heard(h, s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("heard %v", got)
	}
}

func TestATimerWakesASessionThatSleepsAlsoAfterARestart(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(2*time.Hour), messages.TimerSet_FIRE)
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	clock.Jump(3 * time.Hour) // the process was away when it was due
	h = clocked(t, again, clock, actortest.Options{})
	actortest.Until(t, "the session was woken and has heard it", func() bool {
		return len(actortest.Of[*messages.TurnCompleted](h.Facts(w))) == 1
	})
	f := actortest.Of[*messages.TimerFired](h.Facts(w))
	if len(f) != 1 || f[0].GetLateMs() != time.Hour.Milliseconds() {
		t.Errorf("%v", f)
	}
}

// TestATimerFiresOnceWhereverTheProcessIsCutOff cuts the journal after each append, before and after
// its answer is heard, and lets the next process go on.
func TestATimerFiresOnceWhereverTheProcessIsCutOff(t *testing.T) {
	const id = "ses_cut"
	whole, clock := memory.New(), actortest.NewClock(noon())
	run := func(store persistence.Store, h *actortest.House) {
		if head, err := store.Head(context.Background(), messages.SessionStream(id)); err == nil && head == 0 {
			h.Create(&messages.CreateSession{SessionId: id})
		}
		remind(h, id, "tea", noon().Add(time.Minute), messages.TimerSet_FIRE)
		pass(t, clock, 10*time.Second, "it was heard", func() bool {
			return len(actortest.Of[*messages.TurnCompleted](h.Facts(h.Worker(id).GetId()))) == 1
		})
		rests(h, id)
	}
	h := clocked(t, whole, clock, actortest.Options{})
	run(whole, h)
	h.Stop()
	appends := whole.Appends()
	if appends < 4 {
		t.Fatalf("%d appends: nothing fired", appends)
	}
	for n := 1; n <= appends; n++ {
		clock = actortest.NewClock(noon())
		cut, err := whole.Cut(n)
		if err != nil {
			t.Fatal(err)
		}
		h := clocked(t, cut, clock, actortest.Options{})
		run(cut, h)
		facts := h.Facts(h.Worker(id).GetId())
		in := 0
		for _, f := range actortest.Of[*messages.InputAccepted](facts) {
			if f.GetOrigin() == messages.InputAccepted_TIMER {
				in++
			}
		}
		if fired := actortest.Of[*messages.TimerFired](facts); len(fired) != 1 || in != 1 {
			t.Errorf("cut after %d of %d: fired %d times, %d inputs", n, appends, len(fired), in)
		}
		if due := dueTimers(t, cut); due != 0 {
			t.Errorf("cut after %d: %d timers are left in the store", n, due)
		}
		h.Stop()
		_ = cut.Close()
	}
	_ = whole.Close()
}

func dueTimers(t *testing.T, store persistence.Store) int {
	t.Helper()
	n := 0
	err := store.Due(t.Context(), noon().Add(1000*time.Hour), func(persistence.Timer) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestATimerOfASessionWithoutRoomFiresSoonAfterThereIsRoom: it was refused, and there is room before the next look at the time.
func TestATimerOfASessionWithoutRoomFiresSoonAfterThereIsRoom(t *testing.T) {
	store, clock, gate, refused := memory.New(), actortest.NewClock(noon()), actortest.NewGate(), make(chan struct{}, 64)
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{
		Limits: actors.Limits{Sessions: 1}, Log: tellsOf{"timer cannot be fired", refused},
		Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
			if actortest.Asked(r) != "hold" {
				return actortest.Reply{Text: "ok"}
			}
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	s, w := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(2*time.Minute), messages.TimerSet_FIRE) // not so near that it keeps its session in memory
	busy, _ := h.Create(&messages.CreateSession{})
	submit(h, busy, "hold")
	actortest.Wait(t, "the call", gate.Came)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	// In a few steps, each with time for what follows from it: were the clock to run ahead of that, the turn that holds the room would end for its own.
	clock.Advance(2 * time.Minute)
	for n := 1; len(refused) == 0 && n < 10_000; n++ {
		<-tick.C
		if n%1000 == 0 { // who was looking as the clock went forward has not seen it
			clock.Advance(31 * time.Second)
		}
	}
	if len(refused) == 0 {
		t.Fatal("it was not refused")
	}
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, busy, &messages.AwaitTurn{})
	fired := func() bool { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) > 0 }
	for passed := 0; passed < 20 && !fired(); passed++ { // each second has much more time here than it needs
		clock.Advance(time.Second)
		for n := 0; n < 500 && !fired(); n++ {
			<-tick.C
		}
	}
	if !fired() {
		t.Error("it has not fired 20 s after there was room")
	}
}

// tellsOf is a log that says when something was logged.
type tellsOf struct {
	message string
	told    chan struct{}
}

func (tellsOf) Enabled(context.Context, slog.Level) bool { return true }

func (l tellsOf) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.message {
		select {
		case l.told <- struct{}{}:
		default:
		}
	}
	return nil
}

func (l tellsOf) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l tellsOf) WithGroup(string) slog.Handler { return l }

// TestAnAppendThatFailsAsATimerFiresLosesNothing refuses the append of the firing once.
func TestAnAppendThatFailsAsATimerFiresLosesNothing(t *testing.T) {
	store, clock := &actortest.Store{Store: memory.New()}, actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(time.Second), messages.TimerSet_FIRE)
	refused := 0
	store.Refuse(func(f proto.Message) error {
		if _, ok := f.(*messages.TimerFired); ok && refused == 0 {
			refused++
			return fmt.Errorf("once: %w", persistence.ErrFull)
		}
		return nil
	})
	pass(t, clock, time.Second, "it was heard", func() bool { return len(actortest.Of[*messages.TurnCompleted](h.Facts(w))) == 1 })
	if refused != 1 || len(actortest.Of[*messages.TimerFired](h.Facts(w))) != 1 {
		t.Errorf("refused %d times, fired: %v", refused, actortest.Of[*messages.TimerFired](h.Facts(w)))
	}
}

// TestAProgramThatIsAboutSomethingElseWakesNobodyForATimer: it waits for one that is not.
func TestAProgramThatIsAboutSomethingElseWakesNobodyForATimer(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(time.Second), messages.TimerSet_FIRE)
	for _, o := range []actortest.Options{{Still: true}, {IgnoreTimers: true}, {}} {
		h.Stop()
		store = store.Reopen()
		t.Cleanup(func() { _ = store.Close() })
		clock.Advance(time.Minute)
		h = clocked(t, store, clock, o)
		quiet := o.Still || o.IgnoreTimers
		if quiet {
			h.Create(&messages.CreateSession{}) // by then it would have looked
		} else {
			actortest.Until(t, "it has fired", func() bool { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) == 1 })
		}
		if n := len(actortest.Of[*messages.TimerFired](h.Facts(w))); quiet && n != 0 {
			t.Errorf("%+v: fired", o)
		}
	}
}

func TestATimerQueuesBehindAnOpenTurn(t *testing.T) {
	store, clock, gate := memory.New(), actortest.NewClock(noon()), actortest.NewGate()
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: "said " + actortest.Asked(r), Err: gate.Pass(ctx)}
	})})
	s, w := h.Create(&messages.CreateSession{})
	submit(h, s, "long")
	actortest.Wait(t, "the call", gate.Came)
	remind(h, s, "tea", noon().Add(time.Second), messages.TimerSet_FIRE)
	pass(t, clock, time.Second, "it has fired", func() bool { return len(actortest.Of[*messages.TimerFired](h.Facts(w))) == 1 })
	if got := states(h, s); got != "long running, remember tea staged" {
		t.Errorf("inputs: %s", got)
	}
	gate.Open()
	rests(h, s)
	if got := fmt.Sprint(heard(h, s)); got != "[long remember tea]" {
		t.Errorf("heard %s", got)
	}
}

func TestTimersAreSetOnceCancelledOnceAndRefusedWhenTheySayNothing(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	t.Cleanup(func() { _ = store.Close() })
	h := clocked(t, store, clock, actortest.Options{})
	s, w := h.Create(&messages.CreateSession{})
	due := noon().Add(time.Hour)
	remind(h, s, "tea", due, messages.TimerSet_FIRE)
	remind(h, s, "tea", due, messages.TimerSet_FIRE)
	if n := len(actortest.Of[*messages.TimerSet](h.Facts(w))); n != 1 {
		t.Errorf("set %d times", n)
	}
	for what, m := range map[string]*messages.SetTimer{
		messages.CodeConflict + "1":   {TimerId: "tea", DueUnixMs: due.UnixMilli() + 1, Parts: actortest.Text("remember tea")},
		messages.CodeConflict + "2":   {TimerId: "tea", DueUnixMs: due.UnixMilli(), Parts: actortest.Text("else")},
		messages.CodeBadRequest + "1": {TimerId: "x", Parts: actortest.Text("when?")},
		messages.CodeBadRequest + "2": {TimerId: "x", DueUnixMs: due.UnixMilli(), Parts: actortest.Text(" \n")},
		messages.CodeBadRequest + "3": {TimerId: string(make([]byte, 129)), DueUnixMs: due.UnixMilli(), Parts: actortest.Text("x")},
	} {
		if _, err := actortest.Try[*messages.TimerView](h, s, m); actortest.Code(err)+what[len(what)-1:] != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	actortest.Ask[*messages.Ack](h, s, &messages.CancelTimer{TimerId: "tea"})
	if dueTimers(t, store) != 0 {
		t.Error("a cancelled timer is still in the store")
	}
	for _, id := range []string{"tea", "never"} {
		if _, err := actortest.Try[*messages.Ack](h, s, &messages.CancelTimer{TimerId: id}); actortest.Code(err) != messages.CodeNotFound {
			t.Errorf("cancel %s: %v", id, err)
		}
	}
	if v := remind(h, s, "tea", due, messages.TimerSet_FIRE); v.GetState() != "cancelled" {
		t.Errorf("set again after it was cancelled: %v", v)
	}
	clock.Advance(2 * time.Hour)
	works(t, h, s)
	if n := len(actortest.Of[*messages.TimerFired](h.Facts(w))); n != 0 {
		t.Error("a cancelled timer fired")
	}
}

// TestASessionThatCannotBeReadKeepsItsTimerAndIsTriedAgain: its session cannot be read.
func TestASessionThatCannotBeReadKeepsItsTimerAndIsTriedAgain(t *testing.T) {
	store, clock := memory.New(), actortest.NewClock(noon())
	h := clocked(t, store, clock, actortest.Options{})
	s, _ := h.Create(&messages.CreateSession{})
	remind(h, s, "tea", noon().Add(time.Second), messages.TimerSet_FIRE)
	h.Stop()
	again := store.Reopen()
	t.Cleanup(func() { _ = again.Close() })
	asked := &claimed{Store: again, stream: messages.SessionStream(s)}
	clocked(t, asked, clock, actortest.Options{})
	pass(t, clock, 30*time.Second, "it is tried again, and again", func() bool { return asked.claims.Load() >= 3 })
	if dueTimers(t, again) != 1 {
		t.Error("the timer is lost")
	}
}

// claimed counts the claims of one stream, and refuses them.
type claimed struct {
	persistence.Store
	stream string
	claims atomic.Int64
}

func (c *claimed) Claim(ctx context.Context, stream, owner string) (persistence.Lease, error) {
	if stream == c.stream {
		c.claims.Add(1)
		return persistence.Lease{}, fmt.Errorf("claim %s: %w", stream, persistence.ErrUnavailable)
	}
	return c.Store.Claim(ctx, stream, owner)
}

// rests waits until nothing is left to do.
func rests(h *actortest.House, session string) {
	actortest.Ask[*messages.Ack](h, session, &messages.WaitIdle{})
}
