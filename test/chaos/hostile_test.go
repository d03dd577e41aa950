package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// hostile is one call that a model makes, and the answer that is documented for it.
type hostile struct {
	tool, args string
	id         string // "": one made by the script
	code       string // "": it succeeds
	says       string // stands in what the model is told
}

// steps are the messages of the turn; the calls of one are made at once.
func hostileSteps() [][]hostile {
	deep := strings.Repeat(`[`, 5_000) + strings.Repeat(`]`, 5_000)
	big := strings.Repeat("a line of a large file\n", 5<<20/23)
	return [][]hostile{
		{ // arguments that are none
			{tool: "list_files", args: ``, says: "crlf.txt"},
			{tool: "list_files", args: `null`, says: "crlf.txt"},
			{tool: "list_files", args: `{}`, says: "crlf.txt"},
			{tool: "read_file", args: ``, code: "invalid_arguments", says: `missing required argument "path"`},
			{tool: "read_file", args: `null`, code: "invalid_arguments", says: `missing required argument "path"`},
			{tool: "read_file", args: `{"path": null}`, code: "invalid_arguments", says: "must be a string, not null"},
			{tool: "read_file", args: `{"path": "crlf.txt"`, code: "invalid_arguments", says: "not valid JSON"},
			{tool: "read_file", args: `{"path": "crlf.txt"} and more`, code: "invalid_arguments", says: "exactly one JSON object"},
			{tool: "read_file", args: `["crlf.txt"]`, code: "invalid_arguments", says: "not an array"},
			{tool: "read_file", args: `{"path": "crlf.txt", "pahts": 1}`, code: "invalid_arguments", says: "unknown argument"},
			{tool: "read_file", args: `{"path": "crlf.txt", "path": "huge.txt"}`, code: "invalid_arguments", says: "given twice"},
			{tool: "read_file", args: `{"path": ` + deep + `}`, code: "invalid_arguments", says: "deeper than 64"},
			{tool: "read_file", args: deep, code: "invalid_arguments", says: "deeper than 64"},
			{tool: "read_file", args: `{"path": "\ud800"}`, code: "file_not_found", says: "File not found"},
			{tool: "write_file", args: `{"path": "never", "content": `, code: "invalid_arguments", says: "not valid JSON"},
			{tool: "exec", args: `{"command": "touch never"} {}`, code: "invalid_arguments", says: "exactly one JSON object"},
		},
		{ // names that are none, ids that are given twice
			{tool: "nowhere", args: `{}`, code: "tool_not_found", says: "Tool 'nowhere' not found"},
			{tool: "read file", args: `{}`, code: "tool_not_found", says: "Tool 'read file' not found"},
			{tool: "../../read_file", args: `{}`, code: "tool_not_found", says: "not found"},
			{tool: "läs💥", args: `{}`, code: "tool_not_found", says: "not found"},
			{tool: "a\x1b[31m\x00\nb", args: `{}`, code: "tool_not_found", says: "not found"},
			{tool: strings.Repeat("x", 10_000), args: `{}`, code: "tool_not_found", says: "not found"},
			{tool: "Read_File", args: `{"path": "crlf.txt"}`, code: "tool_not_found", says: "not found"},
			{tool: "list_files", args: `{}`, id: "same", says: "crlf.txt"},
			{tool: "read_file", args: `{"path": "crlf.txt"}`, id: "same", says: "one"},
			{tool: "nowhere", args: `{}`, id: "same", code: "tool_not_found", says: "Tool 'nowhere' not found"},
			{tool: "list_files", args: `{}`, id: strings.Repeat("i", 5_000), says: "crlf.txt"},
		},
		{ // files that are not what one hopes
			{tool: "read_file", args: `{"path": "binary.bin"}`, code: "not_text", says: "binary"},
			{tool: "read_file", args: `{"path": "latin1.txt"}`, code: "encoding_error", says: "UTF-8"},
			{tool: "read_file", args: `{"path": "huge.txt"}`, code: "file_too_large", says: "File too large"},
			{tool: "read_file", args: `{"path": "ten.txt"}`, says: "start_line"},
			{tool: "read_file", args: `{"path": "line.txt"}`, says: "characters truncated]"},
			{tool: "read_file", args: `{"path": "pipe"}`, code: "invalid_path", says: "Invalid path"},
			{tool: "read_file", args: `{"path": "link"}`, code: "invalid_path", says: "Invalid path"},
			{tool: "read_file", args: `{"path": "/etc/passwd"}`, code: "invalid_path", says: "Invalid path"},
			{tool: "read_file", args: `{"path": "../home/x"}`, code: "invalid_path", says: "Invalid path"},
			{tool: "read_file", args: `{"path": "` + strings.Repeat("d/", 5_000) + `"}`, code: "invalid_path", says: "Invalid path"},
			{tool: "grep", args: `{"pattern": "one"}`, says: "crlf.txt"},
			{tool: "grep", args: `{"pattern": "("}`, code: "invalid_arguments", says: "pattern"},
		},
		{ // large and odd effects
			{tool: "edit_file", args: `{"path": "crlf.txt", "edits": [{"old_string": "one\ntwo", "new_string": "1\n2"}]}`, says: "Applied 1 edit"},
			{tool: "write_file", args: `{"path": "big.txt", "content": ` + quoted(big) + `}`, says: "Created big.txt"},
			{tool: "write_file", args: `{"path": "big.txt", "content": ""}`, says: "Updated big.txt (0 lines, 0 bytes)"},
			{tool: "exec", args: `{"command": "yes 0123456789 | head -c 102400"}`, says: "truncated"},
			{tool: "exec", args: `{"command": "printf 'a\\377\\000\\033[31mb'"}`, says: "a"},
			{tool: "exec", args: `{"command": "` + strings.Repeat("x", 200_000) + `"}`, code: "invalid_arguments", says: "command"},
			{tool: "exec", args: `{"command": "cat"}`, says: "(no output)"},
			{tool: "exec", args: `{"command": "kill -9 $$"}`, says: "exit code"},
			{tool: "exec", args: `{"command": "sleep 60", "timeout_ms": 50}`, code: "timeout", says: "timed out after 50 ms"},
			{tool: "exec", args: `{"command": "echo a\u0000b"}`, code: "invalid_arguments", says: "NUL"},
		},
		many(),
	}
}

// many are 200 calls in one message.
func many() []hostile {
	all := make([]hostile, 200)
	for i := range all {
		all[i] = hostile{tool: "read_file", args: `{"path": "crlf.txt"}`, says: "three"}
	}
	return all
}

func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// hostileScript is the script of the steps. JSON is YAML.
func hostileScript(steps [][]hostile) string {
	type call struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
		ID        string `json:"id,omitempty"`
	}
	type reply struct {
		Text  string `json:"text"`
		Calls []call `json:"tool_calls,omitempty"`
		Chunk int    `json:"chunk_size"`
	}
	var replies []reply
	for i, step := range steps {
		r := reply{Text: fmt.Sprintf("Step %d.", i), Chunk: 4096}
		for _, h := range step {
			r.Calls = append(r.Calls, call{h.tool, h.args, h.id})
		}
		replies = append(replies, r)
	}
	replies = append(replies, reply{Text: "all done", Chunk: 32})
	return "name: hostile\nrules:\n  - " + quoted(map[string]any{"match": "^go", "steps": replies}) + "\n  - reply: {text: 'still here'}\n"
}

func (m *machine) hostileFolder() {
	m.t.Helper()
	line := "0123456789 and so on\n"
	m.write("crlf.txt", "one\r\ntwo\r\nthree\r\n")
	m.write("binary.bin", "\x7fELF\x00\x01\x02")
	m.write("latin1.txt", "caf\xe9\n")
	m.write("huge.txt", strings.Repeat(line, 10<<20/len(line)+1))
	m.write("ten.txt", strings.Repeat(line, 10<<20/len(line)))
	m.write("line.txt", strings.Repeat("x", 1<<20))
	if err := syscall.Mkfifo(filepath.Join(m.folder, "pipe"), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(m.folder, "link")); err != nil {
		m.t.Fatal(err)
	}
}

func TestHostileCallsGetTheirAnswersAndTheTurnGoesOn(t *testing.T) {
	m := newMachine(t)
	m.hostileFolder()
	steps := hostileSteps()
	srv := m.serve(hostileScript(steps), script.ServeOptions{})
	e := m.run(prompt("go", "-o", "ndjson")...)
	if e.code != 0 || !strings.Contains(e.out, "all done") {
		t.Fatalf("the turn ended with %d: %.2000s", e.code, e.err)
	}
	answers := hostileAnswers(t, e.out)
	for i, step := range steps {
		for j, h := range step {
			if len(answers) == 0 {
				t.Fatalf("the calls from %d.%d on have no answer", i, j)
			}
			a := answers[0]
			answers = answers[1:]
			if a.ErrorCode != h.code || !strings.Contains(a.Text, h.says) {
				t.Errorf("%.30q %.60q: want %q and %q, got %q and %.300q", h.tool, h.args, h.code, h.says, a.ErrorCode, a.Text)
			}
		}
	}
	if len(answers) > 0 {
		t.Errorf("there are %d more answers than calls", len(answers))
	}
	if got := m.stats(srv); got.Refused+got.Unmatched > 0 || got.Answered != int64(len(steps)+1) {
		t.Errorf("the model saw %+v", got)
	}
	if got := m.read("crlf.txt"); got != "1\r\n2\r\nthree\r\n" {
		t.Errorf("crlf.txt is %q", got)
	}
	if m.exists("never") {
		t.Error("a call with broken arguments had an effect")
	}
	id := m.session()
	m.sound(id)
	if e := m.run("run", "-s", id, "again"); e.code != 0 || !strings.Contains(e.out, "still here") {
		t.Errorf("the next turn %s", e)
	}
	if calls := list[[]messages.CallJSON](m, "ls", "calls", "--session", id); len(calls) < 249 {
		t.Errorf("only %d calls are listed", len(calls))
	}
}

type hostileAnswer struct {
	Type      string
	ExecID    string `json:"exec_id"`
	ErrorCode string `json:"error_code"`
	Text      string
}

// hostileAnswers are the results in the order of the calls.
func hostileAnswers(t *testing.T, out string) []hostileAnswer {
	t.Helper()
	var order []string
	byID := make(map[string]hostileAnswer)
	for line := range strings.Lines(out) {
		var e hostileAnswer
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %.200s", err, line)
		}
		switch e.Type {
		case messages.EventToolPlanned:
			order = append(order, e.ExecID)
		case messages.EventToolFinished:
			if _, twice := byID[e.ExecID]; twice {
				t.Errorf("%s has two results", e.ExecID)
			}
			byID[e.ExecID] = e
		}
	}
	answers := make([]hostileAnswer, len(order))
	for i, id := range order {
		answers[i] = byID[id]
	}
	return answers
}
