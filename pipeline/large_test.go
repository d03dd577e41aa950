package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

// chain is a file of steps of which each uses the one before.
func chain(steps int, uses string) string {
	var b strings.Builder
	b.WriteString(head + "steps:\n  - {id: s0, agent: x, prompt: x}\n")
	for i := 1; i < steps; i++ {
		fmt.Fprintf(&b, "  - {id: s%d, agent: x, needs: [s%d], when: '%s != \"\"', prompt: 'on with ${{ steps.s%d.output }}'}\n", i, i-1, strings.ReplaceAll(uses, "sN", fmt.Sprintf("s%d", i-1)), i-1)
	}
	return b.String()
}

// TestALongChainOfStepsCostsWhatItsStepsCost has four times the steps: what is made to check them is counted, which no other load on the machine changes.
func TestALongChainOfStepsCostsWhatItsStepsCost(t *testing.T) {
	made := func(steps int) float64 {
		text := chain(steps, "steps.sN.output")
		return testing.AllocsPerRun(1, func() {
			if _, err := pipeline.Parse("t.yaml", text, pipeline.Options{}); err != nil {
				t.Errorf("%d steps: %v", steps, err)
			}
		})
	}
	if few, many := made(125), made(500); many > 5*few {
		t.Errorf("125 steps make %.0f objects, 500 make %.0f: %.1f times as many", few, many, many/few)
	}
}

// TestStepsThatAreNamedByOtherWordsAreThoseThatEnded: what an expression sees of the steps is what it names, which one cannot always tell.
func TestStepsThatAreNamedByOtherWordsAreThoseThatEnded(t *testing.T) {
	for _, uses := range []string{
		`steps["sN"].output`, `steps["s" + "0"].output`, `steps?.sN.output`, `$env.steps.sN.output`, `(let every = steps; every.sN.output)`, `toJSON(steps)`, `map(keys(steps), #)[0]`,
		`string([steps.sN.output, steps.s0.output, steps["s0"].status])`,
	} {
		if _, err := pipeline.Parse("t.yaml", chain(5, uses), pipeline.Options{}); err != nil {
			t.Errorf("%s: %v", uses, err)
		}
	}
	for uses, want := range map[string]string{
		`$env.steps.s4.output`:                 "unknown field s4",
		`(let every = steps; every.s4.output)`: "unknown field s4",
		`string([steps.sN, steps.s4])`:         `names "s4" and does not need it`,
		`steps.nobody.output`:                  `there is no step "nobody"`,
		`steps[""]`:                            "unknown field",
	} {
		if _, err := pipeline.Parse("t.yaml", chain(5, uses), pipeline.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", uses, err)
		}
	}
}

// TestOfManyMistakesOnlyThoseThatAreToldAreLookedAt: what was meant is looked for among all that there is.
func TestOfManyMistakesOnlyThoseThatAreToldAreLookedAt(t *testing.T) {
	asked := 0
	_, err := pipeline.Parse("t.yaml", head+"agents:\n  x: {tools: ["+strings.Repeat("stray, ", 3000)+"stray]}\nsteps:\n  - {id: a, agent: x, prompt: x}\n", pipeline.Options{
		Tools: []string{"read_file"}, Server: func(string) bool {
			asked++
			return false
		},
	})
	if err == nil || strings.Count(err.Error(), `there is no tool "stray"`) != 50 || asked != 50 {
		t.Errorf("asked about %d tools: %.300v", asked, err)
	}
}

func BenchmarkChain(b *testing.B) {
	for _, steps := range []int{125, 250, 500} {
		text := chain(steps, "steps.sN.output")
		b.Run(fmt.Sprint(steps), func(b *testing.B) {
			for b.Loop() {
				if _, err := pipeline.Parse("t.yaml", text, pipeline.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAFieldThatIsMissedIsNotLookedForEverywhere: its name may stand in thousands of places, and each would be compiled.
func TestAFieldThatIsMissedIsNotLookedForEverywhere(t *testing.T) {
	made := func(members int) float64 {
		text := head + "inputs: {any: {type: object}}\nsteps:\n  - {id: a, agent: x, prompt: '${{ [inputs.any" + strings.Repeat(".word", members) + ", inputs.word] }}'}\n"
		return testing.AllocsPerRun(1, func() {
			if _, err := pipeline.Parse("t.yaml", text, pipeline.Options{}); err == nil || !strings.Contains(err.Error(), "unknown field word") {
				t.Errorf("%d members: %.300v", members, err)
			}
		})
	}
	if few, many := made(100), made(400); many > 5*few {
		t.Errorf("among 100 members it makes %.0f objects, among 400 %.0f: %.1f times as many", few, many, many/few)
	}
}
