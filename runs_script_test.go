package troupe_test

import (
	"context"
	"iter"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	port "github.com/troupe-dev/troupe/model"
)

// unnamed is a model that does not say that it is a script.
type unnamed struct{ troupe.Model }

func (m unnamed) Stream(ctx context.Context, r *port.Request) iter.Seq2[port.Event, error] {
	return func(yield func(port.Event, error) bool) {
		for e, err := range m.Model.Stream(ctx, r) {
			e.Meta.Scripted = ""
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestARunThatAScriptAnsweredSaysSoForGood: the listing and the run itself say it after a restart, of one that failed, too, and of one of which only an
// attempt that was tried again was answered; a run that a language model answered does not.
func TestARunThatAScriptAnsweredSaysSoForGood(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	script := scripted(`
rules:
  - {match: '^count', reply: {text: many}}
  - {reply: {text: Done.}}
`)
	begin := func(m troupe.Model) *troupe.Runtime {
		rt, err := troupe.New(ctx, troupe.Options{Model: m, DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	want := map[string]bool{}
	for _, c := range []struct {
		name, step string
		model      troupe.Model
		scripted   bool
	}{
		{"plain", `{id: a, agent: default, prompt: go}`, script, true},
		{"unfit", `{id: a, agent: default, prompt: count, output: {schema: {type: integer}, repair: 1}}`, script, true},
		{"real", `{id: a, agent: default, prompt: go}`, unnamed{script}, false},
		{"none", `{id: a, tool: list_files, with: {path: .}}`, script, false},
	} {
		rt := begin(c.model)
		run, err := rt.RunPipeline(ctx, planOf(t, "version: 1\nname: "+c.name+"\nsteps:\n  - "+c.step+"\n"), troupe.RunOptions{Dir: t.TempDir(), Trust: troupe.Full})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if v, err := run.Wait(ctx); v.GetScripted() != c.scripted {
			t.Errorf("%s, at its end: %v, %v", c.name, v, err)
		}
		want[run.ID()] = c.scripted
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	rt := begin(script)
	defer func() {
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	all, err := rt.Runs(ctx)
	if err != nil || len(all) != len(want) {
		t.Fatalf("listed: %v, %v", all, err)
	}
	for _, v := range all {
		shown, err := rt.Ask(ctx, &messages.ShowRun{RunId: v.GetRunId()})
		if err != nil {
			t.Fatal(err)
		}
		if s := shown.(*messages.RunView).GetScripted(); v.GetScripted() != want[v.GetRunId()] || s != want[v.GetRunId()] { //nolint:forcetypeassert // the reply of ShowRun
			t.Errorf("%s: listed %v, shown %v, want %v", v.GetName(), v.GetScripted(), s, want[v.GetRunId()])
		}
	}
}
