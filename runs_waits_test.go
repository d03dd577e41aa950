package troupe_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// waitsFor follows a run until what it waits for is as is wanted, and gives the view that says so.
func waitsFor(t *testing.T, rt *troupe.Runtime, run *troupe.Run, is func(*troupe.RunView) bool) *troupe.RunView {
	t.Helper()
	known, rev := uint32(0), uint64(0)
	for {
		reply, err := rt.Ask(t.Context(), &messages.AwaitRun{RunId: run.ID(), After: rev, Waits: &known, Changes: true})
		if err != nil {
			t.Fatal(err)
		}
		v := reply.(*messages.RunView)
		if is(v) {
			return v
		}
		if v.GetState() != "running" && v.GetState() != "waiting" {
			t.Fatalf("the run ended as %v", v)
		}
		known, rev = v.GetWaits(), v.GetRevision()
	}
}

// A call of a step that waits for an approval is told of as that wherever the run is shown, with what one may type, and its step and run wait as long.
func TestARunSaysThatItsCallsWaitForApprovals(t *testing.T) {
	dir := t.TempDir()
	m := scripted(`
rules:
  - match: '^write (\w+)$'
    steps:
      - {tool_calls: [{name: write_file, arguments: {path: '${1}.txt', content: x}}]}
      - {text: written}
`)
	rt, ctx := runtimeOf(t, troupe.Options{Model: m, DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, planOf(t, `version: 1
name: asks
agents: {w: {tools: [write_file]}}
steps:
  - {id: each, foreach: '["a"]', agent: w, prompt: "write ${{ item }}", approve: {before: [write_file]}}
  - {id: call, needs: [each], tool: write_file, with: {path: b.txt, content: x}}
  - {id: late, needs: [each], tool: write_file, with: {path: c.txt, content: x}}
`), troupe.RunOptions{Dir: dir, Trust: troupe.Restricted, Rules: []string{"ask write_file"}})
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	for round := range 3 { // the two calls come one after the other, in any order
		v := waitsFor(t, rt, run, func(v *troupe.RunView) bool {
			return v.GetState() == "waiting" && v.GetWaiting().GetApprovalId() != "" && v.GetWaiting().GetApprovalId() != told
		})
		asks, turns := 0, 0
		for _, sv := range v.GetStepViews() {
			on := sv.GetWaiting()
			switch on.GetKind() {
			case "approval":
				if asks++; sv.GetState() != "waiting" || sv.GetItemViews()[0].GetState() != "waiting" || sv.GetItemViews()[0].GetApprovalId() != on.GetApprovalId() {
					t.Errorf("round %d: %v", round, sv)
				}
			case "turn":
				turns++
			}
		}
		if asks != 1 || turns != round%2 {
			t.Errorf("round %d: %d ask, and %d wait for those: %v", round, asks, turns, v)
		}
		on := v.GetWaiting()
		told = on.GetApprovalId()
		if !strings.HasPrefix(on.Text(), "an approval of write_file(") || on.Command(run.Session()) != "troupe approve "+told+" (or deny)" {
			t.Errorf("round %d: it waits for %q, and says %q", round, on.Text(), on.Command(run.Session()))
		}
		waitsListed(t, rt, func(v *troupe.RunView) bool {
			return v.GetState() == "waiting" && v.GetWaiting().GetApprovalId() == told
		})
		if err := rt.ResolveApproval(ctx, told, troupe.Answer{Decision: troupe.Approved}); err != nil {
			t.Fatal(err)
		}
	}
	v, err := run.Wait(ctx)
	if err != nil || v.GetState() != "succeeded" || v.GetWaits() != 0 || v.GetWaiting() != nil {
		t.Errorf("it ended as %v, %v", v, err)
	}
	if v := waitsListed(t, rt, func(v *troupe.RunView) bool { return v.GetState() == "succeeded" }); v.GetWaiting() != nil || v.GetWaits() != 0 {
		t.Errorf("listed after its end: %v", v)
	}
}

// waitsListed is the only run as it is listed, once that is as is wanted.
func waitsListed(t *testing.T, rt *troupe.Runtime, is func(*troupe.RunView) bool) *troupe.RunView {
	t.Helper()
	for t.Context().Err() == nil {
		all, err := rt.Runs(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("listed: %v, %v", all, err)
		}
		if is(all[0]) {
			return all[0]
		}
	}
	t.Fatal("it is not listed so")
	return nil
}
