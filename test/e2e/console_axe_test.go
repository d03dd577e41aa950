package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
)

// nothingInTheWay looks at every page with axe-core, in both sets of colours, and wide and narrow.
func nothingInTheWay(browser context.Context, t *testing.T) {
	axe, err := os.ReadFile(filepath.Join("..", "..", "web", "node_modules", "axe-core", "axe.min.js"))
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
		"workers": "/workers", "tree": "/sessions/" + s.ID() + "/workers", "changes": "/sessions/" + s.ID() + "/changes", "approvals": "/approvals",
	} {
		for _, colours := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 360} {
				x.size(width, 800, colours)
				x.open(path)
				x.until("it is loaded", `document.querySelector('main h1') && !document.querySelector('main').innerText.includes('Loading')`)
				if name == "session" || name == "approvals" {
					x.sees("wants to run")
				}
				x.wantNoOverflow()
				x.shot(name + "_" + colours + map[bool]string{true: "_narrow"}[width == 360])
				if width == 360 && colours == "dark" {
					continue // nothing is there that the others have not
				}
				found := value[[]string](x, string(axe)+`;axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id + ': ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; ')))`)
				for _, f := range found {
					t.Errorf("%s, %s, %d wide: %s", name, colours, width, f)
				}
			}
		}
	}
}
