package tools

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestControlCharactersAreShownAndNotSent(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":               "plain\ttext\n",
		"dos\r\nlines\r\n":            "dos\nlines\n",
		"50%\r100%":                   "50%␍100%",
		"\x1b[31mred\x1b[0m":          "␛[31mred␛[0m",
		"\x1b]52;c;ZXZpbA==\x07":      "␛]52;c;ZXZpbA==␇",
		"nul\x00del\x7f":              "nul␀del␡",
		"c1\u009b31m":                 "c1\uFFFD31m",
		"bad \xff\xfe bytes":          "bad \uFFFD bytes",
		"half a letter \xc3":          "half a letter \uFFFD",
		"Grüße, 世界 \U0001F600 \u00a0": "Grüße, 世界 \U0001F600 \u00a0",
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestTheMiddleOfALongTextIsLeftOut(t *testing.T) {
	if s, cut := shorten(strings.Repeat("ä", maxShownOutput)); cut || len(s) != 2*maxShownOutput {
		t.Error("a text of just so many characters is cut")
	}
	s, cut := shorten(strings.Repeat("ä", maxShownOutput+1))
	if !cut || !strings.Contains(s, "ä\n... [1 lines truncated] ...\nä") {
		t.Errorf("%v %.50s", cut, s)
	}
	lines := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)
	s, cut = shorten(lines)
	if !cut || !strings.Contains(s, "\n... [700 lines truncated] ...\n") || strings.Count(s, "\n") != 301 {
		t.Errorf("%v %d lines", cut, strings.Count(s, "\n"))
	}
}

func FuzzOutputIsAlwaysSafeText(f *testing.F) {
	f.Add([]byte("a\x1bb\xffc\r\n"), 5)
	f.Add([]byte("\n"), 40_000)
	f.Add([]byte("ä\xe4"), 20_000)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if len(data) > 1000 || n < 0 || n > 60_000 {
			t.Skip("larger than what is of interest")
		}
		text := printable([]byte(strings.Repeat(string(data), 1+n/max(1, len(data)))))
		short, cut := shorten(text)
		if !utf8.ValidString(short) || strings.IndexFunc(short, hidden) >= 0 {
			t.Fatalf("not safe: %q", short)
		}
		if !cut && short != text || cut && utf8.RuneCountInString(short) > maxShownOutput+100 {
			t.Fatalf("cut: %v, %d characters", cut, utf8.RuneCountInString(short))
		}
		if _, err := json.Marshal(short); err != nil {
			t.Fatal(err)
		}
	})
}
