package main

import (
	"strings"
	"testing"
)

func TestABackupIsMadeWhileAnotherProcessIsAtWork(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	holder := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	holder.waitFor("I begin.")
	m.begun("a")
	if code, out, stderr := m.run("backup", "full.bak"); code != exitDone || !strings.Contains(out, "full.bak: everything") {
		t.Fatalf("backup beside the holder ended with %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo"); code != exitDone {
		t.Fatalf("a run beside the holder ended with %d: %s", code, stderr)
	}
	if code, out, stderr := m.run("backup", "later.bak", "--since", "full.bak"); code != exitDone {
		t.Fatalf("later backup ended with %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("restore", "full.bak", "later.bak", "--to", "again"); code != exitDone {
		t.Fatalf("restore ended with %d: %s", code, stderr)
	}
	if code, out, stderr := m.run("--data", "again", "ls", "calls", "--state", "executing", "-o", "json"); code != exitDone || !strings.Contains(out, `"exec"`) {
		t.Errorf("the call that was under way is not in the copy: %d: %s%s", code, out, stderr)
	}
	if code, out, _ := m.run("--data", "again", "ls", "sessions"); code != exitDone || !strings.Contains(out, "hello") {
		t.Errorf("the later session is not in the copy: %d: %s", code, out)
	}
	m.write("a/go", "")
	if code, _ := holder.wait(); code != exitDone {
		t.Errorf("the holder ended with %d: %s", code, holder.stderr.String())
	}
	if code, _, stderr := m.run("backup", "other.bak", "--since", "again/store/db/MANIFEST"); code != exitInput {
		t.Errorf("a backup since what is none ended with %d: %s", code, stderr)
	}
}
