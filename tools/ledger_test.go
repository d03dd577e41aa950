package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// book opens the ledger of a folder, as the next process does.
func book(t testing.TB, dir string) *tools.FileLedger {
	t.Helper()
	l, err := tools.OpenLedger(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func seen(t *testing.T, l tools.Ledger, exec string, attempt uint32) (tools.Seen, string) {
	t.Helper()
	s, r, err := l.Look(exec, attempt)
	if err != nil {
		t.Fatal(err)
	}
	return s, r.GetContent()
}

func note(t testing.TB, l tools.Ledger, exec string, attempt uint32, content string) {
	t.Helper()
	if err := l.Begin(exec, attempt); err != nil {
		t.Fatal(err)
	}
	if err := l.End(attempt, &messages.ToolReply{ExecId: exec, Content: content}); err != nil {
		t.Fatal(err)
	}
}

// ledgerFiles are the paths of what lies in a folder, and how much it is.
func ledgerFiles(t testing.TB, dir string) (paths []string, bytes int64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return paths, bytes
}

func TestALedgerTellsNeverSeenStartedAndEndedApartForEachAttempt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := book(t, dir)
	if err := l.End(1, &messages.ToolReply{ExecId: "exe_1"}); err != nil {
		t.Errorf("an end without a beginning: %v", err)
	}
	if p, _ := ledgerFiles(t, dir); len(p) > 0 {
		t.Errorf("there is %q before anything began", p)
	}
	if err := l.Begin("exe_1", 1); err != nil {
		t.Fatal(err)
	}
	note(t, l, "exe_2", 1, "two")
	note(t, l, "exe_1", 2, "again")
	for what, l := range map[string]*tools.FileLedger{"the same process": l, "the next one": book(t, dir)} {
		for _, c := range []struct {
			exec    string
			attempt uint32
			want    tools.Seen
			content string
		}{{"exe_1", 1, tools.Started, ""}, {"exe_1", 2, tools.Ended, "again"}, {"exe_2", 1, tools.Ended, "two"}, {"exe_2", 2, tools.NeverSeen, ""}} {
			if s, content := seen(t, l, c.exec, c.attempt); s != c.want || content != c.content {
				t.Errorf("%s: %s attempt %d: %v %q", what, c.exec, c.attempt, s, content)
			}
		}
	}
}

// TestALedgerThatIsCutOrDamagedForgetsAndNeverInvents cuts the file at every byte, and flips every byte.
func TestALedgerThatIsCutOrDamagedForgetsAndNeverInvents(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := book(t, dir)
	note(t, l, "exe_1", 1, "one")
	note(t, l, "exe_2", 1, "two")
	paths, _ := ledgerFiles(t, dir)
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(paths[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		next := book(t, dir)
		for exec, content := range map[string]string{"exe_1": "one", "exe_2": "two"} {
			if s, got := seen(t, next, exec, 1); s == tools.Ended && got != content {
				t.Errorf("%s: %s is known as %q", what, exec, got)
			}
		}
	}
	for i := range whole {
		try(fmt.Sprint("cut at ", i), whole[:i])
		flipped := append([]byte(nil), whole...)
		flipped[i] ^= 0x40
		try(fmt.Sprint("flipped at ", i), flipped)
	}
	try("a length beyond all", append([]byte("\xff\xff\xff\xff"), whole...))
}

func TestASettledLedgerLeavesNoFileAndAnOpenOneStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := book(t, dir)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { note(t, l, fmt.Sprint("exe_", i), 1, strings.Repeat(fmt.Sprint(i, " "), 1000)) })
	}
	wg.Wait()
	for i := range 49 {
		l.Settle(fmt.Sprint("exe_", i), 1)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := book(t, dir)
	if s, got := seen(t, next, "exe_49", 1); s != tools.Ended || got != strings.Repeat("49 ", 1000) {
		t.Errorf("what was not settled: %v", s)
	}
	l = book(t, filepath.Join(dir, "else"))
	note(t, l, "exe_1", 1, "one")
	l.Settle("exe_1", 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p, _ := ledgerFiles(t, filepath.Join(dir, "else")); len(p) > 0 {
		t.Errorf("everything is settled, and there is %q", p)
	}
}

func TestALedgerIsBoundedUnderALoadThatNeverRests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := book(t, dir)
	body := strings.Repeat("x", 1<<20)
	for i := range 60 { // one is always open
		note(t, l, fmt.Sprint("exe_", i), 1, body)
		l.Settle(fmt.Sprint("exe_", i-1), 1)
	}
	if _, n := ledgerFiles(t, dir); n > 20<<20 {
		t.Errorf("it has grown to %d bytes", n)
	}
	// One that is never settled keeps the ledger from being emptied: it refuses, and keeps what it has.
	full := false
	for i := range 60 {
		exec := fmt.Sprint("exe_more_", i)
		if l.Begin(exec, 1) != nil {
			full = true
			break
		}
		full = l.End(1, &messages.ToolReply{ExecId: exec, Content: body}) != nil
		if full {
			break
		}
	}
	if _, n := ledgerFiles(t, dir); !full || n > 34<<20 {
		t.Errorf("full %v at %d bytes", full, n)
	}
	if s, _ := seen(t, l, "exe_59", 1); s != tools.Ended {
		t.Errorf("the open one: %v", s)
	}
}

// TestOneThatIsNeverSettledDoesNotFillTheLedger: a crash may have lost the word that settles it, and the others go on.
func TestOneThatIsNeverSettledDoesNotFillTheLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := book(t, dir)
	note(t, l, "exe_lost", 1, "kept")
	body := strings.Repeat("x", 1<<20)
	for i := range 60 {
		exec := fmt.Sprint("exe_", i)
		note(t, l, exec, 1, body)
		l.Settle(exec, 1)
	}
	if _, n := ledgerFiles(t, dir); n > 20<<20 {
		t.Errorf("it has grown to %d bytes", n)
	}
	note(t, l, "exe_last", 1, "last")
	next := book(t, dir)
	for exec, want := range map[string]string{"exe_lost": "kept", "exe_last": "last"} {
		if s, content := seen(t, next, exec, 1); s != tools.Ended || content != want {
			t.Errorf("%s: %v %q", exec, s, content)
		}
	}
}

func TestOldLedgersAreRemovedInTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	for i := range 100 {
		note(t, book(t, dir), fmt.Sprint("exe_", i), 1, "kept")
	}
	if p, _ := ledgerFiles(t, dir); len(p) > 40 {
		t.Errorf("%d files", len(p))
	}
	if s, _ := seen(t, book(t, dir), "exe_99", 1); s != tools.Ended {
		t.Errorf("the newest: %v", s)
	}
}

// BenchmarkLedger is what a call that must not run twice costs more.
func BenchmarkLedger(b *testing.B) {
	l := book(b, b.TempDir())
	for b.Loop() {
		note(b, l, "exe_1", 1, "a short result")
		l.Settle("exe_1", 1)
	}
}
