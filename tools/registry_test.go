package tools_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

func TestEveryBuiltinToolKeepsTheContract(t *testing.T) {
	builtin := tools.Builtin()
	if len(builtin) != 21 {
		t.Errorf("%d tools, want 21", len(builtin))
	}
	for _, tool := range builtin {
		t.Run(tool.Spec().Name, func(t *testing.T) { toolstest.Run(t, tool) })
	}
}

func TestAnUnknownToolIsNotFoundByItsExactText(t *testing.T) {
	r := registry(t, tools.Builtin()...)
	for name, near := range map[string]any{"read_fil": "read_file", "Read_File": "read_file", "zzzzzzzzzz": nil, "": nil} {
		_, err := r.Lookup(name)
		var e *tools.Error
		if !errors.As(err, &e) || e.Code != tools.CodeToolNotFound || e.Message != "Tool '"+name+"' not found" || e.Details["did_you_mean"] != near {
			t.Errorf("%q: %v %v", name, err, e.Details)
		}
	}
	tool, err := r.Lookup("exec")
	if err != nil || tool.Spec().Name != "exec" {
		t.Error(err)
	}
}

func TestDefinitionsAreSortedAndOnlyTheAllowed(t *testing.T) {
	all := tools.Builtin()
	slices.Reverse(all)
	r := registry(t, all...)
	if names := r.Names(); !slices.IsSorted(names) || len(names) != 21 {
		t.Errorf("%v", names)
	}
	var got []string
	for _, s := range r.Defs([]string{"write_file", "todo", "no_such", "glob"}) {
		got = append(got, s.Name)
	}
	if strings.Join(got, " ") != "glob todo write_file" {
		t.Errorf("%v", got)
	}
	if len(r.Defs(nil)) != 21 || len(r.Defs([]string{})) != 0 {
		t.Error("nil allows all, an empty list nothing")
	}
	for _, name := range []string{"exec", "delete_file", "move_file", "fetch"} {
		if slices.Contains(tools.Restricted(), name) {
			t.Errorf("%s is in the Restricted toolset", name)
		}
	}
	if !slices.IsSorted(tools.Restricted()) || len(tools.Restricted()) != 13 {
		t.Errorf("%v", tools.Restricted())
	}
}

func TestMalformedToolsAreNotRegistered(t *testing.T) {
	good := tools.Spec{Name: "good", Description: "d", Effect: messages.Effect_PURE, Schema: json.RawMessage(`{"type":"object"}`)}
	registry(t, bare{good})
	for what, change := range map[string]func(*tools.Spec){
		"no name":        func(s *tools.Spec) { s.Name = "" },
		"camelCase":      func(s *tools.Spec) { s.Name = "readFile" },
		"a path":         func(s *tools.Spec) { s.Name = "../x" },
		"a double _":     func(s *tools.Spec) { s.Name = "a__b" },
		"a long name":    func(s *tools.Spec) { s.Name = strings.Repeat("a", 65) },
		"no description": func(s *tools.Spec) { s.Description = " " },
		"no effect":      func(s *tools.Spec) { s.Effect = 0 },
		"no schema":      func(s *tools.Spec) { s.Schema = nil },
		"no object":      func(s *tools.Spec) { s.Schema = json.RawMessage(`{"type":"string"}`) },
		"a day":          func(s *tools.Spec) { s.Timeout = 24 * time.Hour },
	} {
		bad := good
		change(&bad)
		if _, err := tools.NewRegistry(bare{bad}); err == nil {
			t.Errorf("%s: registered", what)
		}
	}
	if _, err := tools.NewRegistry(bare{good}, bare{good}); err == nil || !strings.Contains(err.Error(), "good") {
		t.Errorf("twice: %v", err)
	}
	if _, err := tools.NewRegistry(nil); err == nil {
		t.Error("nil: registered")
	}
}

// bare is a tool that answers whatever it is asked.
type bare struct{ spec tools.Spec }

func (b bare) Spec() *tools.Spec { return &b.spec }

func (b bare) Run(*tools.Context, json.RawMessage) (*tools.Result, error) {
	return &tools.Result{Content: "done"}, nil
}

func registry(t *testing.T, list ...tools.Tool) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(list...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheContractsSuiteFindsEveryFault(t *testing.T) {
	spec := tools.Spec{
		Name: "careless", Description: "It has no example.", Effect: messages.Effect_RECONCILABLE,
		Schema: json.RawMessage(`{"type":"object","required":["a","workspace_id"],"properties":{"a":{"type":"array"},"workspace_id":{"type":"string","description":"w"}}}`),
	}
	faults := strings.Join(toolstest.Faults(bare{spec}), "\n")
	for _, want := range []string{
		"takes unknown properties", "no description", "no example", "no Reconciler", "workspace_id must be optional",
		"an unknown argument must be refused", "no arguments must be refused", "null must be refused",
	} {
		if !strings.Contains(faults, want) {
			t.Errorf("it does not find: %s\n%s", want, faults)
		}
	}
	spec.Schema = json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{}}`)
	spec.Description = "Example: `{\"x\": 1}`"
	faults = strings.Join(toolstest.Faults(bare{spec}), "\n")
	for _, want := range []string{"has no argument workspace_id", "example of its description is refused"} {
		if !strings.Contains(faults, want) {
			t.Errorf("it does not find: %s\n%s", want, faults)
		}
	}
}
