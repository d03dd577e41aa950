package actors

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// hides is a Redactor of one secret.
type hides string

func (h hides) String(s string) string         { return strings.ReplaceAll(s, string(h), "***") }
func (h hides) Scan(s string) (string, string) { return h.String(s), "" }

// TestAResultThatOthersHaveIsNotWrittenTo: the ledger has it when it is told, and the tool has what is in it.
func TestAResultThatOthersHaveIsNotWrittenTo(t *testing.T) {
	r := &run{svc: &Services{Redact: hides("s3cret")}, m: &messages.Execute{}, start: time.Now().Add(-time.Second)}
	given := &messages.ToolReply{
		Content: "s3cret \xff", Diff: "s3cret", DetailsJson: `{"a":"s3cret"}`, MetaJson: `{"b":"s3cret"}`,
		Files: []*messages.FileHash{{Path: "s3cret"}},
	}
	was := proto.CloneOf(given)
	noted := r.fit(given)
	if !proto.Equal(given, was) {
		t.Errorf("the tool's own became %v", given)
	}
	if strings.Contains(noted.String(), "s3cret") || noted.GetContent() != "*** \uFFFD" || noted.GetFiles()[0].GetPath() != "***" || noted.GetDurationUs() < 1e6 {
		t.Errorf("noted as %v", noted)
	}
	was = proto.CloneOf(noted)
	r.svc.Redact = hides("*")
	if told := r.fit(noted); !proto.Equal(noted, was) || told == noted {
		t.Errorf("the ledger's became %v", noted)
	}
}

func TestACodeOfAnErrorIsNoText(t *testing.T) {
	svc := &Services{Redact: hides("s3cret")}
	for code, want := range map[string]string{
		"": "", messages.CodeNotFound: messages.CodeNotFound, "my-tool.Failed": "my-tool.Failed",
		"s3cret in words": messages.CodeInternal, strings.Repeat("x", 65): messages.CodeInternal, "a\nb": messages.CodeInternal,
	} {
		if got := svc.cleanReply(&messages.ToolReply{ErrorCode: code}).GetErrorCode(); got != want {
			t.Errorf("%q became %q", code, got)
		}
	}
}

func TestAFactThatIsMendedIsAnotherOne(t *testing.T) {
	part := &messages.Part{Kind: &messages.Part_Text{Text: "a\xff"}}
	f := &messages.InputAccepted{InputId: "i", Parts: []*messages.Part{part}}
	if m := mend(f); m.GetParts()[0].GetText() != "a\uFFFD" || m.GetInputId() != "i" {
		t.Errorf("mended to %v", m)
	}
	if part.GetText() != "a\xff" {
		t.Error("the sender's part was written to")
	}
}
