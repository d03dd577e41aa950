package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func manySessions(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	for i := range 1000 {
		if _, err := h.rt.Ask(h.ctx, &messages.CreateSession{SessionId: fmt.Sprintf("ses_many%04d", i), Agent: "default"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.rt.Ask(h.ctx, &messages.CreateSession{SessionId: "ses_one", First: &messages.SubmitInput{
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "a needle in a haystack"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/")
	x.sees("1 to 25 of 1001")
	x.shot("all")
	x.click("Next")
	x.sees("26 to 50 of 1001")
	x.until("the address has the page", `location.search === '?page=2'`)
	x.typeInto("input[type=search]", "NEEDLE stack")
	x.until("one is left", `document.querySelectorAll('.rows li').length === 1 && location.search === '?q=NEEDLE+stack'`)
	x.open("/?q=many09&state=inactive&page=2")
	x.sees("26 to 50 of 100")
	x.size(360, 740, "dark")
	x.wantNoOverflow()
	x.shot("narrow")
	x.open("/workers?state=working")
	x.sees("No worker is in this state")
	x.open("/workers?page=3")
	x.sees("101 to 150 of 1001")
}

// listsStay looks at what the browser says of its own requests.
func listsStay(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	begin := func(id string) {
		t.Helper()
		if _, err := h.rt.Ask(h.ctx, &messages.CreateSession{SessionId: id, Agent: "default"}); err != nil {
			t.Fatal(err)
		}
	}
	begin("ses_first")
	x := newTab(browser, t, h.url)
	x.open("/")
	x.sees("ses_first")
	x.until("the list was not sent again", `performance.getEntriesByType('resource').some((e) => e.name.includes('/api/sessions?') && e.responseStatus === 304)`)
	x.sees("ses_first")
	begin("ses_second")
	x.sees("ses_second")
	x.sees("ses_first")
}

func sessionsAreBegun(browser context.Context, t *testing.T) {
	m := slow{make(chan struct{})}
	h := newStageOf(t, troupe.Options{Model: m}, gateway.Options{})
	dir := t.TempDir()
	x := newTab(browser, t, h.url)
	x.open("/")
	x.sees("There is no session yet")
	x.click("Folder, agent, model")
	x.typeInto("form.new .grid label:nth-of-type(1) input", filepath.Join(dir, "missing"))
	x.typeInto("form.new textarea", "begin")
	x.shot("form")
	x.click("Begin")
	x.until("what is wrong is said", `document.querySelector('form.new .trouble')`)
	if err := os.Mkdir(filepath.Join(dir, "missing"), 0o700); err != nil {
		t.Fatal(err)
	}
	x.click("Begin")
	x.until("it is answered", `document.querySelector('.model.open')`)
	x.until("the address is the session's", `location.pathname.startsWith('/sessions/ses_')`)
	x.do("look at its workers", chromedp.Click(chromedp.CSS(".tabs a:last-child")))
	x.until("the worker's state has its name", `document.querySelector('.rows .state')?.innerText === 'receiving'`)
	x.shot("workers")
	x.click("Transcript")
	x.click("Stop the turn")
	x.until("it has stopped", `document.querySelector('.turn > footer .s-aborted')`)
	x.do("go back", chromedp.NavigateBack())
	x.until("the back button works", `location.pathname.endsWith('/workers')`)
	x.until("the worker rests", `document.querySelector('.rows .state')?.innerText === 'inactive'`)
	x.open("/sessions/ses_missing")
	x.sees("not_found")
}

func tokensAreAsked(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{Authenticate: func(r *http.Request) (gateway.Principal, error) {
		if r.Header.Get("Authorization") != "Bearer open sesame" {
			return gateway.Principal{}, messages.Fail(messages.CodeUnauthorized, "no such token", "")
		}
		return gateway.Owner(), nil
	}})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	if _, err := s.Run(h.ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.login input", "wrong\r")
	x.sees("Log in")
	x.until("it is asked again", `document.querySelector('form.login input')?.value === ''`)
	x.typeInto("form.login input", "open sesame\r")
	x.until("the transcript is there", `document.querySelector('.turn > footer .s-done')`)
	x.open("/")
	x.until("the tab keeps it", `document.querySelectorAll('.rows li').length === 1`)
	if n := value[int](x, `localStorage.length + document.cookie.length`); n != 0 {
		t.Error("the token is kept for longer than the tab")
	}
	x.click("Log out")
	x.until("it asks again", `document.querySelector('form.login')`)
	x.open("/")
	x.until("and keeps nothing", `document.querySelector('form.login') && sessionStorage.length === 0`)
}

// longSession opens a session at its end, has the rest on demand, and finds the turn that an address names.
func longSession(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: 'I heard: ${user}'}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	first := ""
	for i := range 300 {
		r, err := s.Run(h.ctx, fmt.Sprintf("prompt %d", i))
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			first = r.Turn
		}
	}
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.sees("I heard: prompt 299")
	x.until("it stands at the end", `innerHeight + scrollY >= document.documentElement.scrollHeight - 80`)
	// It grows before it is told that it was scrolled.
	value[bool](x, `document.querySelector('.transcript').style.paddingTop = '500px', dispatchEvent(new Event('scroll'))`)
	if _, err := s.Run(h.ctx, "prompt 300"); err != nil {
		t.Fatal(err)
	}
	x.sees("I heard: prompt 300")
	x.until("it still stands at the end", `innerHeight + scrollY >= document.documentElement.scrollHeight - 80`)
	if n := value[int](x, `document.querySelectorAll('.turn').length`); n > 30 {
		t.Errorf("%d turns are drawn at once", n)
	}
	x.click("Show 100 earlier")
	x.sees("I heard: prompt 175")
	x.open("/sessions/" + s.ID() + "#" + first)
	x.until("the turn is in sight", fmt.Sprintf(`(() => { const r = document.getElementById(%q)?.getBoundingClientRect(); return r && r.top >= 0 && r.top < innerHeight; })()`, first))
	x.typeInto("form.prompt textarea", "one more\r")
	x.sees("I heard: one more")
}
