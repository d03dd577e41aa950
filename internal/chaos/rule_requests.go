package chaos

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// emptyResult stands for a result without text: providers refuse an empty one.
const emptyResult = "(no output)"

// requestsWhole is R6: every request is whole in itself, it is what the journal renders to at that step, and
// its start is in the journal.
func requestsWhole(v *view, r *report) {
	prompts := v.prompts(r)
	for i, q := range v.Requests {
		if why := broken(q.Messages); why != "" {
			r.add(Broken, "", 0, "request %d of the model: %s", i+1, why)
			continue
		}
		key := stepKey(q.Messages)
		step, known := prompts[key]
		if !known {
			r.add(Broken, "", 0, "request %d of the model: no journal has begun such a step: %s", i+1, key)
			continue
		}
		if why := differs(step.messages, q.Messages); why != "" {
			r.add(Broken, "", 0, "request %d of the model, %s: %s", i+1, key, why)
		}
		if !slices.Contains(step.models, q.Model) {
			r.add(Broken, "", 0, "request %d of the model, %s: it was made to %q, the journal has %q", i+1, key, q.Model, step.models)
		}
	}
}

// broken says how messages break the invariant: after an assistant with N calls stand N results, in
// order of the calls.
func broken(ms []Message) string {
	for i := 0; i < len(ms); i++ {
		switch ms[i].Role {
		case "system", "developer", "user":
			if len(ms[i].Calls) > 0 {
				return fmt.Sprintf("message %d of a %s has calls", i, ms[i].Role)
			}
		case "tool":
			return fmt.Sprintf("message %d is a result without a call", i)
		case "assistant":
			for _, c := range ms[i].Calls {
				i++
				if i >= len(ms) || ms[i].Role != "tool" || ms[i].CallID != c.ID {
					return fmt.Sprintf("message %d is no result of call %s (%s)", i, c.ID, c.Name)
				}
			}
		default:
			return fmt.Sprintf("message %d is of %q", i, ms[i].Role)
		}
	}
	return ""
}

// stepKey names a step of a turn by what a request shows of it: the text that began the turn, and how often
// the model has answered since.
func stepKey(ms []Message) string {
	user, answers := "", 0
	for _, m := range ms {
		switch m.Role {
		case "user":
			user, answers = m.Content, 0
		case "assistant":
			answers++
		}
	}
	return fmt.Sprintf("%q after %d answers", user, answers)
}

// begun is a step as the journals have it.
type begun struct {
	messages []Message
	models   []string // that were asked
}

// prompts renders every step that a journal has begun, and checks the hash that was written with it.
func (v *view) prompts(r *report) map[string]begun {
	out := make(map[string]begun)
	for _, s := range v.workers() {
		var state conversation.State
		for _, f := range s.facts {
			if state.Apply(f.entry.Record) != nil { // found by R10
				break
			}
			g, ok := f.what.(*messages.GenerationStarted)
			if !ok {
				continue
			}
			ready, ok := state.Ready()
			if !ok {
				r.add(Broken, s.name, f.seq(), "generation %s began while a call was open", g.GetGenId())
				continue
			}
			p := ready.Render("")
			if !bytes.Equal(p.Hash[:], g.GetRequestHash()) {
				r.add(Broken, s.name, f.seq(), "generation %s was written down with the hash of another request", g.GetGenId())
			}
			ms := asRequest(p.Messages)
			key := stepKey(ms)
			out[key] = begun{ms, append(out[key].models, g.GetModel())}
		}
	}
	return out
}

func asRequest(ms []*messages.Message) []Message {
	out := make([]Message, len(ms))
	for i, m := range ms {
		out[i] = Message{Role: string(m.Role), Content: m.Text, CallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			out[i].Calls = append(out[i].Calls, Call{ID: c.GetId(), Name: c.GetName(), Arguments: c.GetArguments()})
		}
	}
	return out
}

// differs compares a request with what it should have been. Ids of calls are the adapter's business.
func differs(want, got []Message) string {
	for len(got) > 0 && (got[0].Role == "system" || got[0].Role == "developer") {
		got = got[1:]
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d messages, the journal has %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if w.Role == "tool" && w.Content == "" {
			w.Content = emptyResult
		}
		if w.Role != g.Role || w.Content != g.Content || len(w.Calls) != len(g.Calls) {
			return fmt.Sprintf("message %d is %s %.120q, the journal has %s %.120q", i, g.Role, g.Content, w.Role, w.Content)
		}
		for j, c := range w.Calls {
			if c.Name != g.Calls[j].Name || c.Arguments != g.Calls[j].Arguments {
				return fmt.Sprintf("call %d of message %d is %s %.120s, the journal has %s %.120s", j, i, g.Calls[j].Name, g.Calls[j].Arguments, c.Name, c.Arguments)
			}
		}
	}
	return ""
}
