package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// slowScript says `I think.` soon, and takes a minute for the rest.
const slowScript = `
name: slow
rules:
  - match: '^think'
    reply: {text: "I think.\nTEXT", chunk_size: 9, chunk_delay: 200ms}
`

func (m *machine) workers() []messages.WorkerJSON {
	m.t.Helper()
	code, out, stderr := m.run("workers", "ls", "-o", "json")
	var list []messages.WorkerJSON
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		m.t.Fatalf("workers ls ended with %d, %v: %s%s", code, err, out, stderr)
	}
	return list
}

func TestAPromptThatKillsTheProcessTenTimesIsQuarantinedUntilItIsReleased(t *testing.T) {
	if testing.Short() {
		t.Skip("the program is started and killed ten times")
	}
	m := newMachine(t)
	script := m.write("s.yaml", strings.ReplaceAll(slowScript, "TEXT", strings.Repeat("and so on ", 300)))
	r := m.start("run", "think", "-C", "a", "-m", "scripted/"+script, "--trust", "full")
	r.waitFor("I think.")
	r.signal(syscall.SIGKILL)
	r.wait()
	id := m.onlySession()
	for range 9 {
		r = m.start("run", "-s", id)
		r.waitFor("I think.")
		r.signal(syscall.SIGKILL)
		r.wait()
	}
	code, out, stderr := m.run("run", "-s", id)
	w := m.workers()[0]
	if code != exitFailed || !strings.Contains(stderr, "troupe workers release "+w.ID) {
		t.Fatalf("the eleventh time it ended with %d: %s%s", code, out, stderr)
	}
	if w.State != "inactive_failed" || !w.Quarantined || !strings.Contains(w.LastError, "10 times") {
		t.Errorf("listed as %+v", w)
	}
	if code, out, stderr := m.run("workers", "release", w.ID, "-o", "json"); code != exitDone || strings.Contains(out, "quarantined") {
		t.Errorf("release ended with %d: %s%s", code, out, stderr)
	}
	if w := m.workers()[0]; w.Quarantined || w.State != "waiting" {
		t.Errorf("listed as %+v", w)
	}
	m.write("s.yaml", strings.ReplaceAll(slowScript, "TEXT", "And that is that."))
	if code, out, stderr := m.run("run", "-s", id); code != exitDone || !strings.HasSuffix(out, "And that is that.\n") {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	if code, _, stderr := m.run("workers", "release", "wrk_none"); code != exitMissing || !strings.Contains(stderr, "no worker wrk_none") {
		t.Errorf("an unknown worker: %d %s", code, stderr)
	}
}
