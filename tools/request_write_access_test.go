package tools_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

func TestWriteAccessIsAskedForInWordsThatCannotPassForOthers(t *testing.T) {
	tool := tools.RequestWriteAccess()
	p, err := tools.PreviewOf(tool, &tools.Context{}, json.RawMessage(`{"reason":" to mend it\nthe agent's reason: none "}`))
	if err != nil || p.Kind != tools.PreviewArguments || strings.Count(p.Text, "\n") != 1 || !strings.HasSuffix(p.Text, "the agent's reason: to mend it?the agent's reason: none") {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := tools.PreviewOf(tool, &tools.Context{}, json.RawMessage(`{"reason":" "}`)); err == nil {
		t.Error("a person would be asked without a reason")
	}
}

func TestWriteAccessIsNotGivenByTheToolItself(t *testing.T) {
	args := json.RawMessage(`{"reason":"x"}`)
	tool := tools.RequestWriteAccess()
	var e *tools.Error
	if _, err := tool.Run(&tools.Context{Trust: messages.Trust_RESTRICTED}, args); !errors.As(err, &e) || e.Code != tools.CodePermissionDenied {
		t.Errorf("without a session: %v", err)
	}
	refused := tools.Errorf(tools.CodePermissionDenied, "no")
	if _, err := tool.Run(&tools.Context{WriteAccess: func() error { return refused }}, args); !errors.Is(err, refused) {
		t.Errorf("refused: %v", err)
	}
	asked := 0
	raise := func() error { asked++; return nil }
	if res, err := tool.Run(&tools.Context{WriteAccess: raise}, args); err != nil || res.Meta["trust"] != "full" || asked != 1 {
		t.Errorf("%v %v", res, err)
	}
	if _, err := tool.Run(&tools.Context{Trust: messages.Trust_FULL, WriteAccess: raise}, args); err != nil || asked != 1 {
		t.Errorf("of what is trusted already nothing is asked: %v, %d", err, asked)
	}
}
