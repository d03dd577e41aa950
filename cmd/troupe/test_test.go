package main

import (
	"testing"

	"github.com/troupe-dev/troupe/troupetest"
)

// TestAModelThatNeverAnsweredIsNotCalledAScript: no event tells what it was.
func TestAModelThatNeverAnsweredIsNotCalledAScript(t *testing.T) {
	for model, want := range map[string]bool{"openai/x": false, "scripted/echo": true, "scripted//a/b.yaml": true, "": false} {
		if got := byScript(&troupetest.Transcript{}, troupetest.Stage{Model: model}); got != want {
			t.Errorf("%q: %v", model, got)
		}
		if got := byScript(&troupetest.Transcript{Pipeline: "p.yaml"}, troupetest.Stage{Model: model}); got != (want || model == "") {
			t.Errorf("a pipeline with %q: %v", model, got)
		}
	}
}
