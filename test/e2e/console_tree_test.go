package e2e

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	port "github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/script"
)

// copiesAreApplied shows what a session changed in its copy of a folder, and brings it back.
func copiesAreApplied(browser context.Context, t *testing.T) {
	h := newStage(t, `
  - match: '^write'
    steps:
      - tool_calls: [{name: write_file, arguments: {path: a.txt, content: "from the copy\n"}}]
      - text: written
`, gateway.Options{})
	s, dir := h.session(troupe.SessionOptions{Trust: troupe.Full, Isolate: true}, map[string]string{"b.txt": "b\n"})
	if _, err := s.Run(h.ctx, "write"); err != nil {
		t.Fatal(err)
	}
	plain, _ := h.session(troupe.SessionOptions{Trust: troupe.Full}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + plain.ID())
	x.sees("session began")
	x.until("one without a copy has no changes", `![...document.querySelectorAll('.tabs a')].some((a) => a.innerText === 'Changes')`)
	x.open("/sessions/" + s.ID())
	x.click("Changes")
	x.sees("+from the copy")
	x.sees(dir)
	x.shot("changes")
	if _, err := os.Stat(filepath.Join(dir, "a.txt")); err == nil {
		t.Fatal("it is there before it was applied")
	}
	x.click("Apply 1 file")
	x.sees("1 file was brought back to")
	x.sees("Nothing was changed")
	if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(b) != "from the copy\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, c := range []struct {
		tool string
		args map[string]any
	}{{"read_file", map[string]any{"path": "b.txt"}}, {"write_file", map[string]any{"path": "b.txt", "content": "mine\n"}}} {
		if r, err := s.Call(h.ctx, c.tool, c.args); err != nil || r.GetErrorCode() != "" {
			t.Fatalf("%s: %v %v", c.tool, r, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "b.txt"), []byte("theirs\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.sees("+mine")
	x.until("what cannot be applied is not", `[...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Apply 1 file') && b.disabled)`)
	x.size(360, 740, "dark")
	x.wantNoOverflow()
	x.shot("narrow")
}

// budgetsAreRaised shows what a session may spend, and gives more to one that waits for it.
func budgetsAreRaised(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello, usage: {input: 15000, output: 100}}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Budget: troupe.Budget{Tokens: 20_000, Pause: true, Answer: 100}}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.sees("0 tokens of 20,000 tokens")
	x.typeInto("form.prompt textarea", "one\r")
	x.sees("15,100 tokens of 20,000 tokens")
	x.typeInto("form.prompt textarea", "two\r")
	x.until("it stands open, as somebody waits for more", `document.querySelector('.budget')?.open`)
	x.sees("One worker waits for more")
	x.shot("waits")
	x.typeInto(".budget input", "50000")
	x.click("Add")
	x.sees("of 70,000 tokens")
	x.sees("the budget is now 70,000 tokens")
	x.until("the turn goes on", `document.querySelectorAll('.turn > footer .s-done').length === 2`)
	x.sees("30,200 tokens of 70,000 tokens")
	x.size(360, 740, "light")
	x.wantNoOverflow()
}

// withADeadOne has a model whose key is refused, and one that stands in for it.
type withADeadOne struct{ spare troupe.Model }

func (m withADeadOne) Providers() []string { return []string{"dead", "spare"} }

func (m withADeadOne) Resolve(name string) (*troupe.ResolvedModel, error) {
	switch name {
	case "dead/one":
		return &troupe.ResolvedModel{Model: refuses{}, Provider: "dead", Name: "one", Free: true}, nil
	case "spare/two":
		return &troupe.ResolvedModel{Model: m.spare, Provider: "spare", Name: "two", Free: true}, nil
	}
	return nil, errors.New("there is no model " + name)
}

type refuses struct{}

func (refuses) Stream(context.Context, *port.Request) iter.Seq2[port.Event, error] {
	return func(yield func(port.Event, error) bool) {
		yield(port.Event{}, &port.Error{Class: port.Auth, Message: "the key is refused"})
	}
}

// treesAreShown shows who works for whom, hand-overs and models that stand in.
func treesAreShown(browser context.Context, t *testing.T) {
	sc, err := script.Parse("tree.yaml", []byte(`
rules:
  - agent: scribe
    match: '^write a note$'
    reply: {text: It is written.}
  - agent: expert
    match: '^it squeaks$'
    steps:
      - text: never asked
      - tool_calls: [{name: delegate, arguments: {task: write a note, agent: scribe, background: true}}]
      - text: oiled
  - match: '^it squeaks$'
    steps:
      - tool_calls: [{name: handoff, arguments: {agent: expert, message: take care of it}}]
  - reply: {text: noted}
`))
	if err != nil {
		t.Fatal(err)
	}
	fallback := []string{"spare/two"}
	h := newStageOf(t, troupe.Options{Models: withADeadOne{sc.Model()}, Agents: []troupe.Agent{
		{Name: "desk", Handoff: []string{"expert"}, Fallback: fallback, Model: "dead/one"}, {Name: "expert", Model: "spare/two"}, {Name: "scribe", Model: "spare/two"},
	}}, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Agent: "desk", Trust: troupe.Full}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "it squeaks\r")
	x.sees("agent desk handed over to agent expert: take care of it")
	x.sees("stands in for dead/one")
	x.sees("oiled")
	x.until("what agents say to each other is nobody's word but theirs", `[...document.querySelectorAll('.said.user')].length === 1 && [...document.querySelectorAll('.said.agent')].length === 2`)
	x.shot("transcript")
	x.do("look at its workers", chromedp.Click(chromedp.CSS(".tabs a:last-child")))
	x.sees("works for")
	x.sees("in the background")
	x.until("the child stands below its parent", `document.querySelectorAll('.rows li').length === 2 && document.querySelectorAll('.rows li')[1].classList.contains('deep-1')`)
	x.sees("2 workers")
	x.shot("workers")
	if all, err := h.rt.Ask(h.ctx, &messages.ListWorkers{SessionId: s.ID()}); err != nil || !strings.Contains(all.(*messages.Workers).String(), "scribe") {
		t.Errorf("%v %v", all, err)
	}
}
