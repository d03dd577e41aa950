package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, doc string) *script.Script {
	t.Helper()
	s, err := script.Parse("test.yaml", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func user(text string) *messages.Message { return &messages.Message{Role: messages.User, Text: text} }

func said(text string) *messages.Message {
	return &messages.Message{Role: messages.Assistant, Text: text}
}

func result(name, text string) *messages.Message {
	return &messages.Message{Role: messages.ToolRole, ToolCallID: "x", ToolName: name, Text: text}
}

func ask(t testing.TB, m model.Model, agent string, msgs ...*messages.Message) (*model.Completion, error) {
	t.Helper()
	return model.Collect(m.Stream(context.Background(), &model.Request{Model: "m", Agent: agent, Prompt: &messages.Prompt{Messages: msgs}}), nil)
}

const rules = `
name: rules
rules:
  - agent: reviewer
    reply: {text: I review.}
  - match: 'count to (?P<n>\d+)'
    turn: 2
    reply: {text: 'Again to ${n}?'}
  - match: 'count to (\d+)'
    steps:
      - text: 'Step ${step} of ${1}.'
        tool_calls: [{name: exec, arguments: {command: 'seq ${1}', deep: [{n: '${user}', k: 7}]}}]
      - text: second
  - match: ^calc
    after_tool: {name: exec, contains: '4'}
    reply: {text: '${tool.name} says ${tool.content}, $${1} is free'}
  - match: ^calc
    step: 1
    reply: {text: wrong result}
  - match: ^calc
    reply:
      reasoning: hm
      tool_calls:
        - {name: exec, arguments: '{"broken":', id: mine}
        - {name: todo}
`

func TestTheReplyIsAFunctionOfTheMessages(t *testing.T) {
	m := parse(t, rules).Model()
	for name, tc := range map[string]struct {
		agent string
		msgs  []*messages.Message
		want  string
	}{
		"by agent":             {"reviewer", []*messages.Message{user("count to 3")}, "I review."},
		"step 0":               {"", []*messages.Message{user("count to 3")}, "Step 0 of 3."},
		"step 1":               {"", []*messages.Message{user("count to 3"), said("a"), result("exec", "1")}, "second"},
		"a new turn":           {"", []*messages.Message{user("x"), said("a"), user("count to 5")}, "Again to 5?"},
		"past the steps":       {"", []*messages.Message{user("count to 3"), said("a"), said("b")}, "unmatched"},
		"after the tool":       {"", []*messages.Message{user("calc"), said("a"), result("grep", "4"), result("exec", "2+2=4"), result("exec", "5")}, "exec says 2+2=4, ${1} is free"},
		"after another result": {"", []*messages.Message{user("calc"), said("a"), result("exec", "5")}, "wrong result"},
		"an older result":      {"", []*messages.Message{user("calc"), said("a"), result("exec", "4"), said("b"), result("exec", "5")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the same request, the same answer
				got, err := ask(t, m, tc.agent, tc.msgs...)
				var me *model.Error
				if errors.As(err, &me) && me.Class == model.Unmatched {
					got.Text = "unmatched"
				} else if err != nil {
					t.Fatal(err)
				}
				if got.Text != tc.want {
					t.Errorf("got %q, want %q", got.Text, tc.want)
				}
			}
		})
	}
}

func TestCallsCarryFilledArgumentsAndStableIDs(t *testing.T) {
	m := parse(t, rules).Model()
	got, err := ask(t, m, "", user(`count to 3, "now"`))
	if err != nil {
		t.Fatal(err)
	}
	c := got.ToolCalls[0]
	if c.GetId() != "call_1_0_0" || c.GetArguments() != `{"command":"seq 3","deep":[{"k":7,"n":"count to 3, \"now\""}]}` || got.Reason != "tool_calls" {
		t.Errorf("got %v, %s", got.ToolCalls, got.Reason)
	}
	got, err = ask(t, m, "", user("calc"))
	if err != nil {
		t.Fatal(err)
	}
	if c := got.ToolCalls; got.Reasoning != "hm" || c[0].GetId() != "mine" || c[0].GetArguments() != `{"broken":` || c[1].GetArguments() != "{}" {
		t.Errorf("got %+v", got)
	}
	if got.Usage.GetOutputTokens() == 0 || got.Meta.Scripted != "rules" {
		t.Errorf("got %v, %+v", got.Usage, got.Meta)
	}
}

func TestAnUnmatchedPromptComesWithARuleThatFitsIt(t *testing.T) {
	for _, text := range []string{"fix it", "it's (a) 'quote' \\ [x]", "two\nlines", strings.Repeat("long ", 40), "", "tab\there \x01 \xff", "# no: comment", "é漢😀\u2028"} {
		msgs := []*messages.Message{user(text), said("a"), result("exec", "out")}
		_, err := ask(t, parse(t, rules).Model(), "co'der", msgs...)
		var me *model.Error
		if !errors.As(err, &me) || me.Class != model.Unmatched {
			t.Fatalf("got %v", err)
		}
		pasted, err := script.Parse("pasted.yaml", []byte("rules:\n"+me.Hint))
		if err != nil {
			t.Fatalf("%q: %v in\n%s", text, err, me.Hint)
		}
		if got, err := ask(t, pasted.Model(), "co'der", msgs...); err != nil || got.Text == "" {
			t.Errorf("%q: the pasted rule does not fit: %v\n%s", text, err, me.Hint)
		}
	}
}

func TestFailuresAreWhatTheRuleSays(t *testing.T) {
	m := parse(t, `
name: fails
rules:
  - match: once
    reply: {text: fine, fail: {status: 429, retry_after: 2s, times: 2}}
  - match: always
    reply: {fail: {class: overloaded, message: busy}}
  - match: cut
    reply: {text: 'äöü and on', truncate_after: 3, chunk_size: 2}
  - match: garbage
    reply: {garbage: true}
  - match: long
    reply: {text: x, finish: length, usage: {input: 5, output: 6, cached: 4, reasoning: 1}}
`).Model()
	expect := func(text string, class model.Class) (*model.Completion, *model.Error) {
		t.Helper()
		got, err := ask(t, m, "", user(text))
		var me *model.Error
		errors.As(err, &me)
		if (me == nil) != (class == "") || (me != nil && me.Class != class) {
			t.Fatalf("%s: got %v, want class %q", text, err, class)
		}
		return got, me
	}
	for range 2 {
		if _, me := expect("once", model.RateLimited); me.RetryAfter != 2*time.Second || me.Status != 429 {
			t.Errorf("got %+v", me)
		}
	}
	if got, _ := expect("once", ""); got.Text != "fine" {
		t.Errorf("got %+v", got)
	}
	if _, me := expect("always", model.Overloaded); me.Message != "busy" || me.Status != 503 {
		t.Errorf("got %+v", me)
	}
	if got, _ := expect("cut", model.Truncated); got.Text != "äöü" {
		t.Errorf("got %+v", got)
	}
	if got, _ := expect("garbage", model.Protocol); got.Text != "" {
		t.Errorf("got %+v", got)
	}
	if got, _ := expect("long", ""); got.Reason != "length" || got.Usage.GetCachedTokens() != 4 {
		t.Errorf("got %+v", got)
	}
}

func TestADelayEndsWithTheContext(t *testing.T) {
	m := parse(t, "rules:\n  - reply: {text: late, delay: 1h}\n  - reply: {text: x}\n").Model()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := model.Collect(m.Stream(ctx, &model.Request{Prompt: &messages.Prompt{}}), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	for name, tc := range map[string]struct{ doc, want string }{
		"unknown key":            {"rules:\n  - reply:\n      txt: a\n", `bad.yaml:3:7: unknown field "txt"`},
		"unknown key, top":       {"rulez: []\n", "bad.yaml:1:1: unknown field"},
		"no YAML":                {"rules: [\n", "bad.yaml:"},
		"a wrong type":           {"rules:\n  - turn: one\n", "bad.yaml:2:11:"},
		"a key twice":            {"name: a\nname: b\n", "bad.yaml:2:1:"},
		"no rules":               {"name: a\n", "there are no rules"},
		"nothing":                {"", "there are no rules"},
		"two documents":          {"rules:\n  - reply: {text: a}\n---\nrules: []\n", "more than one document"},
		"a name for a header":    {"name: \"a\\nb\"\nrules:\n  - reply: {text: a}\n", "bad.yaml:1:7: the name"},
		"a bad pattern":          {"rules:\n  - match: '('\n    reply: {text: a}\n", "bad.yaml:2:12: the pattern does not compile"},
		"reply and steps":        {"rules:\n  - reply: {text: a}\n    steps: [{text: a}]\n", "either a reply or steps"},
		"neither":                {"rules:\n  - match: a\n", "either a reply or steps"},
		"step and steps":         {"rules:\n  - step: 1\n    steps: [{text: a}]\n", "bad.yaml:2:11: a rule with steps"},
		"silence":                {"rules:\n  - reply: {delay: 1s}\n", "says nothing"},
		"no such group":          {"rules:\n  - match: '(a)'\n    reply:\n      text: '${2}'\n", "bad.yaml:4:13: unknown variable ${2}"},
		"no such group, deeper":  {"rules:\n  - reply:\n      tool_calls:\n        - {name: a, arguments: {x: ['${y}']}}\n", "bad.yaml:4:"},
		"an open variable":       {"rules:\n  - reply: {text: '${user'}\n", "unfinished variable"},
		"a nameless call":        {"rules:\n  - reply:\n      tool_calls: [{arguments: {}}]\n", "needs a name"},
		"a bad finish":           {"rules:\n  - reply: {text: a, finish: done}\n", "finish is stop"},
		"a bad class":            {"rules:\n  - reply: {fail: {class: sad}}\n", `"sad" is no class`},
		"a bad status":           {"rules:\n  - reply: {fail: {status: 200}}\n", "from 400 to 599"},
		"a bad delay":            {"rules:\n  - reply: {text: a, delay: soon}\n", `bad.yaml:2:29: "soon" is no duration`},
		"a duration as a number": {"rules:\n  - reply: {text: a, delay: 5}\n", `"5" is no duration`},
		"a negative size":        {"rules:\n  - reply: {text: a, chunk_size: -1}\n", "below 0"},
		"not a number":           {"rules:\n  - reply: {tool_calls: [{name: a, arguments: {x: .inf}}]}\n", "bad.yaml:2:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := script.Parse("bad.yaml", []byte(tc.doc))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "bad.yaml") {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(rules))
	f.Fuzz(func(t *testing.T, doc []byte) {
		s, err := script.Parse("f.yaml", doc)
		if err == nil {
			_, _ = ask(t, s.Model(), "a", user("count to 3"))
		}
	})
}

func TestLoadNamesAScriptAfterItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte("rules:\n  - reply: {text: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := script.Load(path); err != nil || s.Name != "mine" {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := script.Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTheTourRepairsTheBrokenExample(t *testing.T) {
	files, err := script.TourFiles()
	if err != nil {
		t.Fatal(err)
	}
	const example = "../../examples/broken"
	dir := t.TempDir()
	for name, data := range files {
		want, err := os.ReadFile(filepath.Join(example, name))
		if err != nil || string(want) != string(data) {
			t.Fatalf("%s is not the file of examples/broken: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := script.Builtin("tour")
	if err != nil {
		t.Fatal(err)
	}
	msgs := []*messages.Message{user("Repair the failing test.")}
	var calls []string
	for range 10 {
		got, err := ask(t, s.Model(), "tour", msgs...)
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, &messages.Message{Role: messages.Assistant, Text: got.Text, ToolCalls: got.ToolCalls})
		if len(got.ToolCalls) == 0 {
			if !strings.HasPrefix(got.Text, "Repaired") || !strings.Contains(got.Text, "ok  \texample.com/broken") {
				t.Errorf("the tour ends with %q", got.Text)
			}
			break
		}
		for _, c := range got.ToolCalls {
			calls = append(calls, c.GetName())
			msgs = append(msgs, result(c.GetName(), do(t, dir, c)))
		}
	}
	if s := strings.Join(calls, " "); s != "list_files read_file read_file exec edit_file exec" {
		t.Errorf("the tour called %s", s)
	}
}

// do runs a call of the tour with the plainest means.
func do(t *testing.T, dir string, c *messages.ToolCall) string {
	t.Helper()
	var a struct {
		Path, Command string
		Edits         []struct {
			Old string `json:"old_string"`
			New string `json:"new_string"`
		}
	}
	if err := json.Unmarshal([]byte(c.GetArguments()), &a); err != nil {
		t.Fatal(err)
	}
	switch c.GetName() {
	case "exec":
		cmd := exec.CommandContext(t.Context(), "sh", "-c", a.Command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, _ := cmd.CombinedOutput() // a failing test is what the tour is about
		return string(out)
	case "edit_file":
		path := filepath.Join(dir, a.Path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for _, e := range a.Edits {
			if strings.Count(text, e.Old) != 1 {
				t.Fatalf("%q does not stand once in %s", e.Old, a.Path)
			}
			text = strings.Replace(text, e.Old, e.New, 1)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "edited"
	}
	return "read"
}

func TestTheTourSaysWhenThingsAreNotAsExpected(t *testing.T) {
	s, err := script.Builtin("tour")
	if err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int]string{3: "changed nothing", 5: "do not pass yet"} {
		msgs := []*messages.Message{user("fix the tests")}
		for range step {
			msgs = append(msgs, said("x"), result("exec", "exec: refused"))
		}
		got, err := ask(t, s.Model(), "", msgs...)
		if err != nil || len(got.ToolCalls) != 0 || !strings.Contains(got.Text, want) || !strings.Contains(got.Text, "exec: refused") {
			t.Errorf("step %d: got %+v, %v", step, got, err)
		}
	}
}

func TestBuiltinsAreListed(t *testing.T) {
	for _, name := range script.Builtins() {
		if s, err := script.Builtin(name); err != nil || s.Name != name || s.Description == "" {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := script.Builtin("nope"); err == nil || !strings.Contains(err.Error(), "echo, tour") {
		t.Errorf("got %v", err)
	}
	echo, err := script.Builtin("echo")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, echo.Model(), "", user("hi")); err != nil || got.Text != "You said: hi" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTheExamplesOfTheDocumentationAreScripts(t *testing.T) {
	doc, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rest := string(doc); ; n++ {
		_, after, ok := strings.Cut(rest, "```yaml\n")
		if !ok {
			break
		}
		example, end, _ := strings.Cut(after, "```")
		if _, err := script.Parse("example.yaml", []byte(example)); err != nil {
			t.Errorf("%v\n%s", err, example)
		}
		rest = end
	}
	if n == 0 {
		t.Error("there are no examples")
	}
}
