package tools_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Every recorded attack by a command ends as it shall in a Restricted workspace.
func TestAttacksByCommandsAreContained(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-never-shown")
	t.Setenv("SOME_TOKEN", "sk-never-shown")
	t.Setenv("TROUPE_DATA", "never-shown")
	data, err := os.ReadFile("testdata/attacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Attacks []struct {
			ID, Name, Category, Code, Expect string
			Arguments                        json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, a := range file.Attacks {
		if a.Category != "exec" {
			continue
		}
		seen++
		for _, mode := range confining() {
			t.Run(string(mode)+" "+a.ID+" "+a.Name, func(t *testing.T) {
				b := newBox(t, mode, messages.Trust_RESTRICTED)
				e := b.run(t, strings.ReplaceAll(string(a.Arguments), "$OUT", b.out))
				contained(t, b, e)
				switch a.Expect {
				case "deny":
					if e.OK || e.ErrorCode != a.Code {
						t.Errorf("%+v, want %s", e, a.Code)
					}
				case "error":
					if e.OK {
						t.Errorf("%+v, want an error", e)
					}
				}
				if check := invariants()[a.ID]; check != nil {
					check(t, e)
				}
			})
		}
	}
	if seen < 19 {
		t.Errorf("%d cases, want 19", seen)
	}
}

// contained is what holds after every attack.
func contained(t *testing.T, b *box, e *tools.Envelope) {
	t.Helper()
	out, err := json.Marshal(e)
	if err != nil || !utf8.Valid(out) || len(out) > 64<<10 {
		t.Errorf("the result is no JSON of a decent size: %d bytes, %v", len(out), err)
	}
	for _, secret := range []string{"TOPSECRET", "never-shown", "OPENAI_API_KEY", "TROUPE_DATA", "\x1b", "\\u001b"} {
		if strings.Contains(string(out), secret) {
			t.Errorf("%q is in the result: %s", secret, out)
		}
	}
	if s, err := os.ReadFile(filepath.Join(b.out, "secret")); err != nil || string(s) != "TOPSECRET" {
		t.Errorf("the secret is %q, %v", s, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("no list of processes on this system: %v", err)
	}
	for _, p := range entries {
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && (strings.Contains(string(line), "987654") || strings.Contains(string(line), "987656")) {
			t.Errorf("a process is left: %q", line)
		}
	}
}

// invariants are what else the cases promise.
func invariants() map[string]func(t *testing.T, e *tools.Envelope) {
	failed := func(t *testing.T, e *tools.Envelope) {
		t.Helper()
		if e.OK && e.Meta["exit_code"] == 0 {
			t.Errorf("it succeeded: %+v", e)
		}
	}
	killed := func(limit string) func(t *testing.T, e *tools.Envelope) {
		return func(t *testing.T, e *tools.Envelope) {
			t.Helper()
			if !e.OK || e.Meta["limit"] != limit {
				t.Errorf("it was not killed for its %s: %+v", limit, e)
			}
		}
	}
	return map[string]func(t *testing.T, e *tools.Envelope){
		"exec-005": failed,
		"exec-011": func(t *testing.T, e *tools.Envelope) {
			if e.Content != "started\n" {
				t.Errorf("%+v", e)
			}
		},
		"exec-013": func(t *testing.T, e *tools.Envelope) {
			if e.ErrorCode == tools.CodeTimeout && e.Details["sandbox"] == "container" {
				return // output goes through the engine, which may be too slow to reach the limit in time
			}
			killed("output")(t, e)
			if !e.Truncated {
				t.Error("it is not said to be truncated")
			}
		},
		"exec-017": func(t *testing.T, e *tools.Envelope) {
			if !strings.Contains(e.Content, "␛]52;") {
				t.Errorf("%q", e.Content)
			}
		},
		"exec-019": func(t *testing.T, e *tools.Envelope) {
			if e.Meta["sandbox"] == "container" && e.Meta["signal"] == "SIGKILL" {
				return // the engine's own limit, which says no more
			}
			if e.ErrorCode != tools.CodeTimeout { // a busy machine is slow to fill its memory
				killed("memory")(t, e)
			}
		},
		"exec-021": failed, "exec-023": failed, "exec-025": failed, "exec-027": failed, "exec-029": failed,
	}
}
