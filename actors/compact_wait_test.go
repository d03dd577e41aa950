package actors_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// refusing is a house whose summariser is refused so often, by a provider that asks for ten hours.
func refusing(t *testing.T, times int64, lim actors.Limits) (h *actortest.House, clock *actortest.Clock, q *requests, session string) {
	clock, q = actortest.NewClock(time.UnixMilli(1_700_000_000_000)), &requests{}
	var refused atomic.Int64
	h = actortest.New(t, actortest.Options{Agents: plain(), Limits: lim, Clock: clock, Now: clock.Now, Model: q.summing(func() actortest.Reply {
		if refused.Add(1) <= times {
			return actortest.Reply{Err: &model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 10 * time.Hour}}
		}
		return actortest.Reply{Text: "the gist"}
	})})
	session, _ = h.Create(&messages.CreateSession{})
	for i := range 3 {
		h.Run(session, prompt(i))
	}
	return h, clock, q, session
}

// waits says that so many summaries were asked for, and that the worker waits for time to pass.
func waits(t *testing.T, h *actortest.House, clock *actortest.Clock, q *requests, session string, n int) {
	t.Helper()
	actortest.Until(t, "it waits for another try", func() bool {
		_, made := q.counts()
		return made == n && clock.Waits() > 1 && h.Worker(session).GetState() == "waiting" // the Timers wait always
	})
	limiterKnows(t, h)
}

// limiterKnows returns when the Limiter has heard of the refusal because of which a worker waits: were time to pass before, its pause began later than the worker's.
func limiterKnows(t *testing.T, h *actortest.House) {
	t.Helper()
	if _, err := act.Ask[*messages.ActorView](t.Context(), h.Sys, h.Sys.NewLocalPID("troupe/limiter-default"), &messages.DescribeTree{}); err != nil {
		t.Fatal(err)
	}
}

// TestASummaryIsWaitedForWhileTheProviderWantsAPause: it is tried more often than what fails otherwise, and after as long as the Limiter believes a provider.
func TestASummaryIsWaitedForWhileTheProviderWantsAPause(t *testing.T) {
	h, clock, q, session := refusing(t, 5, actors.Limits{})
	wanted := actortest.Later[*messages.Compacted](h, session, &messages.CompactHistory{})
	for n := range 5 {
		waits(t, h, clock, q, session, n+1)
		clock.Advance(5 * time.Minute)
	}
	if a := actortest.Wait(t, "the summary", wanted); a.Err != nil || a.Reply.GetReason() != "" || a.Reply.GetFallback() {
		t.Errorf("%v", a)
	}
	if _, n := q.counts(); n != 6 {
		t.Errorf("%d summaries were asked for", n)
	}
}

func TestASummaryIsNotWaitedForLongerThanATurnMayTake(t *testing.T) {
	h, clock, q, session := refusing(t, 1<<40, actors.Limits{Wall: 9 * time.Minute})
	wanted := actortest.Later[*messages.Compacted](h, session, &messages.CompactHistory{})
	for n := range 2 {
		waits(t, h, clock, q, session, n+1)
		clock.Advance(5 * time.Minute)
	}
	if a := actortest.Wait(t, "the refusal", wanted); a.Err != nil || a.Reply.GetReason() == "" {
		t.Errorf("%v", a)
	}
	if _, n := q.counts(); n != 3 {
		t.Errorf("%d summaries were asked for", n)
	}
}

// TestAnAttemptIsMadeWhenTheLimiterLetsOthersTry: a provider that asks for ten hours is not believed, neither for others nor for who was refused.
func TestAnAttemptIsMadeWhenTheLimiterLetsOthersTry(t *testing.T) {
	clock, asked := actortest.NewClock(time.UnixMilli(1_700_000_000_000)), atomic.Int64{}
	h := actortest.New(t, actortest.Options{Clock: clock, Now: clock.Now, Model: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
		if asked.Add(1) == 1 {
			return actortest.Reply{Err: &model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 10 * time.Hour}}
		}
		return actortest.Reply{Text: "yes"}
	})})
	s, _ := h.Create(&messages.CreateSession{})
	turn := actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go")}})
	actortest.Until(t, "it waits for another try", func() bool { return h.Worker(s).GetWaiting().GetKind() == "retry" })
	limiterKnows(t, h)
	clock.Advance(5 * time.Minute)
	if res := actortest.Wait(t, "the turn", turn).Reply; res.GetText() != "yes" {
		t.Errorf("%v", res)
	}
}
