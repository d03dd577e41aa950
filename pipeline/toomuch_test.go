package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

// TestAFileThatWouldTakeTheProcessWithItIsRefused has files that a parser or a check would work on for minutes, or run out of stack with, which no program survives.
func TestAFileThatWouldTakeTheProcessWithItIsRefused(t *testing.T) {
	prompt := func(s string) string { return head + "steps:\n  - {id: a, agent: x, prompt: '" + s + "'}\n" }
	many := func(n int) string {
		var b strings.Builder
		b.WriteString(head + "steps:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {id: a%d, agent: x, prompt: x}\n", i)
		}
		return b.String()
	}
	const room = 480 << 10 // within what a file may have
	for what, c := range map[string]struct{ text, want string }{
		"brackets in a text":              {prompt("${{ " + strings.Repeat("(", room) + " }}"), "the expression has 491522 bytes; one has at most 65536"},
		"brackets in a bare expression":   {head + "steps:\n  - {id: a, agent: x, prompt: x, when: '" + strings.Repeat("(", room) + "'}\n", "the expression has 491520 bytes"},
		"brackets in a block":             {head + "steps:\n  - id: a\n    agent: x\n    prompt: x\n    when: |\n      " + strings.Repeat("(", room) + "\n", "the expression has 491521 bytes"},
		"expressions that are blocks":     {head + "steps:\n  - {id: a, agent: x, prompt: '" + strings.Repeat("${{1}}", 5000) + "'}\n  - id: b\n    agent: x\n    prompt: x\n    when: |\n      true\n", "one expression too many"},
		"brackets within what one may be": {prompt("${{ " + strings.Repeat("(", 64<<10-2) + " }}"), "expression: "},
		"expressions":                     {prompt(strings.Repeat("${{1}}", room/6)), "one expression too many; a file has at most 5000"},
		"steps":                           {many(501), "the pipeline has 501 steps; it has at most 500"},
		"steps as many as there may be":   {many(500), ""},
	} {
		_, err := pipeline.Parse("t.yaml", c.text, pipeline.Options{})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %.300v", what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %.300v", what, err)
		}
	}
	nested := head + "steps:\n  - {id: n, pipeline: more.yaml}\n"
	_, err := pipeline.Parse("t.yaml", nested, pipeline.Options{Load: func(string) ([]byte, error) { return []byte(many(500)), nil }})
	if err == nil || !strings.Contains(err.Error(), "the pipeline has 501 steps") {
		t.Errorf("steps of a file that is run: %.300v", err)
	}
}
