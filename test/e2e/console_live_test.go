package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	port "github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// theatre is a runtime on a data directory, served at an address that outlives it.
type theatre struct {
	t       *testing.T
	data    string
	address string
	rt      *troupe.Runtime
	end     func()
}

// newTheatre begins with a model.
func newTheatre(t *testing.T, m troupe.Model) *theatre {
	t.Helper()
	h := &theatre{t: t, data: t.TempDir(), address: "127.0.0.1:0"}
	h.begin(m)
	t.Cleanup(func() { h.end() })
	return h
}

func (h *theatre) begin(m troupe.Model) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	rt, err := troupe.New(ctx, troupe.Options{Model: m, DataDir: h.data})
	if err != nil {
		cancel()
		h.t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.address)
	if err != nil {
		cancel()
		_ = rt.Close(ctx)
		h.t.Fatal(err)
	}
	h.address, h.rt = l.Addr().String(), rt
	server := &http.Server{Handler: gateway.New(rt, gateway.Options{}), ReadHeaderTimeout: patience}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	h.end = func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			h.t.Errorf("serve: %v", err)
		}
		if err := rt.Close(context.WithoutCancel(ctx)); err != nil {
			h.t.Errorf("close: %v", err)
		}
		cancel()
		h.end = func() {}
	}
}

// silent is a model that says nothing before it is told to, and then as slow does.
type silent struct {
	asked chan struct{} // takes one for each request
	slow
}

func (m silent) Stream(ctx context.Context, r *port.Request) iter.Seq2[port.Event, error] {
	return func(yield func(port.Event, error) bool) {
		m.asked <- struct{}{}
		select {
		case <-m.rest:
		case <-ctx.Done():
			yield(port.Event{}, ctx.Err())
			return
		}
		m.slow.Stream(ctx, r)(yield)
	}
}

// stopsAreSeen has a server that stops in the middle of an answer, and the next one at its address: the page goes on by itself.
func stopsAreSeen(browser context.Context, t *testing.T) {
	h := newTheatre(t, slow{make(chan struct{})})
	s, err := h.rt.Session(t.Context(), troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, "http://"+h.address)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "speak\r")
	x.until("the first words come", `document.querySelector('.model.open')?.innerText.includes('The first words.')`)
	h.end()
	x.sees("Connection lost; trying again")
	m := silent{make(chan struct{}, 9), slow{make(chan struct{})}}
	h.begin(m)
	if _, err := h.rt.Open(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	<-m.asked
	const cut = `[...document.querySelectorAll('.model.discarded')].filter((e) => e.innerText.includes('The first words.') && e.innerText.includes('broke off')).length === 1`
	x.until("what was cut off is marked, and nothing else is written than the new answer", cut+` && document.querySelectorAll('.model.open').length === 1 && document.querySelectorAll('.model').length === 2`)
	x.shot("again")
	close(m.rest)
	const whole = `[...document.querySelectorAll('.model.done')].filter((e) => e.innerText.includes('The first words. The last words.')).length === 1 && document.querySelectorAll('.turn').length === 1 &&
		document.querySelectorAll('.said.user').length === 1 && document.querySelectorAll('.model').length === 2 && document.querySelector('.turn > footer .s-done') && ` + cut
	x.until("the whole answer is there, once", whole)
	x.open("/sessions/" + s.ID())
	x.until("a replay comes to the same", whole)
}

// partsAreKept shows what a stop left of an answer, as long as nobody asks for it again: another session has the folder.
func partsAreKept(browser context.Context, t *testing.T) {
	h := newTheatre(t, slow{make(chan struct{})})
	dir := t.TempDir()
	s, err := h.rt.Session(t.Context(), troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range h.rt.Events(t.Context(), s.ID(), 0) { // deltas come to who listens before
		if err != nil {
			t.Fatal(err)
		}
		if e.GetType() == messages.EventSessionCreated {
			submitTo(t, h.rt, s.ID(), "speak")
		}
		if e.GetType() == messages.EventTextDelta {
			break
		}
	}
	h.end()
	m := silent{make(chan struct{}, 9), slow{make(chan struct{})}}
	h.begin(m)
	other, err := h.rt.Session(t.Context(), troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	submitTo(t, h.rt, other.ID(), "speak")
	<-m.asked // it has the folder
	x := newTab(browser, t, "http://"+h.address)
	x.open("/sessions/" + s.ID())
	x.until("what a stop left is there, and nobody writes", `document.querySelector('.model.suspended')?.innerText.includes('The first words.') && !document.querySelector('.caret')`)
	x.sees("A stop cut this answer off here")
	for _, colours := range []string{"light", "dark"} {
		x.size(360, 740, colours)
		x.wantNoOverflow()
		x.shot(colours)
	}
	close(m.rest)
	x.until("it is asked for again, and comes whole", `document.querySelector('.model.done')?.innerText.includes('The last words.') && !document.querySelector('.suspended')`)
}

func submitTo(t *testing.T, rt *troupe.Runtime, session, text string) {
	t.Helper()
	if _, err := rt.Ask(t.Context(), submit(session, messages.NewID(messages.InputPrefix), text)); err != nil {
		t.Fatal(err)
	}
}

// killsAreSeen has a server that is killed in the middle of an answer.
func killsAreSeen(browser context.Context, t *testing.T) {
	s := &succession{t: t, data: t.TempDir()}
	s.now = begin(t, s.data)
	front := &http.Server{ReadHeaderTimeout: patience, Handler: &httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: s.current().address})
			r.Out.Host = r.In.Host
		},
	}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- front.Serve(l) }()
	t.Cleanup(func() {
		_ = front.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // the proxy's
	})
	x := newTab(browser, t, "http://"+l.Addr().String())
	x.open("/")
	x.typeInto("form.new textarea", "first")
	x.click("Begin")
	x.sees("You said first")
	x.typeInto("form.prompt textarea", "wait\r")
	x.until("an answer is awaited", `document.querySelector('.model.open')`)
	x.typeInto("form.prompt textarea", "then this\r")
	x.sees("waits for its turn")
	s.kill()
	x.until("it is asked for again, and only that is open", `document.querySelectorAll('.model.open').length === 1 && document.querySelectorAll('.model.discarded').length === 1`)
	x.until("nothing came twice", `document.querySelectorAll('.turn').length === 2 && document.querySelectorAll('.said.user').length === 3 && document.querySelectorAll('.staged').length === 1`)
	x.click("Stop the turn")
	x.sees("You said then this")
	x.until("every turn is there once", `document.querySelectorAll('.turn').length === 3 && document.querySelectorAll('.said.user').length === 3 && !document.querySelector('.staged')`)
	s.current().end()
}

// inputsJoin shows an input where it joined the turn.
func inputsJoin(browser context.Context, t *testing.T) {
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	look, err := tools.Func(tools.Spec{Name: "look", Description: "Looks. Example: `{\"at\": \"x\"}`", Effect: messages.Effect_PURE}, func(*tools.Context, struct {
		At string `json:"at" desc:"What."`
	},
	) (*tools.Result, error) {
		<-hold
		return &tools.Result{Content: "there"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newStageOf(t, troupe.Options{Tools: []troupe.Tool{look}, Model: scripted(t, `
  - match: '^find it'
    steps:
      - text: I look.
        tool_calls: [{name: look, arguments: {at: x}}]
      - text: I have looked.
  - match: '^not there'
    steps:
      - text: never
      - text: I look in the other one.
`)}, gateway.Options{})
	t.Cleanup(release)
	s, _ := h.session(troupe.SessionOptions{Trust: troupe.Full}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "find it\r")
	x.sees("I look.")
	x.typeInto("form.prompt textarea", "not there, in the other file")
	x.click("Send into the turn")
	x.sees("waits for its turn")
	release()
	const order = `(() => { const all = [...document.querySelectorAll('.turn > *')].map((e) => e.className.includes('joined') ? 'joined' : e.className.includes('user') ? 'user' : e.className.includes('call') ? 'call' : e.className.includes('model') ? 'model' : e.tagName.toLowerCase()); return all.join(); })()`
	x.until("it stands where it joined", order+` === 'user,model,call,joined,model,footer'`)
	x.sees("joined the turn here")
	x.shot("joined")
	x.open("/sessions/" + s.ID())
	x.until("a replay comes to the same", order+` === 'user,model,call,joined,model,footer'`)
}

// leaveRunning has an agent leave two commands running in the background, in a session whose page is open.
func leaveRunning(browser context.Context, t *testing.T) (*stage, string, *tab) {
	t.Helper()
	sb, err := sandbox.Detect(t.Context(), sandbox.None, sandbox.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Skipf("no commands here: %v", err)
	}
	h := newStageOf(t, troupe.Options{Sandbox: sb, Model: scripted(t, `
  - match: '^start'
    steps:
      - tool_calls: [{name: exec, arguments: {command: sleep 1000, background: true}}, {name: exec, arguments: {command: sleep 1001, background: true}}]
      - text: They run.
`)}, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Trust: troupe.Full}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "start\r")
	x.sees("2 commands run in the background")
	return h, s.ID(), x
}

// jobsAreEnded shows how many commands run in the background, and ends them.
func jobsAreEnded(browser context.Context, t *testing.T) {
	h, session, x := leaveRunning(browser, t)
	x.shot("run")
	x.size(360, 740, "dark")
	x.wantNoOverflow()
	x.click("End them")
	x.until("nothing is said of them any more", `!document.querySelector('.jobs')`)
	n, err := h.rt.Ask(h.ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}})
	if err != nil || n.(*messages.JobCount).GetBackground() != 0 { //nolint:forcetypeassert // the reply of CountJobs
		t.Errorf("%v %v", n, err)
	}
}

// oneJobIsEnded ends one of two commands with the keyboard alone. A reader hears which one it was, and goes on from the page; the audit says who did it.
func oneJobIsEnded(browser context.Context, t *testing.T) {
	h, session, x := leaveRunning(browser, t)
	x.until("both are listed", `[...document.querySelectorAll('.jobs li code')].filter((c) => c.innerText.startsWith('sleep 100')).length === 2`)
	x.size(360, 740, "light")
	x.wantNoOverflow()
	x.shot("narrow")
	x.size(1280, 800, "dark")
	x.shot("wide")
	if axe, err := os.ReadFile(axeFile); err == nil { // the tests with axe-core say when it is missing
		for _, f := range value[[]string](x, string(axe)+`;axe.run('.jobs', {resultTypes: ['violations']}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target + ' ' + n.failureSummary).join('; ')))`) {
			t.Error(f)
		}
	}
	x.tabTo("End sleep 1001")
	x.press("\r")
	x.until("the other one goes on, and is told to", `document.querySelectorAll('.jobs li').length === 1 && document.querySelector('.jobs li').innerText.includes('sleep 1000') && document.querySelector('.jobs').innerText.startsWith('One command runs')`)
	x.until("a reader hears which one has ended", `[...document.querySelectorAll('[role=status]')].some((e) => e.textContent === 'Ended: sleep 1001')`)
	x.until("and goes on from the page", `document.activeElement.id === 'main'`)
	told, err := h.rt.Audit(h.ctx, session)
	if err != nil {
		t.Fatal(err)
	}
	told = slices.DeleteFunc(told, func(e *troupe.AuditEntry) bool { return e.GetKind() != "job" })
	if len(told) != 1 || told[0].GetWhat() != "sleep 1001" || told[0].GetBy() != "console" {
		t.Errorf("the audit says %v", told)
	}
	value[bool](x, `((f) => { window.fetch = (u, o) => o?.method === 'DELETE' ? Promise.resolve(new Response(JSON.stringify({status: 404, code: 'not_found', detail: 'no such job'}), {status: 404})) : f(u, o); return true; })(window.fetch)`)
	x.tabTo("End sleep 1000")
	x.press("\r")
	x.until("who is refused is told why", `document.querySelector('[role=alert]')?.innerText.includes('no such job')`)
	value[bool](x, `((f) => { window.fetch = (u, o) => o?.method === 'POST' ? Promise.resolve(new Response(JSON.stringify({turns: 0, jobs: 1}))) : f(u, o); return true; })(window.fetch)`)
	x.tabTo("End it")
	x.press("\r")
	x.until("what has not ended is not told to have", `[...document.querySelectorAll('[role=status]')].some((e) => e.textContent === 'Asked to end, and not over yet: one command')`)
}

// jobsEndUnseen has commands end, of which no event tells, while the server cannot be asked how many there are.
func jobsEndUnseen(browser context.Context, t *testing.T) {
	h, session, x := leaveRunning(browser, t)
	value[bool](x, `((f) => { window.lost = 0; window.fetch = (u, o) => String(u).endsWith('/jobs') && !window.lost++ ? Promise.reject(new TypeError('lost')) : f(u, o); return true; })(window.fetch)`)
	x.until("it could not be asked", `window.lost > 0`)
	if _, err := h.rt.Ask(h.ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{Jobs: true}}}); err != nil {
		t.Fatal(err)
	}
	x.until("nothing is said of them any more", `!document.querySelector('.jobs')`)
}

// trimmedEventsAreTold has a page whose first events are gone, whatever words that is said with: it goes on with those that are there.
func trimmedEventsAreTold(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: 'I heard: ${user}'}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	for _, words := range []string{"one", "two"} {
		if _, err := s.Run(h.ctx, words); err != nil {
			t.Fatal(err)
		}
	}
	var left uint64 // the end of the first turn
	for e, err := range h.rt.Events(h.ctx, s.ID(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetType() == messages.EventTurnCompleted {
			left = e.GetSeq()
			break
		}
	}
	x := newTab(browser, t, h.url)
	x.open("/")
	value[bool](x, fmt.Sprintf(`((f) => { window.fetch = (u, o) => String(u).endsWith('/events?after=0') ? Promise.resolve(new Response(JSON.stringify({status: 410, code: 'trimmed', detail: 'gone', hint: 'begin later', resume_after: %d}), {status: 410})) : f(u, o); return true; })(window.fetch)`, left))
	x.until("it is listed, and opened", `(document.querySelector(".rows li a")?.click(), location.pathname !== "/")`)
	x.sees(fmt.Sprintf("The events up to %d were trimmed away.", left))
	x.sees("I heard: two")
	x.until("nothing else is there", `document.querySelectorAll('.turn').length === 1`)
}

// timePasses has a transcript whose turns have long been drawn: how long ago they were goes on.
func timePasses(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	if _, err := s.Run(h.ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.until("the turn is there", `document.querySelector('.turn > footer time')?.innerText.endsWith('s ago')`)
	value[bool](x, `((now) => { Date.now = () => now() + 7200e3; return true; })(Date.now)`)
	x.until("two hours are told", `document.querySelector('.turn > footer time').innerText === '2 h ago'`)
}

// longTexts has a hundred thousand lines in an answer, in a file that is to be written and in a result: none of them is drawn whole at once.
func longTexts(browser context.Context, t *testing.T) {
	lines := strings.Repeat("one of very many lines\n", 100_000)
	h := newStage(t, fmt.Sprintf(`
  - match: '^write'
    steps:
      - text: %s
        chunk_size: 60000
        tool_calls: [{name: write_file, arguments: {path: a.txt, content: %s}}]
      - tool_calls: [{name: read_file, arguments: {path: a.txt}}]
      - text: read
`, quoted(lines), quoted(lines)), gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Rules: []string{"@read"}}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "write\r")
	x.sees("wants to run")
	x.sees("lines are left")
	x.until("not all of it is drawn", `document.querySelectorAll('*').length < 3000 && document.body.innerText.length < 200000`)
	x.click("Show more")
	x.click("Approve")
	x.until("the turn has ended", `document.querySelector('.turn > footer .s-done')`)
	value[bool](x, `([...document.querySelectorAll('details')].forEach((d) => (d.open = true)), true)`)
	x.until("not all of it is drawn", `document.querySelectorAll('*').length < 5000 && document.body.innerText.length < 500000`)
	x.size(360, 740, "light")
	x.wantNoOverflow()
}
