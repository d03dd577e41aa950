package troupe_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/attacks"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// madeBy names the test that makes an attack, with its file; "" when there is none.
func madeBy(a attacks.Attack) (file, test string) {
	onFiles := []string{"read_file", "write_file", "edit_file", "list_files", "delete_file", "grep", "glob"}
	onWire := []string{"tool_result", "approve", "register_client"}
	switch {
	case a.Platform == "windows":
		return "workspace/names_internal_test.go", "TestAttacksWithNamesOfWindowsAreRefusedByItsRules"
	case a.Platform != "":
		return "", ""
	case a.Wire != nil || slices.Contains(onWire, a.Tool):
		return "attacks_test.go", "TestEveryAttackOnTheWireIsMadeThere"
	case a.Category == "archive":
		return "attacks_test.go", "TestEveryAttackByAnUploadIsRefused"
	case a.Category == "rule":
		return "attacks_test.go", "TestEveryAttackEndsAsAgreedInATurnOfAnAgent"
	case a.Category == "exec":
		return "tools/exec_attacks_test.go", "TestAttacksByCommandsAreContained"
	case a.Category == "field" && a.Tool == "update_workspace":
		return "attacks_all_test.go", "TestAttacksOnFieldsEndAsAgreed"
	case a.Category == "fetch" && a.Expect == "deny":
		return "tools/fetch_test.go", "TestFetchAttacksEndAsAgreed"
	case a.ID == "fetch-019":
		return "tools/fetch_test.go", "TestBodiesAreBoundedInSizeAndTime"
	case a.Tool == "attach_workspace", a.Tool == "git_clone":
		return "tools/gitclone/gitclone_test.go", "TestCloneAttacksEndAsAgreed"
	case strings.HasPrefix(a.Tool, "git_status"):
		return "tools/git_attacks_test.go", "TestGitAttacksEndAsAgreed"
	case slices.Contains(onFiles, a.Tool):
		return "tools/attacks_test.go", "TestEveryAttackOnFilesEndsAsAgreed"
	}
	return "", ""
}

// TestEveryAttackOfTheListIsMade: one that is added, of a kind that no test selects, does not pass for made.
func TestEveryAttackOfTheListIsMade(t *testing.T) {
	known := make(map[string]bool)
	for _, a := range attacks.Load(t, "tools/testdata/attacks.json") {
		if known[a.ID] {
			t.Errorf("%s stands there twice", a.ID)
		}
		known[a.ID] = true
		file, test := madeBy(a)
		if test == "" {
			t.Errorf("%s %q (%s, %s): no test makes it", a.ID, a.Name, a.Category, a.Tool)
			continue
		}
		if src, err := os.ReadFile(file); err != nil || !strings.Contains(string(src), "func "+test+"(") {
			t.Errorf("%s: %s has no %s: %v", a.ID, file, test, err)
		}
	}
}

// TestAttacksOnFieldsEndAsAgreed: each is a call of an agent, in a folder whose fields are named as the attacks have them; what the
// next request of the model says of them is held against what stood there before.
func TestAttacksOnFieldsEndAsAgreed(t *testing.T) {
	const schema = `{"properties":{"rootPath":{"type":"string","default":"/srv"},"trust_level":{"type":"string","default":"Restricted"},
"status":{"type":"string","default":"idle","x-editable":true,"x-effect":"ring"}}}`
	var rung atomic.Int32
	var mu sync.Mutex
	var prompts []string
	strike := attacker()
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
			mu.Lock()
			defer mu.Unlock()
			prompts = append(prompts, req.Prompt.System)
			return strike(req)
		}),
		FieldEffects: map[string]troupe.FieldEffect{"ring": {Effect: messages.Effect_IDEMPOTENT, Run: func(context.Context, troupe.FieldChange) error { rung.Add(1); return nil }}},
	})
	ran := 0
	for _, a := range attacks.Load(t, "tools/testdata/attacks.json") {
		if a.Category != "field" {
			continue
		}
		ran++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			dir := folder(t, nil)
			s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Fields: schema})
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			prompts = nil
			mu.Unlock()
			rung.Store(0)
			end, told := strikes(ctx, t, s, "call", a.Tool, string(a.Arguments))
			if end.GetErrorCode() != a.Code {
				t.Errorf("came to %q, want %q: %s", end.GetErrorCode(), a.Code, told)
			}
			if a.ID == "field-001" && told != "Error: Field 'invalid_field' does not exist or is not editable. Please check the workspace context for available editable fields." {
				t.Errorf("the model is told %q", told)
			}
			changed := a.Expect == "contained"
			if got := fieldOf(t, s, "status"); (got == `"idle"`) == changed || !changed && rung.Load() != 0 {
				t.Errorf("status is %s, and %d effects ran", got, rung.Load())
			}
			if root, trust := fieldOf(t, s, "rootPath"), fieldOf(t, s, "trust_level"); root != `"/srv"` || trust != `"Restricted"` {
				t.Errorf("rootPath is %s, trust_level %s", root, trust)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(prompts) != 2 || fieldLines(prompts[0]) != fieldLines(prompts[1]) || strings.Count(prompts[1], "\n") != strings.Count(prompts[0], "\n") {
				t.Errorf("before: %s\nafter: %s", prompts[0], prompts[len(prompts)-1])
			}
		})
	}
	if ran < 4 {
		t.Errorf("%d cases, want 4", ran)
	}
}

// fieldLines counts what a prompt marks as editable.
func fieldLines(prompt string) int { return strings.Count(prompt, "[EDITABLE]") }
