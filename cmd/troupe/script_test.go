package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// exits is the script command `exits CODE program args...`: the program must end with the code.
// It is shorter, and stricter, than "! exec": that one accepts any failure.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %q is no code", args[0])
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("exits: %v", err)
	}
	if got != want {
		ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// jsonHas is the script command `jsonhas FILE KEY.0.KEY VALUE`: FILE (stdout, or a file) is one
// JSON value in which the path leads to VALUE, written as JSON or as bare text.
func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] jsonhas FILE PATH VALUE")
	}
	got, err := lookup(ts.ReadFile(args[0]), args[1])
	same := err == nil && (got == args[2] || got == strconv.Quote(args[2]))
	if same == neg {
		ts.Fatalf("%s in %s is %s (%v), want %s", args[1], args[0], got, err, args[2])
	}
}

// jsonEnv is the script command `jsonenv NAME FILE PATH`: it sets a variable to a text in a JSON value.
func jsonEnv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonenv NAME FILE PATH")
	}
	got, err := lookup(ts.ReadFile(args[1]), args[2])
	if err != nil {
		ts.Fatalf("jsonenv: %v", err)
	}
	var text string
	if err := json.Unmarshal([]byte(got), &text); err != nil {
		ts.Fatalf("jsonenv: %s is no text", got)
	}
	ts.Setenv(args[0], text)
}

func lookup(text, path string) (string, error) {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", fmt.Errorf("read JSON: %w in %s", err, text)
	}
	for _, key := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok && key != "" {
				return "", fmt.Errorf("no key %q", key)
			}
			if ok {
				v = next
			}
		case []any:
			if key == "#" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				return "", fmt.Errorf("no element %q", key)
			}
			v = at[i]
		default:
			return "", fmt.Errorf("nothing below %q", key)
		}
	}
	raw, err := json.Marshal(v)
	return string(raw), err
}

func TestEveryFailureHasItsCode(t *testing.T) {
	seen := map[int]bool{}
	for _, m := range exitTable() {
		if seen[m.Code] || m.Meaning == "" {
			t.Errorf("code %d stands twice or means nothing", m.Code)
		}
		seen[m.Code] = true
	}
	for _, code := range []int{0, 1, 2, 3, 64, 65, 66, 69, 74, 75, 77, 78, 124, 130} {
		if !seen[code] {
			t.Errorf("code %d is not in the table", code)
		}
	}
}

func TestNoEscapeBytesOffATerminalOrWithNoColor(t *testing.T) {
	for name, a := range map[string]*app{
		"off a terminal": {},
		"NO_COLOR":       {env: map[string]string{"NO_COLOR": "1"}, errTerm: true},
		"--no-color":     {flags: globalFlags{noColor: true}, errTerm: true},
		"dumb":           {env: map[string]string{"TERM": "dumb"}, errTerm: true},
	} {
		var out bytes.Buffer
		usage("x \x1b[31mhostile").render(&out, a.styleFor(a.errTerm))
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q", name, out.String())
		}
	}
	var out bytes.Buffer
	on := &app{errTerm: true}
	usage("x").render(&out, on.styleFor(on.errTerm))
	if !strings.Contains(out.String(), "\x1b[") {
		t.Error("on a terminal nothing is coloured: the test above shows nothing")
	}
}

// BenchmarkVersion is what every command pays before its own work, but for the process itself.
func BenchmarkVersion(b *testing.B) {
	a := &app{out: io.Discard, err: io.Discard}
	for b.Loop() {
		if code := execute(b.Context(), a, []string{"version"}); code != exitDone {
			b.Fatalf("ended with %d", code)
		}
	}
}
