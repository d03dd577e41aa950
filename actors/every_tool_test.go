package actors_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

// constructed is the name of the function that makes a tool: read_file is ReadFile.
func constructed(name string) string {
	return regexp.MustCompile(`(^|_)[a-z]`).ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[len(s)-1:]) })
}

// tested are the names of the tests of a folder that make a tool by its function, or call it by its name.
func tested(t *testing.T, dir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`\b(New)?` + constructed(name) + `\(|"` + name + `"`)
	var in []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(f) != "every_tool_test.go" && used.Match(text) {
			in = append(in, f)
		}
	}
	return in
}

// TestEveryToolHasItsDescriptionSchemaClassBoundsAndTests is the list of all tools that an agent can have of the program itself. One
// that is not in it, or is otherwise than it says, is a decision that was not taken.
func TestEveryToolHasItsDescriptionSchemaClassBoundsAndTests(t *testing.T) {
	const (
		pure, idempotent, reconcilable, once = messages.Effect_PURE, messages.Effect_IDEMPOTENT, messages.Effect_RECONCILABLE, messages.Effect_AT_MOST_ONCE
	)
	type row struct {
		effect  messages.Effect_Class
		timeout time.Duration // 0: DefaultTimeout
		plain   bool          // runs without a workspace
		runs    bool          // commands
		few     bool          // of the Restricted toolset
	}
	want := map[string]row{
		"create_directory": {effect: reconcilable, few: true}, "delete_file": {effect: reconcilable}, "edit_file": {effect: reconcilable, few: true},
		"move_file": {effect: reconcilable}, "write_file": {effect: reconcilable, few: true},
		"read_file": {effect: pure, few: true}, "list_files": {effect: pure, few: true}, "glob": {effect: pure, few: true}, "grep": {effect: pure, few: true},
		"exec":       {effect: once, timeout: 615 * time.Second, runs: true},
		"job_output": {effect: pure, timeout: 75 * time.Second, plain: true}, "job_list": {effect: pure, plain: true}, "job_kill": {effect: idempotent, plain: true},
		"git_status": {effect: pure, runs: true, few: true}, "git_diff": {effect: pure, runs: true, few: true}, "git_log": {effect: pure, runs: true, few: true},
		"git_commit": {effect: once, runs: true}, "fetch": {effect: pure, timeout: 135 * time.Second, plain: true},
		"todo": {effect: idempotent, plain: true, few: true}, "update_workspace": {effect: idempotent, few: true},
		"request_write_access": {effect: idempotent, few: true},
		"delegate":             {effect: reconcilable, plain: true}, "handoff": {effect: pure, plain: true}, "send": {effect: idempotent, plain: true},
	}
	own := []tools.Tool{actors.NewDelegate(nil), actors.NewHandoff(nil), actors.NewSend()}
	all := append(tools.Builtin(), own...)
	for _, tool := range all {
		spec, dir := tool.Spec(), filepath.Join("..", "tools")
		if slices.Contains(own, tool) {
			dir = "."
		}
		w, known := want[spec.Name]
		delete(want, spec.Name)
		if got := (row{spec.Effect, spec.Timeout, spec.NoWorkspace, spec.Commands, slices.Contains(tools.Restricted(), spec.Name)}); !known || got != w {
			t.Errorf("%s is %+v, not %+v", spec.Name, got, w)
		}
		if text, err := os.ReadFile(filepath.Join(dir, spec.Name+".md")); err != nil || string(text) != spec.Description {
			t.Errorf("%s is not described by its file: %v", spec.Name, err)
		}
		if len(tested(t, dir, spec.Name)) == 0 {
			t.Errorf("no test of %s uses %s", dir, spec.Name)
		}
		for _, fault := range toolstest.Faults(tool) {
			t.Error(fault)
		}
	}
	for name := range want {
		t.Errorf("there is no %s", name)
	}
}
