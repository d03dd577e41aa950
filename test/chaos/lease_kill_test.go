package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// turnstile is a script with a command that notes when it begins and when it ends, which it does when the folder has a file `go`.
const turnstile = `
name: turnstile
rules:
  - match: '^block (\w+)$'
    steps:
      - text: I begin.
        tool_calls: [{name: exec, arguments: {command: 'echo begin ${1} >> effects.log; touch begun-${1}; while test ! -e go; do sleep 0.02; done; echo end ${1} >> effects.log'}}]
      - text: I have finished ${1}.
`

// TestTheNextInLineHasTheFolderWhenTheHoldersProcessIsKilled: a session works in a folder that another one waits for; the process that
// runs them is killed. The other session goes on, of what the first one ran nothing is written any more, and each lease has a higher
// token than the one before: also that of the first session when it comes back.
func TestTheNextInLineHasTheFolderWhenTheHoldersProcessIsKilled(t *testing.T) {
	m := newMachine(t)
	m.serve(turnstile, script.ServeOptions{})
	holder := m.blocked("begun-one", prompt("block one")...)
	one := m.session()
	next := m.start(prompt("block two")...)
	two := ""
	m.eventually("the second session does not wait for the folder", func() bool {
		for _, s := range list[[]messages.SessionJSON](m, "ls", "sessions") {
			if s.ID != one {
				two = s.ID
			}
		}
		if two == "" {
			return false
		}
		w := list[[]messages.WorkerJSON](m, "ls", "workers", "--session", two)
		return len(w) == 1 && w[0].Waiting != nil && w[0].Waiting.Kind == "lease"
	})
	if m.exists("begun-two") {
		t.Fatal("the second session works beside the first")
	}
	holder.kill()
	m.eventually("the second session does not go on", func() bool { return m.exists("begun-two") })
	m.write("go", "")
	if e := next.wait(); e.code != 0 || !strings.Contains(e.out, "I have finished two.") {
		t.Errorf("the second session %s", e)
	}
	if e := m.run("run", "-s", one); e.code != 0 || !strings.Contains(e.out, "I have finished one.") {
		t.Errorf("the first session %s", e)
	}
	if got := m.read("effects.log"); got != "begin one\nbegin two\nend two\n" {
		t.Errorf("the commands wrote %q", got)
	}
	first, second := m.leases(one), m.leases(two)
	if len(first) != 2 || len(second) == 0 || first[0] >= second[0] || second[len(second)-1] >= first[1] || !slices.IsSorted(second) {
		t.Errorf("the first session had the leases %v, the second %v", first, second)
	}
	m.sound(one)
	m.sound(two)
}

// leases are the tokens of the leases on the folder that a session's journals tell of, in their order.
func (m *machine) leases(session string) (tokens []uint64) {
	m.t.Helper()
	file := filepath.Join(m.temp, session)
	m.want(0, "export", session, file)
	text, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Record struct {
				Fact map[string]struct {
					Leases []struct {
						Workspace string
						Token     uint64 `json:",string"`
					}
				}
			}
		}
		if !strings.Contains(line, `"leases"`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		for _, fact := range l.Record.Fact {
			for _, lease := range fact.Leases {
				if strings.HasSuffix(lease.Workspace, m.folder) {
					tokens = append(tokens, lease.Token)
				}
			}
		}
	}
	return tokens
}
