package workspace

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAttacksWithNamesOfWindowsAreRefusedByItsRules runs, on every system, the cases that the rules of Windows decide.
func TestAttacksWithNamesOfWindowsAreRefusedByItsRules(t *testing.T) {
	data, err := os.ReadFile("../tools/testdata/attacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Attacks []struct {
			ID, Platform, Code string
			Arguments          json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, a := range file.Attacks {
		if a.Platform != "windows" {
			continue
		}
		ran++
		var args struct{ Path string }
		if err := json.Unmarshal(a.Arguments, &args); err != nil {
			t.Fatalf("%s: %v", a.ID, err)
		}
		if a.Code != "invalid_path" || !slices.ContainsFunc(strings.Split(args.Path, "/"), func(name string) bool { return !windowsName(name) }) {
			t.Errorf("%s: %q is let through", a.ID, args.Path)
		}
	}
	if ran == 0 {
		t.Error("there is no such case")
	}
}

func TestNamesThatWindowsReadsInAnotherWayAreRefusedThere(t *testing.T) {
	for _, name := range []string{"CON", "con", "CON.txt", "con.tar.gz", "Aux", "nul ", "NUL .x", "com1", "COM9.log", "lpt\u00b2", "CONIN$", "a:b", "a.", "a ", "a?", "CLOCK$.x"} {
		if windowsName(name) {
			t.Errorf("%q is let through", name)
		}
	}
	for _, name := range []string{"..", "a", "CONS", "console", "COM", "COM10", "com1a", "auxiliary.txt", "x.CON", ".nul", "null"} {
		if !windowsName(name) {
			t.Errorf("%q is refused", name)
		}
	}
}
