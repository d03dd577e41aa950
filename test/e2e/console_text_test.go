package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	port "github.com/troupe-dev/troupe/model"
)

// slow is a model that says a word, and the rest when it is told to.
type slow struct{ rest chan struct{} }

func (m slow) Stream(ctx context.Context, _ *port.Request) iter.Seq2[port.Event, error] {
	return func(yield func(port.Event, error) bool) {
		if !yield(port.Event{Kind: port.Text, Text: "The first words. "}, nil) {
			return
		}
		select {
		case <-m.rest:
		case <-ctx.Done():
			yield(port.Event{}, ctx.Err())
			return
		}
		_ = yield(port.Event{Kind: port.Text, Text: "The last words."}, nil) && yield(port.Event{Kind: port.Finish, Reason: "stop"}, nil)
	}
}

func textStreams(browser context.Context, t *testing.T) {
	m := slow{make(chan struct{})}
	h := newStageOf(t, troupe.Options{Model: m}, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "speak\r")
	x.until("the first words come while the answer is open", `document.querySelector('.model.open')?.innerText.includes('The first words.')`)
	x.shot("open")
	h.cut()
	close(m.rest)
	x.until("the whole answer is there, once", `[...document.querySelectorAll('.model.done')].filter((e) => e.innerText.includes('The first words. The last words.')).length === 1`)
	x.typeInto("form.prompt textarea", "again\r")
	x.until("the next turn is there, once", `document.querySelectorAll('.turn > footer .s-done').length === 2 && document.querySelectorAll('.turn').length === 2 && document.querySelectorAll('.said.user').length === 2`)
	x.open("/sessions/" + s.ID())
	x.until("a replay comes to the same", `document.querySelectorAll('.model.done').length === 2 && document.querySelectorAll('.said.user').length === 2`)
}

// hostile is what a model or a tool might say to somebody who renders it.
const hostile = `<script>window.pwned=1</script><img src=x onerror="window.pwned=1"><svg onload="window.pwned=1"></svg>` +
	`<iframe srcdoc="<script>parent.pwned=1</script>"></iframe><style>*{display:none}</style>` +
	"[click](javascript:window.pwned=1) &lt;b&gt; {{7*7}} ${window.pwned=1} \x1b[31mred\x1b[0m \x1b]8;;http://127.0.0.1:1\x07link \u202egnp.exe\u2066 \u200bzero \x00nul \U000E0041tag ]]> -->"

func hostileText(browser context.Context, t *testing.T) {
	long := strings.Repeat("long", 1<<18) // a line of a MiB
	h := newStage(t, fmt.Sprintf(`
  - match: '^ask'
    steps:
      - text: %s
        chunk_size: 100000
        tool_calls: [{name: write_file, arguments: {path: a.txt, content: %s}}]
      - text: 'Then: ${tool.content}'
        tool_calls: [{name: 'exec', arguments: '{"command": "<b>broken'}]
      - text: %s
        chunk_size: 1000000
`, quoted(hostile), quoted(strings.ReplaceAll(hostile, "\x00", "")+"\n"+long[:5000]), quoted(long)), gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID())
	x.typeInto("form.prompt textarea", "ask <img src=x onerror=window.pwned=1>\r")
	x.sees("wants to run")
	x.sees("U+202E")
	x.sees("U+001B[31m")
	x.until("an approval shows what cannot be seen", `document.querySelector('.approval').innerText.includes('U+200B') && document.querySelector('.approval').innerText.includes('U+E0041')`)
	x.sees("<script>window.pwned=1</script>")
	x.shot("asks")
	x.click("Show long lines whole")
	x.click("Approve")
	x.sees("characters are left")
	x.until("the turn has ended", `document.querySelector('.turn > footer .s-done')`)
	for _, size := range []int64{1280, 360} {
		x.size(size, 800, "dark")
		x.wantNoOverflow()
	}
	x.click("Show more")
	x.until("every call is opened, and what is in it", `([...document.querySelectorAll('details')].forEach((d) => (d.open = true)), document.body.innerText.includes('<b>broken'))`)
	x.wantNoOverflow()
	if _, err := h.rt.Ask(h.ctx, &messages.CreateSession{Agent: "default", First: &messages.SubmitInput{
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: hostile}}},
	}}); err != nil {
		t.Fatal(err)
	}
	x.open("/")
	x.sees("<script>window.pwned=1</script>")
	x.wantNoOverflow()
	x.open("/sessions/" + s.ID())
	x.sees("<script>window.pwned=1</script>")
	if got := value[string](x, `[...document.querySelectorAll('main :is(script, img, svg, iframe, style, b > *)')].map((e) => e.outerHTML).join() + (window.pwned ?? '')`); got != "" {
		t.Errorf("text became markup: %s", got)
	}
}

// quoted is a text for YAML, which reads JSON's.
func quoted(s string) string {
	b, _ := json.Marshal(strings.ReplaceAll(s, "${", "$${"))
	return string(b)
}
