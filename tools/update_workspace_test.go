package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

func TestUpdateWorkspaceKeepsTheContractOfTools(t *testing.T) {
	toolstest.Run(t, tools.UpdateWorkspace())
}

// noted is a workspace that takes every value.
type noted struct{ name, value string }

func (n *noted) Set(_ context.Context, name string, value json.RawMessage) (*messages.FieldSet, error) {
	old := n.value
	n.name, n.value = name, string(value)
	if n.value == "null" {
		n.value = ""
	}
	return &messages.FieldSet{Field: name, Old: old, New: n.value, Rev: 7}, nil
}

func TestUpdateWorkspaceSaysWhatWasAndWhatIs(t *testing.T) {
	fields := &noted{value: `"idle"`}
	for args, want := range map[string]string{
		`{"field_name":"status","value":"in_progress"}`: "Successfully updated field 'status':\n- Previous value: \"idle\"\n- New value: \"in_progress\"",
		`{"field_name":"status","value":null}`:          "Successfully updated field 'status':\n- Previous value: \"idle\"\n- New value: null",
		`{"field_name":"n","value":{"a":[1,2.50]}}`:     "Successfully updated field 'n':\n- Previous value: \"idle\"\n- New value: {\"a\":[1,2.50]}",
	} {
		fields.value = `"idle"`
		res, err := tools.UpdateWorkspace().Run(&tools.Context{Fields: fields, Signal: t.Context()}, json.RawMessage(args))
		if err != nil || res.Content != want {
			t.Errorf("%s: %v, %v", args, res, err)
		}
	}
}

func TestUpdateWorkspaceNeedsAWorkspace(t *testing.T) {
	_, err := tools.UpdateWorkspace().Run(&tools.Context{}, json.RawMessage(`{"field_name":"status","value":1}`))
	var refused *tools.Error
	if !errors.As(err, &refused) || refused.Code != tools.CodeWorkspaceNotAvailable {
		t.Errorf("without one: %v", err)
	}
}
