package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
)

const flow = `version: 1
name: flow
agents: {writer: {system: You write.}, judge: {system: You judge.}}
steps:
  - {id: draft, agent: writer, prompt: "draft of rivers"}
  - {id: each, needs: [draft], foreach: '["a","b","c"]', agent: writer, prompt: "part ${{ item }} of ${{ steps.draft.output }}"}
  - id: judge
    needs: [each]
    agent: judge
    prompt: "judge ${{ len(steps.each.items) }}"
    output: {schema: {type: object, required: [good], properties: {good: {type: boolean}}}, repair: 1}
  - {id: more, needs: [draft], agent: writer, prompt: "once more", conversation: "${{ steps.draft.conversation }}"}
outputs:
  parts: ${{ steps.each.output }}
  good: ${{ steps.judge.output.good }}
  more: ${{ steps.more.output }}
`

func flowModel() troupe.Model {
	return scripted(`
rules:
  - {agent: writer, match: '^draft of (\w+)$', reply: {text: 'All about ${1}.'}}
  - {agent: writer, match: '^part (\w) of (.*)$', reply: {text: '${1}: ${2}'}}
  - {agent: judge, match: '^judge 3', turn: 1, reply: {text: 'It is good.'}}
  - {agent: judge, match: 'does not fit', turn: 2, reply: {text: '{"good": true}'}}
  - {agent: writer, match: 'once more', turn: 2, reply: {text: 'Again.'}}
`)
}

func planOf(t *testing.T, text string) *pipeline.Plan {
	t.Helper()
	p, err := pipeline.Parse("flow.yaml", text, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPipelineRunsToItsOutputs(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: flowModel(), DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, planOf(t, flow), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out, err := troupe.Outputs(v)
	if err != nil || fmt.Sprint(out["parts"]) != "[a: All about rivers. b: All about rivers. c: All about rivers.]" || out["good"] != true || out["more"] != "Again." {
		t.Errorf("outputs %v, %v", out, err)
	}
	runs, err := rt.Runs(ctx)
	if err != nil || len(runs) != 1 || runs[0].GetState() != "succeeded" || runs[0].GetStepsDone() != 4 {
		t.Errorf("listed: %v, %v", runs, err)
	}
}

func TestARunGoesOnInTheNextProcess(t *testing.T) {
	dir := t.TempDir()
	gate := "version: 1\nname: gate\nsteps:\n  - {id: a, agent: default, prompt: 'draft of x'}\n  - {id: ask, needs: [a], human: {message: 'Publish ${{ steps.a.output }}?', choices: [publish, drop]}}\noutputs: {said: '${{ steps.ask.output }}'}\n"
	model := scripted("rules:\n  - {match: draft, reply: {text: Text.}}\n")
	ctx := t.Context()
	rt, err := troupe.New(ctx, troupe.Options{Model: model, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rt.RunPipeline(ctx, planOf(t, gate), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for rev := uint64(0); ; {
		v, err := run.Changed(ctx, rev)
		if err != nil {
			t.Fatal(err)
		}
		if rev = v.GetRevision(); v.GetState() == "waiting" {
			break
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt, ctx = runtimeOf(t, troupe.Options{Model: model, DataDir: dir})
	asked, err := rt.Approvals(ctx)
	if err != nil || len(asked) != 1 || asked[0].GetPreview() != "Publish Text.?" {
		t.Fatalf("asked: %v, %v", asked, err)
	}
	if args := asked[0].GetArguments(); args != `{"choices":["publish","drop"],"step":"ask"}` {
		t.Errorf("what may be answered is said as %s", args)
	}
	if err := rt.ResolveApproval(ctx, asked[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved, Message: "drop"}); err != nil {
		t.Fatal(err)
	}
	if err := rt.ResolveApproval(ctx, asked[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved}); err == nil {
		t.Error("the question was answered twice")
	}
	again, err := rt.OpenRun(ctx, run.ID())
	if err != nil {
		t.Fatal(err)
	}
	v, err := again.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := troupe.Outputs(v); err != nil || out["said"] != "drop" {
		t.Errorf("outputs %v, %v", out, err)
	}
	if v, err := again.Resume(ctx, planOf(t, strings.Replace(gate, "Publish", "Print", 1)), false); err == nil {
		t.Errorf("a changed file was taken: %v", v)
	}
}

func TestToolsReadAndWriteInTheRunsFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "list.txt"), []byte("p\nq\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	p := planOf(t, `version: 1
name: csv
steps:
  - {id: each, foreach: 'split(trim(read("list.txt")), "\n")', agent: default, prompt: "do ${{ item }}"}
  - {id: save, needs: [each], tool: write_csv, with: {path: out.csv, rows: "${{ map(steps.each.items, {{name: .key, said: .output}}) }}"}}
  - {id: out, needs: [each], tool: read_file, with: {path: ../secret}, on_error: continue}
`)
	run, err := rt.RunPipeline(ctx, p, troupe.RunOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil || v.GetState() != "succeeded" {
		t.Fatalf("%v, %v", v, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out.csv"))
	if err != nil || string(got) != "name,said\np,you said do p\nq,you said do q\n" {
		t.Errorf("out.csv: %q, %v", got, err)
	}
	for _, s := range v.GetStepViews() {
		if s.GetStep() == "out" && s.GetState() != "failed" {
			t.Errorf("a file outside was read: %v", s)
		}
	}
}

func TestACancelledRunIsResumed(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	run, err := rt.RunPipeline(ctx, planOf(t, "version: 1\nname: c\nsteps:\n  - {id: a, human: {message: Well?}}\n  - {id: b, needs: [a], agent: default, prompt: x}\n"), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Cancel(ctx, "enough"); err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "cancelled" {
		t.Fatalf("%v, %v", v, err)
	}
	if _, err := run.Resume(ctx, nil, false); err != nil {
		t.Fatal(err)
	}
	var asked []*troupe.Approval
	for rev := uint64(0); len(asked) == 0; {
		v, err := run.Changed(ctx, rev)
		if err != nil {
			t.Fatal(err)
		}
		rev = v.GetRevision()
		if asked, err = rt.Approvals(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.ResolveApproval(context.WithoutCancel(ctx), asked[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved}); err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(ctx); err != nil || v.GetState() != "succeeded" {
		t.Errorf("%v, %v", v, err)
	}
}
