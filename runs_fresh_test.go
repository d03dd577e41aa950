package troupe_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
)

// What a tool step writes is written anew by the next run: that a file was read before it is changed is a rule for models, and not for who has written the pipeline.
func TestASecondRunWritesItsFilesAnew(t *testing.T) {
	dir := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(`
rules:
  - match: overwrite
    steps:
      - {tool_calls: [{name: write_file, arguments: {path: a.txt, content: mine}}]}
      - {text: '${tool.content}'}
`), DataDir: t.TempDir()})
	plan := planOf(t, `version: 1
name: files
agents: {w: {tools: [write_file]}}
inputs: {text: {required: true}}
steps:
  - {id: csv, tool: write_csv, with: {path: o.csv, rows: '${{ [{"k": inputs.text}] }}'}}
  - {id: file, needs: [csv], tool: write_file, with: {path: a.txt, content: "${{ inputs.text }}"}}
  - {id: agent, needs: [file], agent: w, prompt: overwrite}
`)
	for _, text := range []string{"one", "two"} {
		run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{Dir: dir, Trust: troupe.Full, Inputs: map[string]any{"text": text}})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := run.Wait(ctx); err != nil || v.GetState() != "succeeded" {
			t.Fatalf("the run with %s ended as %v, %v", text, v, err)
		}
		csv, _ := os.ReadFile(filepath.Join(dir, "o.csv"))
		file, _ := os.ReadFile(filepath.Join(dir, "a.txt"))
		if string(csv) != "k\n"+text+"\n" || string(file) != text { // the agent has not read it, and may not change it
			t.Errorf("after the run with %s there are %q and %q", text, csv, file)
		}
	}
}
