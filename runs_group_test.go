package troupe_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

const talk = `
version: 1
name: talk
agents: {pro: {system: for}, con: {system: against}, mute: {system: silent}}
steps:
  - {id: talk, group: [pro, mute, con], rounds: 2, prompt: "Tabs or spaces?"}
outputs:
  said: '${{ map(filter(steps.talk.items, .status == "succeeded"), .key + ": " + .output) }}'
  lost: ${{ map(filter(steps.talk.items, .status != "succeeded"), .key) }}
`

func talkModel() troupe.Model {
	return scripted(`
rules:
  - {agent: mute, reply: {fail: {class: bad_request, message: I say nothing}}}
  - {agent: pro, turn: 1, match: 'Tabs or spaces', reply: {text: 'Tabs adapt.'}}
  - {agent: pro, turn: 2, match: 'agent con:\n> Spaces stay', reply: {text: 'So do they.'}}
  - {agent: con, turn: 1, match: '\[2\] agent mute said nothing', reply: {text: 'Spaces stay.'}}
  - {agent: con, turn: 2, match: 'agent pro:\n> So do they', reply: {text: 'Not mine.'}}
`)
}

const talked = `map[lost:[mute 1] said:[pro 1: Tabs adapt. con 1: Spaces stay. pro 2: So do they. con 2: Not mine.]]`

// shared is what the store has of the run's conversation, in a line for each turn. It sees that nobody began to speak before the turn before was
// over, and that no turn began or ended twice.
func shared(t *testing.T, store persistence.Store, session string) string {
	t.Helper()
	var b strings.Builder
	open, seen := "", map[string]int{}
	err := store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, messages.ConversationStream("")) {
			return nil
		}
		f, err := messages.ConversationFactIn(e.Record)
		switch f := f.(type) {
		case *messages.TurnGiven:
			if open != "" {
				t.Errorf("%s has the word while turn %s is open", f.GetWorkerId(), open)
			}
			open = f.GetTurnId()
			seen["begin "+open]++
		case *messages.TurnSubmitted:
			seen["end "+f.GetTurnId()]++
			fmt.Fprintln(&b, f.GetText())
			open = ""
		case *messages.TurnCut:
			seen["end "+f.GetTurnId()]++
			fmt.Fprintln(&b, f.GetOutcome())
			open = ""
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, n := range seen {
		if n > 1 {
			t.Errorf("%s is written %d times", what, n)
		}
	}
	return b.String()
}

func TestAGroupGoesOnWithoutAMemberThatFails(t *testing.T) {
	store := memoryOf(t)
	rt, ctx := runtimeOf(t, troupe.Options{Model: talkModel(), Store: store, DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, planOf(t, talk), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := troupe.Outputs(v); err != nil || fmt.Sprint(out) != talked {
		t.Errorf("%s: %v, %v; %s", v.GetState(), out, err, v.GetError())
	}
	if got := shared(t, store, run.Session()); got != "Tabs adapt.\nerror\nSpaces stay.\nSo do they.\nNot mine.\n" {
		t.Errorf("the conversation is\n%s", got)
	}
}

func TestAGroupEndsWhenItsWordIsSaidAndFailsBelowItsQuorum(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: talkModel()})
	for _, x := range []struct{ more, want string }{
		{`until: 'member == "con" and output == "Spaces stay."'`, "map[lost:[mute 1] said:[pro 1: Tabs adapt. con 1: Spaces stay.]]"},
		{"quorum: 3", "2 of 3 members are left, and the quorum is 3; item mute 1: "},
	} {
		run, err := rt.RunPipeline(ctx, planOf(t, strings.Replace(talk, "rounds: 2,", "rounds: 2, "+x.more+",", 1)), troupe.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v, err := run.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := troupe.Outputs(v) // of one that failed there are none
		if got := fmt.Sprint(out) + v.GetError(); !strings.Contains(got, x.want) {
			t.Errorf("%s: %s", x.more, got)
		}
	}
}

func TestABudgetCountsEveryMember(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: talkModel()})
	run, err := rt.RunPipeline(ctx, planOf(t, talk), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rt.Ask(ctx, &messages.Show{Id: run.Session()})
	if err != nil {
		t.Fatal(err)
	}
	s := got.(*messages.Shown).GetSession() //nolint:forcetypeassert // the reply of Show
	sum := int64(0)
	for _, m := range s.GetConversations()[0].GetMembers() {
		sum += m.GetUsage().GetInputTokens() + m.GetUsage().GetOutputTokens()
	}
	all := v.GetUsage().GetInputTokens() + v.GetUsage().GetOutputTokens()
	if whole := s.GetUsage().GetInputTokens() + s.GetUsage().GetOutputTokens(); sum == 0 || sum != all || all != whole {
		t.Errorf("its members used %d tokens, the run %d, and the session %d", sum, all, whole)
	}
	small := strings.Replace(talk, "agents:", fmt.Sprintf("budget: {tokens: %d}\nagents:", all/2), 1)
	run, err = rt.RunPipeline(ctx, planOf(t, small), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err = run.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if used := v.GetUsage().GetInputTokens() + v.GetUsage().GetOutputTokens(); v.GetState() != "failed" || !strings.Contains(v.GetError(), "budget") || used > all/2 {
		t.Errorf("with %d tokens it %s, having used %d: %s", all/2, v.GetState(), used, v.GetError())
	}
}

// A process that ends after any append of a group loses nothing: the next one comes to the same transcript, and nobody says anything twice.
func TestAGroupCutAfterEveryAppendSaysTheSame(t *testing.T) {
	plan := planOf(t, talk)
	for cut := 1; ; cut++ {
		store := memoryOf(t)
		run, died := dies(t, store, cut, plan, talkModel)
		if !died {
			t.Logf("%d appends", cut)
			return
		}
		got := finishOf(t, store, talkModel, func(ctx context.Context, rt *troupe.Runtime) (*troupe.Run, error) { return rt.OpenRun(ctx, run.ID()) })
		if got != talked {
			t.Errorf("cut after append %d: outputs %s", cut, got)
		}
		if got := shared(t, store, run.Session()); got != "Tabs adapt.\nerror\nSpaces stay.\nSo do they.\nNot mine.\n" {
			t.Errorf("cut after append %d: the conversation is\n%s", cut, got)
		}
	}
}
