package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func callsAreAnswered(browser context.Context, t *testing.T) {
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
			if all, err := h.rt.Approvals(h.ctx); err != nil || len(all) != 1 || len(all[0].GetShown()) != 1 || all[0].GetShown()[0].GetBy() != "console" {
				t.Errorf("%v %v", all, err)
			}
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
}

func answersAreRemembered(browser context.Context, t *testing.T) {
	h := newStage(t, `
  - match: '^write (\S+)'
    steps:
      - tool_calls: [{name: write_file, arguments: {path: '${1}', content: "text\n"}}]
      - text: 'Then: ${tool.content}'
`, gateway.Options{})
	s, dir := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "write a.txt\r")
	x.sees("wants to run")
	x.click("session")
	x.sees("write_file(a.txt)")
	x.typeInto(".approval label.row input", "go on")
	x.shot("scope")
	x.click("Approve")
	x.sees("Then:")
	x.typeInto("form.prompt textarea", "write a.txt\r")
	x.until("the second turn runs unasked", `document.querySelectorAll('.turn > footer .s-done').length === 2`)
	if _, err := os.Stat(filepath.Join(dir, "a.txt")); err != nil {
		t.Error(err)
	}
	rules, err := h.rt.Rules(h.ctx)
	if err != nil || len(rules) != 1 || rules[0].GetScope() != "session" || rules[0].GetRule() != "write_file(a.txt)" {
		t.Errorf("%v %v", rules, err)
	}
}

// manyQuestions asks sixty things at once: the inbox has them in pages, and j moves on.
func manyQuestions(browser context.Context, t *testing.T) {
	var calls strings.Builder
	for i := range 60 {
		fmt.Fprintf(&calls, "\n          - {name: write_file, arguments: {path: file%02d.txt, content: x}}", i)
	}
	h := newStage(t, `
  - steps:
      - tool_calls:`+calls.String()+`
      - text: done
`, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	if _, err := h.rt.Ask(h.ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "go"}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/approvals")
	x.sees("1 to 20 of 60")
	x.until("the badge counts them", `document.querySelector('.badge').innerText === '60'`)
	x.sees("+++ b/file00.txt")
	x.pressUntil("j", `document.querySelector('.approval').innerText.includes('+++ b/file01.txt')`)
	x.until("the address has it", `location.search.includes('id=apr_')`)
	x.click("Next")
	x.sees("21 to 40 of 60")
	x.shot("page")
	x.click("Approve")
	x.sees("of 59")
	x.size(360, 740, "light")
	x.wantNoOverflow()
	x.shot("narrow")
}
