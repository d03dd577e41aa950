package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/bench"
)

func TestTheFiguresOfABenchFitANarrowTerminal(t *testing.T) {
	r := &bench.Report{Model: bench.NoModel, Agents: &bench.Agents{Agents: 50, Turns: 300, PerSecond: 1234}, Recovery: &bench.Recovery{Agents: 50, Turns: 100}}
	for width, want := range map[int]string{60: "\nTURNS/S       1234\n", 1 << 16: "\n50      300    1234     -"} {
		var out bytes.Buffer
		if err := benchText(&out, r, width); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("at %d columns, without %q:\n%s", width, want, out.String())
		}
		_, figures, _ := strings.Cut(out.String(), "\n\n")
		for l := range strings.Lines(figures) {
			if utf8.RuneCountInString(l) > width+1 {
				t.Errorf("%d columns: %q", width, l)
			}
		}
	}
}
