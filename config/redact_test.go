package config

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestASecretIsFoundInTheFormsThatProgramsGiveIt(t *testing.T) {
	const key = "sk-Proj/4f+9a&K<2=x_YZ~0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
	r := NewRedactor(NewSecret(key))
	in := func(before, after string) string { return before + key + after }
	quoted, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := base64.StdEncoding.EncodeToString([]byte(in("name=", "\n")))
	forms := map[string]string{
		"plain":                  key,
		"base64":                 base64.StdEncoding.EncodeToString([]byte(key)),
		"base64 after one byte":  base64.StdEncoding.EncodeToString([]byte(in("x", "y"))),
		"base64 after two bytes": base64.URLEncoding.EncodeToString([]byte(in("xx", "yy"))),
		"base64 in lines":        wrapped[:20] + "\n" + wrapped[20:41] + "\r\n" + wrapped[41:],
		"hex":                    hex.EncodeToString([]byte(key)),
		"capital hex":            fmt.Sprintf("%X", key),
		"hex with spaces":        fmt.Sprintf("% x", key),
		"query":                  url.QueryEscape(key),
		"query in small letters": lowerPercent(url.QueryEscape(key)),
		"path":                   url.PathEscape(key),
		"json":                   string(quoted),
		"json of others":         strings.ReplaceAll(key, "/", `\/`),
	}
	for name, form := range forms {
		got := r.String("before " + form + " after")
		if !strings.Contains(got, redacted) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || len(got) > len(redacted)+30 {
			t.Errorf("%s: %s became %s", name, form, got)
		}
	}
}

// TestTheLinesOfAKeyAreHiddenWhereEachIsShownForItself as files are shown, and searched.
func TestTheLinesOfAKeyAreHiddenWhereEachIsShownForItself(t *testing.T) {
	const first, second, third = "MC4CAQAwBQYDK2VwBCIEIPq3v9ZKxkQm0aXG9w1n2b7c8d9e0f1g2h3i4j5k6l7m", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFi", "Zg=="
	key := "-----BEGIN PRIVATE KEY-----\n" + first + "\r\n" + second + "\n" + third + "\n-----END PRIVATE KEY-----\n"
	r := NewRedactor(NewSecret(key))
	for text, want := range map[string]string{
		"     2\t" + first + "\n     3\t" + second + "\n": "     2\t" + redacted + "\n     3\t" + redacted + "\n",
		"k.pem:2: " + first:         "k.pem:2: " + redacted,
		`{"line":"` + second + `"}`: `{"line":"` + redacted + `"}`,
		"it is\n" + key:             "it is\n" + redacted + "\n",
		"-----BEGIN PRIVATE KEY-----, and then Zg==, no more": "-----BEGIN PRIVATE KEY-----, and then Zg==, no more",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	passing := &Redactor{}
	passing.LearnPassing(key)
	if got := passing.String(second); got != redacted {
		t.Errorf("of a value that passes: %q", got)
	}
}

func TestWordsAndShortValuesAreNotSearchedFor(t *testing.T) {
	r := NewRedactor(NewSecret("anything"), NewSecret("not-needed"), NewSecret("sk-1234"), NewSecret("  \n"))
	if text := "anything, not-needed, sk-1234"; r.String(text) != text || r.known() != nil {
		t.Errorf("became %q", r.String(text))
	}
	if got := NewRedactor(NewSecret("sk-12345\n")).String("sk-12345"); got != redacted {
		t.Errorf("a key of 8 bytes became %q", got)
	}
}

func TestALearntSecretIsHiddenFromThenOnAlsoInALogThatIsOpen(t *testing.T) {
	r := &Redactor{}
	if got := r.String(hidden); got != hidden {
		t.Fatalf("became %q", got)
	}
	r.Learn(NewSecret(hidden))
	r.Learn(NewSecret(hidden), NewSecret("another-One-1"))
	if got := r.String("a " + hidden + " another-One-1"); got != "a [redacted] [redacted]" {
		t.Errorf("became %q", got)
	}
	if got := (*Redactor)(nil).String(hidden); got != hidden {
		t.Errorf("no redactor changed %q", got)
	}
}

// TestValuesThatPassAreForgottenWhenManyAreNewer learns a new value with each call, as a provider may give it.
func TestValuesThatPassAreForgottenWhenManyAreNewer(t *testing.T) {
	r := NewRedactor(NewSecret(hidden))
	value := func(n int) string { return fmt.Sprintf("Token-%06d-of-a-call", n) }
	const calls = 10 * keptPassing
	for n := range calls {
		r.LearnPassing(value(n), value(7)) // that one is new each time
		if n == 3 {
			r.LearnValues(value(3))
		}
		if got := r.String(value(n)); got != redacted {
			t.Fatalf("value %d became %q", n, got)
		}
	}
	for n, known := range map[int]bool{0: false, 3: true, 7: true, calls - keptPassing: true, calls - 1: true} {
		if got := r.String(value(n)); (got == redacted) != known {
			t.Errorf("value %d became %q", n, got)
		}
	}
	if got := r.String(hidden); got != redacted {
		t.Errorf("the first secret became %q", got)
	}
	if n := len(r.values); n > 2*keptPassing+2 {
		t.Errorf("%d values are known", n)
	}
}

func TestAFloodOfWhiteSpaceIsNotHeldBack(t *testing.T) {
	r := NewRedactor(NewSecret("Secret-one"))
	flood := "5" + strings.Repeat(" ", 10_000)
	if out, rest := r.Scan(flood); len(rest) > 100 || out+rest != flood {
		t.Errorf("%d bytes are held back", len(rest))
	}
}

func BenchmarkRedactor(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, 0123456789 times.\n", 800)
	r := NewRedactor(NewSecret("sk-proj-0123456789abcdefghijklmnopqrstuvwxyz"), NewSecret("ghp_0123456789abcdefABCDEF"))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_ = r.String(text)
	}
}
