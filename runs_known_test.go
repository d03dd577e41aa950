package troupe_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
)

// Who makes a plan need not know what a runtime has: that is looked at before anything runs, too.
func TestARunThatNamesWhatThereIsNotDoesNotBegin(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(`{name: s, rules: [{reply: {text: ok}}]}`)})
	for step, want := range map[string]string{
		`{id: a, tool: raed_file, with: {path: x}}`:                            `did you mean "read_file"`,
		`{id: a, tool: read_file, with: {pth: x}}`:                             `takes no argument "pth"`,
		`{id: a, agent: nobody, prompt: x}`:                                    `there is no agent "nobody"`,
		`{id: a, agent: default, prompt: x, approve: {before: [exce]}}`:        `did you mean "exec"`,
		`{id: a, agent: default, prompt: x, output: {schema: {type: objekt}}}`: `did you mean "object"`,
		`{id: a, tool: write_csv, with: {path: x, row: []}}`:                   `takes no argument "row"`,
	} {
		p, err := pipeline.Parse("t.yaml", "version: 1\nname: t\nsteps:\n  - "+step+"\n", pipeline.Options{})
		if err == nil {
			_, err = rt.RunPipeline(ctx, p, troupe.RunOptions{Dir: t.TempDir()})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", step, err, want)
		}
	}
	if all, err := rt.Runs(ctx); err != nil || len(all) > 0 {
		t.Errorf("runs: %v, %v", all, err)
	}
}
