package troupe_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

const pair = `
version: 1
name: pair
agents: {pro: {system: for}, con: {system: against}}
steps:
  - {id: talk, group: [pro, con], %s prompt: "Tabs or spaces?"}
outputs: {said: '${{ map(steps.talk.items, .key + " " + .status) }}'}
`

// groupOf runs a group to its end, and says what became of it, with the lines of its conversation.
func groupOf(t *testing.T, model, more string, then func(context.Context, *troupe.Run) error) (state, problem, said, lines string) {
	t.Helper()
	store := memoryOf(t)
	rt, ctx := runtimeOf(t, troupe.Options{Limits: troupe.Limits{ModelAttempts: 1}, Model: scripted(model), Store: store, DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, planOf(t, fmt.Sprintf(pair, more)), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err == nil && then != nil {
		if err = then(ctx, run); err == nil {
			v, err = run.Wait(ctx)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	out, _ := troupe.Outputs(v) // of one that failed there are none
	return v.GetState(), v.GetError(), fmt.Sprint(out["said"]), strings.ReplaceAll(shared(t, store, run.Session()), "\n", "; ")
}

func TestATurnOfAGroupIsTriedAgainByTheSameMember(t *testing.T) {
	state, problem, said, lines := groupOf(t, `
rules:
  - {agent: pro, reply: {text: 'Tabs.', fail: {class: timeout, times: 1}}}
  - {agent: con, match: 'said nothing: its turn was cut off(.|\n)*agent pro:\n> Tabs', reply: {text: 'Spaces.'}}
`, "retry: {max: 2, initial: 1ms, on: [timeout]},", nil)
	if state != "succeeded" || said != "[pro 1 succeeded con 1 succeeded]" || lines != "error; Tabs.; Spaces.; " {
		t.Errorf("%s, %s: %s; %s", state, problem, said, lines)
	}
}

func TestAMemberWhoseTurnTakesTooLongIsCutOffAndTheNextOneSpeaks(t *testing.T) {
	state, problem, said, lines := groupOf(t, `
rules:
  - {agent: pro, reply: {text: 'Tabs.', delay: 1h}}
  - {agent: con, match: 'agent pro said nothing', reply: {text: 'Spaces.'}}
`, "timeout: 50ms,", nil)
	if state != "succeeded" || said != "[pro 1 failed con 1 succeeded]" || lines != "aborted; Spaces.; " {
		t.Errorf("%s, %s: %s; %s", state, problem, said, lines)
	}
}

func TestAGroupThatIsResumedKeepsWhatWasSaid(t *testing.T) {
	state, problem, said, lines := groupOf(t, `
rules:
  - {agent: pro, reply: {text: 'Tabs.'}}
  - {agent: con, reply: {text: 'Spaces.', fail: {class: bad_request, message: no, times: 1}}}
`, "quorum: 2,", func(ctx context.Context, run *troupe.Run) error {
		_, err := run.Resume(ctx, nil, false)
		return err
	})
	if state != "succeeded" || said != "[pro 1 succeeded con 1 failed con 1#2 succeeded]" || lines != "Tabs.; error; Spaces.; " {
		t.Errorf("%s, %s: %s; %s", state, problem, said, lines)
	}
}

// The keys of items are in the path of a step, and may be whatever a file says.
func TestAGroupSpeaksWhateverItsStepIsCalled(t *testing.T) {
	files := map[string]string{
		"inner.yaml": fmt.Sprintf(pair, ""),
		"outer.yaml": "version: 1\nname: outer\nsteps:\n  - {id: each, foreach: '[\"a\\nb\", \"a_b\", \"" + strings.Repeat("x", 190) + "\"]', key: item, pipeline: inner.yaml}\noutputs: {n: '${{ map(steps.each.items, .status) }}'}\n",
	}
	plan, err := pipeline.Parse("outer.yaml", files["outer.yaml"], pipeline.Options{Load: func(name string) ([]byte, error) { return []byte(files[name]), nil }})
	if err != nil {
		t.Fatal(err)
	}
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted("rules:\n  - {reply: {text: 'Yes.'}}\n")})
	run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := troupe.Outputs(v); err != nil || fmt.Sprint(out) != "map[n:[succeeded succeeded succeeded]]" {
		t.Errorf("%s: %v, %v; %s", v.GetState(), out, err, v.GetError())
	}
	got, err := rt.Ask(ctx, &messages.ListConversations{SessionId: run.Session()})
	if err != nil || len(got.(*messages.Conversations).GetConversations()) != 3 { //nolint:forcetypeassert // the reply of ListConversations
		t.Errorf("they speak in %v, %v", got, err)
	}
}
