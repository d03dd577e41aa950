package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// handoff makes a call that hands the conversation over.
func handoff(id, to string) *messages.ToolCall {
	return actortest.Call(id, "handoff", fmt.Sprintf(`{"agent":%q,"message":"take care"}`, to))
}

func offered(r *model.Request, tool string) bool {
	return slices.ContainsFunc(r.Tools, func(d model.ToolDef) bool { return d.Name == tool })
}

// desk are a desk that reads only, and an expert whom it may hand over to.
func desk() []actors.Agent {
	return []actors.Agent{
		{Name: "desk", System: "You are the desk.", Tools: []string{"read_file"}, Handoff: []string{"expert"}},
		{Name: "expert", Description: "mends things", System: "You are the expert.", Model: "large", Tools: []string{"read_file", "write_file"}, Handoff: []string{"desk"}},
		{Name: "boss", System: "You are the boss."},
	}
}

// byAgent is a model that answers for each agent in its own way.
func byAgent(of map[string]actortest.Model) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		if m := of[r.Agent]; m != nil {
			return m(ctx, r)
		}
		return actortest.Reply{Text: "nobody asked agent " + r.Agent}
	}
}

func TestAHandoffGoesOnAsTheOtherAgent(t *testing.T) {
	dir := t.TempDir()
	h := actortest.New(t, actortest.Options{Agents: desk(), Model: byAgent(map[string]actortest.Model{
		"desk": func(_ context.Context, r *model.Request) actortest.Reply {
			if offered(r, "write_file") || !strings.Contains(fmt.Sprintf("%s", r.Tools), "expert: mends things") {
				return actortest.Reply{Text: fmt.Sprintf("the desk is offered %s", r.Tools)}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{handoff("1", "expert")}}
		},
		"expert": func(_ context.Context, r *model.Request) actortest.Reply {
			if !strings.Contains(r.Prompt.System, "You are the expert.") || strings.Contains(r.Prompt.System, "desk") || r.Model != "large" || !offered(r, "write_file") {
				return actortest.Reply{Text: fmt.Sprintf("the expert is asked as %s with %s", r.Model, r.Prompt.System)}
			}
			if last := r.Prompt.Messages[len(r.Prompt.Messages)-1]; last.ToolName == "handoff" {
				if !strings.Contains(last.Text, "from here on you are agent expert") || !strings.Contains(last.Text, "take care") {
					return actortest.Reply{Text: last.Text}
				}
				return actortest.Reply{Calls: []*messages.ToolCall{actortest.Call("2", "write_file", `{"path":"a","content":"by the expert"}`)}}
			}
			return actortest.Reply{Text: "mended: " + actortest.Asked(r)}
		},
	})})
	s, w := h.Create(&messages.CreateSession{Agent: "desk", Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + dir, Trust: messages.Trust_FULL}}})
	watch := h.Watch(s)
	if got := h.Run(s, "it squeaks").GetText(); got != "mended: it squeaks" {
		t.Fatalf("the turn ended with %q", got)
	}
	facts := actortest.Of[*messages.HandedOver](h.Facts(w))
	if len(facts) != 1 || facts[0].GetFrom() != "desk" || facts[0].GetAgent() != "expert" || facts[0].GetModel() != "large" || facts[0].GetExecId() == "" {
		t.Errorf("written down is %v", facts)
	}
	if v := h.Worker(s); v.GetAgent() != "expert" || v.GetModel() != "large" {
		t.Errorf("shown is %v", v)
	}
	seen := watch.Until(messages.EventWorkerHandedOver)
	if e := seen[len(seen)-1]; e.GetFrom() != "desk" || e.GetAgent() != "expert" || e.GetReason() != "take care" {
		t.Errorf("watchers see %v", e)
	}
	if got := h.Run(s, "and again").GetText(); got != "mended: and again" {
		t.Errorf("the next turn was not the expert's: %q", got)
	}
	tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{Deep: true})
	if !strings.Contains(tree.String(), `agent:"expert"`) {
		t.Errorf("the tree is %v", tree)
	}
}

func TestAHandoffThatMayNotBeIsRefused(t *testing.T) {
	for _, x := range []struct {
		name, agent string
		calls       []*messages.ToolCall
		code, text  string
	}{
		{"to an agent that the profile does not name", "desk", []*messages.ToolCall{handoff("1", "boss")}, tools.CodePermissionDenied, "may hand over to expert"},
		{"of an agent that names nobody", "boss", []*messages.ToolCall{handoff("1", "desk")}, tools.CodePermissionDenied, "not in the toolset"},
		{"beside other calls", "desk", []*messages.ToolCall{handoff("1", "expert"), actortest.Call("2", "read_file", `{"path":"a"}`)}, tools.CodeInvalidArguments, "only call"},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := actortest.New(t, actortest.Options{Agents: desk(), Model: actortest.CallThenSay(x.calls...)})
			s, w := h.Create(&messages.CreateSession{Agent: x.agent})
			h.Run(s, "go")
			f := finishedCalls(h, w)[0]
			if f.GetErrorCode() != x.code || !strings.Contains(f.GetContent(), x.text) {
				t.Errorf("refused with %v", f)
			}
			if n := len(actortest.Of[*messages.HandedOver](h.Facts(w))); n != 0 || h.Worker(s).GetAgent() != x.agent {
				t.Errorf("it was handed over %d times", n)
			}
		})
	}
}

func TestATurnIsNotHandedToAndFroForEver(t *testing.T) {
	there := func(to string) actortest.Model {
		return func(_ context.Context, r *model.Request) actortest.Reply {
			if last := r.Prompt.Messages[len(r.Prompt.Messages)-1]; strings.Contains(last.Text, "already") {
				return actortest.Reply{Text: "enough"}
			}
			return actortest.Reply{Calls: []*messages.ToolCall{handoff(fmt.Sprint(len(r.Prompt.Messages)), to)}}
		}
	}
	for limit, want := range map[int]int{0: 8, 2: 2, -1: 0} {
		h := actortest.New(t, actortest.Options{
			Agents: desk(), Model: byAgent(map[string]actortest.Model{"desk": there("expert"), "expert": there("desk")}), Limits: actors.Limits{Handoffs: limit},
		})
		s, w := h.Create(&messages.CreateSession{Agent: "desk"})
		if got := h.Run(s, "go").GetText(); got != "enough" {
			t.Errorf("the turn ended with %q", got)
		}
		if n := len(actortest.Of[*messages.HandedOver](h.Facts(w))); n != want {
			t.Errorf("with a limit of %d it was handed over %d times, want %d", limit, n, want)
		}
	}
}

func TestWhoTakesOverDoesNoMoreThanTheWorkerWasReducedTo(t *testing.T) {
	write := []*messages.ToolCall{actortest.Call("2", "write_file", `{"path":"a","content":"x"}`)}
	h := actortest.New(t, actortest.Options{Agents: desk(), Model: byAgent(map[string]actortest.Model{
		"desk": func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Calls: []*messages.ToolCall{handoff("1", "expert")}}
		},
		"expert": func(_ context.Context, r *model.Request) actortest.Reply {
			if offered(r, "write_file") {
				return actortest.Reply{Text: "the expert is offered write_file"}
			}
			if last := r.Prompt.Messages[len(r.Prompt.Messages)-1]; last.ToolName == "write_file" {
				return actortest.Reply{Text: last.Text}
			}
			return actortest.Reply{Calls: write}
		},
	})})
	s, w := h.Create(&messages.CreateSession{Agent: "desk", Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}})
	actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{WorkerId: w, Tools: []string{"handoff", "read_file"}})
	if got := h.Run(s, "go").GetText(); !strings.Contains(got, "not in the toolset") || !strings.Contains(got, "reduced to") {
		t.Errorf("the expert was told %q", got)
	}
}

// TestWhoTakesOverAndChangesFilesWaitsUntilNobodyElseReads: the desk shares the folder with another reader, and the expert must not.
func TestWhoTakesOverAndChangesFilesWaitsUntilNobodyElseReads(t *testing.T) {
	gate := actortest.NewGate()
	agents := append(desk(), actors.Agent{Name: "reader", System: "You read.", Tools: []string{"read_file"}})
	h := actortest.New(t, actortest.Options{Agents: agents, Model: byAgent(map[string]actortest.Model{
		"reader": func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Err: gate.Pass(ctx), Text: "read"}
		},
		"desk": func(context.Context, *model.Request) actortest.Reply {
			return actortest.Reply{Calls: []*messages.ToolCall{handoff("1", "expert")}}
		},
		"expert": func(context.Context, *model.Request) actortest.Reply { return actortest.Reply{Text: "mine alone"} },
	})})
	folder := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	reads, _ := h.Create(&messages.CreateSession{Agent: "reader", Workspaces: folder})
	s, _ := h.Create(&messages.CreateSession{Agent: "desk", Workspaces: folder})
	first := submit(h, reads, "go")
	actortest.Wait(t, "the reader reads", gate.Came)
	second := submit(h, s, "go")
	actortest.Until(t, "the expert waits for the folder", func() bool {
		v := h.Worker(s)
		return v.GetAgent() == "expert" && v.GetWaiting().GetKind() == "lease"
	})
	gate.Open()
	actortest.Ask[*messages.TurnResult](h, reads, &messages.AwaitTurn{InputId: first})
	if got := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: second}).GetText(); got != "mine alone" {
		t.Errorf("the turn ended with %q", got)
	}
}
