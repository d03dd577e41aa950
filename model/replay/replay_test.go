package replay_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
	"github.com/troupe-dev/troupe/model/replay"
	"github.com/troupe-dev/troupe/model/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const talk = `
name: talk
rules:
  - match: '^tidy (?P<dir>\S+)'
    steps:
      - reasoning: A look first.
        tool_calls: [{name: exec, id: c1, arguments: {command: 'ls ${dir}', workspace_id: project}}, {name: wait, id: c2, arguments: {job: job_0123456789abcdef0123456789abcdef}}]
        usage: {input: 5, output: 3}
      - text: "It is tidy.\nAll of it ⟦sic⟧."
        usage: {input: 9, output: 4, cached: 2, reasoning: 1}
  - match: '^full'
    reply: {text: now it went well, fail: {class: rate_limited, retry_after: 1s, times: 1}}
  - match: '^broken'
    reply: {tool_calls: [{name: 'odd name', arguments: '{broken'}]}
  - match: '^secret'
    reply: {text: 'your key is sk-123456789', tool_calls: [{name: exec, arguments: {command: 'echo sk-123456789'}}]}
  - reply: {text: 'you said: ${user}'}
`

func scripted(t testing.TB) model.Model {
	t.Helper()
	s, err := script.Parse("talk.yaml", []byte(talk))
	if err != nil {
		t.Fatal(err)
	}
	return s.Model()
}

func user(text string) *messages.Message { return &messages.Message{Role: messages.User, Text: text} }

func said(c *model.Completion) *messages.Message {
	return &messages.Message{Role: messages.Assistant, Text: c.Text, Reasoning: c.Reasoning, ToolCalls: c.ToolCalls}
}

func result(id, tool, text string) *messages.Message {
	return &messages.Message{Role: messages.ToolRole, ToolCallID: id, ToolName: tool, Text: text}
}

func request(agent, folder string, ms ...*messages.Message) *model.Request {
	system := "You are tested."
	if folder != "" {
		system += "\n\n# Workspaces\n- " + filepath.Base(folder) + ": local:" + folder + " (FOLDER, full, primary)\nCalls go there.\n"
	}
	return &model.Request{
		Model: "talk", Agent: agent, Session: messages.NewID(messages.SessionPrefix), Prompt: &messages.Prompt{System: system, Messages: ms},
		Tools: []model.ToolDef{{Name: "exec", Description: "Runs.", Schema: []byte(`{"type": "object", "properties": {"command": {"type": "string"}}}`)}},
	}
}

func ask(t testing.TB, m model.Model, req *model.Request) (*model.Completion, error) {
	t.Helper()
	return model.Collect(m.Stream(t.Context(), req), nil)
}

func must(t testing.TB, m model.Model, req *model.Request) *model.Completion {
	t.Helper()
	c, err := ask(t, m, req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type redactor string

func (r redactor) String(s string) string { return strings.ReplaceAll(s, string(r), "[secret]") }

// recording records what a test asks, and gives the file.
func recording(t testing.TB, file string, redact replay.Redactor, asks func(m model.Model)) string {
	t.Helper()
	if file == "" {
		file = filepath.Join(t.TempDir(), "talk.rec")
	}
	r, err := replay.Open(file, redact)
	if err != nil {
		t.Fatal(err)
	}
	asks(r.Model(scripted(t), 8000))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t testing.TB, file string) *replay.Recording {
	t.Helper()
	r, err := replay.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tidy is a conversation of two requests, in a folder and with a job of its own.
func tidy(t testing.TB, m model.Model, folder, job string) []*model.Completion {
	t.Helper()
	ms := []*messages.Message{user("tidy " + folder + "/notes after " + job)}
	first := must(t, m, request("coder", folder, ms...))
	ms = append(ms, said(first), result("c2", "wait", job+" took 12.5ms"), result("c1", "exec", "made at "+fmt.Sprintf("2026-03-0%dT10:00:00Z", 1+len(job)%2)))
	second := must(t, m, request("coder", folder, ms...))
	return []*model.Completion{first, second}
}

func TestWhatWasRecordedIsPlayedAlsoInAnotherFolderAndWithOtherIDs(t *testing.T) {
	const one, other = "job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "job_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	var was []*model.Completion
	file := recording(t, "", nil, func(m model.Model) { was = tidy(t, m, "/home/one/project", one) })
	m := load(t, file).Model(replay.Options{})
	got := tidy(t, m, "/srv/other", other)
	for i, c := range got {
		if c.Reasoning != was[i].Reasoning || c.Text != was[i].Text || c.Reason != was[i].Reason || len(c.ToolCalls) != len(was[i].ToolCalls) || c.Meta.Scripted != "talk" {
			t.Errorf("answer %d: got %+v, was %+v", i, c, was[i])
		}
	}
	if args := got[0].ToolCalls[0].GetArguments(); args != `{"command":"ls /srv/other/notes","workspace_id":"other"}` {
		t.Errorf("the folder in the arguments is that of the recording: %s", args)
	}
	if u := got[1].Usage; u.GetInputTokens() != 9 || u.GetOutputTokens() != 4 || u.GetCachedTokens() != 2 || u.GetReasoningTokens() != 1 {
		t.Errorf("usage %v", u)
	}
	if left := m.(interface{ Unplayed() []string }).Unplayed(); len(left) > 0 {
		t.Errorf("not played: %v", left)
	}
	if w := load(t, file).Window(); w != 8000 {
		t.Errorf("the window is %d", w)
	}
}

func TestARecordingMadeAgainIsTheSameFile(t *testing.T) {
	var texts []string
	for _, at := range []struct{ folder, job string }{
		{"/home/one/project", "job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, {filepath.Join(t.TempDir(), "project"), "job_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},
	} {
		file := recording(t, "", nil, func(m model.Model) { tidy(t, m, at.folder, at.job) })
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	if texts[0] != texts[1] {
		t.Errorf("they differ:\n%s\n%s", texts[0], texts[1])
	}
	for _, want := range []string{`"after": 1`, `⟦folder.1⟧/notes`, `⟦job.1⟧`, `["It is tidy.","All of it ⟦⟦sic⟧."]`} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("there is no %s in\n%s", want, texts[0])
		}
	}
	if n := strings.Count(texts[0], "You are tested."); n != 1 {
		t.Errorf("what two calls have in common stands there %d times:\n%s", n, texts[0])
	}
}

func TestARequestThatWasNotRecordedFailsWithTheDifference(t *testing.T) {
	file := recording(t, "", nil, func(m model.Model) {
		tidy(t, m, "/home/one", "job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
		must(t, m, request("writer", "", user("hello")))
	})
	m := load(t, file).Model(replay.Options{})
	for name, tc := range map[string]struct {
		req  *model.Request
		want []string
	}{
		"another word":   {request("writer", "", user("hello there")), []string{"call 3", "-   hello\n", "+   hello there\n", "record again"}},
		"another agent":  {request("reader", "", user("hello")), []string{"- agent: writer\n", "+ agent: reader\n"}},
		"another prompt": {&model.Request{Prompt: &messages.Prompt{System: "You are not.", Messages: []*messages.Message{user("hello")}}}, []string{"+   You are not.\n", "- tool exec: "}},
		"another schema": {func() *model.Request {
			r := request("writer", "", user("hello"))
			r.Tools = []model.ToolDef{{Name: "exec", Schema: []byte(`{"type":"object"}`)}}
			return r
		}(), []string{`+ tool exec: {"type":"object"}`}},
	} {
		_, err := ask(t, m, tc.req)
		var me *model.Error
		if !errors.As(err, &me) || me.Class != model.Unmatched {
			t.Fatalf("%s: got %v", name, err)
		}
		for _, want := range tc.want {
			if !strings.Contains(me.Message+"\n"+me.Hint, want) {
				t.Errorf("%s: there is no %q in\n%s\n%s", name, want, me.Message, me.Hint)
			}
		}
	}
	long := request("coder", "/home/one", user("tidy /home/one/notes after job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), user(strings.Repeat("a line\n", 5000)))
	_, err := ask(t, m, long)
	var me *model.Error
	if !errors.As(err, &me) || strings.Count(me.Hint, "\n") > 70 {
		t.Errorf("the difference has %d lines", strings.Count(me.Hint, "\n"))
	}
	if _, err := ask(t, m, request("writer", "", user("hello"))); err != nil {
		t.Errorf("after what was not recorded: %v", err)
	}
}

func TestTheSameRequestIsAnsweredInTheRecordedOrderAndThenAsTheLastTime(t *testing.T) {
	file := recording(t, "", nil, func(m model.Model) {
		if _, err := ask(t, m, request("", "", user("full"))); err == nil {
			t.Fatal("no failure to record")
		}
		must(t, m, request("", "", user("full")))
	})
	rec := load(t, file)
	for range 2 { // of which the second is another process
		m := rec.Model(replay.Options{})
		_, err := ask(t, m, request("", "", user("full")))
		var me *model.Error
		if !errors.As(err, &me) || me.Class != model.RateLimited || me.Status != 429 {
			t.Fatalf("got %v", err)
		}
		for range 3 {
			if c := must(t, m, request("", "", user("full"))); c.Text != "now it went well" {
				t.Errorf("got %+v", c)
			}
		}
	}
}

func TestACallThatIsCutOffIsAnsweredTheSameWayAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.rec")
	r, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	answers := r.Model(says(func() string { n++; return fmt.Sprint("answer ", n) }), 0)
	must(t, answers, request("", "", user("x")))
	must(t, answers, request("", "", user("x")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := model.Collect(answers.Stream(ctx, request("", "", user("cancelled"))), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "cancelled") {
		t.Errorf("a cancelled call was recorded: %v\n%s", err, b)
	}
	m := load(t, file).Model(replay.Options{})
	for range 3 {
		for _, err := range m.Stream(t.Context(), request("", "", user("x"))) {
			if err != nil {
				t.Error(err)
			}
			break // nobody hears the rest
		}
	}
	for _, want := range []string{"answer 1", "answer 2", "answer 2"} {
		if c := must(t, m, request("", "", user("x"))); c.Text != want {
			t.Errorf("got %q, want %q", c.Text, want)
		}
	}
}

// says is a model with an answer of a function.
type says func() string

func (s says) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return canned.Stream(ctx, s, req)
}
func (s says) Title() string { return "says" }
func (s says) Answer(*model.Request) (*canned.Answer, error) {
	return &canned.Answer{Text: s(), Cut: -1, Usage: &messages.Usage{}}, nil
}

func TestWhatALaterLifeAskedAgainReplacesWhatTheKilledOneHadLast(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lives.rec")
	n := 0
	life := func(asks int) {
		r, err := replay.Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range asks {
			must(t, r.Model(says(func() string { n++; return fmt.Sprint("answer ", n) }), 0), request("", "", user("x")))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	life(2) // the first was of use; the second's fact was not written
	life(1)
	m := load(t, file).Model(replay.Options{})
	for _, want := range []string{"answer 1", "answer 3", "answer 3"} {
		if c := must(t, m, request("", "", user("x"))); c.Text != want {
			t.Errorf("got %q, want %q", c.Text, want)
		}
	}
	if left := m.(interface{ Unplayed() []string }).Unplayed(); len(left) > 0 {
		t.Errorf("what was replaced counts as not played: %v", left)
	}
}

func TestAgentsSideBySideAreNotConfused(t *testing.T) {
	all := func(m model.Model) {
		var done sync.WaitGroup
		for i := range 16 {
			done.Go(func() {
				ms := []*messages.Message{user(fmt.Sprint("hello from ", i))}
				for step := range 4 {
					c, err := ask(t, m, request(fmt.Sprint("agent", i%3), "", ms...))
					if err != nil || c.Text != "you said: "+ms[len(ms)-1].Text {
						t.Errorf("agent %d, step %d: %+v, %v", i, step, c, err)
						return
					}
					ms = append(ms, said(c), user(fmt.Sprint(i, " says ", step)))
				}
			})
		}
		done.Wait()
	}
	file := recording(t, "", nil, all)
	m := load(t, file).Model(replay.Options{})
	all(m)
	if left := m.(interface{ Unplayed() []string }).Unplayed(); len(left) > 0 {
		t.Errorf("not played: %v", left)
	}
}

func TestSecretsAreNotRecorded(t *testing.T) {
	const key = redactor("sk-123456789")
	asked := request("", "", user("secret sk-123456789"))
	asked.Prompt.System = "The key is sk-123456789."
	file := recording(t, "", key, func(m model.Model) { must(t, m, asked) })
	b, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(b), string(key)) || strings.Count(string(b), "[secret]") != 4 {
		t.Errorf("%v\n%s", err, b)
	}
	c := must(t, load(t, file).Model(replay.Options{Redact: key}), asked)
	if c.Text != "your key is [secret]" {
		t.Errorf("got %q", c.Text)
	}
}

func TestWhatProvidersWouldNotTakeIsComparedAsItIsSent(t *testing.T) {
	talk := func(m model.Model) {
		ms := []*messages.Message{user("broken")}
		c := must(t, m, request("", "", ms...))
		must(t, m, request("", "", append(ms, said(c), result(c.ToolCalls[0].GetId(), c.ToolCalls[0].GetName(), ""))...))
	}
	file := recording(t, "", nil, talk)
	talk(load(t, file).Model(replay.Options{}))
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `"after": 1`) {
		t.Errorf("the second request does not go on from the first: %v\n%s", err, b)
	}
}

func TestARecordingIsServedOverHTTP(t *testing.T) {
	file := recording(t, "", nil, func(m model.Model) { must(t, m, request("", "", user("hello"))) })
	srv := httptest.NewServer(replay.Handler(load(t, file), canned.ServeOptions{}))
	defer srv.Close()
	for body, want := range map[string]string{
		`{"role":"user","content":"hello"}`: "you said: hello", `{"role":"user","content":"bye"}`: `"code":"unmatched"`,
	} {
		resp, err := srv.Client().Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader( //nolint:noctx // it is at hand
			`{"model":"m","messages":[{"role":"system","content":"You are tested."},`+body+`],"tools":[{"type":"function","function":{"name":"exec","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if _, err := fmt.Fprint(&b, read(t, resp.Body)); err != nil || !strings.Contains(b.String(), want) || resp.Header.Get("X-Troupe-Scripted") != "talk" {
			t.Errorf("%s: got %v %s", body, resp.Header, b.String())
		}
	}
	srv.Client().CloseIdleConnections()
}

// repeats is a model whose client sends a request that nothing comes of seven times.
type repeats struct{ model.Model }

func (repeats) Attempts() int { return 7 }

// TestAModelThatIsRecordedIsAskedAsOftenAsItself: who asks it once repeats the request as often as the model would have.
func TestAModelThatIsRecordedIsAskedAsOftenAsItself(t *testing.T) {
	if got := model.Attempts((&replay.Recorder{}).Model(repeats{scripted(t)}, 0)); got != 7 {
		t.Errorf("it is worth %d requests", got)
	}
}
