package policy

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// readByParser is what simple and commandsIn say without the short way.
func readByParser(command string) (words []string, ok bool) {
	for _, lang := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX} {
		file, err := parse(command, lang)
		if err != nil || len(file.Stmts) != 1 {
			return nil, false
		}
		st := file.Stmts[0]
		call, isCall := st.Cmd.(*syntax.CallExpr)
		if !isCall || st.Semicolon.IsValid() || st.Negated || st.Background || st.Coprocess || st.Disown || len(st.Redirs) > 0 || len(call.Assigns) > 0 {
			return nil, false
		}
		got := make([]string, len(call.Args))
		for i, a := range call.Args {
			w := literal(a)
			if !w.known {
				return nil, false
			}
			got[i] = w.text
		}
		if words != nil && !slices.Equal(words, got) {
			return nil, false
		}
		words = got
	}
	return words, true
}

func checkPlain(t *testing.T, command string) {
	t.Helper()
	words := plainWords(command)
	if words == nil {
		return
	}
	if want, ok := readByParser(command); !ok || !slices.Equal(words, want) {
		t.Errorf("%q: %q is not what a shell reads: %q, %t", command, words, want, ok)
	}
}

// TestWhatIsReadWithoutAParserIsWhatAShellReads holds the short way against the parser, with every word that any
// shell keeps for itself in each place.
func TestWhatIsReadWithoutAParserIsWhatAShellReads(t *testing.T) {
	own := strings.Fields(`if then elif else fi for foreach while until do done case esac in select repeat end function time coproc
		nocorrect noglob let declare local export readonly typeset nameref integer float alias bg bind break builtin caller cd command
		compgen complete compopt continue dirs disown echo enable eval exec exit false fc fg getopts hash help history jobs kill
		logout mapfile popd printf pushd pwd read readarray return set shift shopt source suspend test times trap true type ulimit
		umask unalias unset wait . : % %1 @ @test + - -- , 1 0x10 a:b a@b 1-2 IF Then`)
	for _, w := range own {
		for _, c := range []string{w, w + " x", "x " + w, w + " " + w, " " + w + "\tx ", w + " -p", w + " -a b", w + " 1"} {
			checkPlain(t, c)
		}
	}
	if got := plainWords("go test  ./...\t-run X"); !slices.Equal(got, []string{"go", "test", "./...", "-run", "X"}) {
		t.Errorf("%q", got)
	}
	for _, c := range []string{"", " ", "a;b", "a\nb", "a=b c", "~/x", "a b*", "a $x", "é", "a 'b'", `a\ b`, "a#b", "{a,b}", "a !b"} {
		if got := plainWords(c); got != nil {
			t.Errorf("%q is read as %q", c, got)
		}
	}
}

func FuzzPlainWords(f *testing.F) {
	for _, c := range []string{"go test ./...", "time ls", "let a", ". x", "1 2", "export a"} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, command string) { checkPlain(t, command) })
}
