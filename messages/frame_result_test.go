package messages_test

import (
	"encoding/json"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// The texts that clients on the wire know stand beside the code and the tool's own text, which newer ones read (acceptance row 43).
func TestAFailedCallHasTheTextOfTheWireTheCodeAndTheToolsOwnText(t *testing.T) {
	for _, c := range []struct{ code, content, want string }{
		{"file_not_found", "File not found: a", "File not found: a"},
		{"file_not_found", "a", "File not found: a"},
		{"permission_denied", "a", "Access denied: a"},
		{"invalid_path", "a", "Invalid path: a"},
		{"file_too_large", "a", "File too large: a"},
		{"user_rejected", "no, because", "Operation rejected by user"},
		{"workspace_not_available", "No active project", "No active project"},
		{"workspace_not_available", "it is away", "Tool execution failed: it is away"},
		{"internal_error", "a", "Unexpected error: a"},
		{"timeout", "a", "Tool execution failed: a"},
	} {
		f := messages.ResultOf("c", &messages.ToolReply{Status: messages.ToolFinished_ERROR, ErrorCode: c.code, Content: c.content, DetailsJson: `{"path":"a"}`})
		if f.Error == nil || *f.Error != c.want || f.ErrorCode != c.code || f.Message != c.content || string(f.Details) != `{"path":"a"}` || f.Result != nil || f.CallID != "c" {
			b, _ := json.Marshal(f) //nolint:errchkjson // it is shown
			t.Errorf("%s %q: %s, want %q", c.code, c.content, b, c.want)
		}
	}
}

func TestACallThatSucceededHasAResultAndNoError(t *testing.T) {
	f := messages.ResultOf("c", &messages.ToolReply{
		Status: messages.ToolFinished_OK, Content: "x", Truncated: true, Diff: "+x", MetaJson: `{"n":1}`, DetailsJson: `{"broken`,
		Previewed: true, PreviewKind: "diff", Files: []*messages.FileHash{{Path: "p", Sha256: "h", PlannedSha256: "q"}},
	})
	const want = `{"content":"x","truncated":true,"meta":{"n":1},"files":[{"path":"p","sha256":"h","planned_sha256":"q"}],"diff":"+x","preview":"diff"}`
	if f.Error != nil || string(f.Result) != want { // details that are no JSON would break the frame, and are left out
		t.Errorf("%s, want %s", f.Result, want)
	}
	f = messages.ResultOf("c", &messages.ToolReply{Status: messages.ToolFinished_OK, PreviewKind: "diff"})
	if string(f.Result) != `{"content":""}` {
		t.Errorf("of a call that ran, and was not previewed: %s", f.Result)
	}
}

func TestHashesOfFilesSurviveTheWire(t *testing.T) {
	all := []*messages.FileHash{{Path: "p", Sha256: "h", PlannedSha256: "q"}, {Path: "r", Sha256: "i"}}
	back := messages.FileHashesOf(messages.FileHashesJSON(all))
	if len(back) != 2 || back[0].GetPath() != "p" || back[0].GetSha256() != "h" || back[0].GetPlannedSha256() != "q" || back[1].GetPath() != "r" || back[1].GetPlannedSha256() != "" {
		t.Errorf("they came back as %v", back)
	}
}
