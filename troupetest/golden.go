package troupetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// UpdateVariable names the variable of the environment that has golden files and transcripts written anew: TROUPETEST_UPDATE=1 go test ./...
const UpdateVariable = "TROUPETEST_UPDATE"

// Golden compares a text with the file that holds what it should be, and shows a difference line by line. With update, or when
// TROUPETEST_UPDATE is set, the file is written instead. A program that wants a flag declares it:
//
//	var update = flag.Bool("update", false, "write golden files anew")
func Golden(tb testing.TB, path, got string, update bool) {
	tb.Helper()
	if update || os.Getenv(UpdateVariable) != "" {
		write(tb, path, got)
		return
	}
	want, err := os.ReadFile(path) //nolint:gosec // the test names it
	if err != nil {
		tb.Fatalf("read the golden file: %v; write it with %s=1", err, UpdateVariable)
	}
	if diff := Diff(lines(string(want)), lines(got)); diff != "" {
		tb.Errorf("%s differs (- expected, + now; %s=1 writes it anew):\n%s", path, UpdateVariable, diff)
	}
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // as any other file of a repository
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // as any other file of a repository
	}
	if err != nil {
		tb.Fatalf("write the golden file: %v", err)
	}
}

// lines are those of a text; what ends the last one does not count.
func lines(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
