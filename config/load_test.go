package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is a made-up machine: files below a fresh folder, an environment, flags.
type machine struct {
	t       *testing.T
	dir     string
	env     Env
	flags   []Flag
	file    string
	trusted bool
}

func newMachine(t *testing.T) *machine {
	dir := t.TempDir()
	return &machine{t: t, dir: dir, env: Env{"HOME": filepath.Join(dir, "home")}}
}

func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) system(text string) string  { return m.write("etc/config.yaml", text) }
func (m *machine) user(text string) string    { return m.write("home/.config/troupe/config.yaml", text) }
func (m *machine) project(text string) string { return m.write("proj/.troupe/config.yaml", text) }

func (m *machine) load() (*Loaded, error) {
	return Load(Options{
		Env: m.env, Dir: filepath.Join(m.dir, "proj"), Trusted: m.trusted, File: m.file, Flags: m.flags,
		Cwd: filepath.Join(m.dir, "cwd"), System: filepath.Join(m.dir, "etc/config.yaml"),
	})
}

func (m *machine) must() *Loaded {
	m.t.Helper()
	l, err := m.load()
	if err != nil {
		m.t.Fatalf("load: %v", err)
	}
	return l
}

// problem loads and gives the only problem.
func (m *machine) problem() *Problem {
	m.t.Helper()
	_, err := m.load()
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 {
		m.t.Fatalf("load gave %v, not one problem", err)
	}
	return ps[0]
}

func TestEmptyMachineGivesTheDefaults(t *testing.T) {
	l, err := Load(Options{System: "-"})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.Server.Name != "troupe" || c.Server.Listen != "127.0.0.1:7777" || c.Lease.Hold != time.Minute || c.Limits.Jobs != 16 ||
		c.Approvals.ClientTimeout != 5*time.Minute || c.Sandbox.Exec != "auto" || c.Telemetry.OTLPEndpoint != "" {
		t.Errorf("defaults are %+v", c)
	}
	if !filepath.IsAbs(c.Data.Dir) {
		t.Errorf("data.dir is %q, not absolute", c.Data.Dir)
	}
	for _, s := range l.Settings() {
		if s.Origin != (Origin{}) {
			t.Errorf("%s comes from %s on an empty machine", s.Path, s.Origin)
		}
	}
}

func TestStrongerLayerWins(t *testing.T) {
	steps := []struct {
		name   string
		add    func(m *machine)
		want   string
		origin string
	}{
		{"default", func(*machine) {}, "warn", "default"},
		{"system", func(m *machine) { m.system("log: {level: info}\n") }, "info", "etc/config.yaml:1:14"},
		{"user", func(m *machine) { m.user("log:\n  level: error\n") }, "error", "config.yaml:2:10"},
		{"project", func(m *machine) { m.project("# ours\nlog:\n  level: debug\n") }, "debug", ".troupe/config.yaml:3:10"},
		{"environment", func(m *machine) { m.env["TROUPE_LOG__LEVEL"] = "info" }, "info", "environment TROUPE_LOG__LEVEL"},
		{"flag", func(m *machine) { m.flags = []Flag{{Path: "log.level", Value: "error", Name: "--log-level"}} }, "error", "flag --log-level"},
	}
	m := newMachine(t)
	for _, s := range steps {
		s.add(m)
		l := m.must()
		if got := l.Config.Log.Level; got != s.want {
			t.Errorf("with the layer %s log.level is %q, want %q", s.name, got, s.want)
		}
		if got := l.Origin("log.level").String(); !strings.HasSuffix(got, s.origin) {
			t.Errorf("with the layer %s log.level comes from %q, want %q", s.name, got, s.origin)
		}
	}
}

func TestMapKeysKeepDotsAndCase(t *testing.T) {
	m := newMachine(t)
	m.system("models:\n  gpt-4.1-mini: {provider: openai, name: gpt-4.1-mini, price: {input: 0.40, output: 1.6}}\n")
	m.user("models:\n  gpt-4.1-mini: {context: 1_047_576}\n  GPT-4: {provider: openai, name: gpt-4}\n  4.10: {provider: openai, name: x}\n")
	c := m.must().Config
	if a := c.Models["gpt-4.1-mini"]; a.Name != "gpt-4.1-mini" || a.Price.Input != 400_000 || a.Price.Output != 1_600_000 || a.Context != 1_047_576 {
		t.Errorf("gpt-4.1-mini is %+v: the fields of two files should be joined", a)
	}
	if _, ok := c.Models["GPT-4"]; !ok || len(c.Models) != 3 {
		t.Errorf("models are %v", c.Models)
	}
	if _, ok := c.Models["4.10"]; !ok {
		t.Errorf("the key 4.10 became another: %v", c.Models)
	}
}

func TestRulesOfAllFilesCountAndListsAreReplaced(t *testing.T) {
	m := newMachine(t)
	m.system("approvals:\n  rules:\n    - {tool: exec, action: deny}\nenv: {inherit: [A, B]}\n")
	m.user("approvals:\n  rules:\n    - {tool: fetch, action: ask}\n    - {tool: write_file, pattern: 'docs/**', arg: path, action: allow}\nenv: {inherit: [C]}\n")
	l := m.must()
	rules := l.Config.Approvals.Rules
	if len(rules) != 3 || rules[0].Tool != "exec" || rules[2].Pattern != "docs/**" || rules[2].Scope != "always" {
		t.Errorf("rules are %+v", rules)
	}
	if got := l.Config.Env.Inherit; len(got) != 1 || got[0] != "C" {
		t.Errorf("env.inherit is %v", got)
	}
	if got := l.Origin("approvals.rules[1].tool").String(); !strings.HasSuffix(got, "config.yaml:3:14") {
		t.Errorf("the second rule comes from %s", got)
	}
}

func TestNamedFileReplacesTheSearchedOnes(t *testing.T) {
	m := newMachine(t)
	m.user("model: openai/a\n")
	m.project("model: openai/b\n")
	m.file = m.write("cwd/own.yaml", "log: {level: info}\n")
	if l := m.must(); l.Config.Model != "" || l.Config.Log.Level != "info" {
		t.Errorf("model %q, level %q", l.Config.Model, l.Config.Log.Level)
	}
	m.file = "own.yaml" // relative: below the working directory
	m.must()
	m.file = "missing.yaml"
	if p := m.problem(); !strings.Contains(p.Fix, "config init") {
		t.Errorf("a missing --config file gives %v", p)
	}
}

func TestPathsAreAbsoluteAfterLoad(t *testing.T) {
	m := newMachine(t)
	m.user("data: {dir: ~/troupe-data}\nsandbox: {read: [~/go, /opt/tools/]}\n")
	c := m.must().Config
	if want := filepath.Join(m.dir, "home/troupe-data"); c.Data.Dir != want {
		t.Errorf("data.dir is %q, want %q", c.Data.Dir, want)
	}
	if c.Sandbox.Read[0] != filepath.Join(m.dir, "home/go") || c.Sandbox.Read[1] != "/opt/tools" {
		t.Errorf("sandbox.read is %v", c.Sandbox.Read)
	}
	m.env["TROUPE_DATA"] = "rel"
	if got, want := m.must().Config.Data.Dir, filepath.Join(m.dir, "cwd/rel"); got != want {
		t.Errorf("TROUPE_DATA=rel gives %q, want %q", got, want)
	}
	m.user("data: {dir: here}\n")
	if p := m.problem(); !strings.Contains(p.What, "relative") {
		t.Errorf("a relative path in a file gives %v", p)
	}
}

func TestFileThatIsNoFileDoesNotHang(t *testing.T) {
	m := newMachine(t)
	path := m.project("")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := mkfifo(path); err != nil {
		t.Skipf("no FIFO can be made here: %v", err)
	}
	if p := m.problem(); !strings.Contains(p.What, "no regular file") {
		t.Errorf("a FIFO gives %v", p)
	}
}

func TestFoldersFileMustLieInTheFolder(t *testing.T) {
	m := newMachine(t)
	outside := m.write("outside.yaml", "secret: value of another file\n")
	link := filepath.Join(m.dir, "proj", ProjectFile)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Skipf("no link can be made here: %v", err)
	}
	if p := m.problem(); strings.Contains(p.Error(), "another file") || !strings.Contains(p.What, "escapes") {
		t.Errorf("a link out of the folder gives %v", p)
	}
}
