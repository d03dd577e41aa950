package config

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"
)

const hidden = "sk-do-not-show-1234"

func TestSecretNeverPrints(t *testing.T) {
	type holder struct {
		Key   Secret
		Ptr   *Secret
		Map   map[string]Secret
		inner Secret
	}
	s := NewSecret(hidden)
	h := holder{Key: s, Ptr: &s, Map: map[string]Secret{"k": s}, inner: s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10s", "%T"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", &h)
		fmt.Fprintf(&out, verb+"\n", []any{s, h})
	}
	for _, enc := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal, func(v any) ([]byte, error) { return nil, json.NewEncoder(&out).Encode(v) }} {
		b, err := enc(h)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "key", s, "holder", h)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "key", s, "holder", h)
	fmt.Fprintln(&out, errors.New("x"), s.LogValue(), s.String(), s.GoString())
	if strings.Contains(out.String(), "do-not-show") || strings.Contains(out.String(), fmt.Sprintf("%x", hidden)) {
		t.Errorf("the secret shows in\n%s", out.String())
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed at all: the test shows nothing")
	}
	if s.Reveal() != hidden || !NewSecret("").IsZero() || h.inner.IsZero() {
		t.Error("Reveal or IsZero is wrong")
	}
}

func TestKeyComesFromVariableFileOrCommand(t *testing.T) {
	m := newMachine(t)
	file := m.write("key", hidden+"\n")
	m.env["MY_KEY"], m.env["PATH"] = hidden, os.Getenv("PATH")
	m.user(fmt.Sprintf(`
providers:
  env: {base_url: "http://h", api_key_env: MY_KEY}
  file: {base_url: "http://h", api_key_file: %q}
  command: {base_url: "http://h", api_key_command: "printf '%%s\n' \"$MY_KEY\""}
  none: {base_url: "http://h"}
  unset: {base_url: "http://h", api_key_env: NOBODY}
  missing: {base_url: "http://h", api_key_file: /nowhere/key}
  fails: {base_url: "http://h", api_key_command: "echo %s; exit 3"}
  empty: {base_url: "http://h", api_key_command: "true"}
  lines: {base_url: "http://h", api_key_command: "echo %s; echo more"}
  endless: {base_url: "http://h", api_key_command: "head -c 1000000 /dev/zero | tr '\\0' x"}
`, file, hidden, hidden))
	l := m.must()
	for _, name := range []string{"env", "file", "command"} {
		if key, err := l.Key(t.Context(), name); err != nil || key.Reveal() != hidden {
			t.Errorf("%s: %q, %v", name, key.Reveal(), err)
		}
	}
	if key, err := l.Key(t.Context(), "none"); err != nil || !key.IsZero() {
		t.Errorf("none: %v, %v", key, err)
	}
	for name, want := range map[string]string{"unset": "NOBODY is not set", "missing": "/nowhere/key", "fails": "exit status 3", "empty": "is empty", "lines": "several lines", "endless": "longer than"} {
		_, err := l.Key(t.Context(), name)
		var p *Problem
		if !errors.As(err, &p) || !strings.Contains(p.What, want) || strings.Contains(err.Error(), "do-not-show") && name != "fails" && name != "lines" {
			t.Errorf("%s gives %v, want %q", name, err, want)
		}
		if p != nil && (strings.Contains(p.What, hidden) || p.Origin.Source != FromUser) {
			t.Errorf("%s: %v from %v", name, p.What, p.Origin)
		}
	}
	if _, err := l.Key(t.Context(), "fiel"); err == nil || !strings.Contains(err.Error(), `"file"`) {
		t.Errorf("an unknown provider gives %v", err)
	}
}

func TestCommandThatHangsEndsWithItsContext(t *testing.T) {
	m := newMachine(t)
	m.user("providers:\n  x: {base_url: 'http://h', api_key_command: 'sleep 600 & sleep 600'}\n")
	l := m.must()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Key(ctx, "x"); err == nil {
		t.Error("a command that never ends gave a key")
	}
}

func TestMCPSecretsAreRedactedWhereverTheConfigurationIsShown(t *testing.T) {
	m := newMachine(t)
	m.user("mcp:\n  x: {url: 'http://h', headers: {Authorization: Bearer " + hidden + "}}\n")
	l := m.must()
	if got := l.Config.MCP["x"].Headers["Authorization"].Reveal(); got != "Bearer "+hidden {
		t.Errorf("the header is %q", got)
	}
	out, err := yaml.Marshal(l.Tree())
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprintf("%s %v %+v", out, l.Settings(), l.Config); strings.Contains(all, "do-not-show") || !strings.Contains(all, redacted) {
		t.Errorf("shown as %s", all)
	}
}

func TestRedactorHidesSecretsInPieces(t *testing.T) {
	secrets := []string{"Secret-one", "Secret-one-longer", "aabaab11", "abab1abab1"}
	r := NewRedactor(NewSecret(secrets[0]), NewSecret(secrets[1]), NewSecret(secrets[2]), NewSecret(secrets[3]), NewSecret("short"), Secret{})
	forms := append([]string{hex.EncodeToString([]byte(secrets[0])), base64.StdEncoding.EncodeToString([]byte("x" + secrets[1]))}, secrets...)
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(forms), rapid.StringMatching(`[abS1\n-]{0,4}`))).Draw(t, "text")
		text := strings.Join(pieces, "")
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if wrote, err := w.Write([]byte(rest[:n])); err != nil || wrote != n {
				t.Fatalf("wrote %d of %d, %v", wrote, n, err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != r.String(text) {
			t.Fatalf("in pieces %q, at once %q", out.String(), r.String(text))
		}
		plain := strings.ReplaceAll(out.String(), redacted, "\x00")
		for _, s := range secrets {
			if strings.Contains(plain, s) {
				t.Fatalf("%q shows in %q", s, out.String())
			}
		}
	})
}

func TestRedactorCoversLogsAndErrors(t *testing.T) {
	r := NewRedactor(NewSecret(hidden))
	var out bytes.Buffer
	log := slog.New(r.Handler(slog.NewJSONHandler(&out, nil))).With("with", hidden).WithGroup("g")
	cause := errors.New("server says: bad key " + hidden)
	log.Info("m "+hidden, "s", hidden, "err", cause, "any", struct{ V string }{hidden}, slog.Group("h", "x", hidden), "n", 7)
	if strings.Contains(out.String(), "do-not-show") || strings.Count(out.String(), redacted) != 6 || !strings.Contains(out.String(), `"n":7`) {
		t.Errorf("logged %s", out.String())
	}
	err := r.Error(cause)
	if strings.Contains(err.Error(), hidden) || !errors.Is(err, cause) || r.Error(nil) != nil {
		t.Errorf("error is %v", err)
	}
	if got := (&Redactor{}).String(hidden); got != hidden {
		t.Errorf("a redactor without secrets changed %q", got)
	}
}
