package policy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestSimpleCommandMeansWhatTheShellReads compares our reading with that of the shells at hand.
func TestSimpleCommandMeansWhatTheShellReads(t *testing.T) {
	commands := []string{
		`go test ./...`, `a 'b c' "d e" f\ g`, `a "b\"c" "d\\e" "f\g" 'h\i'`, `a b'c'"d"e`, `a ''`, `a "" b`, `a \; \& \| \$X \* \~`,
		`a HEAD~1 b=~x`, `a b^ c! d!e`, `a x=y`, `a "~" '*' "[a]"`, `a #b`, `a b#c`, `a %d +x @y`, `a b,c`, `a -- -n`, `a "a'b" 'a"b'`, `a é 漢字`,
	}
	run := 0
	for _, sh := range []string{"sh", "bash", "dash"} {
		bin, err := exec.LookPath(sh)
		if err != nil {
			t.Logf("%s is not here: not compared with it", sh)
			continue
		}
		for _, c := range commands {
			words, flaw := simple(c)
			if flaw != nil {
				continue // refusing is always safe
			}
			out, err := exec.Command(bin, "-c", `printf '%s\0' `+c).Output()
			if err != nil {
				t.Fatalf("%s: %q: %v", sh, c, err)
			}
			if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
				t.Errorf("%q: %s reads %q, we read %q", c, sh, got, words)
			}
			run++
		}
	}
	if run == 0 {
		t.Skip("no shell to compare with")
	}
	if run < len(commands)/2 {
		t.Errorf("only %d comparisons", run)
	}
}
