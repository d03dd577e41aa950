package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// library is the requirement of ours whose source an agent works on: a small one, with tests, that needs nothing but Go.
const library = "github.com/oklog/run"

// extend is the job: a method for the library's Group, its test first. A command whose outcome is unknown is repeated, as a model
// that was told so would.
const extend = `
name: extend
rules:
  - after_tool: {name: exec, contains: "ok  \tgithub.com/oklog/run\t"}
    reply: {text: "Group has Len.\n${tool.content}"}
  - after_tool: {name: exec, contains: 'Interrupted: the outcome of this call is unknown'}
    reply:
      text: I cannot tell how the tests went, so I run them again.
      tool_calls: [{name: exec, arguments: {command: 'go vet ./... && go test -count=1 ./...'}}]
  - match: '^Give Group'
    steps:
      - text: What is here?
        tool_calls:
          - {name: list_files, arguments: {recursive: true}}
          - {name: grep, arguments: {pattern: '^func \(g \*Group\)', include: '*.go'}}
      - text: I read the type and its tests.
        tool_calls:
          - {name: read_file, arguments: {path: group.go}}
          - {name: read_file, arguments: {path: group_test.go}}
      - text: The test first, which must fail.
        tool_calls:
          - {name: write_file, arguments: {path: len_test.go, content: "package run\n\nimport \"testing\"\n\nfunc TestLen(t *testing.T) {\n\tvar g Group\n\tg.Add(func() error { return nil }, func(error) {})\n\tif n := g.Len(); n != 1 {\n\t\tt.Fatalf(\"%d actors\", n)\n\t}\n}\n"}}
          - {name: exec, arguments: {command: 'go vet .'}}
      - text: Now the method.
        tool_calls:
          - name: edit_file
            arguments:
              path: group.go
              edits:
                - old_string: "// Run all actors (functions) concurrently.\n"
                  new_string: "// Len returns the number of actors (functions) in the group.\nfunc (g *Group) Len() int { return len(g.actors) }\n\n// Run all actors (functions) concurrently.\n"
      - text: All tests.
        tool_calls: [{name: exec, arguments: {command: 'go vet ./... && go test -count=1 ./...'}}]
`

// The whole way, on code that nobody wrote for it: the program's own endpoint over HTTP, the real client, the sandbox, a kill in
// the middle, and what the library's own tests say in the end.
func TestAnAgentExtendsALibraryOfOthersThoughItIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it builds and tests a library, in an empty home")
	}
	m := newMachine(t)
	original := moduleSource(t, library)
	if err := os.CopyFS(m.folder("lib"), os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	endpoint := m.start("fake-model", "--script", m.write("extend.yaml", extend), "--chunk-size", "7")
	url, err := endpoint.out.ReadString('\n')
	if err != nil {
		t.Fatal(err, endpoint.stderr.String())
	}
	m.env = append(m.env, "OPENAI_BASE_URL="+strings.TrimSpace(url))

	r := m.start("run", "Give Group a method Len.", "-C", "lib", "-m", "openai/any", "--trust", "full")
	r.waitFor("All tests.")
	r.signal(syscall.SIGKILL)
	r.wait()
	id := m.onlySession()
	code, out, stderr := m.run("run", "-s", id)
	if code != exitDone || !strings.Contains(out, "Group has Len.\nok  \t"+library+"\t") {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	if !strings.Contains(stderr, "no language model is running") {
		t.Errorf("it is not said that no language model is running: %s", stderr)
	}
	m.extended(original, id)
	if code, out, _ := m.run("verify", id); code != exitDone || !strings.Contains(out, " 0 findings") {
		t.Errorf("verify ended with %d: %s", code, out)
	}
	endpoint.signal(os.Interrupt)
	if code, _ := endpoint.wait(); code != exitDone {
		t.Errorf("the endpoint ended with %d: %s", code, endpoint.stderr.String())
	}
}

// extended holds the library's copy, and what was called, to the job: two files differ, and no call that had ended was repeated.
func (m *machine) extended(original, session string) {
	m.t.Helper()
	want := map[string]string{"group.go": "func (g *Group) Len() int {", "len_test.go": "func TestLen("}
	for name, text := range want {
		if b, err := os.ReadFile(filepath.Join(m.folder("lib"), name)); err != nil || strings.Count(string(b), text) != 1 {
			m.t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
	differ := exec.CommandContext(m.t.Context(), "diff", "-rq", original, m.folder("lib"))
	if out, err := differ.Output(); exitOf(m.t, err) != 1 || strings.Count(string(out), "\n") != len(want) {
		m.t.Errorf("more differs than what was asked for:\n%s", out)
	}
	code, out, stderr := m.run("show", session, "-o", "json")
	var shown struct {
		Turns []messages.TurnJSON `json:"turns"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != exitDone || len(shown.Turns) != 1 {
		m.t.Fatalf("show ended with %d, %v: %s%s", code, err, out, stderr)
	}
	var called []string
	for _, c := range shown.Turns[0].ToolCalls {
		called = append(called, c.Name+" "+c.Status)
	}
	begin := []string{"list_files ok", "grep ok", "read_file ok", "read_file ok", "write_file ok", "exec ok", "edit_file ok"}
	end := called[min(len(begin), len(called)):]
	if !slices.Equal(called[:len(called)-len(end)], begin) ||
		!slices.Equal(end, []string{"exec ok"}) && !slices.Equal(end, []string{"exec interrupted_unknown", "exec ok"}) {
		m.t.Errorf("called were %q", called)
	}
}

// moduleSource is where the module cache holds a requirement of ours.
func moduleSource(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Fatalf("find the source of %s: %v", path, err)
	}
	return dir
}

// The first thing that somebody types can be interrupted and killed, too. The next process goes on with it though the endpoint that
// it asked is gone: the script is one that every troupe has.
func TestAKilledTourGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it builds a part of the standard library, in an empty home")
	}
	m := newMachine(t)
	data := filepath.Join(m.home, ".cache", "troupe", "tour", "1", "data")
	stopped := func(by os.Signal) (session, stderr string) {
		r := m.start("tour")
		r.waitFor("Now the tests, to see what fails.")
		r.signal(by)
		r.wait()
		code, out, _ := m.run("--data", data, "ls", "sessions", "-o", "json")
		var list []messages.SessionJSON
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != exitDone || len(list) == 0 {
			t.Fatalf("ls sessions ended with %d, %v: %s", code, err, out)
		}
		return list[0].ID, r.stderr.String()
	}
	id, stderr := stopped(os.Interrupt)
	if want := "go on with: troupe --data " + data + " run -s " + id + "\n"; !strings.Contains(stderr, want) {
		t.Errorf("an interrupted tour does not say %q: %s", want, stderr)
	}
	id, _ = stopped(syscall.SIGKILL)
	m.env = append(m.env, "TROUPE_DATA="+data)
	if code, out, _ := m.run("show", id, "-o", "json"); code != exitDone || strings.Count(out, `"provider_request_id": "scripted-`) != 3 {
		t.Errorf("what the tour asked did not go over HTTP: %d %s", code, out)
	}
	code, out, stderr := m.run("run", "-s", id)
	if code != exitDone || !strings.Contains(out, "Repaired: ") || !strings.Contains(out, "ok  \texample.com/broken") {
		t.Errorf("going on ended with %d: %s%s", code, out, stderr)
	}
	if code, out, _ := m.run("verify", id); code != exitDone || !strings.Contains(out, " 0 findings") {
		t.Errorf("verify ended with %d: %s", code, out)
	}
}
