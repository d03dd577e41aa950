package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/pipeline"
)

// nothingInTheWay looks at every page with axe-core, in both sets of colours, and wide and narrow.
func nothingInTheWay(browser context.Context, t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		t.Skip("there is no axe-core here: `make browser` installs it, with npm")
	}
	h := newStage(t, `
  - match: '^write'
    steps:
      - text: I look, and then I write.
        reasoning: It is asked for.
        tool_calls: [{name: read_file, arguments: {path: missing.txt}}]
      - tool_calls: [{name: write_file, arguments: {path: a.txt, content: "text\n"}}]
  - reply: {text: hello}
`, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Rules: []string{"@read"}, Fields: shelf, Isolate: true, Budget: troupe.Budget{Tokens: 1 << 30, ToolCalls: 100}}, nil)
	if _, err := s.Run(h.ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "write\r")
	x.sees("wants to run")
	for name, path := range map[string]string{
		"sessions": "/", "session": "/sessions/" + s.ID(), "files": "/sessions/" + s.ID() + "/files", "fields": "/sessions/" + s.ID() + "/fields",
		"workers": "/workers", "tree": "/sessions/" + s.ID() + "/workers", "changes": "/sessions/" + s.ID() + "/changes", "approvals": "/approvals", "runs": "/runs",
	} {
		x.everywhere(string(axe), name, path, func() {
			if name == "session" || name == "approvals" {
				x.sees("wants to run")
			}
		})
	}
}

// nothingInTheWayOfRuns is that for pipelines, whose workers share a conversation and ask, of a store that is damaged.
func nothingInTheWayOfRuns(browser context.Context, t *testing.T) {
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		t.Skip("there is no axe-core here: `make browser` installs it, with npm")
	}
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	found := []persistence.Finding{{Stream: "ses/ses_lost", Seq: 3, Problem: "has lost records \u202egnp"}}
	h := newStageOf(t, troupe.Options{Store: damaged{store, found}, DataDir: t.TempDir(), Model: debateModel(t)}, gateway.Options{})
	p, err := pipeline.Parse("debate.yaml", debatePlan, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := h.rt.RunPipeline(h.ctx, p, troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	for name, path := range map[string]string{
		"runs": "/runs", "run": "/runs/" + run.ID(), "transcript of a run": "/sessions/" + run.Session(), "conversation": "/sessions/" + run.Session() + "/talk", "question": "/approvals",
	} {
		x.everywhere(string(axe), name, path, func() {
			x.sees("The store is damaged")
			x.until("all is there", map[string]string{
				"runs": `document.querySelector('.rows li')`, "run": `document.querySelectorAll('.steps > li').length === 4 && document.querySelector('.steps .s-waiting')`,
				"transcript of a run": `document.querySelectorAll('.turn').length === 5`, "conversation": `document.querySelectorAll('.said').length === 2`, "question": `document.querySelector('[role=dialog]')`,
			}[name])
			value[bool](x, `([...document.querySelectorAll('main details')].forEach((d) => (d.open = true)), true)`)
			if name == "run" {
				x.until("the items are there", `document.querySelectorAll('.steps details li').length === 6`)
			}
		})
	}
}

// axeFile is what npm has installed.
var axeFile = filepath.Join("..", "..", "web", "node_modules", "axe-core", "axe.min.js")

// everywhere looks at a page in both sets of colours, wide and narrow, once it is there.
func (x *tab) everywhere(axe, name, path string, there func()) {
	x.t.Helper()
	for _, colours := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			x.size(width, 800, colours)
			x.open(path)
			x.until("it is loaded", `document.querySelector('main h1') && !document.querySelector('main').innerText.includes('Loading')`)
			there()
			x.wantNoOverflow()
			x.shot(name + "_" + colours + map[bool]string{true: "_narrow"}[width == 360])
			if width == 360 && colours == "dark" {
				continue // nothing is there that the others have not
			}
			found := value[[]string](x, axe+`;axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ': ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; ')))`)
			for _, f := range found {
				x.t.Errorf("%s, %s, %d wide: %s", name, colours, width, f)
			}
		}
	}
}
