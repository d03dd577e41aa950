package messages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

// filler gives every field of a message a value of its own, so that a field that a conversion
// forgets, or mixes up with another, shows.
type filler struct {
	n    int64
	omit []string // full names of fields that a form leaves out on purpose
}

func (f *filler) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if f.leavesOut(fd) || fd.ContainingOneof() != nil && fd != fd.ContainingOneof().Fields().Get(0) {
			continue
		}
		if fd.Message() != nil && depth == 0 {
			continue
		}
		if fd.IsList() {
			l := m.Mutable(fd).List()
			for range 2 {
				if fd.Message() == nil {
					l.Append(f.scalar(fd))
					continue
				}
				f.fill(l.AppendMutable().Message(), depth-1)
			}
			continue
		}
		if fd.Message() != nil {
			f.fill(m.Mutable(fd).Message(), depth-1)
			continue
		}
		m.Set(fd, f.scalar(fd))
	}
}

func (f *filler) leavesOut(fd protoreflect.FieldDescriptor) bool {
	for _, name := range f.omit {
		if strings.HasSuffix(string(fd.FullName()), "."+name) {
			return true
		}
	}
	return false
}

func (f *filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	f.n++
	switch fd.Kind() {
	case protoreflect.StringKind:
		if strings.HasSuffix(string(fd.Name()), "_json") {
			return protoreflect.ValueOfString(fmt.Sprintf(`{"n":%d}`, f.n))
		}
		return protoreflect.ValueOfString(fmt.Sprintf("%s <%d> ü", fd.Name(), f.n))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(f.n)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(f.n))
	}
	return fd.Default()
}

// way sends a message through its JSON form and back.
func way[J any](t *testing.T, j J) J {
	t.Helper()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var back J
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestEveryFieldOfAViewSurvivesItsJSON(t *testing.T) {
	omit := []string{
		"InputReply.duplicate",                                                                                                                      // said in a header: the body is the same answer
		"ToolReply.unknown", "ToolReply.not_done", "ToolReply.prepared", "ToolReply.previewed", "ToolReply.preview_kind", "FileHash.planned_sha256", // of recovery
		"Timing.provider_attempts", // is the view's attempts
	}
	for _, c := range []struct {
		in   proto.Message
		back func(*testing.T, proto.Message) proto.Message
	}{
		{&messages.SessionView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.SessionView).JSON()).Proto()
		}},
		{&messages.WorkerView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.WorkerView).JSON()).Proto()
		}},
		{&messages.RuleView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.RuleView).JSON()).Proto()
		}},
		{&messages.ApprovalView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.ApprovalView).JSON()).Proto()
		}},
		{&messages.CallView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.CallView).JSON()).Proto()
		}},
		{&messages.InputView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.InputView).JSON()).Proto()
		}},
		{&messages.ActorView{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.ActorView).JSON()).Proto()
		}},
		{&messages.Verified{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.Verified).JSON()).Proto()
		}},
		{&messages.Holder{}, func(t *testing.T, m proto.Message) proto.Message { return way(t, m.(*messages.Holder).JSON()).Proto() }},
		{&messages.TurnResult{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.TurnResult).JSON()).Proto()
		}},
		{&messages.ToolReply{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.ToolReply).JSON()).Proto()
		}},
		{&messages.History{}, func(t *testing.T, m proto.Message) proto.Message { return way(t, m.(*messages.History).JSON()).Proto() }},
		{&messages.InputReply{}, func(t *testing.T, m proto.Message) proto.Message {
			return way(t, m.(*messages.InputReply).JSON()).Proto()
		}},
		{&messages.Shown{}, func(t *testing.T, m proto.Message) proto.Message {
			for _, turn := range m.(*messages.Shown).GetTurns() {
				for _, g := range turn.GetGenerations() {
					g.Timing.ProviderAttempts = g.GetAttempts()
				}
			}
			return way(t, m.(*messages.Shown).JSON()).Proto()
		}},
	} {
		name := string(c.in.ProtoReflect().Descriptor().Name())
		t.Run(name, func(t *testing.T) {
			f := &filler{omit: omit}
			f.fill(c.in.ProtoReflect(), 4)
			if got := c.back(t, c.in); !proto.Equal(got, c.in) {
				t.Errorf("came back as\n%v\nwant\n%v", got, c.in)
			}
		})
	}
}

func TestEveryFieldOfARequestSurvivesItsJSON(t *testing.T) {
	f := &filler{omit: []string{"CreateSession.tenant", "SubmitInput.origin", "CreateSession.run", "EnvVar.command", "WorkspaceSpec.bounds", "WorkspaceSpec.by", "SubmitInput.traceparent"}} // commands that give values are a project's alone; a trace is named in a header
	create := &messages.CreateSession{}
	f.fill(create.ProtoReflect(), 4)
	create.First.InputId = "in 1"
	j, err := messages.CreateFrom(create)
	if err != nil {
		t.Fatal(err)
	}
	body := way(t, *j)
	got, err := body.Proto()
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, create) {
		t.Errorf("came back as\n%v\nwant\n%v", got, create)
	}
	spawn := &messages.SpawnWorker{}
	f.fill(spawn.ProtoReflect(), 4)
	back := way(t, *messages.SpawnFrom(spawn))
	if got := back.Proto(); !proto.Equal(got, spawn) {
		t.Errorf("came back as\n%v\nwant\n%v", got, spawn)
	}
}

func TestListingsOfNothingAreEmptyArrays(t *testing.T) {
	for _, v := range []any{
		(&messages.Sessions{}).JSON(), (&messages.Workers{}).JSON(), (&messages.Calls{}).JSON(), (&messages.Inputs{}).JSON(),
		(&messages.Shown{}).JSON().Turns, (&messages.Verified{}).JSON().Findings, (&messages.TurnResult{}).JSON().ToolCalls,
	} {
		if b, err := json.Marshal(v); err != nil || string(b) != "[]" {
			t.Errorf("%T: %s, %v", v, b, err)
		}
	}
}

func TestToolArgumentsKeepEveryByte(t *testing.T) {
	for _, args := range []string{`{"path":"a"}`, "{ \"a\" :\t1,\n\"b\": \"<&>\u2028\" }", "not json", `[1]`} {
		j, err := messages.CallToolFrom(&messages.CallTool{Arguments: args, CallId: "c1", WorkerId: "wrk_1"})
		if err != nil {
			t.Fatal(err)
		}
		body := way(t, *j)
		m, err := body.Proto("read_file")
		if err != nil {
			t.Fatal(err)
		}
		if m.GetArguments() != args || m.GetTool() != "read_file" || m.GetCallId() != "c1" || m.GetWorkerId() != "wrk_1" {
			t.Errorf("%q came back as %v", args, m)
		}
	}
	var given messages.CallToolJSON
	if err := json.Unmarshal([]byte(`{"arguments": { "a":  1 } }`), &given); err != nil {
		t.Fatal(err)
	}
	if m, err := given.Proto("x"); err != nil || m.GetArguments() != `{ "a":  1 }` {
		t.Errorf("an object became %v, %v", m, err)
	}
}

func TestRequestsThatMakeNoSenseAreRefusedByCode(t *testing.T) {
	refused := func(what string, err error) {
		t.Helper()
		var f *messages.Failure
		if !errors.As(err, &f) || f.GetCode() != messages.CodeBadRequest || f.GetMessage() == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := &messages.FileJSON{Name: "a", Text: "b"}
	for what, in := range map[string]messages.InputJSON{
		"an unknown mode":      {Text: "x", Mode: "later"},
		"a mode in capitals":   {Text: "x", Mode: "QUEUE"},
		"text and parts":       {Text: "x", Parts: []messages.PartJSON{{Text: "y"}}},
		"a part that is two":   {Parts: []messages.PartJSON{{Text: "y", File: file}}},
		"a long input id":      {InputID: strings.Repeat("x", 129)},
		"an input id of bytes": {InputID: "a\x00b"},
		"an id that hides":     {InputID: "a\u202eb"},
		"an id of broken text": {InputID: "a\xffb"},
	} {
		_, err := in.Proto()
		refused(what, err)
		_, err = (&messages.CreateJSON{Input: &in}).Proto()
		refused(what+" in a creation", err)
	}
	_, err := (&messages.CreateJSON{Workspaces: []messages.AttachJSON{{URI: "local:/a", Trust: "total"}}}).Proto()
	refused("an unknown trust", err)
	_, err = (&messages.CallToolJSON{Arguments: json.RawMessage(`[1]`)}).Proto("x")
	refused("arguments in a list", err)
	_, err = messages.CreateFrom(&messages.CreateSession{Tenant: "other"})
	refused("a tenant", err)
	_, err = messages.InputFrom(&messages.SubmitInput{Origin: messages.InputAccepted_WORKER})
	refused("a foreign origin", err)
}
