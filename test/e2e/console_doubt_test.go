package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/tools"
)

// doubtIsSettled has a call that does not hear the end of its time: a person says what became of it.
func doubtIsSettled(browser context.Context, t *testing.T) {
	s, err := script.Parse("doubt.yaml", []byte(`
rules:
  - steps:
      - tool_calls: [{name: pay, arguments: {name: rent}}]
      - text: 'I read: ${tool.content}'
`))
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	pay, err := tools.Func(tools.Spec{
		Name: "pay", Description: "Pays. Example: `{\"name\": \"x\"}`", Effect: messages.Effect_AT_MOST_ONCE, Unknown: messages.UnknownOutcome_ASK,
		Timeout: 200 * time.Millisecond,
	}, func(*tools.Context, struct {
		Name string `json:"name" desc:"What for."`
	},
	) (*tools.Result, error) {
		<-stuck
		return &tools.Result{Content: "paid"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newStageOf(t, troupe.Options{Model: s.Model(), Tools: []troupe.Tool{pay}, Limits: troupe.Limits{Grace: time.Millisecond}}, gateway.Options{})
	release := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(release)
	one, _ := h.session(troupe.SessionOptions{Trust: troupe.Full}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + one.ID())
	x.typeInto("form.prompt textarea", "go\r")
	x.sees("nobody knows whether it ran")
	x.typeInto(".doubt input", "I saw the receipt")
	x.shot("asks")
	x.click("It was done")
	x.sees("Their note: I saw the receipt")
	release() // the workspace is free when it has ended
	x.until("the turn goes on with that", `document.querySelector('.model.done')?.innerText.includes('I saw the receipt')`)
	x.until("it is asked no more", `!document.querySelector('.doubt') && document.querySelector('.turn > footer .s-done')`)
}
