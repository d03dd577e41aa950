package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/config"
)

// crashed is a house that looks for what crashes left, with what it logs and says.
func crashed(t *testing.T, secrets ...string) (h *house, log, said *bytes.Buffer) {
	t.Helper()
	log, said = &bytes.Buffer{}, &bytes.Buffer{}
	h = &house{data: t.TempDir(), secrets: config.NewRedactor(), log: &logFile{logger: slog.New(slog.NewTextHandler(log, nil))}}
	h.secrets.LearnValues(secrets...)
	h.note = func(format string, args ...any) { _, _ = fmt.Fprintf(said, format+"\n", args...) }
	return h, log, said
}

func TestAReportThatCannotBeReadStays(t *testing.T) {
	h, log, said := crashed(t)
	path := filepath.Join(h.data, crashPrefix+"1")
	if err := os.Mkdir(path, 0o700); err != nil { // what root can open and not read
		t.Fatal(err)
	}
	h.tellCrash(path)
	if _, err := os.Stat(path); err != nil || !strings.Contains(log.String(), "cannot be read") || !strings.Contains(said.String(), path) {
		t.Errorf("%v; log: %s; it says %q", err, log, said)
	}
}

func TestAReportThatIsGoneIsNoFault(t *testing.T) {
	h, log, said := crashed(t)
	h.tellCrash(filepath.Join(h.data, crashPrefix+"1"))
	h.crash = filepath.Join(h.data, crashPrefix+"2")
	h.endCrash()
	if log.Len() > 0 || said.Len() > 0 || h.crash != "" {
		t.Errorf("log: %s; it says %q", log, said)
	}
}

func TestWhatACrashLeftIsKeptWithoutSecrets(t *testing.T) {
	const secret = "s3cr3t-of-a-provider"
	h, log, said := crashed(t, secret)
	path, kept := filepath.Join(h.data, crashPrefix+"1"), filepath.Join(h.data, lastCrash)
	long := strings.Repeat("goroutine 7 [running]:\n", crashHead/10)
	if err := os.WriteFile(path, []byte("panic: cannot use "+secret+"\n"+long+secret+"\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte("an earlier one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept+".new", []byte("half of one"), 0o644); err != nil { //nolint:gosec // that it may be read is what is tried
		t.Fatal(err)
	}
	h.tellCrash(path)
	b, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(b); !strings.HasPrefix(text, "panic: cannot use ") || !strings.Contains(text, long) || !strings.HasSuffix(text, "\nend\n") {
		t.Errorf("%d bytes are kept", len(text))
	}
	for what, text := range map[string]string{"the file": string(b), "the log": log.String(), "what is said": said.String()} {
		if strings.Contains(text, secret) || !strings.Contains(text, "panic: cannot use") {
			t.Errorf("%s: %.300s", what, text)
		}
	}
	info, err := os.Stat(kept)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(h.data); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
