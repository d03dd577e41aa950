package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// bounded has the machine's questions wait for a time.
func (m *machine) bounded(d string) {
	m.t.Helper()
	m.env = append(m.env, "TROUPE_APPROVALS__TIMEOUT="+d)
}

func TestApprovalsThatAreWatchedAreToldWhenTheyComeAndWhenTheyGo(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", asking)
	watching := m.start("ls", "approvals", "--watch")
	line := func() string {
		text, err := watching.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, watching.stderr.String())
		}
		return text
	}
	m.bounded("10m")
	if code, shown := m.typed([]string{"\n", "\n", "\n"}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted"); code != exitAgain ||
		!strings.Contains(shown, "unanswered it is refused in ") {
		t.Fatalf("%d %s", code, shown)
	}
	ids := make(map[string]bool)
	for range 2 {
		text := line()
		id, rest, _ := strings.Cut(text, " waits, until 20")
		ids[id] = true
		if !strings.HasPrefix(id, "apr_") || !strings.Contains(rest, ": write_file(") || !strings.Contains(rest, ", of session "+m.onlySession()) {
			t.Errorf("one that is asked for: %q", text)
		}
	}
	if len(ids) != 2 {
		t.Errorf("these were asked for: %v", ids)
	}
	for id := range ids {
		if code, _, stderr := m.run("deny", id); code != exitDone {
			t.Fatal(stderr)
		}
	}
	for range 2 {
		text := line()
		if id, _, found := strings.Cut(text, " waits no longer\n"); !found || !ids[id] {
			t.Errorf("one that was answered: %q", text)
		}
	}
	watching.signal(os.Interrupt)
	if code, rest := watching.wait(); code != exitDone || rest != "" || watching.stderr.String() != "" {
		t.Errorf("%d %q %s", code, rest, watching.stderr.String())
	}
	if code, _, stderr := m.run("ls", "approvals", "--watch", "-o", "json"); code != exitUsage || !strings.Contains(stderr, "--watch prints no json") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestAQuestionThatExpiresSaysWhatTimeIsLeftAndThatItWasRefused(t *testing.T) {
	m := newMachine(t)
	m.bounded("6s") // one mark is at 5 s
	script := m.write("s.yaml", asking)
	code, shown := m.chats([]say{
		{"unanswered it is refused in ", ""},
		{"cancel the turn] ", ""},
		{"5s left to answer\r\nRun it? ", ""},
		{"nobody answered in time: it is refused", ""},
	}, "run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "restricted")
	if code != exitDone || !m.has("") || strings.Contains(shown, "elsewhere") {
		t.Errorf("%d\n%s", code, shown)
	}
}

func TestTheTableOfApprovalsCountsDown(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	v := messages.ApprovalJSON{ID: "apr_1", State: "pending", Tool: "exec", Kind: "command", Preview: "make", Worker: "wrk_1", Session: "ses_1"}
	for left, want := range map[time.Duration]string{90 * time.Second: "in 1m30s", 100 * time.Millisecond: "in 1s", -time.Second: "in 0s"} {
		v.ExpiresAt = messages.FormatTime(at.Add(left).UnixMilli())
		if row := approvalRows([]messages.ApprovalJSON{v}, at)[0]; row[3] != "make" || row[5] != want {
			t.Errorf("%v: %v", left, row)
		}
	}
	v.ExpiresAt = ""
	if row := approvalRows([]messages.ApprovalJSON{v}, at)[0]; row[5] != "never" {
		t.Error(row)
	}
}

func TestTheTableOfApprovalsIsDrawnOverTheOneBefore(t *testing.T) {
	var out bytes.Buffer
	show := (&app{out: &out, outTerm: true, color: "always"}).approvalTable()
	v := messages.ApprovalJSON{ID: "apr_1", State: "pending", Tool: "exec", Kind: "command", Preview: "make", Worker: "wrk_1", Session: "ses_1"}
	for _, x := range []struct {
		all  []messages.ApprovalJSON
		up   string
		said int
	}{{[]messages.ApprovalJSON{v, v}, "", 4}, {[]messages.ApprovalJSON{v}, "\x1b[4A\x1b[J", 3}, {nil, "\x1b[3A\x1b[J", 1}, {nil, "\x1b[1A\x1b[J", 1}} {
		out.Reset()
		if err := show(x.all); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.HasPrefix(text, x.up) || strings.Contains(text, "\x1b[") != (x.up != "") || strings.Count(text, "\n") != x.said {
			t.Errorf("%d wait: %q", len(x.all), text)
		}
	}
	if got := narrowed("äöü\nx\n", 2); got != "äö\nx\n" {
		t.Errorf("in two columns: %q", got)
	}
}
