package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// ownedCall is a call that the owner of a workspace was given.
type ownedCall struct {
	conn     *conn
	exec     *messages.Execute
	reply    chan *messages.ToolReply
	progress func(*messages.Progress)
	told     time.Time // when progress was passed on last
}

// progressEvery is the shortest time between two signs of life of a call.
const progressEvery = 250 * time.Millisecond

// maxAnswered is how many results are remembered, to tell one that comes again from one that differs.
const maxAnswered = 4096

// answered are the results that were taken, the oldest forgotten first.
type answered struct {
	sums  map[string][sha256.Size]byte
	order []string
}

func (r *answered) add(id string, sum [sha256.Size]byte) {
	if r.sums == nil {
		r.sums = make(map[string][sha256.Size]byte)
	}
	if _, again := r.sums[id]; !again {
		r.order = append(r.order, id)
	}
	r.sums[id] = sum
	for len(r.order) > maxAnswered {
		delete(r.sums, r.order[0])
		r.order = r.order[1:]
	}
}

// wireID is the id of a call on the wire. That of the provider is not unique; that of the execution is, with its attempt.
func wireID(exec string, attempt uint32) string {
	if attempt <= 1 {
		return exec
	}
	return fmt.Sprintf("%s.%d", exec, attempt)
}

// Deliver sends a call and waits for its result.
func (c *conn) Deliver(ctx context.Context, m *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error) {
	return c.deliver(ctx, wireID(m.GetExecId(), m.GetAttempt()), m, progress)
}

// Preview asks the owner what a call would change; nil, when it is one that does not tell.
func (c *conn) Preview(ctx context.Context, m *messages.Execute) (*messages.ToolReply, error) {
	if !c.has(messages.FeaturePreview) {
		return nil, nil //nolint:nilnil // nothing is shown, and nothing is wrong
	}
	return c.deliver(ctx, "preview_"+wireID(m.GetExecId(), m.GetAttempt()), m, nil)
}

func (c *conn) deliver(ctx context.Context, id string, m *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error) {
	call := &ownedCall{conn: c, exec: m, reply: make(chan *messages.ToolReply, 1), progress: progress}
	s := &c.a.ws
	s.mu.Lock()
	if s.calls == nil {
		s.calls = make(map[string]*ownedCall)
	}
	s.calls[id] = call // a newer connection takes it over
	delete(s.results.sums, c.seen(id))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[id] == call {
			delete(s.calls, id)
		}
	}()
	f := &messages.ToolCallFrame{
		CallID: id, ToolName: m.GetTool(), Arguments: arguments(m.GetArguments()), RequiresApproval: m.GetRequiresApproval(),
		Session: m.GetSessionId(), Workspace: m.GetWorkspace().GetUri(), ExecID: m.GetExecId(), Attempt: m.GetAttempt(),
		ApprovalID: m.GetApprovalId(), ApprovedBy: m.GetApprovedBy(), Agent: m.GetAgent(), Worker: m.GetWorkerId(), TimeoutMs: m.GetTimeoutMs(),
		KnownFiles: messages.FileHashesJSON(m.GetKnownFiles()), Preview: m.GetPreview(),
		ApprovedFiles: messages.FileHashesJSON(m.GetApprovedFiles()), ApprovedEdited: m.GetApprovedEdited(),
	}
	if b, err := messages.EncodeFrame(f); err != nil || len(b) > messages.MaxFrame {
		return &messages.ToolReply{
			ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_ERROR, ErrorCode: messages.CodeMessageTooLarge,
			Content: "Tool execution failed: the call is larger than a frame to the owner of the workspace may be, 8 MiB; do it in parts",
		}, nil
	}
	c.send(f)
	select {
	case r := <-call.reply:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx) //nolint:contextcheck // the connection has a context of its own
	}
}

// arguments are sent as they were decided on; what is no JSON as a string, which no tool takes.
func arguments(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	b, _ := json.Marshal(text) //nolint:errchkjson // a string
	return b
}

// Cancel asks the owner to end the attempts of a call that it runs.
func (c *conn) Cancel(execID string) {
	s := &c.a.ws
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, call := range s.calls {
		if call.conn == c && call.exec.GetExecId() == execID {
			c.send(&messages.RequestResolvedFrame{CallID: id, State: messages.CallCancelled})
		}
	}
}

// Settle tells the owner that a result is kept.
func (c *conn) Settle(execID string, attempt uint32) {
	c.send(&messages.RequestResolvedFrame{CallID: wireID(execID, attempt), State: messages.CallSettled})
}

// result takes what a call came to: once, and from the connection that it was given to.
func (c *conn) result(f *messages.ToolResultFrame) {
	refuse := func(code, text string) {
		c.refuse(&messages.ErrorFrame{About: f.FrameType(), CallID: f.CallID}, messages.Fail(code, text, ""))
	}
	sum := sha256.Sum256(resultBytes(f))
	s := &c.a.ws
	s.mu.Lock()
	call := s.calls[f.CallID]
	if call != nil && !c.who.Owner && call.conn.who.Tenant != c.who.Tenant {
		call = nil // another tenant's does not exist
	}
	before, again := s.results.sums[c.seen(f.CallID)]
	mine := call != nil && call.conn == c
	if mine && !again {
		s.results.add(c.seen(f.CallID), sum)
	}
	s.mu.Unlock()
	switch {
	case again && before == sum: // sent twice: once is enough
	case again:
		refuse(messages.CodeResolved, "another result of call "+visible(f.CallID)+" was taken already")
	case call == nil:
		refuse(messages.CodeUnknownCall, "nobody waits for a result of call "+visible(f.CallID))
	case !mine:
		refuse(messages.CodeDenied, "call "+visible(f.CallID)+" was given to another connection")
	default:
		call.reply <- replyOf(call.exec, f)
	}
}

// seen is the id under which a result is remembered: what other tenants' calls came to is not told.
func (c *conn) seen(id string) string { return c.who.Tenant + "/" + id }

// resultBytes is what makes two results the same.
func resultBytes(f *messages.ToolResultFrame) []byte {
	var b bytes.Buffer
	if f.Error != nil {
		fmt.Fprintf(&b, "error %q %q %q ", *f.Error, f.ErrorCode, f.Message)
	}
	b.Write(f.Details)
	b.Write(f.Result)
	return b.Bytes()
}

func visible(id string) string { return fmt.Sprintf("%.80q", id) }

// progress passes a sign of life on, not more often than anybody can see.
func (c *conn) progress(f *messages.ProgressFrame) {
	s := &c.a.ws
	s.mu.Lock()
	call := s.calls[f.CallID]
	due := call != nil && call.conn == c && call.progress != nil && time.Since(call.told) >= progressEvery
	if due {
		call.told = time.Now()
	}
	s.mu.Unlock()
	if due {
		call.progress(&messages.Progress{Done: f.Done, Total: f.Total, Unit: clip(f.Unit, 32), Text: clip(f.Text, 4096)})
	}
}

func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// replyOf reads a result as the house means it.
func replyOf(m *messages.Execute, f *messages.ToolResultFrame) *messages.ToolReply {
	r := &messages.ToolReply{ExecId: m.GetExecId(), CallId: m.GetCallId(), Tool: m.GetTool(), Status: messages.ToolFinished_OK}
	if f.Error != nil {
		r.ErrorCode = cmp.Or(f.ErrorCode, codeOfText(*f.Error))
		r.Content, r.DetailsJson = cmp.Or(f.Message, *f.Error), object(f.Details)
		r.Status = statusOfCode(r.GetErrorCode())
		return r
	}
	var res messages.ResultFrame
	var text string
	switch {
	case json.Unmarshal(f.Result, &text) == nil && f.Result[0] == '"':
		r.Content = text
	case json.Unmarshal(f.Result, &res) == nil && bytes.Contains(f.Result, []byte(`"content"`)):
		r.Content, r.Truncated, r.Diff = res.Content, res.Truncated, res.Diff
		r.MetaJson, r.DetailsJson = object(res.Meta), object(res.Details)
		r.Files, r.Previewed, r.PreviewKind = messages.FileHashesOf(res.Files), m.GetPreview() && res.Preview != "", res.Preview
	default:
		r.Content = string(f.Result)
	}
	return r
}

// object is a JSON object as it is; anything else is nothing.
func object(b json.RawMessage) string {
	if t := bytes.TrimSpace(b); len(t) > 0 && t[0] == '{' {
		return string(t)
	}
	return ""
}

// codeOfText knows the errors of older clients by their texts (acceptance row 43).
func codeOfText(text string) string {
	for prefix, code := range map[string]string{
		"File not found: ": "file_not_found", "Access denied: ": messages.CodeDenied, "Invalid path: ": "invalid_path",
		"File too large: ": "file_too_large", "Operation rejected by user": "user_rejected", "No active project": messages.CodeNotAvailable,
	} {
		if strings.HasPrefix(text, prefix) {
			return code
		}
	}
	return messages.CodeInternal
}

func statusOfCode(code string) messages.ToolFinished_Status {
	switch code {
	case "interrupted":
		return messages.ToolFinished_INTERRUPTED_UNKNOWN
	case messages.CodeTimeout:
		return messages.ToolFinished_TIMEOUT
	case "cancelled":
		return messages.ToolFinished_CANCELLED
	case "invalid_arguments":
		return messages.ToolFinished_BAD_ARGS
	case "user_rejected", messages.CodeDenied:
		return messages.ToolFinished_DENIED
	}
	return messages.ToolFinished_ERROR
}
