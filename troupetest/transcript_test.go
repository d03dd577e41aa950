package troupetest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/troupetest"
)

// Every transcript of examples/transcripts is what its agent or pipeline says and does.
func TestExamplesOfTranscriptsAreWhatComes(t *testing.T) {
	files, err := filepath.Glob("../examples/transcripts/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { troupetest.Check(t, file, troupe.Options{}) })
	}
}

func TestWhatIsWrongWithATranscriptIsShownWithACaret(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "t.txt: nothing is asked\n  a line `> PROMPT` asks an agent",
		"modle: x\n> a":                "t.txt:1:1: unknown setting \"modle\"\n  1 | modle: x\n    | ^\n  did you mean \"model\"?",
		"hello\n> a":                   "t.txt:1:1: this is neither a setting nor a prompt",
		"model:\n> a":                  "t.txt:1:7: model has no value",
		"model: a\nmodel: b\n> a":      "t.txt:2:1: model is given twice",
		"trust: ful\n> a":              "t.txt:1:8: \"ful\" is no level of trust\n  1 | trust: ful\n    |        ^\n  full or restricted",
		"> a\ncal read_file {}":        "t.txt:2:1: \"cal\" begins no line of an exchange\n  2 | cal read_file {}\n    | ^\n  did you mean \"call\"?",
		"> a\ncall read_file":          "t.txt:2:15: a call has arguments, as JSON",
		"> a\ncall read_file {\"a\":":  "t.txt:2:16: this is not JSON",
		"> a\ncall x {} {}\nend done":  "t.txt:2:8: this is not JSON",
		"> a\ncall x {}}\nend done":    "t.txt:2:8: this is not JSON",
		"> a\n| b":                     "t.txt:2:1: there is nothing whose text this could be",
		"> a\n< b\n> c":                "t.txt:2:1: the exchange does not end here",
		"> a\n< b":                     "t.txt:2:1: the exchange does not end here",
		"> a\nend done\n< b":           "t.txt:3:1: the exchange has ended before",
		"> a\nend":                     "t.txt:2:4: end says nothing",
		"run":                          "t.txt:1:1: there is no pipeline to run",
		"pipeline: p.yaml\n> a":        "t.txt:2:1: a pipeline is run, and not asked",
		"pipeline: p\nrun\nend x\nrun": "t.txt:4:1: a transcript has one run",
		"> a\x1b[2J":                   "t.txt:1:4: control character U+001B",
		"> \xff":                       "t.txt: the file is not UTF-8",
		"> a\nby":                      "t.txt:2:1: \"by\" begins no line",
		"> a\nby scout":                "t.txt:2:9: by says nothing",
		"> a\nby scout cal x {}":       "t.txt:2:10: \"cal\" begins no line of an exchange\n  2 | by scout cal x {}\n    |          ^\n  did you mean \"call\"?",
		"> a\nby scout call x {":       "t.txt:2:17: this is not JSON",
		"> a\nby x result y ok\n| b":   "t.txt:3:1: there is nothing whose text this could be",
		"> a\nwoken":                   "t.txt:2:1: woken begins a turn that nobody was asked for",
		"> a\nend done\nwoken\n< b":    "t.txt:4:1: the exchange does not end here",
		"> a\napprove":                 "t.txt:2:8: approve says nothing",
		"> a\nanswer gate yes":         "t.txt:2:1: \"answer\" begins no line of an exchange",
		"pipeline: p\nrun\nby x < b":   "t.txt:3:1: what its agents do is not part",
	} {
		_, err := troupetest.ParseTranscript("t.txt", text)
		var bad *troupetest.TranscriptError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant:\n%s", text, err, want)
		}
	}
}

func FuzzTranscript(f *testing.F) {
	f.Add("model: x\n\n> a\n> b\ncall c {\"d\": 1}\nresult c ok\n| text\n< done\nend done\n")
	f.Add("pipeline: p\nset: a=b\nrun\nstep s succeeded\n| 1\noutputs {}\nend succeeded")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := troupetest.ParseTranscript("f", text)
		if (tr == nil) == (err == nil) {
			t.Errorf("%v and %v", tr, err)
		}
	})
}

const greeter = `
name: greeter
rules:
  - {match: '^hello (\w+)', reply: {text: "Hello, ${1}!\nHow are you?"}}
`

// played plays a transcript with the greeter.
func played(t *testing.T, text string) *troupetest.Played {
	t.Helper()
	tr, err := troupetest.ParseTranscript("greets.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	rt := troupetest.Runtime(t, troupe.Options{Model: troupetest.Model(t, greeter)})
	p, err := tr.Play(t.Context(), rt, troupetest.Stage{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestADifferenceIsShownLineByLineAndWrittenInPlace(t *testing.T) {
	const text = `# It greets.

> hello Ann
< Hello, Ann!
< How are you?
end done

# And again.
> hello Bob
< Hello, Bert!
< How are you?
end done
`
	p := played(t, text)
	want := `greets.txt:9: hello Bob
- < Hello, Bert!
+ < Hello, Bob!
  < How are you?
  end done
`
	if got := p.Diff(); got != want || p.Same() || !p.Scripted {
		t.Errorf("%v %v:\n%s\nwant:\n%s", p.Same(), p.Scripted, got, want)
	}
	if got, want := p.Text(), strings.Replace(text, "Bert", "Bob", 1); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

func TestThreeDotsStandForAnyLinesOfAText(t *testing.T) {
	for text, same := range map[string]bool{
		"> hello Ann\n< ...\nend done":                                        true,
		"> hello Ann\n< Hello, Ann!\n< ...\nend done":                         true,
		"> hello Ann\n< ...\n< How are you?\nend done":                        true,
		"> hello Ann\n< Hello, Ann!\n< ...\n< How are you?\nend done":         true,
		"> hello Ann\n< ...\n< Goodbye\nend done":                             false,
		"> hello Ann\n| ...\nend done":                                        false,
		"> hello Ann\n< ...\nend limit":                                       false,
		"> hello\n> Ann\n< ...\nend done":                                     false, // one prompt of two lines, which nothing fits
		"> hello Ann\n< ...\nend done\n\n> hello Bob\n< ...\nend done":        true,
		"> hello Ann\n< ...\nend done\n\n> hello Bob\n< Hello, Bo!\nend done": false,
	} {
		if strings.Contains(text, "| ...") {
			if _, err := troupetest.ParseTranscript("t", text); err == nil {
				t.Errorf("%q was taken", text)
			}
			continue
		}
		if p := played(t, text); p.Same() != same {
			t.Errorf("%q: %v\n%s", text, p.Same(), p.Diff())
		}
	}
}

func TestATranscriptThatExpectsNothingYetIsFilledIn(t *testing.T) {
	p := played(t, "# New.\n> hello Ann\n\n> hello Bob\n")
	want := "# New.\n> hello Ann\n< Hello, Ann!\n< How are you?\nend done\n\n> hello Bob\n< Hello, Bob!\n< How are you?\nend done\n"
	if got := p.Text(); got != want || p.Same() {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

func TestOfALongTextOnlyWhatDiffersIsShown(t *testing.T) {
	var want []string
	for i := range 40 {
		want = append(want, strings.Repeat("x", i))
	}
	got := append([]string(nil), want...)
	got[20] = "other"
	diff := troupetest.Diff(want, got)
	if n := strings.Count(diff, "\n"); n != 10 || !strings.Contains(diff, "... 17 the same") || !strings.Contains(diff, "+ other\n") {
		t.Errorf("%d lines:\n%s", n, diff)
	}
	if troupetest.Diff(want, want) != "" || troupetest.Diff(nil, nil) != "" {
		t.Error("the same differs")
	}
}

// failing is a test that notes that it failed.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Errorf(format string, _ ...any) { f.said = format }
func (f *failing) Error(args ...any)              { f.said = fmt.Sprint(args...) }

func TestGoldenFilesAreComparedAndWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "a.golden")
	troupetest.Golden(t, file, "one\ntwo\n", true)
	troupetest.Golden(t, file, "one\ntwo", false)
	f := &failing{TB: t}
	troupetest.Golden(f, file, "one\nthree", false)
	if f.said == "" {
		t.Error("a difference went unnoticed")
	}
	t.Setenv(troupetest.UpdateVariable, "1")
	troupetest.Golden(t, file, "three", false)
	if b, err := os.ReadFile(file); err != nil || string(b) != "three" {
		t.Errorf("%q %v", b, err)
	}
}
