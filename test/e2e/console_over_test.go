package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// row47 writes to the folder of another machine, over its WebSocket, once a person at the dialog has said yes.
const row47 = `
  - match: '^share'
    steps:
      - text: I write it there.
        tool_calls: [{name: write_file, arguments: {path: main.swift, content: "print(1)\n", workspace_id: lap}}]
      - text: 'It came to: ${tool.content}'
`

// callsTravel is row 47 end to end: a call, the dialog in the browser, the folder's own machine over its socket, the result; and every other end.
func callsTravel(browser context.Context, t *testing.T) {
	for name, c := range map[string]struct {
		button, sees, outcome string
		limits                troupe.Limits
		holds                 bool
	}{
		"approve": {button: "Approve", sees: "It came to: Created main.swift", outcome: "done", holds: true},
		"reject":  {button: "Reject", sees: "It came to: Operation rejected by user", outcome: "done"},
		"cancel":  {button: "Cancel", sees: "cancelled", outcome: "aborted"},
		"timeout": {sees: "was answered elsewhere, or waits no longer", outcome: "done", limits: troupe.Limits{Approval: 6 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStageOf(t, troupe.Options{Model: scripted(t, row47), Limits: c.limits}, gateway.Options{})
			v := ask[*messages.SessionView](t, h.rt, &messages.CreateSession{Ask: true})
			wire, err := client.Connect(h.ctx, client.Server{URL: h.url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { wire.Close() })
			l := newLaptop(t, v.GetId())
			l.ship.Trust = "restricted"
			end := l.share(t, wire)
			x := newTab(browser, t, h.url)
			x.open("/sessions/" + v.GetId())
			x.typeInto("form.prompt textarea", "share\r")
			x.sees("wants to run")
			x.until("the dialog says what would be written, and where", `document.querySelector('[role=dialog]').innerText.includes('print(1)') && document.querySelector('[role=dialog]').innerText.includes('lap:/x')`)
			if _, err := os.Stat(filepath.Join(l.dir, "main.swift")); err == nil {
				t.Error("it is written before anybody was asked")
			}
			if c.button != "" {
				x.click(c.button)
			} else {
				x.until("it says how long it waits", `document.querySelector('[role=dialog] header').innerText.includes('expires in 0:')`)
			}
			x.sees(c.sees)
			x.until("the turn has ended", `document.querySelector('.turn > footer .s-`+c.outcome+`') && !document.querySelector('[role=dialog]')`)
			if b, err := os.ReadFile(filepath.Join(l.dir, "main.swift")); (err == nil) != c.holds || c.holds && string(b) != "print(1)\n" {
				t.Errorf("there is %q, %v", b, err)
			}
			var order []string
			for e, err := range h.rt.Events(h.ctx, v.GetId(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				if ty := e.GetType(); e.GetSeq() > 0 && (strings.HasPrefix(ty, "tool.") || strings.HasPrefix(ty, "approval.")) {
					order = append(order, ty)
				}
				if e.GetType() == messages.EventTurnCompleted {
					break
				}
			}
			want := "tool.planned approval.requested approval.resolved tool.finished"
			if c.holds {
				want = "tool.planned approval.requested approval.resolved tool.dispatched tool.finished"
			}
			if got := strings.Join(order, " "); got != want {
				t.Errorf("in this order: %s", got)
			}
			_ = end() // it was told to end
		})
	}
}

// writes asks for as many files as its prompt has words.
const writes = `
  - match: '^write (\S+) (\S+)'
    steps:
      - tool_calls:
          - {name: write_file, arguments: {path: '${1}', content: "one\n"}}
          - {name: write_file, arguments: {path: '${2}', content: "two\n"}}
      - text: 'Then: ${tool.content}'
`

// othersAnswer has two browsers on one question: the first answer counts, and the other one is told so.
func othersAnswer(browser context.Context, t *testing.T) {
	h := newStage(t, writes, gateway.Options{})
	s, dir := h.session(troupe.SessionOptions{}, nil)
	one, two := newTab(browser, t, h.url), newTab(browser, t, h.url)
	one.open("/sessions/" + s.ID())
	one.typeInto("form.prompt textarea", "write a.txt b.txt\r")
	one.sees("+++ b/a.txt")
	// What the second is told of the end is held back until it has answered, too.
	two.open("/")
	value[bool](two, `((f) => { window.fetch = (u, o) => String(u).endsWith('/shown') ? new Promise(() => {}) : f(u, o).then((r) => window.deaf && o.method === 'GET' ? new Promise(() => {}) : r); return true; })(window.fetch)`)
	two.click("Approvals")
	two.sees("+++ b/a.txt")
	value[bool](two, `window.deaf = true`)
	two.until("its buttons count", `!document.querySelector('.approval .approve').disabled`)
	one.click("Approve")
	one.sees("+++ b/b.txt")
	value[bool](two, `(document.querySelector('.approval .reject').click(), true)`)
	two.sees("Your answer came too late, and changes nothing")
	two.until("it says so to who does not see, too", `document.querySelector('.told[role=status]')?.innerText.includes('approved')`)
	two.shot("late")
	one.until("the next question takes no click that was meant for the one before", `(() => { const b = document.querySelector('.approval .approve'); return b && !b.disabled; })()`)
	one.click("Approve")
	one.sees("Then:")
	for _, name := range []string{"a.txt", "b.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// questionsEnd has a dialog whose question is over: it goes, and says so. A click that comes as the next one takes its place counts for neither.
func questionsEnd(browser context.Context, t *testing.T) {
	h := newStage(t, writes, gateway.Options{})
	s, dir := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "write a.txt b.txt\r")
	x.sees("+++ b/a.txt")
	// Who is about to click does so in the moment in which the next question appears.
	value[bool](x, `(new MutationObserver((_, all) => { const c = document.querySelector('.approval'); if (c?.innerText.includes('b/b.txt')) { c.querySelector('.approve').click(); all.disconnect(); } }).observe(document.body, {childList: true, subtree: true}), true)`)
	all, err := h.rt.Approvals(h.ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	first := all[0]
	if !strings.Contains(first.GetPreview(), "a.txt") {
		first = all[1]
	}
	if _, err := h.rt.Ask(h.ctx, &messages.ResolveApproval{ApprovalId: first.GetApprovalId(), Decision: messages.Decision_REJECTED}); err != nil {
		t.Fatal(err)
	}
	x.sees("The question about write_file was answered elsewhere")
	x.sees("+++ b/b.txt")
	x.until("it can be answered", `!document.querySelector('.approval .approve').disabled`)
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err == nil {
		t.Error("a click that was meant for another question approved this one")
	}
	x.shot("over")
	x.click("Dismiss")
	if _, err := h.rt.Ask(h.ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{}}}); err != nil {
		t.Fatal(err)
	}
	x.sees("The question about write_file was answered elsewhere")
	x.until("the turn has ended", `document.querySelector('.turn > footer .s-aborted') && !document.querySelector('.approval')`)
}

// endsAreTold has a question end of which the page hears only as the next one takes its place: it says so.
func endsAreTold(browser context.Context, t *testing.T) {
	h := newStage(t, writes, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/")
	value[bool](x, `((f) => { window.fetch = (u, o) => String(u).endsWith('/shown') ? new Promise(() => {}) : f(u, o); return true; })(window.fetch)`)
	submitTo(t, h.rt, s.ID(), "write a.txt b.txt")
	x.click("Approvals")
	x.until("both are listed", `document.querySelectorAll('.rows li').length === 2`)
	x.press("j")
	x.until("the second one is there", `location.search && document.querySelector('.approval')`)
	x.press("k")
	x.until("who only looks around is told nothing", `document.querySelector('.approval') && document.querySelector('.told') === null`)
	first, next := "a.txt", "b.txt"
	if !strings.Contains(x.textNow(), "+++ b/a.txt") {
		first, next = next, first
	}
	x.sees("+++ b/" + first)
	all, err := h.rt.Approvals(h.ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	for _, a := range all {
		if strings.Contains(a.GetPreview(), first) {
			if _, err := h.rt.Ask(h.ctx, &messages.ResolveApproval{ApprovalId: a.GetApprovalId(), Decision: messages.Decision_REJECTED}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.sees("+++ b/" + next)
	x.sees("The question about write_file was answered elsewhere")
}

// namesDeceiveNobody has a model call a tool whose name and arguments are those of a pipeline's question: it is asked about as every call is.
func namesDeceiveNobody(browser context.Context, t *testing.T) {
	ran := make(chan struct{}, 1)
	tool, err := tools.Func(tools.Spec{Name: "pipeline", Description: "Does something. Example: `{\"step\": \"x\", \"choices\": [\"a\"]}`", Effect: messages.Effect_AT_MOST_ONCE}, func(*tools.Context, struct {
		Step    string   `json:"step" desc:"Which."`
		Choices []string `json:"choices" desc:"What there is."`
	},
	) (*tools.Result, error) {
		ran <- struct{}{}
		return &tools.Result{Content: "did it"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newStageOf(t, troupe.Options{Tools: []troupe.Tool{tool}, Model: scripted(t, `
  - match: '^go'
    steps:
      - tool_calls: [{name: pipeline, arguments: {step: harmless, choices: ["No, do nothing", "Yes"]}}]
      - text: 'Then: ${tool.content}'
`)}, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Trust: troupe.Full, Rules: []string{"ask pipeline"}}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "go\r")
	x.until("it is asked about", `document.querySelector('[role=dialog]')`)
	x.until("as a call, with the answers that calls have", `document.querySelector('[role=dialog] header').innerText.includes('wants to run') && [...document.querySelectorAll('[role=dialog] .answers button')].map((e) => e.innerText).join() === 'Approve,Reject,Cancel'`)
	x.click("Reject")
	x.sees("Then:")
	if len(ran) > 0 {
		t.Error("it ran")
	}
}

// tokensEnd revokes a token while its page is open: it asks for another one, and goes on with that.
func tokensEnd(browser context.Context, t *testing.T) {
	var secret atomic.Value
	secret.Store("Bearer first")
	h := newStage(t, "\n  - reply: {text: 'I heard: ${user}'}\n", gateway.Options{Authenticate: func(r *http.Request) (gateway.Principal, error) {
		if r.Header.Get("Authorization") != secret.Load() {
			return gateway.Principal{}, messages.Fail(messages.CodeUnauthorized, "no such token", "")
		}
		return gateway.Owner(), nil
	}})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.login input", "first\r")
	x.typeInto("form.prompt textarea", "one\r")
	x.sees("I heard: one")
	x.typeInto("form.prompt textarea", "three")
	secret.Store("Bearer second")
	x.sees("This server wants a token")
	if text := x.textNow(); strings.Contains(text, "I heard") {
		t.Errorf("who has no token any more still sees: %s", text)
	}
	if _, err := s.Run(h.ctx, "two"); err != nil {
		t.Fatal(err)
	}
	x.typeInto("form.login input", "second\r")
	x.sees("I heard: two")
	x.until("every turn is there once", `document.querySelectorAll('.turn').length === 2`)
	x.until("what was typed before is still there", `document.querySelector('form.prompt textarea').value === 'three'`)
	x.typeInto("form.prompt textarea", "\r")
	x.sees("I heard: three")
	x.typeInto("form.prompt textarea", "mine")
	x.click("Log out")
	x.typeInto("form.login input", "second\r")
	x.until("who logs in after somebody sees nothing that he typed", `document.querySelector('form.prompt textarea').value === ''`)
}

// keysSuffice drives the page without a pointer: from the first Tab to the answer of a question.
func keysSuffice(browser context.Context, t *testing.T) {
	h := newStage(t, writes, gateway.Options{})
	s, dir := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/")
	x.sees("no prompt yet")
	x.tabTo("Skip to the content")
	x.press("\r")
	x.until("the content has the focus", `document.activeElement.id === 'main'`)
	x.tabTo("no prompt yet")
	x.press("\r")
	x.until("the session is open, and the focus at its beginning", `location.pathname === '/sessions/`+s.ID()+`' && document.activeElement.id === 'main'`)
	x.sees("session began")
	x.tabTo("What next?")
	x.press("write a.txt b.txt\r")
	x.sees("+++ b/a.txt")
	x.until("who hears the page is told", `[...document.querySelectorAll('[role=status]')].some((e) => e.innerText === '2 calls wait for an answer')`)
	x.until("it can be answered", `!document.querySelector('.approval .approve').disabled`)
	x.tabBackTo("Reject")
	x.press("\r")
	x.sees("+++ b/b.txt")
	x.until("the focus is not lost", `document.activeElement.id === 'main'`)
	x.until("it can be answered", `!document.querySelector('.approval .approve').disabled`)
	x.tabTo("Approve")
	x.press(" ")
	x.sees("Then:")
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a.txt")); err == nil {
		t.Error("what was rejected is there")
	}
}
