package troupe_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// noted is a model that asks for the tool `note` and then says what came of it; notes counts the calls.
func noted(t *testing.T, notes *atomic.Int64) troupe.Options {
	t.Helper()
	tool, err := tools.Func(tools.Spec{Name: "note", Description: "Notes.", Effect: messages.Effect_AT_MOST_ONCE, NoWorkspace: true},
		func(*tools.Context, struct{}) (*tools.Result, error) {
			notes.Add(1)
			return &tools.Result{Content: "noted"}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return troupe.Options{Tools: []troupe.Tool{tool}, Agents: []troupe.Agent{{Name: "default", Tools: []string{"note"}}}, Model: scripted(`
rules:
  - match: '^note'
    steps:
      - {tool_calls: [{name: note, arguments: {}}]}
      - {text: 'It is ${tool.content}.'}
`)}
}

// TestWhatAProgramDoesAgainUnderItsIdIsDoneOnce has a program that begins again from the start, in two processes, as one does that was killed.
func TestWhatAProgramDoesAgainUnderItsIdIsDoneOnce(t *testing.T) {
	var notes atomic.Int64
	o := noted(t, &notes)
	o.Store, o.DataDir = memoryOf(t), t.TempDir()
	plan := planOf(t, "version: 1\nname: p\nsteps: [{id: a, tool: note}]\n")
	var turn, session string
	for life := range 2 {
		rt, ctx := runtimeOf(t, o)
		s, err := rt.Session(ctx, troupe.SessionOptions{ID: "nightly-1", Rules: []string{"note"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			res, err := s.RunOnce(ctx, "first", "note it")
			if err != nil || res.Text != "It is noted." || turn != "" && res.Turn != turn {
				t.Fatalf("life %d: %+v, %v", life, res, err)
			}
			turn = res.Turn
		}
		if _, err := s.RunOnce(ctx, "first", "note something else"); code(err) != messages.CodeConflict {
			t.Errorf("other words under the same id: %v", err)
		}
		task, err := rt.Do(ctx, troupe.Task{ID: "job-7", Prompt: "hello", Conversation: nil})
		if err == nil || task != nil {
			t.Errorf("no rule answers: %+v, %v", task, err)
		}
		run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{ID: "run_nightly", Rules: []string{"note"}, NoInput: true})
		if err != nil {
			t.Fatal(err)
		}
		v, err := run.Wait(ctx)
		if err != nil || v.GetState() != "succeeded" || run.ID() != "run_nightly" || session != "" && run.Session() != session {
			t.Fatalf("life %d: %v, %v", life, v, err)
		}
		session = run.Session()
		other := planOf(t, "version: 1\nname: p\nsteps: [{id: b, tool: note}]\n")
		if _, err := rt.RunPipeline(ctx, other, troupe.RunOptions{ID: "nightly"}); code(err) != messages.CodeConflict {
			t.Errorf("another pipeline under the same id: %v", err)
		}
		if _, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{ID: "nightly-1"}); code(err) != messages.CodeConflict {
			t.Errorf("a run under the id of a session: %v", err)
		}
		if _, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{ID: messages.RunPrefix}); code(err) != messages.CodeBadRequest {
			t.Errorf("an id of which only the prefix is there: %v", err)
		}
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := notes.Load(); n != 2 {
		t.Errorf("it was noted %d times, and asked for in a prompt and a run", n)
	}
}

func TestATaskThatIsDoneAgainGivesWhatItCameTo(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted("rules: [{match: '^hello$', turn: 1, reply: {text: 'Good day.'}}]")})
	for range 2 {
		r, err := rt.Do(ctx, troupe.Task{ID: "job-7", Prompt: "hello"})
		if err != nil || r.FinalResponse != "Good day." || len(r.Conversation.Turns) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for _, id := range []string{"a b", "../x", "ses_"} {
		if _, err := rt.Session(ctx, troupe.SessionOptions{ID: id}); code(err) != messages.CodeBadRequest {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// code is that of a refusal.
func code(err error) string {
	var f *troupe.Failure
	if errors.As(err, &f) {
		return f.GetCode()
	}
	return ""
}
