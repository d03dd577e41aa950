package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

// asked is how one command is called. Of what it says and of its arguments SES is the session, WRK its worker, and OUT a folder.
type asked struct {
	args string
	code int
	says string // on stdout or stderr
}

// atServers are the commands that work on a server, in an order in which each finds what it needs.
func atServers() []asked {
	return []asked{
		{"ls sessions", exitDone, "SES"},
		{"ls workers -s SES", exitDone, "WRK"},
		{"ls workspaces -s SES", exitDone, "troupe:/sessions/SES"},
		{"ls calls -s SES", exitDone, "there are no tool calls"},
		{"ls jobs SES", exitDone, "no command runs"},
		{"cancel SES --job job_none", exitMissing, "ls jobs SES"},
		{"ls approvals -s SES", exitDone, "nothing waits"},
		{"ls runs", exitDone, "there are no runs yet"},
		{"run again -s SES", exitDone, "You said: again"},
		{"chat -s SES --no-input", exitDone, "2 turns"},
		{"show SES", exitDone, "scripted/echo"},
		{"tail SES --replay", exitDone, "You said: again"},
		{"top -s SES", exitDone, "WRK"},
		{"tree", exitDone, "session SES"},
		{"why SES", exitDone, "it is idle"},
		{"calls resolve exe_none done", exitMissing, "ls calls --state in_doubt"},
		{"approve apr_none", exitMissing, "ls approvals"},
		{"deny apr_none", exitMissing, "ls approvals"},
		{"rules ls", exitDone, "nothing is remembered"},
		{"rules rm rul_none", exitMissing, "rules ls"},
		{"audit", exitDone, "trust"},
		{"inputs ls SES", exitDone, "no input waits"},
		{"inputs rm SES inp_none", exitMissing, "is not known here"},
		{"budget add SES usd=1", exitInput, "has no budget"},
		{"cp p.yaml SES:notes.txt", exitDone, ""},
		{"ls files -s SES", exitDone, "notes.txt"},
		{"diff SES", exitMissing, "run --isolate"},
		{"apply SES", exitMissing, "run --isolate"},
		{"compact SES", exitDone, "nothing was compacted"},
		{"workers ls -s SES", exitDone, "WRK"},
		{"workers set WRK -m scripted/echo", exitDone, "WRK"},
		{"workers wait SES", exitDone, ""},
		{"workers cancel WRK", exitDone, "nothing was under way"},
		{"workers release WRK", exitDone, "WRK"},
		{"workers rm wrk_none", exitMissing, "wrk_none"},
		{"workers new SES", exitDone, "wrk_"},
		{"workspace ls -s SES", exitDone, "troupe:/sessions/SES"},
		{"workspace attach b --session SES", exitDone, "local:"},
		{"workspace detach b --session SES", exitDone, ""},
		{"workspace fields SES", exitDone, "has no fields"},
		{"workspace set SES x 1", exitMissing, "Field 'x' does not exist"},
		{"attach a --session ses_none --as here", exitMissing, "ses_none"},
		{"fork SES --at 5", exitDone, "forked SES"},
		{"export SES OUT/session", exitDone, "OUT/session"},
		{"import OUT/session --new-id", exitDone, "ses_"},
		{"pipeline run p.yaml -C a -m scripted/echo", exitDone, "You said: hello"},
		{"project add a", exitDone, "a"},
		{"project ls", exitDone, "a"},
		{"project show a", exitDone, "a"},
		{"env set A=1 -C a", exitDone, ""},
		{"env ls -C a", exitDone, "A"},
		{"env unset A -C a", exitDone, ""},
		{"project rm a", exitDone, ""},
		{"verify", exitDone, " 0 findings"},
		{"backup OUT/backup", exitDone, "everything"},
		{"cancel SES", exitDone, "nothing was under way"},
		{"token create t --scope read,prompt,approve,admin", exitDone, "troupe_"}, // from here on it is needed
		{"token create u --scope read", exitDone, "troupe_"},
		{"token revoke u", exitDone, ""},
		{"token ls", exitDone, "revoked"},
		{"rm SES", exitDone, ""},
		{"stop", exitDone, "has ended"},
	}
}

// refused are those that work on this machine alone, and say so.
func refused() []string {
	return []string{
		"tour", "serve", "restore", "repair", "rotate-key", "tool ls", "tool run", "fake-model", "chaos", "bench", "test", "trust", "trust ls", "trust rm",
	}
}

// anywhere are those that ask nobody: a server changes nothing for them.
func anywhere() []string {
	return []string{
		"config show", "config init", "config validate", "config schema", "doctor", "version", "workspace parse", "pipeline validate", "pipeline plan", "pipeline graph",
		"completion bash", "completion zsh", "completion fish", "completion powershell", "help", "exit-codes", "environment",
	}
}

// endings are the commands that do something, by their words.
func endings(cmd *cobra.Command, words []string) map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		own := append(slices.Clone(words), sub.Name())
		if !sub.HasSubCommands() || sub.Annotations[takesWords] != "" {
			out[strings.Join(own, " ")] = sub
		}
		for words, leaf := range endings(sub, own) {
			out[words] = leaf
		}
	}
	return out
}

func TestEveryCommandWorksOnAServerOrSaysThatItDoesNot(t *testing.T) {
	all := endings(newRoot(&app{secrets: config.NewRedactor()}), nil)
	seen := map[string]bool{}
	for _, c := range atServers() {
		words := strings.Fields(c.args)
		name := words[0]
		if all[name] == nil || len(words) > 1 && all[name+" "+words[1]] != nil {
			name += " " + words[1]
		}
		seen[name] = true
		if cmd := all[name]; cmd == nil || cmd.Annotations[hereKey] != "" {
			t.Errorf("%s is no command, or refuses servers", name)
		}
	}
	for _, name := range refused() {
		seen[name] = true
		if cmd := all[name]; cmd == nil || cmd.Annotations[hereKey] == "" {
			t.Errorf("%s is no command, or does not refuse servers", name)
		}
	}
	for _, name := range anywhere() {
		seen[name] = true
	}
	for name := range all {
		if !seen[name] {
			t.Errorf("troupe %s: say whether it works on a server", name)
		}
	}
}

func TestACommandOfThisMachineRefusesAServer(t *testing.T) {
	m := newMachine(t)
	for _, name := range refused() {
		// before anything else is looked at, also what is missing
		code, out, stderr := m.run(append(strings.Fields(name), "--server", "http://127.0.0.1:1", "x")...)
		if strings.Contains(stderr, "unexpected") || strings.Contains(stderr, "missing") { // it takes another number of words
			code, out, stderr = m.run(append(strings.Fields(name), "--server", "http://127.0.0.1:1")...)
		}
		if code != exitUsage || out != "" || !strings.Contains(stderr, "and on no server") || !strings.Contains(stderr, "leave --server out") {
			t.Errorf("%s ended with %d: %s%s", name, code, out, stderr)
		}
	}
}

// walk calls the commands on whatever env and flags lead to.
func (m *machine) walk(flags ...string) {
	m.t.Helper()
	if code, _, stderr := m.run(append([]string{"run", "hello", "-C", "a", "-m", "scripted/echo", "--trust", "full"}, flags...)...); code != exitDone {
		m.t.Fatalf("run ended with %d: %s", code, stderr)
	}
	_, out, _ := m.run(append([]string{"ls", "workers", "-o", "json"}, flags...)...)
	ids := strings.NewReplacer("OUT", m.t.TempDir(), "SES", field(m.t, out, "session"), "WRK", field(m.t, out, "id"))
	for _, c := range atServers() {
		code, out, stderr := m.run(append(strings.Fields(ids.Replace(c.args)), flags...)...)
		if strings.HasPrefix(c.args, "token create t ") {
			m.env = append(m.env, "TROUPE_TOKEN="+strings.TrimSpace(out))
		}
		if code != c.code || !strings.Contains(out+stderr, ids.Replace(c.says)) {
			m.t.Errorf("%s %v ended with %d, want %d and %q: %s%s", ids.Replace(c.args), flags, code, c.code, ids.Replace(c.says), out, stderr)
		}
	}
}

// field is one of the first object of a list.
func field(t *testing.T, list, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(list, `"`+name+`": "`)
	value, _, ended := strings.Cut(rest, `"`)
	if !found || !ended {
		t.Fatalf("there is no %s in %s", name, list)
	}
	return value
}

func TestANewcomersWalkWorksOnAServerHoweverItIsNamed(t *testing.T) {
	const pipeline = "version: 1\nname: p\nsteps:\n  - {id: a, agent: default, prompt: hello}\noutputs: {said: \"${{ steps.a.output }}\"}\n"
	for _, way := range []string{"flag", "variable", "data directory"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.write("p.yaml", pipeline)
			s := m.serve()
			switch way {
			case "flag":
				m.walk("--server", s.url, "--data", m.folder("none"))
			case "variable":
				m.env = append(m.env, "TROUPE_SERVER="+s.url, "TROUPE_DATA="+m.folder("none"))
				m.walk()
			default:
				m.walk()
			}
			if code, _ := s.wait(); code != 0 {
				t.Errorf("the server ended with %d: %s", code, s.stderr.String())
			}
		})
	}
}

// TestTheModelsOfAServerAreItsOwn gives a server a default model and a name for one, of which the machine that asks it knows nothing.
func TestTheModelsOfAServerAreItsOwn(t *testing.T) {
	m := newMachine(t)
	config := m.write("server.yaml", "model: scripted/echo\nproviders: {local: {base_url: \"http://127.0.0.1:1/v1\"}}\nmodels: {mine: {provider: local, name: m}}\n")
	m.write("p.yaml", "version: 1\nname: p\nsteps:\n  - {id: a, agent: default, prompt: hello}\noutputs: {said: \"${{ steps.a.output }}\"}\n")
	s := m.serve("--config", config)
	at := []string{"--server", s.url, "--data", m.folder("none")}
	run := func(args ...string) (code int, out, stderr string) { return m.run(append(args, at...)...) }

	code, out, stderr := run("pipeline", "run", "p.yaml", "-C", "a", "--trust", "full")
	if code != exitDone || !strings.Contains(out, "You said: hello") {
		t.Errorf("the pipeline ended with %d: %s%s", code, out, stderr)
	}
	if n := strings.Count(stderr, answersOf("")); n != 1 {
		t.Errorf("it is said %d times that no language model is running: %s", n, stderr)
	}
	if code, _, stderr := run("run", "hello", "-C", "a", "--trust", "full"); code != exitDone {
		t.Fatalf("run ended with %d: %s", code, stderr)
	}
	_, out, _ = run("ls", "sessions", "-o", "json")
	if code, out, stderr := run("fork", field(t, out, "id"), "--at", "1", "-m", "mine"); code != exitDone {
		t.Errorf("the fork ended with %d: %s%s", code, out, stderr)
	}
	code, _, stderr = run("pipeline", "run", "p.yaml", "-C", "a", "--trust", "full", "-m", "yours")
	if code == exitDone || !strings.Contains(stderr, "yours") {
		t.Errorf("with a model that the server does not have it ended with %d: %s", code, stderr)
	}
	if code, _, stderr := run("stop"); code != exitDone {
		t.Errorf("stop ended with %d: %s", code, stderr)
	}
	if code, _ := s.wait(); code != 0 {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
}
