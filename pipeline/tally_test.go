package pipeline_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

const overAnother = head + `
inputs: {list: {type: list}}
limits: {concurrency: 4}
steps:
  - {id: first, foreach: inputs.list, agent: x, prompt: "read ${{ item }}"}
  - {id: second, needs: [first], foreach: steps.first.output, agent: x, prompt: "check ${{ item }} of ${{ len(steps.first.items) }}"}
outputs: {n: "${{ len(steps.second.items) }}"}
`

// overItems is a run in the middle of a step with n items, of another one's n.
func overItems(t testing.TB, n int) *bench {
	t.Helper()
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	raw, err := json.Marshal(map[string]any{"list": list})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, begun: map[string]int{}}
	if tt, ok := t.(*testing.T); ok {
		b = newBench(tt, overAnother, string(raw), nil)
	} else {
		p, err := pipeline.Parse("t.yaml", overAnother, b.o)
		if err != nil {
			t.Fatal(err)
		}
		b.s = pipeline.NewState(b.o)
		b.apply(&messages.RunStarted{RunId: "run_1", Sources: p.Sources, InputsJson: string(raw)})
	}
	for range n + n/2 {
		b.item()
	}
	return b
}

// item begins what there is room for, and ends one item.
func (b *bench) item() {
	b.t.Helper()
	for {
		facts := b.s.Decide(b.world())
		if len(facts) == 0 {
			break
		}
		for _, f := range facts {
			b.apply(f)
		}
	}
	b.s.Due(b.now)
	for _, ss := range b.s.Live() {
		for _, it := range ss.Under() {
			b.apply(b.s.Settle(b.world(), ss.Path, it.Index, it.Input, echo(it)))
			return
		}
	}
	b.t.Fatal("nothing is under way")
}

// What an item makes is counted, and not how long it takes.
func TestWhatAnItemCostsDoesNotGrowWithTheNumberOfItems(t *testing.T) {
	few, many := overItems(t, 100), overItems(t, 3000)
	cost := func(b *bench) float64 { return testing.AllocsPerRun(20, b.item) }
	if a, z := cost(few), cost(many); z > a+20 {
		t.Errorf("an item among 3000 makes %v things, and one among 100 %v", z, a)
	}
}

// How the items of a step stand is kept with each change, and is the same as if they were counted.
func counted(t interface{ Fatalf(string, ...any) }, s *pipeline.State) {
	all := s.Gone().GetInputTokens()
	for _, ss := range s.Steps() {
		all += ss.Usage().GetInputTokens()
	}
	if whole := s.Usage.GetInputTokens(); all != whole {
		t.Fatalf("the steps have used %d, and the run %d", all, whole)
	}
	for _, ss := range s.Steps() {
		if len(ss.Items) > 100 { // with each of many facts
			continue
		}
		under, done, lost, used := "", 0, 0, int64(0)
		for _, it := range ss.Items {
			switch it.Status {
			case pipeline.Running, pipeline.Waiting:
				under += fmt.Sprint(it.Index, " ")
			case pipeline.Succeeded:
				done++
			case pipeline.Failed, pipeline.Cancelled:
				lost++
			}
			used += it.Usage.GetInputTokens()
		}
		kept := ""
		for _, it := range ss.Under() {
			kept += fmt.Sprint(it.Index, " ")
		}
		if d, l := ss.Ended(); kept != under || d != done || l != lost || ss.Usage().GetInputTokens() != used {
			t.Fatalf("step %s: %q under way, %d and %d over, %d used; kept are %q, %d, %d and %d", ss.Path, under, done, lost, used, kept, d, l, ss.Usage().GetInputTokens())
		}
	}
}

func BenchmarkItemOverManyItems(b *testing.B) {
	for _, n := range []int{100, 3000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			run := overItems(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%(n/4) == n/4-1 {
					b.StopTimer()
					run = overItems(b, n)
					b.StartTimer()
				}
				run.item()
			}
		})
	}
}
