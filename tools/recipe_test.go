package tools_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheRecipeForAWorkspaceToolIsFollowedToTheLetter takes the files of docs/workspace-tools.md, adds them to a copy of this package,
// and runs their tests there.
func TestTheRecipeForAWorkspaceToolIsFollowedToTheLetter(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a package")
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "workspace-tools.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile("(?s)\\*\\*\\d\\. `([a-z_]+\\.(?:go|md))`\\*\\*.*?\n```[a-z]+\n(.*?)```\n").FindAllStringSubmatch(string(doc), -1)
	if len(steps) != 3 {
		t.Fatalf("the recipe has %d files, not 3", len(steps))
	}
	replace := map[string]string{}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, s := range steps {
		file := filepath.Join(dir, s[1])
		if err := os.WriteFile(file, []byte(s[2]), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(here, s[1])] = file
	}
	out := followed(t, dir, replace)
	for _, test := range []string{"TestCountLinesKeepsTheContractOfTools", "TestCountLinesCounts"} {
		if !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%s did not pass:\n%s", test, out)
		}
	}
}

// followed runs the tests of the recipe in this package with its files laid over it.
func followed(t *testing.T, dir string, replace map[string]string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-v", "-run", "^TestCountLines", ".")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("go test: %v", err)
	}
	return string(out)
}
