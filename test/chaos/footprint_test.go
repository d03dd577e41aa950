package chaos

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/model/script"
)

// paths lists everything below the machine's root.
func (m *machine) paths() map[string]bool {
	m.t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir(m.root, func(path string, _ fs.DirEntry, err error) error {
		all[path] = true
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// TestNothingIsWrittenElsewhere: no key, no network, an empty home. What is written lies in the XDG
// folders and the workspace; nothing is left in the folder for temporary files.
func TestNothingIsWrittenElsewhere(t *testing.T) {
	m := newMachine(t)
	file := m.write("script.yaml", workScript())
	m.write("a.txt", version("one"))
	m.write("b.txt", "tail of b\n")
	before := m.paths()
	m.want(0, "run", "work", "-m", "scripted/"+file, "--trust", "full", "--no-input")
	id := m.session()
	for _, args := range [][]string{
		{"show", id},
		{"ls", "workers"},
		{"ls", "calls"},
		{"verify"},
		{"tool", "ls"},
		{"config", "show"},
		{"version"},
		{"tool", "run", "list_files", "--args", "{}", "--trust", "full"},
		{"doctor", "-o", "json"},
	} {
		if e := m.run(args...); e.code != 0 && args[0] != "doctor" { // the doctor misses a model
			t.Errorf("%q %s", args, e)
		}
	}
	ours := []string{
		m.data(), m.home + "/.local/state/troupe", m.home + "/.cache/troupe",
		m.folder + "/notes.md", m.folder + "/effects.log",
	}
	for path := range m.paths() {
		mine := slices.ContainsFunc(ours, func(o string) bool {
			return path == o || strings.HasPrefix(path, o+"/") || strings.HasPrefix(o, path+"/")
		})
		if !before[path] && !mine {
			t.Errorf("%s is new", path)
		}
	}
	if left, err := os.ReadDir(m.temp); err != nil || len(left) > 0 {
		t.Errorf("in the folder for temporary files: %v %v", left, err)
	}
}

// touched finds in a trace what is written to and whom it talks to.
var (
	written = regexp.MustCompile(`(?:openat\((?:AT_FDCWD|\d+<[^>]*>), "([^"]+)", [^)]*O_(?:WRONLY|RDWR|CREAT)|\b(?:mkdir|mkdirat|rename|renameat2?|unlink|unlinkat|symlink|symlinkat|link|linkat)\([^"]*"([^"]+)")`)
	group   = regexp.MustCompile(`^/sys/fs/cgroup/(?:.*/)?troupe-(?:probe-)?[0-9][0-9-]*(?:/|$)`)
	network = regexp.MustCompile(`(?:connect|sendto)\([^{]*\{sa_family=AF_INET`)
)

// TestSystemCallsWriteNowhereElse is the same from the kernel's side: with a scripted model nobody is
// talked to over a network, and no file outside of the machine's own folders is opened for writing, but those of its commands'
// control groups, of which none stays.
// The sandbox is off: its helpers see the file system under other names.
func TestSystemCallsWriteNowhereElse(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("system calls are not traced here: %v", err)
	}
	m := newMachine(t)
	file := m.write("script.yaml", "name: s\nrules:\n  - steps:\n      - tool_calls: [{name: write_file, arguments: {path: x, content: y}}]\n      - text: done\n")
	if err := os.MkdirAll(m.home+"/.config/troupe", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.home+"/.config/troupe/config.yaml", []byte("sandbox: {exec: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(m.root, "trace")
	cmd := m.command("run", "go", "-m", "scripted/"+file, "--trust", "full", "--no-input")
	cmd.Path = strace
	cmd.Args = append([]string{"strace", "-f", "-qq", "-s", "200", "-o", trace, "-e", "trace=file,network", m.program}, cmd.Args[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("system calls cannot be traced here: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if !m.exists("x") || !bytes.Contains(text, []byte(m.data())) {
		t.Fatal("the trace does not hold the run: it shows nothing")
	}
	groups := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if network.MatchString(line) {
			t.Errorf("it talks to a network: %s", line)
		}
		got := written.FindStringSubmatch(line)
		if got == nil {
			continue
		}
		path := got[1] + got[2]
		if g := group.FindString(path); g != "" {
			groups[strings.TrimSuffix(g, "/")] = true
			continue
		}
		if filepath.IsAbs(path) && !strings.HasPrefix(path, m.root+"/") && !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/proc/self/") {
			t.Errorf("it writes elsewhere: %s", line)
		}
	}
	for g := range groups {
		if _, err := os.Stat(g); err == nil {
			t.Errorf("the control group %s is left", g)
		}
	}
}

// nosy is a script whose commands look for the key that the runtime calls its model with.
const nosy = `
name: nosy
rules:
  - match: '^search'
    steps:
      - tool_calls:
          - {name: exec, arguments: {command: 'env; set; echo "key=$OPENAI_API_KEY$SECOND_KEY"'}}
          - {name: exec, arguments: {command: 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\000" "\n"; cat /proc/[0-9]*/cmdline | tr "\000" " "'}}
          - {name: exec, arguments: {command: 'grep -rs OPENAI $HOME $TMPDIR . | head -c 10000'}}
      - text: 'nothing: ${tool.content}'
  - match: '^fail'
    reply: {text: x, fail: {status: 400, message: 'you sent the key KEY with it'}}
`

// TestKeyOfTheModelAppearsNowhere plants a key and looks for it in all that a run prints and writes.
func TestKeyOfTheModelAppearsNowhere(t *testing.T) {
	m := newMachine(t)
	key := "sk-canary-" + strings.Repeat("7f3a", 8)
	s, err := script.Parse("nosy.yaml", []byte(strings.ReplaceAll(nosy, "KEY with", key+" with")))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	h := script.Handler(s, script.ServeOptions{APIKey: key})
	m.model(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), key) {
			asked++
		}
		h.ServeHTTP(w, r)
	}))
	m.env = append(m.env, "OPENAI_API_KEY="+key)
	var said strings.Builder
	say := func(e ended) { fmt.Fprint(&said, e.out, e.err) }
	say(m.want(0, prompt("search", "-o", "ndjson", "-v")...))
	say(m.want(1, prompt("fail")...))
	for _, s := range []string{"", "-o=json"} {
		args := []string{"config", "show", "--origin"}
		if s != "" {
			args = append(args, s)
		}
		say(m.run(args...))
	}
	for _, args := range [][]string{{"ls", "sessions", "-o", "json"}, {"ls", "calls", "-o", "json"}, {"ls", "workers", "-o", "json"}, {"doctor"}, {"verify"}} {
		say(m.run(args...))
	}
	for _, id := range regexp.MustCompile(`ses_[0-9a-f]{32}`).FindAllString(said.String(), -1) {
		say(m.run("show", id, "-o", "json"))
		break
	}
	if asked == 0 {
		t.Fatalf("the key was never used: its absence shows nothing\n%.2000s", said.String())
	}
	if i := strings.Index(said.String(), key); i >= 0 {
		t.Errorf("it is said: %q", said.String()[max(0, i-300):min(said.Len(), i+60)])
	}
	for path := range m.paths() {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(key)) {
			t.Errorf("it is in %s", path)
		}
	}
	// Nobody answers: the error names the address, not the key.
	e := m.run(fake("hello", "--config", m.write("config.yaml", "providers:\n  fake:\n    base_url: "+nobody(t)+"\n    api_key_env: OPENAI_API_KEY\n    limits: {attempts: 1}\n"))...)
	if e.code != 1 || strings.Contains(e.out+e.err, key) {
		t.Errorf("with the model gone: %s", e)
	}
}
