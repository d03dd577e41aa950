package actors_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// order lets waiters of sessions come while the only permit is held, and returns the order in which they get it.
func order(t *testing.T, wishes ...*messages.AcquirePermit) (got []uint64) {
	t.Helper()
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{ModelCalls: 1}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p := newProbe(h)
	defer p.die(t)
	p.send(limiter, &messages.AcquirePermit{Request: 1000})
	last := p.permit(t)
	for i, w := range wishes {
		w.Request = uint64(i)
		p.send(limiter, w)
	}
	for range wishes {
		p.send(limiter, &messages.ReleasePermit{Request: last, Outcome: messages.ReleasePermit_ANSWERED})
		last = p.permit(t)
		got = append(got, last)
	}
	return got
}

func TestSessionsTakeTurnsHoweverMuchOneOfThemAsksFor(t *testing.T) {
	var wishes []*messages.AcquirePermit
	for range 6 {
		wishes = append(wishes, &messages.AcquirePermit{Session: "greedy"})
	}
	wishes = append(wishes, &messages.AcquirePermit{Session: "b"}, &messages.AcquirePermit{Session: "c"}, &messages.AcquirePermit{Session: "b"})
	if got, want := order(t, wishes...), []uint64{0, 6, 7, 1, 8, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
}

// TestTenantsTakeTurnsHoweverManySessionsOneOfThemHas: one tenant has six sessions that wait, and another one one, which came last.
func TestTenantsTakeTurnsHoweverManySessionsOneOfThemHas(t *testing.T) {
	var wishes []*messages.AcquirePermit
	for i := range 6 {
		wishes = append(wishes, &messages.AcquirePermit{Tenant: "large", Session: fmt.Sprint("session ", i)})
	}
	for range 3 {
		wishes = append(wishes, &messages.AcquirePermit{Tenant: "small", Session: "its only one"})
	}
	if got, want := order(t, wishes...), []uint64{0, 6, 1, 7, 2, 8, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
}

func TestWhatPeopleWaitForGoesFirstAndTheRestIsNotForgotten(t *testing.T) {
	var wishes []*messages.AcquirePermit
	for i := range 8 {
		wishes = append(wishes, &messages.AcquirePermit{Session: fmt.Sprint("child ", i%2), Background: i%4 == 0})
	}
	if got, want := order(t, wishes...), []uint64{1, 2, 3, 0, 5, 6, 7, 4}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
}

func TestAPauseThatTheProviderAsksForCountsForAll(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p, other := newProbe(h), newProbe(h)
	defer p.die(t)
	defer other.die(t)
	p.send(limiter, &messages.AcquirePermit{Request: 1})
	p.permit(t)
	begun := time.Now()
	p.send(limiter, &messages.ReleasePermit{Request: 1, Outcome: messages.ReleasePermit_RATE_LIMITED, RetryAfterMs: 700}) // more than the pause where a provider asks for none
	other.send(limiter, &messages.AcquirePermit{Request: 2})
	if other.permit(t); time.Since(begun) < 700*time.Millisecond {
		t.Errorf("the next call begins %v after the provider asked for 700 ms", time.Since(begun))
	}
}

func TestAProviderThatIsOutOfOrderIsTriedByOneCallAtATime(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p := newProbe(h)
	defer p.die(t)
	for i := range uint64(9) {
		p.send(limiter, &messages.AcquirePermit{Request: i})
		p.permit(t)
	}
	for i := range uint64(9) {
		p.send(limiter, &messages.ReleasePermit{Request: i, Outcome: messages.ReleasePermit_OVERLOADED})
	}
	for i := range uint64(3) {
		p.send(limiter, &messages.AcquirePermit{Request: 10 + i})
	}
	if got := p.permit(t); got != 10 {
		t.Fatalf("the first to try is %d", got)
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}) // whatever else could have been given has been
	select {
	case m := <-p.seen:
		t.Fatalf("a second try beside it: %v, %v", m, tree)
	default:
	}
	p.send(limiter, &messages.ReleasePermit{Request: 10, Outcome: messages.ReleasePermit_ANSWERED})
	if a, b := p.permit(t), p.permit(t); a != 11 || b != 12 {
		t.Errorf("after its answer it is the turn of %d and %d", a, b)
	}
}

// TestTwoHundredAgentsFinishWithAProviderThatRefusesFailsAndCutsOff: it answers so many requests in a while, and 429 to the rest; now and then it fails, or
// cuts a stream. All turns are done, none of them with an error. TROUPE_AGENTS is how many take part; then it answers 50 requests a second, and none takes more than three times as long as
// half of them (make agents): where all is over in seconds, the pauses before further tries alone are longer than that.
func TestTwoHundredAgentsFinishWithAProviderThatRefusesFailsAndCutsOff(t *testing.T) {
	agents, each, window, long := 200, 12, 50*time.Millisecond, false
	if n, err := strconv.Atoi(os.Getenv("TROUPE_AGENTS")); err == nil {
		agents, each, window, long = n, 50, time.Second, true
	}
	var mu sync.Mutex
	var began time.Time
	answered, refused, failed := 0, 0, map[string]int{}
	m := actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(began) > window {
			began, answered = now, 0
		}
		if answered >= each {
			refused++
			return actortest.Reply{Err: &model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: window}}
		}
		answered++
		results := actortest.Results(r)
		key := fmt.Sprint(r.Session, len(results))
		failed[key]++
		switch n := len(failed); {
		case failed[key] > 1 || n%10 > 1:
		case n%10 == 0:
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
		default:
			return actortest.Reply{Text: "half", Err: &model.Error{Class: model.Truncated, Message: "cut"}}
		}
		if results == nil {
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("1", "list_files", `{}`)}}
		}
		return actortest.Reply{Text: "done"}
	})
	h := actortest.New(t, actortest.Options{Model: m, Limits: actors.Limits{ModelCalls: 100}})
	var sessions []string
	for range agents {
		v := actortest.Ask[*messages.SessionView](h, "", &messages.CreateSession{First: &messages.SubmitInput{Parts: actortest.Text("go")}})
		sessions = append(sessions, v.GetId())
	}
	took := make([]time.Duration, agents)
	ended := make([]actortest.Answer[*messages.TurnResult], agents)
	var all sync.WaitGroup
	start := time.Now()
	for i, s := range sessions {
		all.Go(func() {
			for ended[i].Err = context.DeadlineExceeded; errors.Is(ended[i].Err, context.DeadlineExceeded); { // which asks have, and turns have not
				ended[i] = <-actortest.Later[*messages.TurnResult](h, s, &messages.AwaitTurn{})
			}
			took[i] = time.Since(start)
		})
	}
	all.Wait()
	for i, a := range ended {
		if a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_DONE || a.Reply.GetText() != "done" {
			t.Errorf("agent %d: %v %v", i, a.Reply, a.Err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if refused == 0 {
		t.Error("nothing was refused: the test is about nothing")
	}
	slices.Sort(took)
	if half, longest := took[agents/2], took[agents-1]; long && longest > 3*half {
		t.Errorf("the longest turn took %s, half of them %s", longest, half)
	}
	t.Logf("%d requests were refused; half of the turns took %s, the longest %s; %.1f answers a second", refused, took[agents/2], took[agents-1], float64(2*agents)/took[agents-1].Seconds())
}

// pairs answers two names, of two providers.
type pairs struct{ first, second actortest.Model }

func (p pairs) Resolve(name string) (*actors.Resolved, error) {
	if name == "second" {
		return &actors.Resolved{Model: p.second, Provider: "other", Name: "second"}, nil
	}
	return &actors.Resolved{Model: p.first, Provider: "default", Name: "first", Fallback: "second"}, nil
}

func (pairs) Providers() []string { return []string{"default", "other"} }

func TestAModelStandsInForOneThatDoesNotAnswerAndIsWrittenDown(t *testing.T) {
	h := actortest.New(t, actortest.Options{Models: pairs{
		first: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500", RetryAfter: time.Hour}}
		}),
		second: actortest.Say("I stand in"),
	}})
	s, w := h.Create(&messages.CreateSession{Model: "first"})
	if r := h.Run(s, "go"); r.GetText() != "I stand in" {
		t.Fatalf("%v", r)
	}
	var asked []string
	for _, g := range actortest.Of[*messages.GenerationStarted](h.Facts(w)) {
		asked = append(asked, g.GetModel()+" "+g.GetInsteadOf())
	}
	if got := strings.Join(asked, ", "); got != "first , second first" {
		t.Errorf("asked were %s", got)
	}
}

func TestATurnThatIsOutOfTimeSaysWhatItWaitedFor(t *testing.T) {
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{Wall: time.Minute}, Clock: clock, Now: clock.Now, Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
		return actortest.Reply{Err: &model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 4 * time.Minute}}
	})})
	s, _ := h.Create(&messages.CreateSession{})
	turn := actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go")}})
	actortest.Until(t, "it waits for another try", func() bool { return h.Worker(s).GetWaiting().GetKind() == "retry" })
	clock.Advance(time.Minute)
	res := actortest.Wait(t, "the turn", turn).Reply
	if why := res.GetReason(); res.GetOutcome() != messages.TurnCompleted_TIMEOUT || !strings.Contains(why, "it waited for another try at the model") || !strings.Contains(why, "slow down") {
		t.Errorf("the turn: %v", res)
	}
}

// TestASessionIsServedAsItsTenants has the calls of real sessions wait behind one. That one does not count: while nobody waits, all is forgotten.
func TestASessionIsServedAsItsTenants(t *testing.T) {
	gate, asked := actortest.NewGate(), make(chan string, 16)
	h := actortest.New(t, actortest.Options{Limits: actors.Limits{ModelCalls: 1}, Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		asked <- actortest.Asked(r)
		return actortest.Reply{Text: "yes", Err: gate.Pass(ctx)}
	})})
	waiting := func() int32 {
		v, err := act.Ask[*messages.ActorView](t.Context(), h.Sys, h.Sys.NewLocalPID("troupe/limiter-default"), &messages.DescribeTree{})
		if err != nil {
			t.Fatal(err)
		}
		return v.GetPending()
	}
	for i, name := range []string{"a0", "a1", "a2", "a3", "b0"} {
		s, _ := h.Create(&messages.CreateSession{Tenant: name[:1]})
		submit(h, s, name)
		if i == 0 {
			actortest.Wait(t, "the first call", gate.Came)
		}
		actortest.Until(t, name+" waits", func() bool { return waiting() == int32(i) })
	}
	gate.Open()
	var got []string
	for range 5 {
		got = append(got, actortest.Wait(t, "a call", asked))
	}
	if want := []string{"a0", "a1", "b0", "a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
}
