package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/troupe-dev/troupe/model/script"
)

// TestTheTableOfExitCodesIsTheCode reads the constants from the source: one that is added shows up in the help.
func TestTheTableOfExitCodesIsTheCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 && strings.HasPrefix(spec.Names[0].Name, "exit") {
			inCode[spec.Values[0].(*ast.BasicLit).Value] = true
		}
		return true
	})
	inHelp := map[string]bool{}
	for line := range strings.Lines(exitCodesText()) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.Atoi(word); err == nil {
			inHelp[word] = true
		}
	}
	if len(inCode) < 14 || fmt.Sprint(inCode) != fmt.Sprint(inHelp) {
		t.Errorf("the code has %v, the help %v", inCode, inHelp)
	}
}

// screen runs a command with all its streams on a terminal and gives what the terminal gets.
func (m *machine) screen(env []string, args ...string) string {
	m.t.Helper()
	cmd := m.command(args...)
	cmd.Env = append(append(cmd.Env, "TERM=xterm-256color"), env...)
	tty, err := pty.Start(cmd)
	if err != nil {
		m.t.Skip("there are no pseudo terminals here: " + err.Error())
	}
	defer tty.Close()
	var shown bytes.Buffer
	if _, err := io.Copy(&shown, tty); err != nil && !errors.Is(err, syscall.EIO) { // how Linux ends it
		m.t.Fatal(err)
	}
	if code := exitOf(m.t, cmd.Wait()); code != exitDone && code != exitFailed {
		m.t.Errorf("%v ended with %d: %s", args, code, shown.String())
	}
	return shown.String()
}

func TestNoCommandPaintsWhereNobodyWantsColours(t *testing.T) {
	m := newMachine(t)
	if code, _, stderr := m.run("run", "hello \x1b[31mred", "-C", "a", "-m", "scripted/echo", "--trust", "full"); code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	id := m.onlySession()
	commands := [][]string{
		{"run", "hello \x1b]0;title\a", "-C", "a", "-m", "scripted/echo", "--trust", "full"},
		{"run", "none such", "-C", "a", "-m", "scripted/tour", "--trust", "full"},
		{"ls", "sessions"},
		{"ls", "workers"},
		{"ls", "calls"},
		{"show", id},
		{"show", id, "-o", "json"},
		{"config", "show"},
		{"doctor"},
		{"version"},
		{"help", "exit-codes"},
		{"trust", "ls"},
		{"tool", "ls"},
	}
	painted := 0
	for _, args := range commands {
		painted += strings.Count(m.screen(nil, args...), "\x1b[3")
		for name, shown := range map[string]string{
			"NO_COLOR": m.screen([]string{"NO_COLOR=1"}, args...), "--no-color": m.screen(nil, append([]string{"--no-color"}, args...)...),
			"TERM=dumb": m.screen([]string{"TERM=dumb"}, args...),
		} {
			if strings.ContainsAny(shown, "\x1b\a") {
				t.Errorf("%s %v: %q", name, args, shown)
			}
		}
		if _, out, stderr := m.run(args...); strings.ContainsAny(out+stderr, "\x1b\a") && !(args[0] == "run" && !strings.Contains(stderr, "\x1b")) {
			t.Errorf("off a terminal %v: %q %q", args, out, stderr)
		}
	}
	if !testing.Short() { // it takes seconds
		if shown := m.screen([]string{"NO_COLOR=1"}, "tour"); strings.Contains(shown, "\x1b") || !strings.Contains(shown, "no language model is running") {
			t.Errorf("the tour shows %q", shown)
		}
	}
	if painted == 0 {
		t.Error("nothing is painted on a terminal: the rest shows nothing")
	}
}

func TestTheAliasThatWasAskedForSetsThePrice(t *testing.T) {
	m := newMachine(t)
	s, err := script.Parse("s.yaml", []byte("name: s\nrules: [{reply: {text: hi, usage: {input: 1000000, output: 1000000}}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(script.Handler(s, script.ServeOptions{}))
	defer srv.Close()
	conf := m.write("config.yaml", fmt.Sprintf(`
providers: {p: {base_url: %q}}
models:
  cheap: {provider: p, name: m, price: {input: 1, output: 2}}
  dear:  {provider: p, name: m, price: {input: 10, output: 20}}
agents: {rich: {model: dear}}
`, srv.URL+"/v1"))
	cost := func(args ...string) (usd float64, session, model string) {
		t.Helper()
		code, out, stderr := m.run(append(args, "-C", "a", "--config", conf, "-o", "json")...)
		var v struct {
			Session string
			Usage   struct {
				Cost float64 `json:"cost_usd"`
			}
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone {
			t.Fatalf("%v: %d %v %s%s", args, code, err, out, stderr)
		}
		_, shown, _ := m.run("show", v.Session, "-o", "json", "--config", conf)
		var d struct{ Session struct{ Model string } }
		if err := json.Unmarshal([]byte(shown), &d); err != nil {
			t.Fatal(err)
		}
		return v.Usage.Cost, v.Session, d.Session.Model
	}
	for _, c := range []struct {
		args  []string
		usd   float64
		model string
	}{
		{[]string{"-m", "cheap"}, 3, "cheap"}, {[]string{"-m", "dear"}, 30, "dear"}, {[]string{"--agent", "rich"}, 30, "dear"}, {[]string{"-m", "p/m"}, 3, "p/m"},
	} {
		if usd, _, name := cost(append([]string{"run", "hi"}, c.args...)...); usd != c.usd || name != c.model {
			t.Errorf("%v costs %v as %q, want %v as %q", c.args, usd, name, c.usd, c.model)
		}
	}
	if usd, _, name := cost("run", "once more", "--continue"); usd != 3 || name != "p/m" {
		t.Errorf("going on costs %v as %q", usd, name)
	}
}
