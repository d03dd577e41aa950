package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

func (m *machine) inputs(session string) []messages.StagedJSON {
	m.t.Helper()
	code, out, stderr := m.run("inputs", "ls", session, "-o", "json")
	var list []messages.StagedJSON
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitDone {
		m.t.Fatalf("inputs ls ended with %d, %v: %s%s", code, err, out, stderr)
	}
	return list
}

func TestAnInputThatWaitsIsListedAndTakenBack(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", strings.ReplaceAll(slowScript, "TEXT", strings.Repeat("and so on ", 300)))
	working := m.start("run", "think", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	working.waitFor("I think.")
	id := m.onlySession()
	waits := m.start("run", "-s", id, "think of\nsomething else")
	var staged string
	m.eventually("the second input waits", func() bool {
		for _, in := range m.inputs(id) {
			switch in.State {
			case "staged":
				staged = in.ID
			case "running":
			default:
				t.Fatalf("listed as %+v", in)
			}
		}
		return staged != ""
	})
	if code, out, stderr := m.run("inputs", "ls", id); code != exitDone || strings.Count(out, "\n") != 3 || !strings.Contains(out, "think of something else") {
		t.Errorf("the table ended with %d: %s%s", code, out, stderr)
	}
	if code, out, stderr := m.run("inputs", "rm", id, staged); code != exitDone || out != staged+": taken back\n" {
		t.Fatalf("rm ended with %d: %s%s", code, out, stderr)
	}
	if left := m.inputs(id); len(left) != 1 || left[0].State != "running" {
		t.Errorf("%+v are left", left)
	}
	if code, _ := waits.wait(); code == exitDone {
		t.Error("whoever waited for the input that was taken back was told that it is done")
	}
	if code, _, stderr := m.run("inputs", "rm", id, "in_none"); code != exitMissing || !strings.Contains(stderr, "in_none") {
		t.Errorf("an input that nobody knows: %d %s", code, stderr)
	}
	if code, _, stderr := m.run("inputs", "ls", "ses_none"); code != exitMissing || !strings.Contains(stderr, "no session") && !strings.Contains(stderr, "ses_none") {
		t.Errorf("a session that nobody knows: %d %s", code, stderr)
	}
	if code, _, stderr := m.run("inputs", "rm", id); code != exitUsage || !strings.Contains(stderr, "INPUT_ID") {
		t.Errorf("without an input: %d %s", code, stderr)
	}
	if code, out, _ := m.run("inputs", "rm", id, m.inputs(id)[0].ID, "-o", "json"); code != exitDone || !strings.Contains(out, `"withdrawn"`) {
		t.Errorf("one that runs: %d %s", code, out)
	}
	if code, _ := working.wait(); code == exitDone {
		t.Error("a turn whose input was taken back is done")
	}
	if code, out, stderr := m.run("inputs", "ls", id); code != exitDone || out != "" || !strings.Contains(stderr, "no input waits") {
		t.Errorf("nothing left: %d %s%s", code, out, stderr)
	}
}
