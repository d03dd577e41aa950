package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

func manySteps(state string) *messages.RunView {
	v := &messages.RunView{RunId: "run_1", Name: "many", State: state, Usage: &messages.Usage{InputTokens: 900, OutputTokens: 100, CostMicroUsd: 12_300}}
	for i := range 20 {
		v.StepViews = append(v.StepViews, &messages.RunStepView{Step: fmt.Sprintf("step_%d", i), State: pipeline.Succeeded, Items: 1, Done: 1})
	}
	v.StepViews[17] = &messages.RunStepView{
		Step: "each_of_them", State: pipeline.Running, Items: 500, Done: 120, Failed: 3, PerSecond: 2.5, LeftMs: 151_000, Usage: &messages.Usage{InputTokens: 700, CostMicroUsd: 4_500},
	}
	return v
}

// What is written over is what was written before: no line is broken by the terminal, and none has left its screen.
func TestTheTreeOfARunFitsItsTerminal(t *testing.T) {
	for _, size := range [][2]int{{100, 50}, {80, 24}, {60, 10}, {30, 6}} {
		w := (&app{err: io.Discard}).newRunView()
		for turn := range 3 {
			text := w.drawn(manySteps(pipeline.Running), size[0], size[1])
			up, body, moved := strings.Cut(text, "A\x1b[2K")
			if !moved {
				body = text
			}
			lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
			if len(lines) >= size[1] {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			if want := fmt.Sprintf("\x1b[%d", len(lines)); turn > 0 && up != want {
				t.Errorf("%v: it goes up %q for %d lines", size, up, len(lines))
			}
			for _, line := range lines {
				if n := len([]rune(strings.TrimPrefix(line, "\x1b[2K"))); n >= size[0] {
					t.Errorf("%v: %d columns: %s", size, n, line)
				}
			}
			if !strings.Contains(body, "> each_of_them") {
				t.Errorf("%v: what works is not there:\n%s", size, body)
			}
		}
		if end := w.drawn(manySteps(pipeline.Succeeded), size[0], size[1]); strings.Count(end, "step_") != 19 {
			t.Errorf("%v: the end does not show all steps:\n%s", size, end)
		}
	}
}

func TestTheTreeTellsRateTimeLeftFailuresAndCost(t *testing.T) {
	text := (&app{err: io.Discard}).newRunView().drawn(manySteps(pipeline.Running), 120, 50)
	for _, want := range []string{"many run_1, 1000 tokens, $0.0123", "each_of_them running, 120 of 500 done, 3 failed, 2.5/s, 2m31s left, 700 tokens, $0.0045"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestTheTreeSaysWhatAStepWaitsFor(t *testing.T) {
	v := manySteps(pipeline.Waiting)
	v.StepViews[3] = &messages.RunStepView{Step: "third", State: pipeline.Waiting, Items: 1, Waits: 1, Waiting: &messages.Waiting{Kind: messages.WaitApproval, Subject: "exec(make)", ApprovalId: "apr_1"}}
	v.StepViews[4] = &messages.RunStepView{Step: "fourth", State: pipeline.Running, Items: 9, Waits: 2, Waiting: &messages.Waiting{Kind: messages.WaitPermit, Subject: "openai"}}
	text := strings.Join((&app{err: io.Discard}).newRunView().branches(v), "\n")
	for _, want := range []string{"third waiting, waits for an approval of exec(make)", `2 wait, one for a permit for a call of provider "openai"`} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

func TestWhatARunAsksIsListedInItsWords(t *testing.T) {
	v := &messages.ApprovalJSON{Worker: "run_1", Tool: "pipeline", Arguments: `{"step":"gate"}`, Preview: "Begin 2?\n\n[1,2]", Kind: "arguments"}
	if got := approvalAsks(v); got != "Begin 2?" {
		t.Errorf("it asks %q", got)
	}
}
