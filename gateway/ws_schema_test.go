package gateway_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/troupe-dev/troupe/messages"
)

var update = flag.Bool("update", false, "write docs/ws.schema.json anew")

// frames are one of each type, by the name that its schema has.
func frames() []messages.Frame {
	return []messages.Frame{
		&messages.HelloFrame{}, &messages.AttachFrame{}, &messages.ToolCallFrame{}, &messages.ToolResultFrame{}, &messages.ApprovalRequestFrame{},
		&messages.ApprovalResponseFrame{}, &messages.RequestResolvedFrame{}, &messages.ErrorFrame{}, &messages.PingFrame{}, &messages.ProgressFrame{}, &messages.EventFrame{}, &messages.JobFrame{},
	}
}

// protocol makes the schema of the union of the Go types.
func protocol(t *testing.T) *jsonschema.Schema {
	t.Helper()
	anything := map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[json.RawMessage](): {}, reflect.TypeFor[messages.Event](): {Type: "object"}}
	all := &jsonschema.Schema{Schema: "https://json-schema.org/draft/2020-12/schema", Title: "Frames of the WebSocket /ws", Defs: map[string]*jsonschema.Schema{}}
	for _, f := range frames() {
		s, err := jsonschema.ForType(reflect.TypeOf(f).Elem(), &jsonschema.ForOptions{TypeSchemas: anything})
		if err != nil {
			t.Fatal(err)
		}
		var kind any = f.FrameType()
		s.Properties["type"] = &jsonschema.Schema{Const: &kind}
		s.AdditionalProperties = nil // either side may be newer
		all.Defs[f.FrameType()] = s
		all.OneOf = append(all.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + f.FrameType()})
	}
	return all
}

func TestTheSchemaOfTheFramesIsThatOfTheirTypes(t *testing.T) {
	b, err := json.MarshalIndent(protocol(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	const name = "../docs/ws.schema.json"
	if *update {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil || string(have) != string(b) {
		t.Errorf("%s is not what the types say (%v): go test ./gateway -run TheSchemaOfTheFrames -update", name, err)
	}
}

// Each frame comes back as it was, and is what the schema says.
func TestEveryFrameSurvivesTheWire(t *testing.T) {
	schema, err := protocol(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, after := "File not found: a", uint64(7)
	for _, f := range []messages.Frame{
		&messages.HelloFrame{Type: "hello", Version: 1, Client: "c", Name: "n", Features: []string{"approvals"}},
		&messages.AttachFrame{Type: "attach", Session: "s", Workspace: "lap:/x", Name: "n", Trust: "full", Tools: []string{"grep"}, Steal: true, Leave: true, After: &after, Jobs: []messages.JobJSON{{JobID: "job_1", State: "running"}}, Epoch: 2, Attached: &messages.WorkspaceJSON{ID: "i", Tools: []string{"x"}}},
		&messages.ToolCallFrame{Type: "tool_call", CallID: "c", ToolName: "t", Arguments: json.RawMessage(`{"a":1}`), RequiresApproval: true, RequiresConfirmation: true, Session: "s", Workspace: "w", ExecID: "e", Attempt: 2, ApprovalID: "a", ApprovedBy: "b", Agent: "g", Worker: "w", TimeoutMs: 3, KnownFiles: []messages.FileHashJSON{{Path: "p", SHA256: "h"}}, Preview: true, ApprovedFiles: []messages.FileHashJSON{{Path: "p", SHA256: "h", PlannedSHA256: "q"}}, ApprovedEdited: true},
		&messages.ToolResultFrame{Type: "tool_result", CallID: "c", Result: json.RawMessage(`{"content":"x"}`)},
		&messages.ToolResultFrame{Type: "tool_result", CallID: "c", Error: &text, ErrorCode: "file_not_found", Message: "m", Details: json.RawMessage(`{}`)},
		&messages.ApprovalRequestFrame{Type: "approval_request", Approval: messages.ApprovalJSON{ID: "a", Rules: []string{"r"}}},
		&messages.ApprovalResponseFrame{Type: "approval_response", ApprovalID: "a", AnswerJSON: messages.AnswerJSON{Decision: "approved", Message: "m"}},
		&messages.RequestResolvedFrame{Type: "request_resolved", ApprovalID: "a", Decision: "rejected", By: "b", CallID: "c", State: "settled", Reason: "r"},
		&messages.ErrorFrame{Type: "error", Code: "c", Message: "m", Hint: "h", About: "attach", CallID: "i", ApprovalID: "a", Session: "s"},
		&messages.PingFrame{Type: "ping", ID: "i", Pong: true},
		&messages.JobFrame{Type: "job", JobJSON: messages.JobJSON{JobID: "job_1", Session: "s", Worker: "w", Workspace: "lap:/x", Command: "c", State: "exited", Note: "n", ExitCode: 1, Signal: "SIGKILL", DurationMs: 2, StartedMs: 3, Output: "o", Dropped: 4}},
		&messages.ProgressFrame{Type: "progress", CallID: "c", Done: 1, Total: 2, Unit: "bytes", Text: "t"},
	} {
		b, err := messages.EncodeFrame(f)
		if err != nil {
			t.Fatal(err)
		}
		back, err := messages.DecodeFrame(b)
		if err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%s came back as %+v, %v", b, back, err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}
