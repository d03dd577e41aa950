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
)

// delegate makes a call that delegates a task.
func delegate(id, task string, more ...string) *messages.ToolCall {
	return actortest.Call(id, "delegate", fmt.Sprintf(`{"task":%q%s}`, task, strings.Join(more, "")))
}

// isChild says whether a request is of a child: its prompt says so.
func isChild(r *model.Request) bool {
	return strings.Contains(r.Prompt.System, "has delegated a task to you")
}

// family is a model of a parent that makes calls and of children that do what do says.
func family(do actortest.Model, calls ...*messages.ToolCall) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		if isChild(r) {
			return do(ctx, r)
		}
		return actortest.CallThenSay(calls...)(ctx, r)
	}
}

// workers are the live views of all workers of a session.
func workers(h *actortest.House, session string) []*messages.WorkerView {
	return actortest.Ask[*messages.SessionView](h, session, &messages.DescribeSession{}).GetWorkers()
}

// finishedCalls are the results of a worker's calls.
func finishedCalls(h *actortest.House, worker string) []*messages.ToolFinished {
	return actortest.Of[*messages.ToolFinished](h.Facts(worker))
}

func TestAChildsAnswerIsTheResultOfTheCall(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: family(func(_ context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Text: "done: " + actortest.Asked(r)}
	}, delegate("1", "count the files"))})
	s, w := h.Create(&messages.CreateSession{})
	if got := h.Run(s, "go").GetText(); got != "done: count the files\n" {
		t.Errorf("the parent was told %q", got)
	}
	all := workers(h, s)
	if len(all) != 2 || all[1].GetParent() != w || all[1].GetTurns() != 1 {
		t.Fatalf("the workers are %v", all)
	}
	planned := actortest.Of[*messages.ToolPlanned](h.Facts(w))[0]
	if child := all[1].GetId(); strings.TrimPrefix(child, "wrk_") != strings.TrimPrefix(planned.GetExecId(), "exe_") {
		t.Errorf("child %s of call %s", child, planned.GetExecId())
	}
	meta := finishedCalls(h, w)[0].GetMetaJson()
	for _, want := range []string{all[1].GetId(), `"outcome":"done"`, `"input_tokens":1`} {
		if !strings.Contains(meta, want) {
			t.Errorf("%s is not in the meta %s", want, meta)
		}
	}
}

func TestAChildOfAChildIsRefused(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: family(func(ctx context.Context, r *model.Request) actortest.Reply {
		if slices.ContainsFunc(r.Tools, func(d model.ToolDef) bool { return d.Name == "delegate" }) {
			return actortest.Reply{Text: "I am offered delegate"}
		}
		return actortest.CallThenSay(delegate("2", "and again"))(ctx, r)
	}, delegate("1", "delegate it"))})
	s, _ := h.Create(&messages.CreateSession{})
	if got := h.Run(s, "go").GetText(); !strings.Contains(got, "cannot delegate further") {
		t.Errorf("the child was told %q", got)
	}
	if n := len(workers(h, s)); n != 2 {
		t.Errorf("%d workers", n)
	}
}

func TestUnknownAgentsAndEmptyTasksAreRefusedAndTheTurnGoesOn(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		Agents: []actors.Agent{{Name: "reviewer", System: "You review."}},
		Model: family(actortest.Say("never"),
			delegate("1", "x", `,"agent":"nobody"`), delegate("2", " "), delegate("3", "x", `,"workspace_id":"nowhere"`)),
	})
	s, w := h.Create(&messages.CreateSession{})
	got := h.Run(s, "go").GetText()
	for _, want := range []string{`agent "nobody" is not configured; there are: default, reviewer`, "the task is empty", "Workspace 'nowhere' not found"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	for _, f := range finishedCalls(h, w) {
		if f.GetStatus() == messages.ToolFinished_OK {
			t.Errorf("%v", f)
		}
	}
}
