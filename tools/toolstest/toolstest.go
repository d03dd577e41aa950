// Package toolstest holds every tool to what the runtime relies on: one call of Run in the
// tool's own test.
package toolstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/xmltools"
	"github.com/troupe-dev/troupe/tools"
)

// Run checks a tool: that a registry takes it, its schema is closed and described to the last
// property, its description has an example that its own schema accepts and that means the same in both tool protocols, it knows how to be
// reconciled if it says so, and that it refuses what it does not know before it does anything.
// The tool is called, but only with arguments that it must refuse.
func Run(t *testing.T, tool tools.Tool) {
	t.Helper()
	for _, fault := range Faults(tool) {
		t.Error(fault)
	}
}

// Faults returns what Run reports, as sentences.
func Faults(tool tools.Tool) []string {
	if _, err := tools.NewRegistry(tool); err != nil {
		return []string{err.Error()}
	}
	spec := tool.Spec()
	var faults []string
	add := func(format string, args ...any) {
		faults = append(faults, spec.Name+": "+fmt.Sprintf(format, args...))
	}
	if !reflect.DeepEqual(spec, tool.Spec()) {
		add("its spec changes from call to call")
	}
	checkSchema(spec, add)
	checkExample(spec, add)
	checkText(spec, add)
	if spec.Effect == messages.Effect_RECONCILABLE {
		if _, ok := tool.(tools.Reconciler); !ok {
			add("its effect is RECONCILABLE, but it is no Reconciler")
		}
	}
	checkRefusals(tool, add)
	return faults
}

type node struct {
	Type        any              `json:"type"`
	Description string           `json:"description"`
	Properties  map[string]*node `json:"properties"`
	Required    []string         `json:"required"`
	Additional  any              `json:"additionalProperties"`
	Items       *node            `json:"items"`
}

func checkSchema(spec *tools.Spec, add func(string, ...any)) {
	var top node
	if err := json.Unmarshal(spec.Schema, &top); err != nil {
		add("its schema cannot be read: %v", err)
		return
	}
	if w := top.Properties["workspace_id"]; !spec.NoWorkspace && w == nil {
		add("it has no argument workspace_id, though it works in a workspace")
	}
	if slices.Contains(top.Required, "workspace_id") {
		add("workspace_id must be optional")
	}
	closed("", &top, add)
}

// closed checks an object and what is below it.
func closed(at string, n *node, add func(string, ...any)) {
	if n.Type == "object" {
		if n.Additional == nil || n.Additional == true {
			add("the object %q takes unknown properties: set additionalProperties", at)
		}
		for _, name := range n.Required {
			if n.Properties[name] == nil {
				add("%q is required and not described", at+"/"+name)
			}
		}
	}
	for name, p := range n.Properties {
		if p == nil || strings.TrimSpace(p.Description) == "" {
			add("the property %q has no description", at+"/"+name)
			continue
		}
		closed(at+"/"+name, p, add)
	}
	if n.Type == "array" && n.Items == nil {
		add("the array %q does not say what is in it", at)
	}
	if n.Items != nil {
		closed(at+"[]", n.Items, add)
	}
}

// checkExample decodes the first code span with an object in the description.
func checkExample(spec *tools.Spec, add func(string, ...any)) {
	_, rest, ok := strings.Cut(spec.Description, "`{")
	example, _, closing := strings.Cut("{"+rest, "`")
	if !ok || !closing {
		add("its description has no example: write one as `{...}`")
		return
	}
	var into map[string]any
	if err := tools.Decode(spec, json.RawMessage(example), &into); err != nil {
		add("the example of its description is refused: %v", err)
	}
}

// checkText offers the tool in text, and has its example called there: what arrives is what the example says.
func checkText(spec *tools.Spec, add func(string, ...any)) {
	def := model.ToolDef{Name: spec.Name, Description: spec.Description, Schema: spec.Schema}
	text := xmltools.Describe([]model.ToolDef{def})
	var top node
	_ = json.Unmarshal(spec.Schema, &top) // checked above
	for name := range top.Properties {
		if !strings.Contains(text, "\n- "+name+" (") {
			add("offered in text, its argument %q is not described", name)
		}
	}
	_, rest, _ := strings.Cut(spec.Description, "`{")
	example, _, _ := strings.Cut("{"+rest, "`")
	call, ok := xmltools.Call(&messages.ToolCall{Name: spec.Name, Arguments: example})
	if !ok || !strings.Contains(text, call) {
		add("offered in text, it has no example")
		return
	}
	args := ""
	reader := xmltools.NewReader([]model.ToolDef{def}, func(ev *model.Event) bool {
		args += ev.Text
		return true
	})
	reader.Take(&model.Event{Kind: model.Text, Text: call})
	var want, got any
	if json.Unmarshal([]byte(example), &want) != nil || json.Unmarshal([]byte(args), &got) != nil || !reflect.DeepEqual(want, got) {
		add("called in text, its example %s arrives as %s", example, args)
	}
}

func checkRefusals(tool tools.Tool, add func(string, ...any)) {
	var top node
	_ = json.Unmarshal(tool.Spec().Schema, &top) // checked above
	hostile := map[string]string{
		"an unknown argument":  `{"no_such_argument_of_any_tool":1}`,
		"a list":               `[]`,
		"no JSON":              `{"`,
		"a key given twice":    `{"workspace_id":"a","workspace_id":"b"}`,
		"a name in wrong case": `{"WORKSPACE_ID":"a"}`,
		"deep nesting":         strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	}
	if len(top.Required) > 0 {
		hostile["no arguments"], hostile["null"], hostile["an empty object"] = "", "null", "{}"
	} else if err := tools.Decode(tool.Spec(), nil, &map[string]any{}); err != nil {
		add("without arguments it is refused, though it requires none: %v", err)
	}
	for what, args := range hostile {
		var refused *tools.Error
		_, err := tool.Run(&tools.Context{}, json.RawMessage(args))
		if !errors.As(err, &refused) || refused.Code != tools.CodeInvalidArguments {
			add("%s must be refused as invalid_arguments, not answered with: %v", what, err)
		}
	}
}
