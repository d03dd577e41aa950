package main

import (
	"os"
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
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
	if code, _, stderr := m.run("run", "hello", "-C", "b", "-m", "scripted/echo", "--trust", "full", "--record", file); code != exitDone || !strings.Contains(stderr, "1 model call recorded") {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
