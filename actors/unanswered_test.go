package actors_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// patient is a model whose client sends a request that nothing comes of so often itself, unless it is asked once.
type patient struct {
	actortest.Model
	each int
}

func (p patient) Attempts() int { return p.each }

// Stream implements model.Model: a client that waits holds what its caller holds.
func (p patient) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Event, error] {
	if r.Once {
		return p.Model.Stream(ctx, r)
	}
	return func(yield func(model.Event, error) bool) {
		<-ctx.Done()
		yield(model.Event{}, ctx.Err())
	}
}

// patients answers names, each of a provider of the same name, through clients.
type patients struct {
	several
	each int
}

func (p patients) Resolve(name string) (*actors.Resolved, error) {
	r, err := p.several.Resolve(name)
	if err == nil {
		r.Model = patient{p.several[name], p.each}
	}
	return r, err
}

// inTime makes a house whose time passes when a test says so, with one permit of each provider. No turn is ended for its time: passTime lets far more of it pass than is waited for.
func inTime(t *testing.T, o actortest.Options) (*actortest.House, *actortest.Clock) {
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	o.Clock, o.Now, o.Limits.ModelCalls, o.Limits.Wall = clock, clock.Now, 1, 1_000_000*time.Hour
	return actortest.New(t, o), clock
}

// triesLater waits until the worker of a session waits for its next attempt.
func triesLater(t *testing.T, h *actortest.House, session string) {
	t.Helper()
	actortest.Until(t, "it waits for another try", func() bool { return h.Worker(session).GetWaiting().GetKind() == "retry" })
}

// passTime lets time pass until an answer is there: pauses of a worker, and of the limiter.
func passTime[T any](t *testing.T, clock *actortest.Clock, what string, c <-chan T) T {
	t.Helper()
	var got T
	actortest.Until(t, what, func() bool {
		clock.Advance(time.Minute)
		select {
		case got = <-c:
			return true
		default:
			return false
		}
	})
	return got
}

func later(h *actortest.House, session, text string) <-chan actortest.Answer[*messages.TurnResult] {
	return actortest.Later[*messages.TurnResult](h, session, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text(text)}})
}

// TestARequestThatNothingCameOfHoldsNoPermitWhileItWaits: there is one permit, and another turn runs from its beginning to its end meanwhile.
func TestARequestThatNothingCameOfHoldsNoPermitWhileItWaits(t *testing.T) {
	for name, err := range map[string]*model.Error{
		"5xx":      {Class: model.Overloaded, Message: "HTTP 500", Status: 500},
		"cut off":  {Class: model.Truncated, Message: "the connection broke"},
		"time-out": {Class: model.Timeout, Message: "no byte came"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			failed := 0
			h, clock := inTime(t, actortest.Options{Models: patients{several{"first": func(_ context.Context, r *model.Request) actortest.Reply {
				mu.Lock()
				defer mu.Unlock()
				if actortest.Asked(r) == "fail" && failed < 4 {
					failed++
					return actortest.Reply{Err: err}
				}
				return actortest.Reply{Text: "yes"}
			}}, 5}})
			s, w := h.Create(&messages.CreateSession{Model: "first"})
			other, _ := h.Create(&messages.CreateSession{Model: "first"})
			turn := later(h, s, "fail")
			for n := 1; n <= 4; n++ {
				actortest.Until(t, fmt.Sprint("request ", n, " fails"), func() bool { return len(actortest.Of[*messages.GenerationFailed](h.Facts(w))) == n })
				triesLater(t, h, s)
				if r := h.Run(other, "go"); r.GetText() != "yes" {
					t.Fatalf("the other one: %v", r)
				}
				clock.Advance(30 * time.Second)
			}
			if a := actortest.Wait(t, "the turn", turn); a.Err != nil || a.Reply.GetText() != "yes" {
				t.Errorf("%v", a)
			}
			// People see as before how many requests it took.
			if done := actortest.Of[*messages.GenerationCompleted](h.Facts(w)); len(done) != 1 || done[0].GetTiming().GetProviderAttempts() != 5 {
				t.Errorf("answered by %v", done)
			}
		})
	}
}

// TestAStandInIsAskedAfterTheFirstRequestThatNothingCameOf: no time passes at all.
func TestAStandInIsAskedAfterTheFirstRequestThatNothingCameOf(t *testing.T) {
	for _, class := range []model.Class{model.Overloaded, model.Timeout} {
		h, _ := inTime(t, actortest.Options{
			Models: patients{several{"first": fails(class), "second": actortest.Say("I stand in")}, 5},
			Agents: []actors.Agent{{Name: "careful", Model: "first", Fallback: []string{"second"}}},
		})
		s, w := h.Create(&messages.CreateSession{Agent: "careful"})
		if r := h.Run(s, "go"); r.GetText() != "I stand in" {
			t.Errorf("%s: %v", class, r)
		}
		if got, _ := asked(h, w); got != "first, second first" {
			t.Errorf("%s: asked were %s", class, got)
		}
	}
}

// TestAsManyRequestsAreSentInVainAsAClientWouldSend: for each of the attempts that limits allow; and what came of something is an attempt by itself.
func TestAsManyRequestsAreSentInVainAsAClientWouldSend(t *testing.T) {
	half := actortest.Reply{Text: "half", Err: &model.Error{Class: model.Truncated, Message: "cut"}}
	silence := actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
	for name, x := range map[string]struct {
		list []actortest.Reply // again and again
		want int
	}{
		"nothing ever comes":   {[]actortest.Reply{silence}, 6},
		"each breaks off":      {[]actortest.Reply{half}, 2},
		"now this, now that":   {[]actortest.Reply{silence, half}, 4},
		"the same, other way":  {[]actortest.Reply{half, silence}, 3},
		"two, and one between": {[]actortest.Reply{silence, silence, half, silence}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			calls := 0
			h, clock := inTime(t, actortest.Options{Limits: actors.Limits{ModelAttempts: 2}, Models: patients{several{"first": func(context.Context, *model.Request) actortest.Reply {
				mu.Lock()
				defer mu.Unlock()
				calls++
				return x.list[(calls-1)%len(x.list)]
			}}, 3}})
			s, _ := h.Create(&messages.CreateSession{Model: "first"})
			a := passTime(t, clock, "the turn", later(h, s, "go"))
			if a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_ERROR || calls != x.want {
				t.Errorf("after %d requests, want %d: %v", calls, x.want, a)
			}
		})
	}
}

// TestAProcessThatEndsBetweenTwoRequestsForgetsNoneOfThem: the next one makes those that are left, and after the pause that was begun.
func TestAProcessThatEndsBetweenTwoRequestsForgetsNoneOfThem(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	o := actortest.Options{
		Store: store, DataDir: t.TempDir(), Clock: clock, Now: clock.Now, Limits: actors.Limits{ModelAttempts: 1},
		Models: patients{several{"first": func(context.Context, *model.Request) actortest.Reply {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
		}}, 3},
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
	h := actortest.New(t, o)
	s, w := h.Create(&messages.CreateSession{Model: "first"})
	in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{Parts: actortest.Text("go")})
	for n := 1; n < 3; n++ {
		actortest.Until(t, "a request fails", func() bool { return len(actortest.Of[*messages.GenerationFailed](h.Facts(w))) == n })
		triesLater(t, h, s)
		h.Stop()
		h = actortest.New(t, o)
		triesLater(t, h, s)
		if count() != n {
			t.Errorf("after process %d: %d requests", n, count())
		}
		clock.Advance(time.Minute)
	}
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in.GetInputId()})
	if r.GetOutcome() != messages.TurnCompleted_ERROR || count() != 3 {
		t.Errorf("after %d requests: %v", count(), r)
	}
}

// TestRequestsThatNothingCameOfArePaidOnceEach: what is set aside for one is settled before the next; those that cannot have been billed cost nothing.
func TestRequestsThatNothingCameOfArePaidOnceEach(t *testing.T) {
	for class, free := range map[model.Class]bool{model.Overloaded: true, model.Timeout: false} {
		t.Run(string(class), func(t *testing.T) {
			var mu sync.Mutex
			calls := 0
			h, clock := inTime(t, actortest.Options{Agents: plain(), Models: patients{several{"first": costing(func(context.Context, *model.Request) actortest.Reply {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls < 5 {
					return actortest.Reply{Err: &model.Error{Class: class, Message: "it fails"}}
				}
				return actortest.Reply{Text: "yes"}
			}, 100, 10)}, 5}})
			const most = 6000 // two reservations at a time would be more
			s, w := h.Create(&messages.CreateSession{Model: "first", Budget: tokenBudget(most)})
			if a := passTime(t, clock, "the turn", later(h, s, "go")); a.Err != nil || a.Reply.GetText() != "yes" {
				t.Fatalf("%v", a)
			}
			facts := h.Facts(w)
			reserved, settled := actortest.Of[*messages.BudgetReserved](facts), actortest.Of[*messages.BudgetSettled](facts)
			want := int64(110)
			for i, x := range settled {
				if x.GetLost() {
					t.Errorf("settlement %d is a guess: %v", i, x)
				}
				if !free && i < 4 {
					want += reserved[i].GetInputTokens()
				}
			}
			if got := keptWithin(t, h.Store, s, most); got.GetTokens() != want || len(reserved) != 5 || len(settled) != 5 {
				t.Errorf("%d tokens are spent, want %d, after %d reservations and %d settlements", got.GetTokens(), want, len(reserved), len(settled))
			}
		})
	}
}

// TestRequestsThatNothingCameOfStopAllOthers: five in a row, also of one turn. Who has another model asks that.
func TestRequestsThatNothingCameOfStopAllOthers(t *testing.T) {
	for _, class := range []model.Class{model.Overloaded, model.Timeout, model.Truncated} {
		t.Run(string(class), func(t *testing.T) {
			h, clock := inTime(t, actortest.Options{
				Models: patients{several{"first": fails(class), "second": actortest.Say("I stand in")}, 5},
				Agents: []actors.Agent{{Name: "alone", Model: "first"}, {Name: "careful", Model: "first", Fallback: []string{"second"}}},
			})
			s, w := h.Create(&messages.CreateSession{Agent: "alone"})
			submit(h, s, "go")
			for n := 1; n <= 5; n++ {
				actortest.Until(t, fmt.Sprint("request ", n, " fails"), func() bool { return len(actortest.Of[*messages.GenerationFailed](h.Facts(w))) == n })
				triesLater(t, h, s)
				if n < 5 {
					clock.Advance(time.Minute)
				}
			}
			other, worker := h.Create(&messages.CreateSession{Agent: "careful"})
			if r := h.Run(other, "go"); r.GetText() != "I stand in" {
				t.Errorf("%v", r)
			}
			if f := actortest.Of[*messages.GenerationFailed](h.Facts(worker)); len(f) != 1 || !f[0].GetNotMade() {
				t.Errorf("the provider was asked: %v", f)
			}
		})
	}
}

// TestASummaryThatNothingCameOfHoldsNoPermitWhileItWaits, and it is asked for as often as a client would.
func TestASummaryThatNothingCameOfHoldsNoPermitWhileItWaits(t *testing.T) {
	var mu sync.Mutex
	q, failed := &requests{}, 0
	h, clock := inTime(t, actortest.Options{Agents: plain(), Models: patients{several{"default": q.summing(func() actortest.Reply {
		mu.Lock()
		defer mu.Unlock()
		if failed++; failed <= 4 {
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
		}
		return actortest.Reply{Text: "the gist"}
	})}, 5}})
	s, _ := h.Create(&messages.CreateSession{Model: "default"})
	for i := range 3 {
		h.Run(s, prompt(i))
	}
	wanted := actortest.Later[*messages.Compacted](h, s, &messages.CompactHistory{})
	waits(t, h, clock, q, s, 1)
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	p := newProbe(h)
	defer p.die(t)
	p.send(limiter, &messages.AcquirePermit{Request: 1})
	p.permit(t)
	p.send(limiter, &messages.ReleasePermit{Request: 1, Outcome: messages.ReleasePermit_ANSWERED})
	if a := passTime(t, clock, "the summary", wanted); a.Err != nil || a.Reply.GetReason() != "" || a.Reply.GetFallback() {
		t.Errorf("%v", a)
	}
	if _, n := q.counts(); n != 5 {
		t.Errorf("%d summaries were asked for", n)
	}
}

// TestWhatAModelRepeatsItselfItsCallerDoesNot: a model that says nothing of attempts is asked as ever.
func TestWhatAModelRepeatsItselfItsCallerDoesNot(t *testing.T) {
	var mu sync.Mutex
	var once []string
	h, clock := inTime(t, actortest.Options{Limits: actors.Limits{ModelAttempts: 2}, Models: several{"first": func(_ context.Context, r *model.Request) actortest.Reply {
		mu.Lock()
		defer mu.Unlock()
		once = append(once, fmt.Sprint(r.Once))
		return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "HTTP 500"}}
	}}})
	s, _ := h.Create(&messages.CreateSession{Model: "first"})
	if a := passTime(t, clock, "the turn", later(h, s, "go")); a.Err != nil || a.Reply.GetOutcome() != messages.TurnCompleted_ERROR {
		t.Errorf("%v", a)
	}
	if got := strings.Join(once, " "); got != "false false" {
		t.Errorf("asked once: %s", got)
	}
}
