package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestOnlyTheProcessThatAsksTheModelRecords(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", blocking)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I begin.")
	file := m.folder("b") + "/r.rec"
	code, _, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo", "--trust", "full", "--record", file)
	if code != exitUsage || !strings.Contains(stderr, "asks the models: only the process that asks can record") {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	if _, err := os.Stat(file); err == nil || strings.Contains(stderr, "recorded in") {
		t.Errorf("what was refused left a file (%v), or says that it has: %s", err, stderr)
	}
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
	if code, _, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo", "--trust", "full", "--record", file); code != exitDone || !strings.Contains(stderr, "1 model call recorded") {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 { // which has no modes
		t.Errorf("%v, %v", info, err)
	}
}

// What a process that was killed has recorded is there, and the next one that goes on with the session completes it.
func TestARecordingGoesOnAfterAKill(t *testing.T) {
	m := newMachine(t)
	const steps = "rules:\n  - steps:\n      - {text: I begin., tool_calls: [{name: list_files, arguments: {}}]}\n      - {text: I have finished."
	script := m.write("s.yaml", steps+", delay: 1h}\n")
	file := filepath.Join(m.folder("b"), "r.rec")
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full", "--record", file)
	r.waitFor("I begin.")
	m.eventually("the first call is not recorded", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), `"call": 1`)
	})
	r.signal(syscall.SIGKILL)
	_, _ = r.wait()
	m.write("s.yaml", steps+"}\n")
	if code, _, stderr := m.run("run", "-s", m.onlySession(), "--record", file); code != exitDone || !strings.Contains(stderr, "recorded in") {
		t.Fatalf("going on ended with %d: %s", code, stderr)
	}
	code, out, stderr := m.run("run", "work", "-C", "a", "-m", "replay/"+file, "--trust", "full")
	if code != exitDone || !strings.HasSuffix(out, "I have finished.\n") {
		t.Errorf("playing it ended with %d: %s%s", code, out, stderr)
	}
}
