package actors_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// paused is a session whose second turn waits for more budget, in a folder.
type paused struct {
	h     *actortest.House
	clock *actortest.Clock
	space []*messages.WorkspaceSpec
	s, w  string
	turn  <-chan actortest.Answer[*messages.TurnResult]
}

func pausedTurn(t *testing.T, limits actors.Limits) *paused {
	t.Helper()
	p := &paused{clock: actortest.NewClock(time.UnixMilli(1_700_000_000_000)), space: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}}
	p.h = actortest.New(t, actortest.Options{Model: costing(actortest.Say("yes"), 9000, 500), Limits: limits, Clock: p.clock, Now: p.clock.Now})
	b := tokenBudget(12_000)
	b.Pause = true
	p.s, p.w = p.h.Create(&messages.CreateSession{Budget: b, Workspaces: p.space})
	p.h.Run(p.s, "go")
	p.turn = actortest.Later[*messages.TurnResult](p.h, p.s, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("go on")}})
	actortest.Until(t, "the turn waits for more", func() bool { return p.h.Worker(p.s).GetWaiting().GetReason() != "" })
	return p
}

// add gives it more, and holds the end of its turn against what is wanted.
func (p *paused) add(t *testing.T) {
	t.Helper()
	actortest.Ask[*messages.BudgetView](p.h, p.s, &messages.AddBudget{Add: &messages.Amounts{Tokens: 12_000}})
	if res := actortest.Wait(t, "the turn", p.turn); res.Err != nil || res.Reply.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("the turn: %v", res)
	}
	keptWithin(t, p.h.Store, p.s, 24_000)
}

func TestTheWaitForMoreBudgetIsNotTheTurns(t *testing.T) {
	p := pausedTurn(t, actors.Limits{Wall: time.Minute, Hold: time.Hour})
	on := p.h.Worker(p.s).GetWaiting()
	if on.GetKind() != "budget" || on.GetSinceUnixMs() != p.clock.Now().UnixMilli() || !strings.Contains(on.GetReason(), "9500 of 12000 tokens") {
		t.Errorf("it waits for %v", on)
	}
	p.clock.Advance(10 * time.Minute)
	p.add(t)
	facts := p.h.Facts(p.w)
	if all := actortest.Of[*messages.BudgetReserved](facts); len(all) != 2 || all[1].GetWaitedMs() != 600_000 {
		t.Errorf("set aside: %v", all)
	}
	for _, f := range actortest.Of[*messages.BudgetSettled](facts) {
		if f.GetWallMs() != 0 {
			t.Errorf("the wait was paid: %v", f)
		}
	}
}

func TestTheWorkspaceIsGivenBackWhileMoreBudgetIsWaitedFor(t *testing.T) {
	p := pausedTurn(t, actors.Limits{})
	other, _ := p.h.Create(&messages.CreateSession{Workspaces: p.space})
	in := submit(p.h, other, "plain")
	p.h.State(other, "waiting")
	p.clock.Advance(59 * time.Second)
	if p.h.Worker(other).GetState() != "waiting" {
		t.Error("the workspace was given back before its time")
	}
	p.clock.Advance(time.Second)
	if r := actortest.Ask[*messages.TurnResult](p.h, other, &messages.AwaitTurn{InputId: in}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Fatal(r)
	}
	p.add(t)
}
