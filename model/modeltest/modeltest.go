// Package modeltest holds every model.Model to what package model promises. A conversation with
// an adapter is scripted, so that one set of claims serves all of them: model/script itself, and
// model/openai over the scripted endpoint. It is for tests.
package modeltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/script"
)

// claims is the script that the suite plays. Its failures are permanent, so that an adapter
// that retries comes to the same end.
const claims = `
name: claims
rules:
  - match: ^text
    reply:
      reasoning: because
      text: "Grüße, 世界 😀: one two three four five six seven eight nine ten."
      chunk_size: 3
      usage: {input: 100, output: 20, cached: 30, reasoning: 5}
  - match: ^tools
    after_tool: {name: exec}
    reply: {text: 'the tool said ${tool.content}'}
  - match: ^tools
    reply:
      text: I look.
      chunk_size: 4
      tool_calls:
        - {name: read_file, id: first, arguments: {path: "a \"b\".go"}}
        - {name: exec, id: second, arguments: {command: 'go test ./...'}}
        - {name: todo, id: third}
  - match: ^length
    reply: {text: cut off, finish: length}
  - match: ^filter
    reply: {text: nothing, finish: content_filter}
  - match: ^fail rate_limited
    reply: {fail: {class: rate_limited, retry_after: 3s}}
  - match: ^fail overloaded
    reply: {fail: {class: overloaded}}
  - match: ^fail context_length
    reply: {fail: {class: context_length}}
  - match: ^fail auth
    reply: {fail: {class: auth}}
  - match: ^fail bad_request
    reply: {fail: {class: bad_request}}
  - match: ^fail not_found
    reply: {fail: {class: not_found}}
  - match: ^fail timeout
    reply: {fail: {class: timeout}}
  - match: ^fail protocol
    reply: {fail: {class: protocol}}
  - match: ^fail truncated
    reply: {fail: {class: truncated}}
  - match: ^half
    reply: {text: half and half, truncate_after: 4}
  - match: ^slow
    reply: {text: 'first second third', chunk_size: 6, chunk_delay: 1ms}
  - match: ^stuck
    reply: {text: never, delay: 1h}
  - agent: coder
    match: ^who
    reply: {text: the coder}
`

// Run makes every claim of package model about the models that newModel returns. Each plays
// the script it is given; newModel registers what has to be ended with t.Cleanup, and
// the model should make one attempt only, or pause briefly between them.
func Run(t *testing.T, newModel func(t *testing.T, s *script.Script) model.Model) {
	s, err := script.Parse("claims.yaml", []byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	for name, claim := range map[string]func(*testing.T, model.Model){
		"an answer arrives whole, its usage before its finish":      answerArrivesWhole,
		"calls are dense from 0, each started before its arguments": callsAreDense,
		"results are seen with the tool they come from":             resultsAreSeen,
		"the finish says why the answer ended":                      finishSaysWhy,
		"every failure has its class":                               failuresHaveClasses,
		"what had arrived is not lost with a broken stream":         partsAreKept,
		"the same request gets the same answer":                     answersRepeat,
		"an unmatched prompt fails with a rule to paste":            unmatchedHasHint,
		"leaving the loop ends the call":                            leavingEnds,
		"cancelling ends the call with the context's error":         cancellingEnds,
		"the agent that asks is known to the script":                agentIsKnown,
		"calls do not disturb each other":                           callsAreApart,
	} {
		t.Run(name, func(t *testing.T) { claim(t, newModel(t, s)) })
	}
}

func request(agent string, msgs ...*messages.Message) *model.Request {
	return &model.Request{
		Model: "claims", Agent: agent, Prompt: &messages.Prompt{System: "You are tested.", Messages: msgs},
		Tools: []model.ToolDef{{Name: "exec", Description: "Runs.", Schema: []byte(`{"type":"object","properties":{"command":{"type":"string"}}}`)}},
	}
}

func user(text string) *messages.Message { return &messages.Message{Role: messages.User, Text: text} }

func ask(t *testing.T, m model.Model, text string) (*model.Completion, error) {
	t.Helper()
	return model.Collect(m.Stream(t.Context(), request("", user(text))), nil)
}

func answerArrivesWhole(t *testing.T, m model.Model) {
	var kinds []model.EventKind
	got, err := model.Collect(m.Stream(t.Context(), request("", user("text"))), func(ev model.Event) { kinds = append(kinds, ev.Kind) })
	if err != nil {
		t.Fatal(err)
	}
	const want = "Grüße, 世界 😀: one two three four five six seven eight nine ten."
	if got.Text != want || got.Reasoning != "because" || got.Reason != "stop" || len(got.ToolCalls) != 0 {
		t.Errorf("got %+v", got)
	}
	u := got.Usage
	if u.GetInputTokens() != 100 || u.GetOutputTokens() != 20 || u.GetCachedTokens() != 30 || u.GetReasoningTokens() != 5 {
		t.Errorf("usage %v", u)
	}
	if got.Meta.Scripted != "claims" || got.Meta.Model == "" || got.Meta.Attempts < 1 {
		t.Errorf("meta %+v", got.Meta)
	}
	if n := len(kinds); n < 4 || kinds[n-1] != model.Finish || kinds[n-2] != model.UsageSeen {
		t.Errorf("events %v", kinds)
	}
}

func callsAreDense(t *testing.T, m model.Model) {
	started := 0
	got, err := model.Collect(m.Stream(t.Context(), request("", user("tools"))), func(ev model.Event) {
		if ev.Kind == model.CallStart {
			if ev.Index != started || ev.Name == "" || ev.CallID == "" {
				t.Errorf("call %d started as %+v", started, ev)
			}
			started++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range got.ToolCalls {
		all = append(all, c.GetId()+" "+c.GetName()+" "+c.GetArguments())
	}
	const want = `first read_file {"path":"a \"b\".go"}; second exec {"command":"go test ./..."}; third todo {}`
	if s := strings.Join(all, "; "); s != want || got.Text != "I look." || got.Reason != "tool_calls" {
		t.Errorf("got %s (%s, %q)", s, got.Reason, got.Text)
	}
}

func resultsAreSeen(t *testing.T, m model.Model) {
	first, err := ask(t, m, "tools")
	if err != nil {
		t.Fatal(err)
	}
	msgs := []*messages.Message{user("tools"), {Role: messages.Assistant, Text: first.Text, ToolCalls: first.ToolCalls}}
	for _, c := range first.ToolCalls {
		text := "output of " + c.GetName()
		if c.GetName() == "todo" {
			text = "" // adapters must send something for it
		}
		msgs = append(msgs, &messages.Message{Role: messages.ToolRole, ToolCallID: c.GetId(), ToolName: c.GetName(), Text: text})
	}
	got, err := model.Collect(m.Stream(t.Context(), request("", msgs...)), nil)
	if err != nil || got.Text != "the tool said output of exec" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func finishSaysWhy(t *testing.T, m model.Model) {
	for text, want := range map[string]string{"text": "stop", "tools": "tool_calls", "length": "length", "filter": "content_filter"} {
		if got, err := ask(t, m, text); err != nil || got.Reason != want {
			t.Errorf("%s: got %q, %v", text, got.Reason, err)
		}
	}
}

func failuresHaveClasses(t *testing.T, m model.Model) {
	for _, class := range []model.Class{
		model.RateLimited, model.Overloaded, model.ContextLength, model.Auth, model.BadRequest,
		model.NotFound, model.Timeout, model.Protocol, model.Truncated,
	} {
		_, err := ask(t, m, "fail "+string(class))
		var me *model.Error
		if !errors.As(err, &me) || me.Class != class || me.Message == "" || me.Attempts < 1 {
			t.Errorf("class %s: got %#v", class, err)
			continue
		}
		if class == model.RateLimited && me.RetryAfter.Seconds() != 3 {
			t.Errorf("retry after %s, want 3 s", me.RetryAfter)
		}
	}
}

func partsAreKept(t *testing.T, m model.Model) {
	got, err := ask(t, m, "half")
	var me *model.Error
	if !errors.As(err, &me) || me.Class != model.Truncated || got.Text != "half" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func answersRepeat(t *testing.T, m model.Model) {
	first, err := ask(t, m, "tools")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ask(t, m, "tools")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range first.ToolCalls {
		if d := second.ToolCalls[i]; c.GetId() != d.GetId() || c.GetArguments() != d.GetArguments() {
			t.Errorf("%v became %v", c, d)
		}
	}
}

func unmatchedHasHint(t *testing.T, m model.Model) {
	_, err := ask(t, m, "nobody wrote a rule for this")
	var me *model.Error
	if !errors.As(err, &me) || me.Class != model.Unmatched {
		t.Fatalf("got %v", err)
	}
	if _, err := script.Parse("pasted.yaml", []byte("rules:\n"+me.Hint)); err != nil {
		t.Errorf("the hint is no rule: %v\n%s", err, me.Hint)
	}
}

func leavingEnds(t *testing.T, m model.Model) {
	n := 0
	for _, err := range m.Stream(t.Context(), request("", user("slow"))) {
		if n++; err != nil {
			t.Error(err)
		}
		break
	}
	if n != 1 {
		t.Errorf("%d events after leaving the loop", n-1)
	}
}

func cancellingEnds(t *testing.T, m model.Model) {
	var ctx context.Context
	for _, last := range []model.EventKind{model.Text, model.UsageSeen} {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(t.Context())
		after := 0
		_, err := model.Collect(m.Stream(ctx, request("", user("slow"))), func(ev model.Event) {
			if ctx.Err() != nil {
				after++
			}
			if ev.Kind == last {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) || after > 0 {
			t.Errorf("in the middle: got %v after %d more events", err, after)
		}
	}
	if _, err := model.Collect(m.Stream(ctx, request("", user("text"))), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("before the call: got %v", err)
	}
	late, stop := context.WithTimeout(t.Context(), 1) // is over at once
	defer stop()
	if _, err := model.Collect(m.Stream(late, request("", user("stuck"))), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past the deadline: got %v", err)
	}
}

func agentIsKnown(t *testing.T, m model.Model) {
	got, err := model.Collect(m.Stream(t.Context(), request("coder", user("who"))), nil)
	if err != nil || got.Text != "the coder" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func callsAreApart(t *testing.T, m model.Model) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range 16 {
		wg.Go(func() {
			text := []string{"text", "tools", "slow", "length"}[i%4]
			want, err := ask(t, m, text)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				return
			}
			for range 5 {
				got, err := ask(t, m, text)
				if err != nil || got.Text != want.Text || len(got.ToolCalls) != len(want.ToolCalls) {
					t.Errorf("%s: got %+v, %v", text, got, err)
				}
			}
		})
	}
}
