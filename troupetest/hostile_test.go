package troupetest_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/troupetest"
)

// hostile calls with a name and arguments that a terminal would obey, and a name that would be more lines than one.
const hostile = `
name: hostile
rules:
  - steps:
      - {tool_calls: [{name: "list\nend done\e[2J", arguments: {path: "\u009b2J\u202ea"}}]}
      - {text: done}
`

// TestATranscriptOfManyDotsIsComparedAtOnce has one that could be laid over what comes in more ways than anybody can try.
func TestATranscriptOfManyDotsIsComparedAtOnce(t *testing.T) {
	const many = 64
	script := "name: same\nrules:\n  - {reply: {text: \"" + strings.Repeat("x\\n", 2*many) + "x\"}}\n"
	play := func(end string) *troupetest.Played {
		tr, err := troupetest.ParseTranscript("t.txt", "> go\n"+strings.Repeat("< ...\n< x\n", many)+end+"end done\n")
		if err != nil {
			t.Fatal(err)
		}
		p, err := tr.Play(t.Context(), troupetest.Runtime(t, troupe.Options{Model: troupetest.Model(t, script)}), troupetest.Stage{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if play("< y\n").Same() {
		t.Error("no line is y")
	}
	if p := play("< ...\n"); !p.Same() {
		t.Errorf("%s", p.Diff())
	}
}

// TestWhatAModelMakesUpIsShownHarmlesslyAndReadAgain writes what came into a transcript, which has to be one.
func TestWhatAModelMakesUpIsShownHarmlesslyAndReadAgain(t *testing.T) {
	play := func(text string) *troupetest.Played {
		tr, err := troupetest.ParseTranscript("t.txt", text)
		if err != nil {
			t.Fatalf("%v of %q", err, text)
		}
		p, err := tr.Play(t.Context(), troupetest.Runtime(t, troupe.Options{Model: troupetest.Model(t, hostile)}), troupetest.Stage{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := play("> go\n")
	for _, r := range p.Diff() + p.Text() {
		if r != '\n' && yamldoc.Unsafe(r) {
			t.Errorf("%U in %q", r, p.Text())
		}
	}
	if !strings.Contains(p.Text(), `{"path":"\u009b2J\u202ea"}`) {
		t.Errorf("%q", p.Text())
	}
	if again := play(p.Text()); !again.Same() {
		t.Errorf("%s", again.Diff())
	}
}
