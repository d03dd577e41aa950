package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// windowed is one model whose context holds so many tokens.
type windowed struct {
	model  model.Model
	tokens int64
}

func (m windowed) Resolve(name string) (*actors.Resolved, error) {
	return &actors.Resolved{Model: m.model, Provider: "default", Name: name, Context: m.tokens}, nil
}

func (windowed) Providers() []string { return []string{"default"} }

// plain is an agent whose system prompt is short and who has one tool: tests can count.
func plain() []actors.Agent {
	return []actors.Agent{{Name: actors.DefaultAgent, System: "s", Tools: []string{"glob"}}}
}

// tokens counts a request as the worker does.
func tokens(r *model.Request) int {
	n := conversation.EstimateTokens(r.Prompt.System)
	for _, d := range r.Tools {
		n += conversation.EstimateTokens(d.Description + string(d.Schema))
	}
	for _, m := range r.Prompt.Messages {
		n += 4 + conversation.EstimateTokens(m.Text)
	}
	return n
}

// asked keeps the requests of a model.
type requests struct {
	mu        sync.Mutex
	turns     []*model.Request
	summaries []*model.Request
	largest   int
}

func (q *requests) see(r *model.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.largest = max(q.largest, tokens(r))
	if r.Agent == actors.CompactionAgent {
		q.summaries = append(q.summaries, r)
		return
	}
	q.turns = append(q.turns, r)
}

func (q *requests) last() *model.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns[len(q.turns)-1]
}

func (q *requests) counts() (turns, summaries int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.turns), len(q.summaries)
}

// summing answers prompts, and summarises when it is asked to.
func (q *requests) summing(summary func() actortest.Reply) actortest.Model {
	return func(_ context.Context, r *model.Request) actortest.Reply {
		q.see(r)
		if r.Agent == actors.CompactionAgent {
			return summary()
		}
		return actortest.Reply{Text: "answer to " + actortest.Asked(r)[:10]}
	}
}

func prompt(i int) string { return fmt.Sprintf("prompt %03d %s", i, strings.Repeat("word ", 150)) }

func TestARequestNeverExceedsTheWindowAndOlderTurnsAreSummarised(t *testing.T) {
	const window = 3000
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply { return actortest.Reply{Text: "the gist"} }), window}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 40 {
		if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Fatalf("turn %d: %v", i, r)
		}
	}
	compacted := actortest.Of[*messages.HistoryCompacted](h.Facts(worker))
	if _, n := q.counts(); len(compacted) < 3 || n != len(compacted) || q.largest > window {
		t.Errorf("%d compactions, %d summaries, the largest request has %d tokens", len(compacted), n, q.largest)
	}
	for _, f := range compacted {
		if f.GetSummary() != "the gist" || f.GetFallback() || f.GetUptoSeq() == 0 || f.GetTokensAfter() >= f.GetTokensBefore() {
			t.Errorf("%v", f)
		}
	}
	ms := q.last().Prompt.Messages
	if ms[0].Text != conversation.SummaryRequest || ms[0].Role != messages.User || ms[1].Text != "the gist" || ms[1].Role != messages.Assistant ||
		len(ms) < 5 || ms[2].Role != messages.User || !strings.HasPrefix(ms[len(ms)-1].Text, "prompt 039") {
		t.Errorf("%d messages, beginning with %q, %q", len(ms), ms[0].Text, ms[1].Text)
	}
	wholeHistory(t, actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}), 40)
	if u := h.Worker(session).GetUsage(); u.GetInputTokens() != int64(40+len(compacted)) {
		t.Errorf("the summaries are not in the usage: %v", u)
	}
}

// wholeHistory checks that nothing of what was said is gone.
func wholeHistory(t *testing.T, h *messages.History, turns int) {
	t.Helper()
	if len(h.GetTurns()) != turns || h.GetSummary() == "" || !h.GetTurns()[0].GetCompacted() || h.GetTurns()[turns-1].GetCompacted() {
		t.Fatalf("%d turns, summary %q", len(h.GetTurns()), h.GetSummary())
	}
	for i, turn := range h.GetTurns() {
		if ms := turn.GetMessages(); len(ms) != 2 || ms[0].GetContent() != prompt(i) || ms[1].GetContent() != fmt.Sprintf("answer to prompt %03d", i) {
			t.Errorf("turn %d: %v", i, ms)
		}
	}
}

func TestWithoutASummaryTheOldestTurnsAreDroppedAndItIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		reply actortest.Reply
		why   string
	}{
		"a failure":        {actortest.Reply{Err: &model.Error{Class: model.BadRequest, Message: "no thanks"}}, "no thanks"},
		"an empty answer":  {actortest.Reply{Text: "  \n"}, "no summary"},
		"too long a one":   {actortest.Reply{Text: strings.Repeat("blah ", 5000)}, "longer than"},
		"calls of tools":   {actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "glob", "{}")}}, "no summary"},
		"a small provider": {actortest.Reply{Err: &model.Error{Class: model.ContextLength, Message: "too much"}}, "too much"},
	} {
		t.Run(name, func(t *testing.T) {
			q := &requests{}
			h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply { return c.reply }), 3000}})
			session, worker := h.Create(&messages.CreateSession{})
			w := h.Watch(session)
			for i := range 20 {
				if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_DONE {
					t.Fatalf("turn %d: %v", i, r)
				}
			}
			compacted := actortest.Of[*messages.HistoryCompacted](h.Facts(worker))
			if len(compacted) == 0 || q.largest > 3000 {
				t.Fatalf("%d compactions, largest request %d", len(compacted), q.largest)
			}
			f := compacted[0]
			if !f.GetFallback() || !strings.Contains(f.GetReason(), c.why) || f.GetTurns() == 0 {
				t.Errorf("%v", f)
			}
			said := w.Until(messages.EventHistoryCompacted)
			if e := said[len(said)-1]; e.GetStatus() != "dropped" || !strings.Contains(e.GetReason(), c.why) || e.GetSeq() == 0 {
				t.Errorf("%v", e)
			}
			if text := q.last().Prompt.Messages[1].Text; !strings.Contains(text, "no longer here") {
				t.Errorf("the model is told %q", text)
			}
			wholeHistory(t, actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}), 20)
		})
	}
}

func TestAFailingSummariserIsTriedAgain(t *testing.T) {
	q, calls := &requests{}, 0
	h := actortest.New(t, actortest.Options{Agents: plain(), Models: windowed{q.summing(func() actortest.Reply {
		if calls++; calls == 1 {
			return actortest.Reply{Err: &model.Error{Class: model.Overloaded, Message: "busy"}}
		}
		return actortest.Reply{Text: "the gist"}
	}), 3000}})
	session, worker := h.Create(&messages.CreateSession{})
	for i := 0; len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))) == 0; i++ {
		h.Run(session, prompt(i))
	}
	if f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker))[0]; f.GetFallback() || calls != 2 {
		t.Errorf("%d calls: %v", calls, f)
	}
}

// TestARefusalForLengthIsCuredOnce: the window is not known, and the provider says that it is exceeded.
func TestARefusalForLengthIsCuredOnce(t *testing.T) {
	q := &requests{}
	limit := 2500
	h := actortest.New(t, actortest.Options{Agents: plain(), Model: actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		q.see(r)
		if tokens(r) > limit {
			return actortest.Reply{Err: &model.Error{Class: model.ContextLength, Message: "too long"}}
		}
		if r.Agent == actors.CompactionAgent {
			return actortest.Reply{Text: "the gist"}
		}
		return actortest.Reply{Text: "answer"}
	})})
	session, worker := h.Create(&messages.CreateSession{})
	for i := 0; len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))) == 0; i++ {
		if r := h.Run(session, prompt(i)); r.GetOutcome() != messages.TurnCompleted_DONE {
			t.Fatalf("turn %d: %v", i, r)
		}
	}
	if failed := actortest.Of[*messages.GenerationFailed](h.Facts(worker)); len(failed) != 1 || failed[0].GetClass() != conversation.ContextLength {
		t.Errorf("%v", failed)
	}
	h.Run(session, "a short one")
	limit = 0
	before, _ := q.counts()
	r := h.Run(session, "now nothing fits")
	if r.GetOutcome() != messages.TurnCompleted_LIMIT || r.GetErrorCode() != conversation.ContextLength || !strings.Contains(r.GetReason(), "larger") {
		t.Errorf("%v", r)
	}
	if after, _ := q.counts(); after != before+2 {
		t.Errorf("the turn was asked %d times", after-before)
	}
}

func TestATurnThatOutgrowsTheWindowEndsAndTheNextOneGoesOn(t *testing.T) {
	q := &requests{}
	big := strings.Repeat("output ", 2000)
	look := tool(t, "look", messages.Effect_PURE, func(context.Context, string) (string, error) { return big, nil })
	agents := plain()
	agents[0].Tools = []string{"look"}
	h := actortest.New(t, actortest.Options{Agents: agents, Tools: []tools.Tool{look}, Models: windowed{actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		q.see(r)
		switch {
		case r.Agent == actors.CompactionAgent:
			return actortest.Reply{Text: "the gist"}
		case actortest.Asked(r) == "look":
			return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("c", "look", `{"name":"x"}`)}}
		}
		return actortest.Reply{Text: "fine"}
	}), 3000}})
	session, worker := h.Create(&messages.CreateSession{})
	r := h.Run(session, "look")
	if r.GetOutcome() != messages.TurnCompleted_LIMIT || r.GetErrorCode() != conversation.ContextLength || !strings.Contains(r.GetReason(), "it takes 3000") {
		t.Errorf("%v", r)
	}
	if r := h.Run(session, "and now?"); r.GetOutcome() != messages.TurnCompleted_DONE || q.largest > 3000 {
		t.Errorf("%v; largest request %d", r, q.largest)
	}
	if f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker)); len(f) != 1 {
		t.Errorf("%v", f)
	}
	if r := h.Run(session, strings.Repeat("far too much ", 4000)); r.GetOutcome() != messages.TurnCompleted_LIMIT || r.GetErrorCode() != conversation.ContextLength {
		t.Errorf("a prompt beyond the window: %v", r)
	}
}

func TestACompactionIsHadOnDemand(t *testing.T) {
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Model: q.summing(func() actortest.Reply { return actortest.Reply{Text: "the gist"} })})
	session, worker := h.Create(&messages.CreateSession{})
	ask := func() *messages.Compacted {
		return actortest.Ask[*messages.Compacted](h, session, &messages.CompactHistory{By: "me"})
	}
	if r := ask(); r.GetUptoSeq() != 0 || !strings.Contains(r.GetReason(), "nothing to compact") {
		t.Errorf("of an empty conversation: %v", r)
	}
	for i := range 10 {
		h.Run(session, prompt(i))
	}
	r := ask()
	f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker))
	if len(f) != 1 || f[0].GetBy() != "me" || r.GetUptoSeq() != f[0].GetUptoSeq() || r.GetTokensAfter() >= r.GetTokensBefore()/2 || f[0].GetTurns() != 7 {
		t.Errorf("%v, %v", r, f)
	}
	h.Run(session, prompt(10))
	if n := len(q.last().Prompt.Messages); n != 2+3*2+1 {
		t.Errorf("%d messages are sent", n)
	}
	wholeHistory(t, actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}), 11)
	turns := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{})
	if turns.GetOutcome() != messages.TurnCompleted_DONE || h.Worker(session).GetTurns() != 11 {
		t.Errorf("%v", turns)
	}
}

func TestAFailedSummaryOnDemandDropsNothing(t *testing.T) {
	q := &requests{}
	h := actortest.New(t, actortest.Options{Agents: plain(), Model: q.summing(func() actortest.Reply { return actortest.Reply{Err: &model.Error{Class: model.Auth, Message: "no"}} })})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 4 {
		h.Run(session, prompt(i))
	}
	r := actortest.Ask[*messages.Compacted](h, session, &messages.CompactHistory{})
	if r.GetUptoSeq() != 0 || !strings.Contains(r.GetReason(), "nothing was dropped") || len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))) != 0 {
		t.Errorf("%v", r)
	}
	h.Run(session, prompt(4))
	if n := len(q.last().Prompt.Messages); n != 9 {
		t.Errorf("%d messages are sent", n)
	}
}

// summingAt is a model whose summaries wait at a gate.
func summingAt(q *requests, gate *actortest.Gate) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		q.see(r)
		if r.Agent == actors.CompactionAgent {
			if err := gate.Pass(ctx); err != nil {
				return actortest.Reply{Err: err}
			}
			return actortest.Reply{Text: "the gist"}
		}
		return actortest.Reply{Text: "answer to " + actortest.Asked(r)[:10]}
	}
}

func TestACompactionThatIsCutOffIsRepeatedAndSeenOnce(t *testing.T) {
	q, gate, store := &requests{}, actortest.NewGate(), kept(t)
	h := actortest.New(t, actortest.Options{Store: store, Agents: plain(), Models: windowed{summingAt(q, gate), 3000}})
	session, worker := h.Create(&messages.CreateSession{})
	var input string
	for i := 0; ; i++ {
		in := actortest.Ask[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text(prompt(i))}) // accepted before there is room
		input = in.GetInputId()
		done := actortest.Later[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: input})
		select {
		case <-done:
			continue
		case <-gate.Came:
		}
		h.Stop()
		actortest.Wait(t, "the answer", done)
		break
	}
	if n := len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))); n != 0 {
		t.Fatalf("%d compactions are written", n)
	}
	gate.Open()
	h = actortest.New(t, actortest.Options{Store: store, Agents: plain(), Models: windowed{summingAt(q, gate), 3000}})
	if r := actortest.Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: input}); r.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("%v", r)
	}
	if _, n := q.counts(); len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))) != 1 || n != 2 {
		t.Errorf("%d summaries were asked for, %d written", n, len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))))
	}
}

func TestACancelEndsACompaction(t *testing.T) {
	q, gate := &requests{}, actortest.NewGate()
	h := actortest.New(t, actortest.Options{Agents: plain(), Model: summingAt(q, gate)})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 3 {
		h.Run(session, prompt(i))
	}
	wanted := actortest.Later[*messages.Compacted](h, session, &messages.CompactHistory{})
	actortest.Wait(t, "the model", gate.Came)
	joined := actortest.Later[*messages.Compacted](h, session, &messages.CompactHistory{})
	idle := actortest.Later[*messages.Ack](h, session, &messages.WaitIdle{})
	staged := actortest.Ask[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text("later, later")})
	if _, err := actortest.Try[*messages.InputReply](h, session, &messages.SubmitInput{Mode: messages.InputAccepted_REJECT, Parts: actortest.Text("no")}); actortest.Code(err) != messages.CodeBusy {
		t.Errorf("mode reject: %v", err)
	}
	if r := actortest.Ask[*messages.Cancelled](h, session, &messages.CancelSession{}); r.GetTurns() != 1 {
		t.Errorf("%v", r)
	}
	for _, ch := range []<-chan actortest.Answer[*messages.Compacted]{wanted, joined} {
		if a := actortest.Wait(t, "the refusal", ch); actortest.Code(a.Err) != messages.CodeUnavailable {
			t.Errorf("%v", a)
		}
	}
	actortest.Wait(t, "rest", idle)
	if _, err := actortest.Try[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: staged.GetInputId()}); actortest.Code(err) != messages.CodeWithdrawn {
		t.Errorf("%v", err)
	}
	if n := len(actortest.Of[*messages.HistoryCompacted](h.Facts(worker))); n != 0 {
		t.Errorf("%d compactions", n)
	}
	gate.Open()
	h.Run(session, prompt(3))
}

func TestACompactionDuringATurnWaitsForItsEndAndAFailureHandsItOn(t *testing.T) {
	q, gate := &requests{}, actortest.NewGate()
	store := &actortest.Store{Store: kept(t)}
	h := actortest.New(t, actortest.Options{Store: store, Agents: plain(), Model: actortest.Model(func(ctx context.Context, r *model.Request) actortest.Reply {
		q.see(r)
		if actortest.Asked(r) == "wait" {
			_ = gate.Pass(ctx)
		}
		return actortest.Reply{Text: "the gist"}
	})})
	session, worker := h.Create(&messages.CreateSession{})
	for i := range 3 {
		h.Run(session, prompt(i))
	}
	waits := actortest.Later[*messages.TurnResult](h, session, &messages.RunInput{Input: &messages.SubmitInput{Parts: actortest.Text("wait")}})
	actortest.Wait(t, "the model", gate.Came)
	wanted := actortest.Later[*messages.Compacted](h, session, &messages.CompactHistory{})
	actortest.Ask[*messages.Inputs](h, session, &messages.ListInputs{})
	fails := 1
	store.Refuse(func(f proto.Message) error {
		if actortest.Is[*messages.HistoryCompacted](f) && fails > 0 {
			fails--
			return errors.New("once")
		}
		return nil
	})
	gate.Open()
	if a := actortest.Wait(t, "the turn", waits); a.Reply.GetOutcome() != messages.TurnCompleted_DONE {
		t.Fatalf("%v", a)
	}
	if a := actortest.Wait(t, "the compaction", wanted); a.Err != nil || a.Reply.GetUptoSeq() == 0 {
		t.Errorf("%v", a)
	}
	if f := actortest.Of[*messages.HistoryCompacted](h.Facts(worker)); len(f) != 1 || f[0].GetTurns() == 0 || h.Worker(session).GetRestarts() != 1 {
		t.Errorf("%v", f)
	}
}
