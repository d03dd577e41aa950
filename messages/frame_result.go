package messages

import (
	"encoding/json"
	"strings"
)

// WireText is the text of a failure in a `tool_result` on the wire (acceptance rows 43 and 44).
// The model never sees it: it gets the tool's own message. A message that already begins as the
// wire would have it is not prefixed twice.
func WireText(code, message string) string {
	prefix := "Tool execution failed: "
	switch code {
	case "file_not_found":
		prefix = "File not found: "
	case "permission_denied":
		prefix = "Access denied: "
	case "invalid_path":
		prefix = "Invalid path: "
	case "file_too_large":
		prefix = "File too large: "
	case "user_rejected":
		return "Operation rejected by user"
	case "workspace_not_available":
		if message == "No active project" { // row 46
			return message
		}
	case "internal_error":
		prefix = "Unexpected error: "
	}
	return prefix + strings.TrimPrefix(message, prefix)
}

// ResultOf is what a call came to, as a frame.
func ResultOf(callID string, r *ToolReply) *ToolResultFrame {
	f := &ToolResultFrame{CallID: callID}
	if r.GetStatus() != ToolFinished_OK {
		text := WireText(r.GetErrorCode(), r.GetContent())
		f.Error, f.ErrorCode, f.Message, f.Details = &text, r.GetErrorCode(), r.GetContent(), rawObject(r.GetDetailsJson())
		return f
	}
	res := ResultFrame{
		Content: r.GetContent(), Truncated: r.GetTruncated(), Diff: r.GetDiff(), Meta: rawObject(r.GetMetaJson()), Details: rawObject(r.GetDetailsJson()),
	}
	if r.GetPreviewed() {
		res.Preview = r.GetPreviewKind()
	}
	res.Files = FileHashesJSON(r.GetFiles())
	f.Result, _ = json.Marshal(res) //nolint:errchkjson // texts, and objects that were looked at
	return f
}

func rawObject(text string) json.RawMessage {
	if text == "" || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}

// FileHashesJSON are the hashes of files as frames have them.
func FileHashesJSON(all []*FileHash) (out []FileHashJSON) {
	for _, h := range all {
		out = append(out, FileHashJSON{Path: h.GetPath(), SHA256: h.GetSha256(), PlannedSHA256: h.GetPlannedSha256()})
	}
	return out
}

// FileHashesOf reads what FileHashesJSON wrote.
func FileHashesOf(all []FileHashJSON) (out []*FileHash) {
	for _, h := range all {
		out = append(out, &FileHash{Path: h.Path, Sha256: h.SHA256, PlannedSha256: h.PlannedSHA256})
	}
	return out
}
