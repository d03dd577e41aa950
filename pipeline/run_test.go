package pipeline_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// bench runs a pipeline without actors: facts are kept, and answers come from a function.
type bench struct {
	t     rapid.TB
	o     pipeline.Options
	s     *pipeline.State
	facts []proto.Message
	at    []int64
	now   time.Time
	begun map[string]int // attempts by step, index and attempt
}

func newBench(t rapid.TB, text string, inputs string, files map[string]string) *bench {
	t.Helper()
	o := pipeline.Options{Load: func(p string) ([]byte, error) { return []byte(files[p]), nil }}
	p, err := pipeline.Parse("t.yaml", text, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	b := &bench{t: t, o: o, s: pipeline.NewState(o), now: time.UnixMilli(1_000_000), begun: map[string]int{}}
	b.apply(&messages.RunStarted{RunId: "run_1", Sources: p.Sources, PlanHash: p.Hash, InputsJson: inputs, Name: p.Root.Name})
	return b
}

func (b *bench) world() pipeline.World { return pipeline.World{Now: b.now} }

func (b *bench) apply(f proto.Message) {
	b.t.Helper()
	b.facts, b.at = append(b.facts, f), append(b.at, b.now.UnixMilli())
	if err := b.s.Apply(f, &messages.Record{Seq: uint64(len(b.facts)), AtUnixMs: b.now.UnixMilli()}); err != nil {
		b.t.Fatalf("apply %T: %v", f, err)
	}
	counted(b.t, b.s)
	if st, ok := f.(*messages.StepItemStarted); ok {
		id := fmt.Sprint(st.GetStep(), "/", st.GetIndex(), "/", st.GetAttempt())
		if b.begun[id]++; b.begun[id] > 1 {
			b.t.Fatalf("%s was begun twice", id)
		}
	}
}

// again folds what was written so far anew, as a recovery does.
func (b *bench) again() {
	b.t.Helper()
	b.s = pipeline.NewState(b.o)
	for i, f := range b.facts {
		raw, err := proto.Marshal(f)
		if err != nil {
			b.t.Fatalf("%v", err)
		}
		read := f.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(raw, read); err != nil {
			b.t.Fatalf("%v", err)
		}
		if err := b.s.Apply(read, &messages.Record{Seq: uint64(i + 1), AtUnixMs: b.at[i]}); err != nil {
			b.t.Fatalf("%v", err)
		}
	}
}

// open are the items that somebody works on.
func (b *bench) open() (out []*pipeline.ItemState) {
	for _, ss := range b.s.Steps() {
		for _, it := range ss.Items {
			if it.Status == pipeline.Running && ss.Step.Kind != pipeline.NestedStep || it.Asked != nil && it.Answer == nil && it.Status == pipeline.Waiting {
				out = append(out, it)
			}
		}
	}
	return out
}

// run goes on until nothing more happens. pick chooses whose answer comes next, answer gives it.
func (b *bench) run(pick func(n int) int, answer func(it *pipeline.ItemState) pipeline.Result) {
	b.t.Helper()
	for range 100_000 {
		if b.s.Finished != nil {
			return
		}
		if facts := b.s.Decide(b.world()); len(facts) > 0 {
			for _, f := range facts {
				b.apply(f)
			}
			continue
		}
		due := b.s.Due(b.now)
		if !due.IsZero() && !due.After(b.now) {
			b.t.Fatalf("nothing is to be done now, and yet it is due: %v", b.facts)
		}
		open := b.open()
		if len(open) == 0 {
			if due.IsZero() {
				b.t.Fatalf("the run stands still: %v", b.facts)
			}
			b.now = due
			continue
		}
		it := open[pick(len(open))]
		path := it.Step().Path
		if it.Status == pipeline.Waiting {
			b.apply(&messages.HumanAnswered{Step: path, Index: int32(it.Index), ApprovalId: it.Asked.GetApprovalId(), Choice: it.Asked.GetChoices()[0]})
			continue
		}
		f := b.s.Settle(b.world(), path, it.Index, it.Input, answer(it))
		if f == nil {
			b.t.Fatalf("the answer of %s is not taken", path)
		}
		b.apply(f)
	}
	b.t.Fatalf("the run does not end")
}

func first(int) int { return 0 }

func echo(it *pipeline.ItemState) pipeline.Result {
	return pipeline.Result{OK: true, Text: it.Start.GetPrompt(), Usage: &messages.Usage{InputTokens: 1}, Lineage: &messages.Lineage{Conversation: "wrk_" + it.Step().Path, Seq: 9}}
}

func (b *bench) outputs() map[string]any {
	b.t.Helper()
	if b.s.Finished.GetStatus() != pipeline.Succeeded {
		b.t.Fatalf("the run ended as %v", b.s.Finished)
	}
	out := map[string]any{}
	if err := json.Unmarshal([]byte(b.s.Finished.GetOutputsJson()), &out); err != nil {
		b.t.Fatalf("%v", err)
	}
	return out
}

const everything = head + `
inputs: {list: {type: list}}
limits: {concurrency: 3, rate: 4/s}
defaults: {retry: {max: 2, initial: 1s, on: [timeout, schema]}, timeout: 1m}
steps:
  - {id: a, agent: x, prompt: "start"}
  - {id: each, needs: [a], foreach: inputs.list, as: word, agent: x, prompt: "do ${{ word }}", on_error: continue, concurrency: 2}
  - {id: none, needs: [a], when: steps.a.output == "other", agent: x, prompt: never}
  - {id: after, needs: [none], agent: x, prompt: never either}
  - {id: both, needs: [each, after], parallel: [x, y], prompt: "both ${{ len(steps.each.items) }}", quorum: 1}
  - {id: ask, needs: [both], human: {message: "Go on?", choices: [go, stop]}}
  - {id: loop, needs: [ask], agent: x, prompt: "round ${{ key }} after ${{ last }}", repeat: {until: 'len(output) > 40', max: 5}}
  - {id: sub, needs: [ask], foreach: inputs.list, pipeline: inner.yaml, with: {word: "${{ item }}"}}
  - {id: end, needs: [loop, sub], agent: x, prompt: "end", approve: {message: Sure?}, conversation: "${{ steps.loop.conversation }}"}
outputs:
  rounds: ${{ len(steps.loop.items) }}
  sub: ${{ map(steps.sub.items, .output.said) }}
  skipped: ${{ steps.after?.output ?? "skipped" }}
  ok: ${{ count(steps.each.items, .status == "succeeded") }}
`

const inner = head + `
inputs: {word: {required: true}}
steps:
  - {id: one, agent: x, prompt: "one ${{ inputs.word }}"}
  - {id: two, needs: [one], agent: x, prompt: "two ${{ steps.one.output }}"}
outputs: {said: "${{ steps.two.output }}"}
`

func TestEverythingAPipelineCanSayRunsToItsEnd(t *testing.T) {
	b := newBench(t, everything, `{"list":["p","q","r"]}`, map[string]string{"inner.yaml": inner})
	b.run(first, echo)
	got := b.outputs()
	if fmt.Sprint(got["sub"]) != "[two one p two one q two one r]" || got["skipped"] != "skipped" || got["ok"] != 3.0 || got["rounds"] != 3.0 {
		t.Errorf("outputs %v", got)
	}
}

// Any prefix of the facts of a run, folded, goes on to an end, and begins nothing that had begun.
func TestAnyPrefixOfARunGoesOnAndRepeatsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.StringMatching(`[a-c]`), 0, 4).Draw(t, "list")
		raw, _ := json.Marshal(list)
		b := newBench(t, everything, fmt.Sprintf(`{"list":%s}`, raw), map[string]string{"inner.yaml": inner})
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		answer := func(it *pipeline.ItemState) pipeline.Result {
			switch rapid.IntRange(0, 9).Draw(t, "answer") {
			case 0:
				return pipeline.Result{Class: "timeout", Error: "slow"}
			case 1:
				return pipeline.Result{Error: "broken"}
			}
			if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
				b.again() // the answer finds a state that was folded anew
			}
			return echo(it)
		}
		b.run(pick, answer)
		n := rapid.IntRange(1, len(b.facts)).Draw(t, "prefix")
		was := map[string]string{} // what had finished, and how
		b.facts, b.at, b.begun = b.facts[:n], b.at[:n], map[string]int{}
		for _, f := range b.facts {
			switch f := f.(type) {
			case *messages.StepItemStarted:
				b.begun[fmt.Sprint(f.GetStep(), "/", f.GetIndex(), "/", f.GetAttempt())]++
			case *messages.StepItemFinished:
				was[fmt.Sprint(f.GetStep(), "/", f.GetIndex())] = f.GetOutputJson()
			}
		}
		b.again()
		b.run(pick, answer)
		ends := map[string]int{}
		for _, f := range b.facts {
			switch f := f.(type) {
			case *messages.StepItemFinished:
				id := fmt.Sprint(f.GetStep(), "/", f.GetIndex())
				if ends[id]++; ends[id] > 1 {
					t.Fatalf("%s ended twice", id)
				}
				if out, ok := was[id]; ok && out != f.GetOutputJson() {
					t.Fatalf("%s gave %s and then %s", id, out, f.GetOutputJson())
				}
			case *messages.StepFinished:
				if ends[f.GetStep()]++; ends[f.GetStep()] > 1 {
					t.Fatalf("step %s ended twice", f.GetStep())
				}
			}
		}
	})
}

func TestAnAnswerThatDoesNotFitIsSentBackAndThenTriedAnew(t *testing.T) {
	b := newBench(t, head+`
steps:
  - id: a
    agent: x
    prompt: give me n
    output: {schema: {type: object, required: [n], properties: {n: {type: integer}}}, repair: 1}
    retry: {max: 1, initial: 5s, on: [schema]}
outputs: {n: "${{ steps.a.output.n + 1 }}"}
`, "", nil)
	answers := []string{"no json", `{"n":"x"}`, "```json\n{}\n```", "```json\n{\"n\": 41}\n```"}
	began := b.now
	b.run(first, func(*pipeline.ItemState) pipeline.Result {
		text := answers[0]
		answers = answers[1:]
		return pipeline.Result{OK: true, Text: text}
	})
	if got := b.outputs(); got["n"] != 42.0 || b.now.Sub(began) < 5*time.Second {
		t.Errorf("outputs %v after %s", got, b.now.Sub(began))
	}
	var kinds []string
	for _, f := range b.facts {
		kinds = append(kinds, strings.TrimPrefix(string(f.ProtoReflect().Descriptor().Name()), "StepItem"))
	}
	if want := "RunStarted StepStarted Started Repaired Retried Started Repaired Finished StepFinished RunFinished"; strings.Join(kinds, " ") != want {
		t.Errorf("facts %v, want %s", kinds, want)
	}
}

func TestQuorumAndErrorsOfItems(t *testing.T) {
	for _, c := range []struct{ step, want string }{
		{"parallel: [bad, x, y], quorum: 2", pipeline.Succeeded},
		{"parallel: [bad, bad, y], quorum: 2", pipeline.Failed},
		{"parallel: [bad, x]", pipeline.Failed},
		{"parallel: [bad, bad], on_error: continue", pipeline.Succeeded},
		{"agent: bad", pipeline.Failed},
		{"agent: bad, on_error: continue", pipeline.Succeeded},
	} {
		b := newBench(t, head+"steps:\n  - {id: a, "+c.step+", prompt: x}\n  - {id: b, needs: [a], agent: x, prompt: x}\n", "", nil)
		b.run(first, func(it *pipeline.ItemState) pipeline.Result {
			return pipeline.Result{OK: it.Start.GetAgent() != "bad", Error: "it is bad"}
		})
		if got := b.s.Finished.GetStatus(); got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.step, got, b.s.Finished.GetError(), c.want)
		}
	}
}

func TestAFailedRunIsResumedWhereItFailed(t *testing.T) {
	b := newBench(t, head+`
steps:
  - {id: a, agent: x, prompt: a}
  - {id: b, needs: [a], foreach: '["p","q"]', agent: x, prompt: "b ${{ item }}"}
outputs: {b: "${{ steps.b.output }}"}
`, "", nil)
	fail := true
	answer := func(it *pipeline.ItemState) pipeline.Result {
		if fail && it.Key == "q" {
			return pipeline.Result{Error: "no"}
		}
		return echo(it)
	}
	b.run(first, answer)
	if b.s.Finished.GetStatus() != pipeline.Failed || !strings.Contains(b.s.Finished.GetError(), "step b failed: item q: no") {
		t.Fatalf("ended as %v", b.s.Finished)
	}
	fail = false
	b.apply(&messages.RunResumed{By: "test"})
	b.run(first, answer)
	if got := b.outputs(); fmt.Sprint(got["b"]) != "[b p b q]" || b.begun["a/0/1"] != 1 || b.begun["b/0/1"] != 1 || b.begun["b/1/2"] != 1 {
		t.Errorf("outputs %v, begun %v", got, b.begun)
	}
}

func TestTimesOfPeopleAndAttempts(t *testing.T) {
	b := newBench(t, head+`
steps:
  - {id: ask, human: {message: "Well?", choices: [yes, no], timeout: 1h, on_timeout: no}}
  - {id: slow, needs: [ask], agent: x, prompt: x, timeout: 1m, on_error: continue}
outputs: {said: "${{ steps.ask.output }}", slow: "${{ steps.slow.error }}"}
`, "", nil)
	for b.s.Finished == nil {
		for _, f := range b.s.Decide(b.world()) {
			b.apply(f)
		}
		if due := b.s.Due(b.now); !due.IsZero() {
			b.now = due // nobody answers anything
		}
	}
	if got := b.outputs(); got["said"] != "no" || got["slow"] != "it took longer than 1m0s" {
		t.Errorf("outputs %v", got)
	}
}

// What this version refuses in a schema, an older one took: a run that began then goes on.
func TestARunGoesOnWithASchemaThatIsRefusedToday(t *testing.T) {
	sources := []*messages.PlanSource{{Path: "t.yaml", Text: head + "steps:\n  - {id: a, agent: x, prompt: hello, output: {schema: {type: objekt}}}\n"}}
	if _, err := pipeline.FromSources(sources, pipeline.Options{}); err == nil || !strings.Contains(err.Error(), "objekt") {
		t.Errorf("a new one: %v", err)
	}
	if err := pipeline.NewState(pipeline.Options{}).Apply(&messages.RunStarted{RunId: "run_1", Sources: sources}, &messages.Record{}); err != nil {
		t.Errorf("one that began: %v", err)
	}
}

// workers are the ids by which attempts find who works on them: none is that of another attempt.
func (b *bench) workers() {
	b.t.Helper()
	seen := map[string]string{}
	for _, f := range b.facts {
		if st, ok := f.(*messages.StepItemStarted); ok {
			what := fmt.Sprint(st.GetStep(), " asked ", st.GetPrompt())
			if was := seen[st.GetExecId()]; was != "" {
				b.t.Errorf("%s is worked on by who was there for %s", what, was)
			}
			seen[st.GetExecId()] = what
		}
	}
}

// A pipeline that is tried again does all of it again: nobody who worked on the attempt before has the answer already.
func TestAnotherAttemptOfAPipelineIsWorkedOnByOthers(t *testing.T) {
	files := map[string]string{"inner.yaml": head + "steps:\n  - {id: say, agent: x, prompt: say}\n  - {id: talk, needs: [say], group: [x, y], prompt: talk}\n"}
	b := newBench(t, head+"steps:\n  - {id: in, pipeline: inner.yaml, timeout: 10s, retry: {max: 1, on: [timeout], initial: 1s}}\n", "{}", files)
	step := func() {
		for range 20 {
			for _, f := range b.s.Decide(b.world()) {
				b.apply(f)
			}
		}
	}
	step()
	b.apply(b.s.Settle(b.world(), "in/say", 0, b.s.Item("in/say", 0).Input, pipeline.Result{OK: true, Text: "ok"}))
	step()
	talk := b.s.Item("in/talk", 0).Start.GetConversation()
	b.now = b.now.Add(10 * time.Second)
	step()
	b.now, b.begun = b.now.Add(time.Second), map[string]int{} // all of it begins anew
	b.run(func(int) int { return 0 }, func(*pipeline.ItemState) pipeline.Result { return pipeline.Result{OK: true, Text: "ok"} })
	b.workers()
	if b.s.Finished.GetStatus() != pipeline.Succeeded || b.s.Item("in", 0).Attempt != 2 {
		t.Errorf("it ended as %v after %d attempts", b.s.Finished, b.s.Item("in", 0).Attempt)
	}
	if again := b.s.Item("in/talk", 0).Start.GetConversation(); again == talk {
		t.Errorf("the talk of both is in %s", talk)
	}
}

// Of a step that a changed plan makes another one, nobody has the answer who worked on the one before.
func TestAStepThatAChangedPlanMakesAnotherOneIsWorkedOnByOthers(t *testing.T) {
	one := head + "steps:\n  - {id: a, agent: x, prompt: one}\n  - {id: b, needs: [a], agent: x, prompt: b}\n"
	b := newBench(t, one, "{}", nil)
	step := func(text string) {
		if text != "" {
			p, err := pipeline.Parse("t.yaml", text, pipeline.Options{})
			if err != nil {
				t.Fatal(err)
			}
			b.apply(&messages.PlanChanged{PlanHash: p.Hash, Sources: p.Sources})
			b.apply(&messages.RunResumed{})
		}
		for range 5 {
			for _, f := range b.s.Decide(b.world()) {
				b.begun = map[string]int{} // they may begin anew
				b.apply(f)
			}
		}
	}
	step("")
	step(strings.Replace(one, "agent: x, prompt: one", "parallel: [x, y], prompt: other", 1))
	step(head + "steps:\n  - {id: c, agent: x, prompt: c}\n")
	step(one)
	b.again()
	b.run(func(int) int { return 0 }, func(*pipeline.ItemState) pipeline.Result { return pipeline.Result{OK: true, Text: "ok"} })
	b.workers()
}

// What a run was given stays; a default that is new counts, and a step that is another one now begins anew, while others keep what they have come to.
func TestAChangedPlanCountsForWhatHasNotEnded(t *testing.T) {
	const was = head + `inputs: {n: {type: integer, default: 3}}
steps:
  - {id: a, agent: x, prompt: "a ${{ inputs.n }}"}
  - {id: b, agent: x, prompt: b}
  - {id: c, needs: [a, b], agent: x, prompt: "c"}
`
	const is = head + `inputs: {n: {type: integer, default: 5}, word: {default: new}}
steps:
  - {id: a, agent: x, prompt: "a changed"}
  - {id: b, foreach: "['u', 'v']", agent: x, prompt: "b ${{ item }}"}
  - {id: c, needs: [a, b], agent: x, prompt: "c ${{ inputs.word }} ${{ inputs.n }} ${{ join(steps.b.output, ',') }}"}
outputs: {c: "${{ steps.c.output }}"}
`
	b := newBench(t, was, `{"n":4}`, nil)
	b.run(func(int) int { return 0 }, func(it *pipeline.ItemState) pipeline.Result {
		if it.Step().Path == "c" {
			return pipeline.Result{Error: "no"}
		}
		return pipeline.Result{OK: true, Text: "said"}
	})
	p, err := pipeline.Parse("t.yaml", is, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.begun = map[string]int{}
	b.apply(&messages.PlanChanged{PlanHash: p.Hash, Sources: p.Sources})
	b.apply(&messages.RunResumed{})
	b.again()
	b.run(func(int) int { return 0 }, func(it *pipeline.ItemState) pipeline.Result {
		return pipeline.Result{OK: true, Text: it.Start.GetPrompt()}
	})
	b.workers()
	if got, want := b.s.Finished.GetOutputsJson(), `{"c":"c new 4 b u,b v"}`; got != want || b.begun["a/0/1"] != 0 {
		t.Errorf("it is %s (%v), not %s; %v", got, b.s.Finished, want, b.begun)
	}
	required := strings.Replace(is, "word: {default: new}", "word: {default: new}, more: {required: true}", 1)
	if p, err = pipeline.Parse("t.yaml", required, pipeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Root.Refill(b.s.Given()); err == nil || !strings.Contains(err.Error(), "is new") {
		t.Errorf("an input that nobody gives: %v", err)
	}
}
