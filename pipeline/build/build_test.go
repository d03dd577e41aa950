package build_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/pipeline/build"
)

type verdict struct {
	Good bool   `json:"good"`
	Why  string `json:"why"`
}

// everything uses each part of the package once.
func everything() *build.Pipeline {
	inner := build.New("inner")
	word := build.ParamOr(inner, "word", "", "x")
	build.Return(inner, "said", build.Agent[string](inner, "say", build.Ask{Prompt: build.Text("Say ", word)}).Output())

	p := build.New("everything")
	p.Describe("One of each.")
	p.Budget(build.Budget{USD: 1.5, Tokens: 1000, Wall: time.Hour, Pause: true})
	p.Concurrency(4)
	p.Rate(60, time.Minute)
	p.Workspace(build.Text("."), "restricted")
	p.Defaults(build.Defaults{Timeout: time.Minute, Retry: &build.Retry{Max: 2, On: []string{"schema"}}})
	writer := p.Profile("writer", build.Profile{System: "You write.", Tools: []string{"read_file"}})
	mute := p.Profile("mute", build.Profile{System: "Without tools."})
	topic := build.Param[string](p, "topic", "what about")
	files := build.ParamOr(p, "files", "", []string{"a", "b"})
	count := build.ParamOr(p, "count", "", 3)
	user := build.Env(p, "USER")

	draft := build.Agent[string](p, "draft", build.Ask{Agent: writer, Prompt: build.Text("Write about ", topic, " as ${{ this }} for ", user)})
	check := build.Agent[verdict](p, "check", build.Ask{Prompt: build.Text("Good?\n", draft.Output()), Repair: 2})
	more := build.Agent[string](p, "more", build.Ask{
		Rules: build.Rules{When: build.Not(build.Field[bool](check.Output(), "good")), Retry: &build.Retry{Max: 1}}, Agent: writer, Conversation: draft.Conversation(),
		Prompt: build.Text("Better: ", build.Field[string](check.Output(), "why")),
	})
	each := build.ForEach[string, verdict](p, "each", files, func(f build.Ref[string]) build.Ask {
		return build.Ask{Prompt: build.Text("Look at ", f), Key: f, Concurrency: 2, Quorum: 1, Rules: build.Rules{Continue: true}}
	})
	three := build.Parallel[string](p, "three", []string{writer, mute, "default"}, build.Ask{Prompt: build.Text("Say ", count), Quorum: 2, Rules: build.Rules{Continue: true}})
	loop := build.Agent[verdict](p, "loop", build.Ask{
		Prompt: build.Text("Again. ", build.Expr[string]("last?.why ?? %s", build.Const("nothing"))), Until: build.Field[bool](build.This[verdict](), "good"), MaxTimes: 5,
	})
	talk := build.Group(p, "talk", []string{writer, mute}, build.Ask{
		Prompt: build.Text("Is it good? ", build.Round(), check.Output()), Until: build.Expr[bool]("%s == %s && %s == 'yes'", build.Member(), build.Const("mute"), build.This[string]()), MaxTimes: 3, Quorum: 2,
	})
	tool := build.Tool(p, "tool", "read_file", map[string]any{"path": build.Text("dir/", topic), "limit": 3}, build.Rules{
		After: []build.Stepper{loop}, Approve: &build.Approve{Message: build.Text("Read ", topic, "?"), Timeout: time.Minute},
	})
	gate := build.Human(p, "gate", build.Question{Message: build.Text("Post?"), Show: build.Items(each), Choices: []string{"post", "drop"}, Timeout: time.Hour, OnTimeout: "drop"}, build.Rules{})
	nested := build.Run(p, "nested", inner, map[string]any{"word": topic}, build.Rules{Timeout: time.Minute, Budget: &build.Budget{Tokens: 500, Pause: true}})

	everyCall(p, topic, files)
	build.Return(p, "text", build.Or(more.Output(), "it was good"))
	build.Return(p, "all", build.Expr[[]any]("[%s, %s, %s]", three.Output(), tool.Output(), draft.Status()))
	build.Return(p, "talk", talk.Output())
	build.Return(p, "posted", build.Is(gate.Output(), "post"))
	build.Return(p, "said", build.Field[string](nested.Output(), "said"))
	return p
}

// everyCall uses what tools and pipelines are called by.
func everyCall(p *build.Pipeline, topic build.Ref[string], files build.Ref[[]string]) {
	inner := build.New("round")
	text := build.ParamMaybe[string](inner, "text", "what to improve")
	place := build.PathParam(inner, "place", "where it is")
	better := build.Agent[string](inner, "better", build.Ask{Prompt: build.Text(build.Or(text, "nothing"), " ", place, build.RunName()), ModelOf: build.Const("scripted/x")})
	build.Return(inner, "text", better.Output())

	word := build.FileParam(p, "word", "the word")
	tools := build.ToolEach(p, "tools", "read_file", files, func(f build.Ref[string]) build.Call {
		return build.Call{Args: map[string]any{"path": f, "limit": build.Index()}, Key: build.Expr[string]("%s + %s", f, build.Const("!")), Concurrency: 2, Quorum: 1, Rules: build.Rules{Continue: true}}
	})
	wait := build.ToolUntil(p, "wait", "read_file", build.Call{Args: map[string]any{"path": "done"}, Until: build.Expr[bool]("%s contains %s", build.This[string](), build.Const("done")), MaxTimes: 3})
	each := build.RunEach(p, "each_run", inner, files, func(f build.Ref[string]) build.Call {
		return build.Call{Args: map[string]any{"text": build.Read(f), "place": build.Key()}}
	})
	again := build.RunUntil(p, "again", inner, build.Call{
		Args: map[string]any{"text": build.Expr[string]("last?.text ?? %s", topic), "place": build.RunID()}, Until: build.Expr[bool]("len(%s.text) > 3", build.This[map[string]any]()),
	})
	any3 := build.Agent[map[string]any](p, "any3", build.Ask{
		Rules: build.Rules{
			Retry:   &build.Retry{Max: 2, Backoff: "linear", Initial: time.Second, On: []string{"timeout", "unknown"}},
			Approve: &build.Approve{Before: []string{"read_file"}, Message: build.Text("Read?"), Timeout: time.Minute},
		},
		Model:  "scripted/y",
		Prompt: build.Text("Sum up ", wait.Output(), word), Schema: map[string]any{"type": "object", "required": []string{"n"}, "properties": map[string]any{"n": map[string]any{"type": "integer"}}}, Repair: 1,
	})
	build.Return(p, "calls", build.Expr[[]any]("[%s, %s, %s, %s, %s]", tools.Output(), each.Output(), again.Output(), build.Field[int](any3.Output(), "n"), any3.Usage()))
}

// Each key that a file may have is written by something of this package.
func TestWhateverAFileSaysCanBeBuilt(t *testing.T) {
	text, err := everything().Source()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	first := func(m any) map[string]any {
		for _, v := range m.(map[string]any) {
			return v.(map[string]any)
		}
		return nil
	}
	inner := func(key string) func(step string) string {
		return func(unknown string) string { return "{id: a, agent: x, prompt: x, " + key + ": {" + unknown + "}}" }
	}
	for what, c := range map[string]struct {
		step    func(unknown string) string // that has a key too many
		written func(step map[string]any) map[string]any
		not     []string
	}{
		"a step":  {func(u string) string { return "{" + u + "}" }, func(s map[string]any) map[string]any { return s }, []string{"as"}}, // which is always item
		"repeat":  {inner("repeat"), func(s map[string]any) map[string]any { m, _ := s["repeat"].(map[string]any); return m }, nil},
		"retry":   {inner("retry"), func(s map[string]any) map[string]any { m, _ := s["retry"].(map[string]any); return m }, nil},
		"budget":  {inner("budget"), func(s map[string]any) map[string]any { m, _ := s["budget"].(map[string]any); return m }, []string{"usd", "wall"}},  // as that of the file
		"approve": {inner("approve"), func(s map[string]any) map[string]any { m, _ := s["approve"].(map[string]any); return m }, []string{"on_timeout"}}, // which is always reject
		"human":   {inner("human"), func(s map[string]any) map[string]any { m, _ := s["human"].(map[string]any); return m }, nil},
		"output":  {inner("output"), func(s map[string]any) map[string]any { m, _ := s["output"].(map[string]any); return m }, nil},
	} {
		keys := map[string]bool{}
		for _, s := range doc["steps"].([]any) {
			for k := range c.written(s.(map[string]any)) {
				keys[k] = true
			}
		}
		for _, k := range known(t, "version: 1\nname: x\nsteps:\n  - "+c.step("qqqqqqqqq: 1")+"\n") {
			if !keys[k] && !slices.Contains(c.not, k) {
				t.Errorf("%s: nothing writes %q", what, k)
			}
		}
	}
	for _, k := range known(t, "version: 1\nname: x\nqqqqqqqqq: 1\n") {
		if doc[k] == nil {
			t.Errorf("nothing writes %q", k)
		}
	}
	if keys := first(doc["agents"]); keys["system"] == nil {
		t.Error("an agent has no system prompt")
	}
}

// known are the keys that stand in the place of one that there is not.
func known(t *testing.T, text string) []string {
	t.Helper()
	_, err := pipeline.Parse("x.yaml", text, pipeline.Options{})
	_, rest, ok := strings.Cut(fmt.Sprint(err), "known are ")
	if !ok {
		t.Fatalf("%s: %v", text, err)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Split(line, ", ")
}

func TestWhatIsBuiltIsAPipelineLikeAnyOther(t *testing.T) {
	p := everything()
	plan, err := p.Plan(pipeline.Options{Tools: []string{"read_file"}, Agents: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := pipeline.FromSources(plan.Sources, pipeline.Options{})
	if err != nil || string(again.Hash) != string(plan.Hash) {
		t.Errorf("what is written down of it is another plan: %v", err)
	}
	text, err := p.Source()
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/everything.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(text) {
		t.Errorf("the text is not that of %s (UPDATE_GOLDEN=1 writes it):\n%s", golden, text)
	}
}

func TestMistakesAreToldAllAtOnce(t *testing.T) {
	p := build.New("wrong")
	build.Param[string](p, "a", "")
	build.Param[string](p, "a", "")
	build.Param[chan int](p, "b", "")
	p.Rate(3, time.Millisecond)
	build.Agent[string](p, "s", build.Ask{Prompt: build.Text("x", 5, build.Ref[string]{})})
	build.Tool(p, "t", "read_file", map[string]any{"path": []any{build.Expr[string]("%s + %s", build.Const("a"))}}, build.Rules{})
	build.Agent[func()](p, "f", build.Ask{Prompt: build.Text("x")})
	_, err := p.Plan(pipeline.Options{})
	if err == nil {
		t.Fatal("it is a plan")
	}
	for _, want := range []string{
		"param a: this name is taken", "param b: no parameter has type chan int", "rate: per 1ms", "step s: part 2 of a text is a int", "step s:", "the zero Ref",
		"step t: expression", "step f: no schema",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestWhatOnlyThePlanKnowsIsToldByIt(t *testing.T) {
	p := build.New("wrong")
	check := build.Agent[verdict](p, "check", build.Ask{Prompt: build.Text("x")})
	build.Return(p, "out", build.Field[string](check.Output(), "reason"))
	_, err := p.Plan(pipeline.Options{})
	var problems pipeline.Problems
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), "reason") {
		t.Errorf("a field that there is not: %v", err)
	}
	p = build.New("unknown")
	build.Agent[string](p, "a", build.Ask{Agent: "nobody", Prompt: build.Text("x")})
	if _, err := p.Plan(pipeline.Options{Agents: []string{"default"}}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an agent that there is not: %v", err)
	}
}

func TestTwoPipelinesOfOneNameAreNoneOfThem(t *testing.T) {
	say := func(what string) *build.Pipeline {
		inner := build.New("inner")
		build.Return(inner, "said", build.Agent[string](inner, "say", build.Ask{Prompt: build.Text(what)}).Output())
		return inner
	}
	p, left, right := build.New("top"), build.New("left"), build.New("right")
	for i, outer := range []*build.Pipeline{left, right} {
		build.Run(outer, "in", say([]string{"a", "b"}[i]), nil, build.Rules{})
		build.Run(p, outer.Name(), outer, nil, build.Rules{})
	}
	if _, err := p.Plan(pipeline.Options{}); err == nil || !strings.Contains(err.Error(), "pipeline inner: there are two of this name") {
		t.Errorf("it is %v", err)
	}
}

func TestResultsAreRead(t *testing.T) {
	p := build.New("results")
	r := build.Return(p, "v", build.Const(verdict{Good: true}))
	b, _ := json.Marshal(map[string]any{"v": verdict{true, "so"}})
	if v, err := r.From(string(b)); err != nil || v != (verdict{true, "so"}) {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "{}", `{"v": 5}`} {
		if v, err := r.From(bad); err == nil {
			t.Errorf("of %q: %v", bad, v)
		}
	}
}
