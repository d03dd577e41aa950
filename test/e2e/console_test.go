package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
)

// TestTheConsoleInABrowser holds all that needs one: they share it, as starting it takes longer than most of them.
func TestTheConsoleInABrowser(t *testing.T) {
	browser := startBrowser(t)
	t.Run("a call is approved, rejected or cancelled, and its result is seen", func(t *testing.T) {
		h := newStage(t, `
  - match: '^change'
    steps:
      - text: I change it.
        tool_calls:
          - {name: read_file, arguments: {path: main.go}}
      - tool_calls:
          - name: edit_file
            arguments: {path: main.go, edits: [{old_string: "port := 80\n", new_string: "port := 8080\n"}]}
      - text: 'It came to: ${tool.content}'
`, gateway.Options{})
		for name, c := range map[string]struct{ answer, sees, outcome, holds string }{
			"approve": {"Approve", "It came to:", "done", "port := 8080\n"},
			"reject":  {"Reject", "Operation rejected by user", "done", "port := 80\n"},
			"key a":   {"a", "It came to:", "done", "port := 8080\n"},
			"cancel":  {"Cancel", "aborted", "aborted", "port := 80\n"},
		} {
			t.Run(name, func(t *testing.T) {
				h.t = t
				s, dir := h.session(troupe.SessionOptions{Rules: []string{"@read"}}, map[string]string{"main.go": "port := 80\n"})
				x := newTab(browser, t, h.url)
				x.open("/sessions/" + s.ID())
				x.typeInto("form.prompt textarea", "change the port\r")
				x.sees("wants to run")
				x.sees("+port := 8080")
				x.until("it is told that it is shown", `document.querySelector('.approval .state').innerText === 'shown'`)
				x.shot("asks")
				if len(c.answer) == 1 {
					x.pressUntil(c.answer, `!document.querySelector('.approval')`) // the first ones come too early to count
				} else {
					x.click(c.answer)
				}
				x.sees(c.sees)
				x.until("the turn has ended", `[...document.querySelectorAll('.turn > footer .state')].some((s) => s.innerText === '`+c.outcome+`')`)
				x.until("the question is gone", `!document.querySelector('.approval')`)
				got, err := os.ReadFile(filepath.Join(dir, "main.go"))
				if err != nil || string(got) != c.holds {
					t.Errorf("the file holds %q, %v", got, err)
				}
			})
		}
	})
}
