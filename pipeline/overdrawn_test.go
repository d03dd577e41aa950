package pipeline_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

func TestBudgetsOfStepsThatComeToMoreThanTheWholeAreTold(t *testing.T) {
	const steps = "steps:\n  - {id: a, agent: x, prompt: x, budget: {tokens: 60000, usd: 0.20}}\n  - {id: b, agent: x, prompt: x, budget: {tokens: 50000, usd: 0.30}}\n"
	for whole, want := range map[string]string{
		"":                                      "",
		"budget: {usd: 0.50}\n":                 "",
		"budget: {tokens: 110000}\n":            "",
		"budget: {tokens: 100000}\n":            "come to 110000 tokens, and the whole pipeline has 100000",
		"budget: {usd: 0.45, wall: 20m}\n":      "come to $0.50, and the whole pipeline has $0.45",
		"budget: {usd: 0.45, tokens: 100000}\n": "come to 110000 tokens, and the whole pipeline has 100000 come to $0.50",
	} {
		got := strings.Join(parse(t, head+whole+steps).Root.Overdrawn(), "\n")
		if want == "" && got != "" {
			t.Errorf("%q: %s", whole, got)
		}
		for _, part := range strings.Split(want, " come to ") {
			if !strings.Contains(got, part) {
				t.Errorf("%q: %q, want %q", whole, got, want)
			}
		}
	}
}

func TestABudgetOfAlmostNothingIsStillOne(t *testing.T) {
	p, err := pipeline.Parse("p.yaml", "version: 1\nname: p\nbudget: {usd: 0.0000001, wall: 1us}\nsteps: [{id: a, agent: default, prompt: x}]\n", pipeline.Options{Agents: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Root.Budget.Message().GetMost(); m.GetMicroUsd() != 1 || m.GetWallMs() != 1 {
		t.Errorf("the budget is %v", m)
	}
}
