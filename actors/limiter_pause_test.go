package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestWhoHasAnotherModelDoesNotWaitOutAPause: neither who comes during the pause nor who waited for a permit when it began.
func TestWhoHasAnotherModelDoesNotWaitOutAPause(t *testing.T) {
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	h := actortest.New(t, actortest.Options{Clock: clock, Now: clock.Now, Limits: actors.Limits{ModelCalls: 1}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	holder, queued, patient, late := newProbe(h), newProbe(h), newProbe(h), newProbe(h)
	for _, p := range []*probe{holder, queued, patient, late} {
		defer p.die(t)
	}
	denied := func(p *probe) *messages.PermitDenied {
		t.Helper()
		m, _ := actortest.Wait(t, "an answer", p.seen).(*messages.PermitDenied)
		return m
	}
	holder.send(limiter, &messages.AcquirePermit{Request: 1})
	holder.permit(t)
	queued.send(limiter, &messages.AcquirePermit{Request: 2, UnlessOpen: true})
	patient.send(limiter, &messages.AcquirePermit{Request: 3})
	holder.send(limiter, &messages.ReleasePermit{Request: 1, Outcome: messages.ReleasePermit_RATE_LIMITED, RetryAfterMs: 60_000})
	if m := denied(queued); m.GetRequest() != 2 || !m.GetPaused() || m.GetForMs() != 60_000 {
		t.Errorf("who waited is told %v", m)
	}
	late.send(limiter, &messages.AcquirePermit{Request: 4, UnlessOpen: true})
	if m := denied(late); m.GetRequest() != 4 || !m.GetPaused() {
		t.Errorf("who comes is told %v", m)
	}
	clock.Advance(time.Minute)
	if got := patient.permit(t); got != 3 {
		t.Errorf("after it %d goes on", got)
	}
	// One that is soon over is waited for.
	patient.send(limiter, &messages.ReleasePermit{Request: 3, Outcome: messages.ReleasePermit_RATE_LIMITED, RetryAfterMs: 900})
	late.send(limiter, &messages.AcquirePermit{Request: 5, UnlessOpen: true})
	if v, err := act.Ask[*messages.ActorView](t.Context(), h.Sys, limiter, &messages.DescribeTree{}); err != nil || v.GetPending() != 1 {
		t.Errorf("during a short one %v, %v", v, err)
	}
	clock.Advance(time.Second)
	if got := late.permit(t); got != 5 {
		t.Errorf("after a short one %d goes on", got)
	}
}

// TestWhoIsDeniedHoldsNothingFromBefore: a worker that began anew counts from the first again, and what it held under that number is free.
func TestWhoIsDeniedHoldsNothingFromBefore(t *testing.T) {
	clock := actortest.NewClock(time.UnixMilli(1_700_000_000_000))
	h := actortest.New(t, actortest.Options{Clock: clock, Now: clock.Now, Limits: actors.Limits{ModelCalls: 2}})
	limiter := h.Sys.NewLocalPID("troupe/limiter-default")
	anew, other := newProbe(h), newProbe(h)
	defer anew.die(t)
	defer other.die(t)
	anew.send(limiter, &messages.AcquirePermit{Request: 1})
	anew.permit(t)
	other.send(limiter, &messages.AcquirePermit{Request: 1})
	other.permit(t)
	other.send(limiter, &messages.ReleasePermit{Request: 1, Outcome: messages.ReleasePermit_RATE_LIMITED, RetryAfterMs: 60_000})
	if _, err := act.Ask[*messages.ActorView](t.Context(), h.Sys, limiter, &messages.DescribeTree{}); err != nil { // the pause has begun
		t.Fatal(err)
	}
	anew.send(limiter, &messages.AcquirePermit{Request: 1, UnlessOpen: true})
	if m, ok := actortest.Wait(t, "an answer", anew.seen).(*messages.PermitDenied); !ok || m.GetRequest() != 1 {
		t.Fatalf("it is told %v", m)
	}
	clock.Advance(time.Minute)
	for i := uint64(2); i <= 3; i++ {
		other.send(limiter, &messages.AcquirePermit{Request: i})
	}
	v, err := act.Ask[*messages.ActorView](t.Context(), h.Sys, limiter, &messages.DescribeTree{})
	if err != nil || v.GetPending() != 0 {
		t.Errorf("of two permits there is one: %v, %v", v, err)
	}
}

// TestEachStepDuringAPauseIsAskedOfTheStandIn: nothing of the turn waits, and no request goes to who wants the pause.
func TestEachStepDuringAPauseIsAskedOfTheStandIn(t *testing.T) {
	clock, asked, steps := actortest.NewClock(time.UnixMilli(1_700_000_000_000)), 0, 0
	h := actortest.New(t, actortest.Options{Clock: clock, Now: clock.Now, Models: pairs{
		first: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			asked++
			return actortest.Reply{Err: &model.Error{Class: model.RateLimited, Message: "slow down", RetryAfter: 4 * time.Minute}}
		}),
		second: actortest.Model(func(context.Context, *model.Request) actortest.Reply {
			if steps++; steps < 3 {
				return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "list_files", map[int]string{1: `{}`, 2: `{"path":"."}`}[steps])}}
			}
			return actortest.Reply{Text: "I stand in"}
		}),
	}})
	s, w := h.Create(&messages.CreateSession{Model: "first"})
	if r := h.Run(s, "go"); r.GetText() != "I stand in" || asked != 1 {
		t.Fatalf("asked %d times, %v", asked, r)
	}
	var failed []string
	for _, f := range actortest.Of[*messages.GenerationFailed](h.Facts(w)) {
		failed = append(failed, f.GetClass())
		if made := !f.GetNotMade(); made != (len(failed) == 1) {
			t.Errorf("attempt %d was made: %v", len(failed), made)
		}
	}
	if got := strings.Join(failed, " "); got != "rate_limited rate_limited rate_limited" {
		t.Errorf("failed have %s", got)
	}
}
