package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

const eachOfMany = head + `
inputs: {n: {type: integer, default: 10}}
steps:
  - {id: each, foreach: "1..inputs.n", agent: x, prompt: "${{ item }}"}
`

// underWay counts what a run has under way: pipelines by how deep they are, and items that somebody works on.
func underWay(s *pipeline.State) (pipelines map[int]int, items int) {
	pipelines = map[int]int{}
	for _, ss := range s.Live() {
		for _, it := range ss.Under() {
			switch {
			case it.Status != pipeline.Running:
			case ss.Step.Kind == pipeline.NestedStep:
				pipelines[strings.Count(ss.Path, "/")]++
			default:
				items++
			}
		}
	}
	return pipelines, items
}

func TestOfManyPipelinesOfManyItemsFewAreUnderWay(t *testing.T) {
	files := map[string]string{
		"outer.yaml": head + "inputs: {n: {type: integer, default: 10}}\nsteps:\n  - {id: in, foreach: '1..30', pipeline: inner.yaml, with: {n: '${{ inputs.n }}'}}\n  - {id: too, foreach: '1..30', pipeline: inner.yaml}\n",
		"inner.yaml": eachOfMany,
	}
	for says, most := range map[string]int{"": pipeline.DefaultConcurrency, "limits: {concurrency: 3}\n": 3} {
		b := newBench(t, head+says+"steps:\n  - {id: out, foreach: '1..40', pipeline: outer.yaml}\n  - {id: beside, foreach: '1..40', concurrency: 1000, pipeline: outer.yaml}\n", "{}", files)
		for range 300 {
			b.decide()
			it := b.open()[0]
			b.apply(b.s.Settle(b.world(), it.Step().Path, it.Index, it.Input, echo(it)))
			pipelines, items := underWay(b.s)
			if pipelines[0] > most || pipelines[1] > most || items > most {
				t.Fatalf("%q: %v pipelines and %d items are under way, and %d may be", says, pipelines, items, most)
			}
		}
		if pipelines, items := underWay(b.s); pipelines[0] != most || pipelines[1] != most || items != most-1 { // one has just ended
			t.Errorf("%q: only %v pipelines and %d items are under way, and %d may be", says, pipelines, items, most)
		}
	}
}

func TestPipelinesWithinPipelinesEndWithRoomForOne(t *testing.T) {
	files := map[string]string{
		"outer.yaml": head + "steps:\n  - {id: in, foreach: '1..3', pipeline: inner.yaml}\n  - {id: ask, needs: [in], human: {message: 'Go on?', choices: [yes, no]}}\n",
		"inner.yaml": eachOfMany,
	}
	b := newBench(t, head+"limits: {concurrency: 1}\nsteps:\n  - {id: out, foreach: '1..4', concurrency: 4, pipeline: outer.yaml}\noutputs: {n: '${{ len(steps.out.items) }}'}\n", "{}", files)
	asked := 0
	b.run(func(n int) int {
		for i, it := range b.open() { // people last: who waits for them alone is in nobody's way
			if !it.Asks() {
				return i
			}
		}
		asked = max(asked, n)
		return 0
	}, echo)
	if out := b.outputs(); out["n"] != 4.0 || asked != 4 {
		t.Errorf("it gave %v, and %d people were asked at once", out, asked)
	}
}

func TestARunHasOnlySoManyItems(t *testing.T) {
	files := map[string]string{"inner.yaml": eachOfMany}
	b := newBench(t, head+"limits: {concurrency: 50}\nsteps:\n  - {id: out, foreach: '1..50', pipeline: inner.yaml, with: {n: 10000}}\n", "{}", files)
	b.decide()
	items := 0
	for _, ss := range b.s.Steps() {
		items += len(ss.Items)
	}
	if items > 100_000 || items < 90_000 {
		t.Errorf("the run has %d items", items)
	}
	why := ""
	for _, f := range b.facts {
		if f, ok := f.(*messages.StepFinished); ok && f.GetError() != "" {
			why = f.GetError()
		}
	}
	if !strings.Contains(why, "at most 100000") {
		t.Errorf("the step that was too much failed with %q", why)
	}
}

func TestWhatIsDecidedAtOnceFitsIntoAnAppend(t *testing.T) {
	step := func(b *bench) {
		facts := b.s.Decide(b.world())
		size, asked := 0, 0
		for _, f := range facts {
			size += proto.Size(f)
			if _, asks := f.(*messages.HumanAsked); asks {
				asked++
			}
		}
		if len(facts) > 1000 || asked > 64 || size > 5<<20 {
			t.Fatalf("%d facts of %d bytes with %d questions are to be written at once", len(facts), size, asked)
		}
		for _, f := range facts {
			b.apply(f)
		}
	}
	t.Run("questions", func(t *testing.T) {
		b := newBench(t, head+"steps:\n  - {id: ask, foreach: '1..3000', agent: x, prompt: x, approve: {message: 'Is ${{ item }} good?'}}\n", "{}", nil)
		for range 60 {
			step(b)
		}
		if n := len(b.open()); n != 1000 {
			t.Errorf("%d people are asked at once", n)
		}
		b.apply(&messages.RunCancelled{})
		for range 10 {
			step(b)
		}
		if b.s.Finished.GetStatus() != pipeline.Cancelled {
			t.Errorf("the run is %v", b.s.Finished)
		}
	})
	t.Run("items that cannot begin", func(t *testing.T) {
		b := newBench(t, head+"inputs: {list: {type: list, default: []}}\nsteps:\n  - {id: each, foreach: '1..6000', on_error: continue, agent: x, prompt: '${{ inputs.list[item] }}'}\n", "{}", nil)
		for range 20 {
			step(b)
		}
		if b.s.Finished.GetStatus() != pipeline.Succeeded {
			t.Errorf("the run is %v", b.s.Finished)
		}
	})
	t.Run("long prompts", func(t *testing.T) {
		b := newBench(t, head+"limits: {concurrency: 30}\ninputs: {text: {}}\nsteps:\n  - {id: each, foreach: '1..30', agent: x, prompt: '${{ inputs.text }}'}\n", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 900<<10)), nil)
		for range 20 {
			step(b)
		}
		if _, items := underWay(b.s); items != 30 {
			t.Errorf("%d items are under way", items)
		}
	})
}

func TestWhatTenThousandItemsCameToIsHandedOnWhole(t *testing.T) {
	b := newBench(t, head+`
limits: {concurrency: 20000}
steps:
  - {id: first, foreach: "1..10000", agent: x, prompt: "read ${{ item }}"}
  - {id: second, needs: [first], foreach: 'filter(steps.first.items, .index != 3)', key: '"again " + item.key', agent: x, prompt: "check ${{ item.output[:9] }} of ${{ item.value }}"}
`, "{}", nil)
	long := strings.Repeat("word ", 150)
	for range 30 {
		facts := b.s.Decide(b.world())
		for _, f := range facts {
			b.apply(f)
			if f, ok := f.(*messages.StepStarted); ok && proto.Size(f) > 1<<20 {
				t.Fatalf("the items of step %s are written down in %d bytes", f.GetStep(), proto.Size(f))
			}
		}
		if len(b.s.Steps()[1].Items) > 0 {
			break
		}
		if len(facts) > 0 {
			continue
		}
		for _, it := range b.s.Steps()[0].Under() {
			b.apply(b.s.Settle(b.world(), "first", it.Index, it.Input, pipeline.Result{OK: true, Text: it.Start.GetPrompt() + long}))
		}
	}
	b.again()
	for _, f := range b.s.Decide(b.world()) {
		b.apply(f)
	}
	second := b.s.Steps()[1].Items
	if len(second) != 9999 {
		t.Fatalf("the second step has %d items", len(second))
	}
	for i, at := range map[int]int{0: 1, 2: 3, 3: 5, 998: 1000} {
		if it := second[i]; it.Key != fmt.Sprintf("again %d", at-1) || it.Start.GetPrompt() != fmt.Sprintf("check %.9s of %d", fmt.Sprintf("read %d%s", at, long), at) {
			t.Errorf("item %d is %q, and is asked %q", i, it.Key, it.Start.GetPrompt())
		}
	}
}

func TestAListThatIsMadeAnewIsBoundedAndSaysWhatMayBeLonger(t *testing.T) {
	b := newBench(t, head+"inputs: {text: {}}\nsteps:\n  - {id: each, foreach: 'map(1..10, {inputs.text})', agent: x, prompt: '${{ item }}'}\n", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 500<<10)), nil)
	b.decide()
	if why := b.s.Finished.GetError(); !strings.Contains(why, "longer than 4194304 bytes; steps.X.items") {
		t.Errorf("it failed with %q", why)
	}
}

func TestWhatAPipelineUsedBeforeItWasTriedAgainIsItsSteps(t *testing.T) {
	files := map[string]string{"inner.yaml": head + "steps:\n  - {id: a, agent: x, prompt: a}\n  - {id: b, needs: [a], agent: x, prompt: b}\n"}
	b := newBench(t, head+"steps:\n  - {id: in, pipeline: inner.yaml, retry: {max: 2, initial: 1s, on: [timeout]}, timeout: 10s}\noutputs: {used: '${{ steps.in.items[0].usage.input_tokens }}', all: '${{ steps.in.usage.input_tokens }}'}\n", "{}", files)
	b.decide()
	for range 2 { // its first step ends, and its second takes too long
		b.settle("in/a", 0, echo(b.s.Item("in/a", 0)))
		b.decide()
		b.now = b.now.Add(11e9)
		b.decide()
		b.now, b.begun = b.now.Add(2e9), map[string]int{} // an attempt of the pipeline begins its steps anew
		b.decide()
	}
	b.run(first, echo)
	if out := b.outputs(); out["used"] != 4.0 || out["all"] != 4.0 || b.s.Usage.GetInputTokens() != 4 {
		t.Errorf("it used %v, and the run %d", out, b.s.Usage.GetInputTokens())
	}
	b.again()
	counted(t, b.s)
}

func TestWhatStepsUsedThatAPlanHasNoMoreIsKept(t *testing.T) {
	b := newBench(t, head+"steps:\n  - {id: a, agent: x, prompt: a}\n  - {id: b, needs: [a], agent: x, prompt: b}\n  - {id: c, needs: [b], agent: x, prompt: c}\n", "{}", nil)
	b.decide()
	b.settle("a", 0, echo(b.s.Item("a", 0)))
	b.decide()
	b.settle("b", 0, echo(b.s.Item("b", 0)))
	b.decide()
	b.begun = map[string]int{}
	b.change(head + "steps:\n  - {id: b, foreach: '1..2', agent: x, prompt: b}\n  - {id: c, needs: [b], agent: x, prompt: c}\n")
	counted(t, b.s)
	if n := b.s.Gone().GetInputTokens(); n != 2 {
		t.Errorf("of steps that are gone %d tokens are known", n)
	}
	b.run(first, echo)
	counted(t, b.s)
}

// What waits for room of a kind that there is none of is not due: a run would look again and again for nothing.
func TestAPipelineThatWaitsForRoomToBeTriedAgainIsNotDue(t *testing.T) {
	files := map[string]string{"inner.yaml": head + "steps:\n  - {id: a, agent: x, prompt: a, timeout: 1s, retry: {max: 1, initial: 1h, on: [timeout]}}\n"}
	b := newBench(t, head+"limits: {concurrency: 1}\nsteps:\n  - {id: out, foreach: '1..2', pipeline: inner.yaml, timeout: 4s, retry: {max: 1, initial: 1s, on: [timeout]}}\n", "{}", files)
	waited := false
	for b.s.Finished == nil {
		if facts := b.s.Decide(b.world()); len(facts) > 0 {
			for _, f := range facts {
				b.apply(f)
			}
			b.begun = map[string]int{} // an attempt of the pipeline begins its steps anew
			continue
		}
		due := b.s.Due(b.now)
		if !due.After(b.now) {
			t.Fatalf("at %v it is due at %v, and has nothing to say", b.now, due)
		}
		pipelines, items := underWay(b.s)
		waited = waited || pipelines[0] == 1 && items == 0
		b.now = due
	}
	if !waited {
		t.Error("no pipeline has waited for another one that has nothing under way")
	}
}

// Whoever has to end says what it used first: what is around it is over after that.
func TestAPipelineWhoseTimeIsOverEndsAfterThoseWhoWorkInIt(t *testing.T) {
	files := map[string]string{"inner.yaml": head + "steps:\n  - {id: a, agent: x, prompt: a}\n  - {id: b, tool: read_file, with: {path: p}}\n"}
	for why, state := range map[string]string{"late": pipeline.Failed, "cancelled": pipeline.Cancelled} {
		b := newBench(t, head+"steps:\n  - {id: in, pipeline: inner.yaml, timeout: 5s}\n", "{}", files)
		b.decide()
		if b.now = b.now.Add(6 * time.Second); why == "cancelled" {
			b.apply(&messages.RunCancelled{})
		}
		w := b.world()
		w.Ending = func(it *pipeline.ItemState) bool { return it.Step().Path == "in/a" }
		for range 3 {
			for _, f := range b.s.Decide(w) {
				b.apply(f)
			}
		}
		a, tool := b.s.Item("in/a", 0), b.s.Item("in/b", 0)
		if b.s.Finished != nil || a.Status != pipeline.Running || tool.Status != pipeline.Cancelled || b.s.Item("in", 0).Status != pipeline.Running {
			t.Fatalf("%s: before its last word a is %s, b %s, and the run %v", why, a.Status, tool.Status, b.s.Finished)
		}
		b.apply(b.s.Settle(w, "in/a", 0, a.Input, pipeline.Result{Error: "it was cancelled", Usage: &messages.Usage{InputTokens: 7}}))
		b.decide()
		if b.s.Finished.GetStatus() != state || a.Status != pipeline.Cancelled || b.s.Finished.GetUsage().GetInputTokens() != 7 {
			t.Errorf("%s: a is %s, and the run %v", why, a.Status, b.s.Finished)
		}
	}
}

// Paths of steps of pipelines are made of the keys: two of the same would be one.
func TestNoTwoItemsHaveTheSameKey(t *testing.T) {
	b := newBench(t, head+"steps:\n  - {id: each, foreach: '[\"a#2\", \"a\", \"a\", \"a\"]', agent: x, prompt: '${{ item }}'}\n", "{}", nil)
	b.decide()
	keys := map[string]bool{}
	for _, it := range b.s.Steps()[0].Items {
		keys[it.Key] = true
	}
	if len(keys) != 4 {
		t.Errorf("four items have the keys %v", keys)
	}
}
