package tools

import (
	"strings"
	"testing"
)

func TestAnOutcomeThatNobodyKnowsIsNoFailureAndSaysWhatToDo(t *testing.T) {
	e := ErrorUnknown("the machine %s went away", "lap")
	if !e.Unknown || e.Code != CodeInterrupted || !strings.HasPrefix(e.Error(), "the machine lap went away. ") || !strings.HasSuffix(e.Error(), "Verify before repeating it.") {
		t.Errorf("%+v", e)
	}
	more := e.With("host", "lap").With("since", 3)
	if !more.Unknown || more.Code != e.Code || more.Details["host"] != "lap" || more.Details["since"] != 3 || e.Details != nil {
		t.Errorf("with details it is %+v, and was %+v", more, e)
	}
}

func TestAnEnvelopeTellsHowAFileWasChanged(t *testing.T) {
	meta := map[string]any{"n": 1}
	e := NewEnvelope("c", "t", &Result{Content: "done", Truncated: true, Meta: meta, Diff: "+a"}, nil)
	if !e.OK || e.Content != "done" || !e.Truncated || e.Meta["n"] != 1 || e.Meta["diff"] != "+a" || len(meta) != 1 {
		t.Errorf("%+v of %v", e, meta)
	}
	if e := NewEnvelope("c", "t", nil, nil); !e.OK || e.Meta == nil {
		t.Errorf("of nothing: %+v", e)
	}
}
