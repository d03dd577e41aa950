package troupe_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/pipeline/build"
)

type judgement struct {
	Good bool   `json:"good"`
	Why  string `json:"why"`
}

// oddText is nothing that a builder of texts may take for more than it is.
const oddText = "a \"${{ inputs.x }}\" }} {{ <b> & \u2028 \\ 'q' ${{"

func TestAPipelineThatWasBuiltInGoRunsToItsTypedOutputs(t *testing.T) {
	p := build.New("flow")
	topic := build.Param[string](p, "topic", "what to write about")
	parts := build.ParamOr(p, "parts", "", []string{"a", "b"})
	writer := p.Profile("writer", build.Profile{System: "You write."})
	judge := p.Profile("judge", build.Profile{System: "You judge."})
	draft := build.Agent[string](p, "draft", build.Ask{Agent: writer, Prompt: build.Text("draft of ", topic)})
	each := build.ForEach[string, string](p, "each", parts, func(part build.Ref[string]) build.Ask {
		return build.Ask{Agent: writer, Prompt: build.Text("part ", part, " of ", draft.Output()), Key: part}
	})
	verdict := build.Agent[judgement](p, "judge", build.Ask{Agent: judge, Prompt: build.Text("judge ", build.Expr[int]("len(%s)", build.Items(each))), Repair: 1})
	more := build.Agent[string](p, "more", build.Ask{Agent: writer, Prompt: build.Text("once more"), Conversation: draft.Conversation()})
	skipped := build.Agent[string](p, "skipped", build.Ask{Prompt: build.Text("never"), Rules: build.Rules{When: build.Is(topic, "nothing")}})
	all := build.Return(p, "parts", each.Output())
	good := build.Return(p, "judged", verdict.Output())
	again := build.Return(p, "more", more.Output())
	none := build.Return(p, "skipped", build.Or(skipped.Output(), oddText))
	odd := build.Return(p, "odd", build.Const(oddText))
	split := build.Return(p, "split", build.Expr[string]("%s", build.Const("{{ env.HOME }}")))
	sum := build.Return(p, "sum", build.Expr[int]("%s * 2", build.Expr[int]("1 + 2")))
	asked := build.Tool(p, "asked", "read_file", map[string]any{"path": build.Text("$", oddText), "limit": 1}, build.Rules{Continue: true})
	broken := build.Agent[judgement](p, "broken", build.Ask{Prompt: build.Text("break $", "{{ env.HOME }} ", topic), Rules: build.Rules{Continue: true}})
	instead := build.Return(p, "instead", build.Or(build.Field[string](broken.Output(), "why"), "none"))
	show := build.Human(p, "show", build.Question{
		Message: build.Text("$", "{{ env.HOME }}"), Show: build.Const([]string{"x"}), Choices: []string{"no"}, Timeout: time.Second, OnTimeout: "no",
	}, build.Rules{})
	shown := build.Return(p, "shown", show.Output())
	failed := build.Return(p, "failed", asked.Status())

	plan, err := p.Plan(pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(`
rules:
  - {agent: writer, match: '^draft of (\w+)$', reply: {text: 'All about ${1}.'}}
  - {agent: writer, match: '^part (\w) of (.*)$', reply: {text: '${1}: ${2}'}}
  - {agent: judge, match: '^judge 2', turn: 1, reply: {text: '{"good": "yes"}'}}
  - {agent: judge, match: 'does not fit', turn: 2, reply: {text: '{"good": true, "why": "so"}'}}
  - {match: '^break \$\{\{ env.HOME \}\} rivers$', reply: {text: 'It does not fit.'}}
  - {agent: writer, match: 'once more', turn: 2, reply: {text: 'Again.'}}
`), DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{Inputs: map[string]any{"topic": "rivers"}, Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil || v.GetState() != pipeline.Succeeded {
		t.Fatalf("%v, %v", v, err)
	}
	is(t, all, v, []string{"a: All about rivers.", "b: All about rivers."})
	is(t, good, v, judgement{true, "so"})
	is(t, again, v, "Again.")
	is(t, none, v, oddText)
	is(t, odd, v, oddText)
	is(t, failed, v, "failed")
	is(t, split, v, "{{ env.HOME }}")
	is(t, sum, v, 6)
	is(t, instead, v, "none")
	is(t, shown, v, "no")
}

func is[T any](t *testing.T, r build.Result[T], v *troupe.RunView, want T) {
	t.Helper()
	got, err := r.From(v.GetOutputsJson())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v is wanted, it is %v, %v", want, got, err)
	}
}

func TestToolsAndPipelinesThatAreBuiltOverListsAndRoundsRunToTheirOutputs(t *testing.T) {
	inner := build.New("round")
	text := build.ParamMaybe[string](inner, "text", "")
	better := build.Agent[string](inner, "better", build.Ask{Prompt: build.Text("better ", build.Or(text, "nothing"))})
	build.Return(inner, "text", better.Output())

	p := build.New("calls")
	files := build.ParamOr(p, "files", "", []string{"a.txt", "b.txt"})
	lists := build.ToolEach(p, "lists", "read_file", files, func(f build.Ref[string]) build.Call {
		return build.Call{Args: map[string]any{"path": f}, Key: build.Expr[string]("%s + %s", f, build.Const("!"))}
	})
	each := build.RunEach(p, "each", inner, files, func(f build.Ref[string]) build.Call {
		return build.Call{Args: map[string]any{"text": build.Read(f)}, Rules: build.Rules{After: []build.Stepper{lists}}}
	})
	again := build.RunUntil(p, "again", inner, build.Call{
		Args:  map[string]any{"text": build.Field[string](build.Or(build.Last[map[string]any](), map[string]any{"text": "x"}), "text")},
		Until: build.Expr[bool]("len(%s) > 3", build.Field[string](build.This[map[string]any](), "text")),
	})
	keys := build.Return(p, "keys", build.Expr[[]string]("map(%s, .key)", build.Items(lists)))
	texts := build.Return(p, "texts", build.Expr[[]string]("map(%s, .text)", each.Output()))
	rounds := build.Return(p, "rounds", again.Output())
	used := build.Return(p, "used", again.Usage())
	plan, err := p.Plan(pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(`{name: s, rules: [{match: '^better (.*)', reply: {text: '${1}+'}}]}`), DataDir: t.TempDir()})
	run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	v, err := run.Wait(ctx)
	if err != nil || v.GetState() != pipeline.Succeeded {
		t.Fatalf("%v, %v", v, err)
	}
	is(t, keys, v, []string{"a.txt!", "b.txt!"})
	is(t, texts, v, []string{"of a.txt+", "of b.txt+"})
	is(t, rounds, v, map[string]any{"text": "x+++"})
	if u, err := used.From(v.GetOutputsJson()); err != nil || u.InputTokens == 0 || u.InputTokens >= v.GetUsage().GetInputTokens() {
		t.Errorf("three rounds have used %v, %v, and all together %v", u, err, v.GetUsage())
	}
}
