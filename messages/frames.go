package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The types of frames on the WebSocket: each is one JSON object with its type (docs/ws.md, ADR 48).
const (
	FrameHello            = "hello"
	FrameAttach           = "attach"
	FrameToolCall         = "tool_call"
	FrameToolResult       = "tool_result"
	FrameApprovalRequest  = "approval_request"
	FrameApprovalResponse = "approval_response"
	FrameRequestResolved  = "request_resolved"
	FrameEvent            = "event"
	FrameError            = "error"
	FramePing             = "ping"
	FrameProgress         = "progress"
	FrameJob              = "job"
)

// FrameVersion is the version of the protocol that hello negotiates.
const FrameVersion = 1

// MaxFrame is the most that one frame may have, in bytes.
const MaxFrame = 8 << 20

// The features that hello negotiates. Who announces none gets the old form.
const (
	FeatureApprovals = "approvals"  // it shows approvals and answers them
	FeatureErrorCode = "error_code" // it reads error_code beside the text of an error
	FeatureEvents    = "events"     // it wants the events of the sessions that it attaches to
	FeatureProgress  = "progress"
	FeaturePreview   = "preview" // an owner shows what a call would change in its folder
	FeatureJobs      = "jobs"    // an owner may leave commands running, and tells how they end; the server looks after them
)

// OldApprovalMs is how long an approval may wait of a call by a client that shows none, unless something else is configured.
const OldApprovalMs = 300_000

// Codes of errors that only the WebSocket has.
const (
	CodeInvalidMessage  = "invalid_message"
	CodeMessageTooLarge = "message_too_large"
	CodeUnknownCall     = "unknown_call"
	CodeDuplicateCall   = "duplicate_call_id"
)

// FromNow is the cursor after which there are only events that are still to come.
const FromNow = math.MaxUint64

// Frame is one of the frame types below.
type Frame interface{ FrameType() string }

// HelloFrame is the first frame of each side: what it speaks. Answered by one.
type HelloFrame struct {
	Type     string   `json:"type"`
	Version  int      `json:"version"`
	Client   string   `json:"client,omitempty"` // the same for each connection of one program: it replaces its own without stealing
	Name     string   `json:"name,omitempty"`   // for people
	Features []string `json:"features,omitempty"`
}

// AttachFrame asks to take part in a session, and is the answer. With a workspace HOST:PATH the connection becomes that workspace's owner, which is
// attached to the session when it is not yet; without one it is an observer.
type AttachFrame struct {
	Type      string   `json:"type"`
	Session   string   `json:"session"`
	Workspace string   `json:"workspace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Trust     string   `json:"trust,omitempty"` // full | restricted
	Tools     []string `json:"tools,omitempty"` // that it offers; none: every tool
	Steal     bool     `json:"steal,omitempty"` // take the place of another program
	Leave     bool     `json:"leave,omitempty"` // the owner does not come back
	After     *uint64  `json:"after,omitempty"` // events after this cursor; absent: from now on
	// Jobs of an owner: those that run, and those whose end the server has not said that it keeps, without what they have printed.
	Jobs []JobJSON `json:"jobs,omitempty"`

	Attached *WorkspaceJSON `json:"attached,omitempty"` // in the answer
	Epoch    uint64         `json:"epoch,omitempty"`    // in the answer: of this connection
}

// ToolCallFrame has a tool run: by the owner of a workspace, or, when a client sends it, by the session. Answered by one ToolResultFrame.
type ToolCallFrame struct {
	Type                 string          `json:"type"`
	CallID               string          `json:"call_id"`
	ToolName             string          `json:"tool_name"`
	Arguments            json.RawMessage `json:"arguments,omitempty"`
	RequiresApproval     bool            `json:"requires_approval"`
	RequiresConfirmation bool            `json:"requires_confirmation,omitempty"` // its older name

	Session    string         `json:"session,omitempty"`
	Workspace  string         `json:"workspace,omitempty"` // HOST:PATH
	ExecID     string         `json:"exec_id,omitempty"`   // the same for each attempt
	Attempt    uint32         `json:"attempt,omitempty"`
	ApprovalID string         `json:"approval_id,omitempty"` // that it was approved by
	ApprovedBy string         `json:"approved_by,omitempty"`
	Agent      string         `json:"agent,omitempty"`
	Worker     string         `json:"worker,omitempty"`
	TimeoutMs  int64          `json:"timeout_ms,omitempty"`
	KnownFiles []FileHashJSON `json:"known_files,omitempty"` // that the conversation has read

	// Preview: nothing runs, the answer is what the call would change. Only an owner with the feature is asked.
	Preview        bool           `json:"preview,omitempty"`
	ApprovedFiles  []FileHashJSON `json:"approved_files,omitempty"`  // as they were shown to who approved: else the call is not what was approved
	ApprovedEdited bool           `json:"approved_edited,omitempty"` // the arguments were changed with the answer
}

// Asks says whether the frame demands an approval, by whichever name.
func (f *ToolCallFrame) Asks() bool { return f.RequiresApproval || f.RequiresConfirmation }

// ResultFrame is what a call came to when it succeeded.
type ResultFrame struct {
	Content   string          `json:"content"`
	Truncated bool            `json:"truncated,omitempty"`
	Meta      json.RawMessage `json:"meta,omitempty"`
	Details   json.RawMessage `json:"details,omitempty"`
	Files     []FileHashJSON  `json:"files,omitempty"` // read or left behind
	Diff      string          `json:"diff,omitempty"`
	Preview   string          `json:"preview,omitempty"` // of a preview: its kind, as an approval has it; what is shown is the diff
}

// ToolResultFrame is what became of a call: a result or an error, never both.
type ToolResultFrame struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Result    json.RawMessage `json:"result,omitempty"`     // a ResultFrame; of older clients any JSON
	Error     *string         `json:"error,omitempty"`      // the text of acceptance row 43
	ErrorCode string          `json:"error_code,omitempty"` // not in the old form
	Message   string          `json:"message,omitempty"`    // the tool's own text, for the model
	Details   json.RawMessage `json:"details,omitempty"`    // of an error
}

// ApprovalRequestFrame asks a person about a call.
type ApprovalRequestFrame struct {
	Type     string       `json:"type"`
	Approval ApprovalJSON `json:"approval"`
}

// ApprovalResponseFrame is the answer of a person; the first one counts.
type ApprovalResponseFrame struct {
	Type       string `json:"type"`
	ApprovalID string `json:"approval_id"`
	AnswerJSON
}

// RequestResolvedFrame says that a request waits no longer: an approval was answered, by whomever, or a call is over.
type RequestResolvedFrame struct {
	Type       string `json:"type"`
	ApprovalID string `json:"approval_id,omitempty"`
	Decision   string `json:"decision,omitempty"` // approved | rejected | cancelled | expired
	By         string `json:"by,omitempty"`

	CallID string `json:"call_id,omitempty"`
	State  string `json:"state,omitempty"`  // of a call or a job: cancelled, it should end; settled, its result is kept and may be forgotten
	Reason string `json:"reason,omitempty"` // why a job should end
}

// The states of a call in a RequestResolvedFrame.
const (
	CallCancelled = "cancelled"
	CallSettled   = "settled"
)

// EventFrame is an event of a session, as everywhere.
type EventFrame struct {
	Type  string `json:"type"`
	Event *Event `json:"event"`
}

// ErrorFrame says what is wrong with a frame, or with the connection.
type ErrorFrame struct {
	Type       string `json:"type"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`
	About      string `json:"about,omitempty"` // the type of the frame that it answers
	CallID     string `json:"call_id,omitempty"`
	ApprovalID string `json:"approval_id,omitempty"`
	Session    string `json:"session,omitempty"`
}

// PingFrame is answered by the same with pong.
type PingFrame struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
	Pong bool   `json:"pong,omitempty"`
}

// ProgressFrame is a sign of life of a long call.
type ProgressFrame struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Done   int64  `json:"done"`
	Total  int64  `json:"total,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Text   string `json:"text,omitempty"`
}

// JobFrame tells that a job runs which a call left running, or how it has ended. Settled by its id.
type JobFrame struct {
	Type string `json:"type"`
	JobJSON
}

// JobJSON is a job on the machine of an owner.
type JobJSON struct {
	JobID      string `json:"job_id"`
	Session    string `json:"session,omitempty"`
	Worker     string `json:"worker,omitempty"`
	Workspace  string `json:"workspace,omitempty"` // HOST:PATH
	Command    string `json:"command,omitempty"`
	State      string `json:"state"`          // running | exited | killed | failed | unknown
	Note       string `json:"note,omitempty"` // the state in a sentence
	ExitCode   int32  `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	DurationMs int64  `json:"duration_ms,omitempty"`
	StartedMs  int64  `json:"started_ms,omitempty"` // since 1970, by the owner's clock
	Output     string `json:"output,omitempty"`     // the newest of it, of one that has ended
	Dropped    int64  `json:"dropped,omitempty"`    // bytes before that
}

// JobOf is a job as frames have it.
func JobOf(j *OwnedJob) JobJSON {
	return JobJSON{
		JobID: j.GetJobId(), Session: j.GetSessionId(), Worker: j.GetWorkerId(), Workspace: j.GetUri(), Command: j.GetCommand(), State: j.GetState(), Note: j.GetNote(),
		ExitCode: j.GetExitCode(), Signal: j.GetSignal(), DurationMs: j.GetDurationMs(), StartedMs: j.GetStartedUnixMs(), Output: j.GetOutput(), Dropped: j.GetDropped(),
	}
}

// Proto reads what JobOf wrote.
func (j *JobJSON) Proto() *OwnedJob {
	return &OwnedJob{
		JobId: j.JobID, SessionId: j.Session, WorkerId: j.Worker, Uri: j.Workspace, Command: j.Command, State: j.State, Note: j.Note,
		ExitCode: j.ExitCode, Signal: j.Signal, DurationMs: j.DurationMs, StartedUnixMs: j.StartedMs, Output: j.Output, Dropped: j.Dropped,
	}
}

// JobRunning is the state of a job that has not ended.
const JobRunning = "running"

// FrameType implements Frame.
func (*JobFrame) FrameType() string { return FrameJob }

// FrameType implements Frame.
func (*HelloFrame) FrameType() string { return FrameHello }

// FrameType implements Frame.
func (*AttachFrame) FrameType() string { return FrameAttach }

// FrameType implements Frame.
func (*ToolCallFrame) FrameType() string { return FrameToolCall }

// FrameType implements Frame.
func (*ToolResultFrame) FrameType() string { return FrameToolResult }

// FrameType implements Frame.
func (*ApprovalRequestFrame) FrameType() string { return FrameApprovalRequest }

// FrameType implements Frame.
func (*ApprovalResponseFrame) FrameType() string { return FrameApprovalResponse }

// FrameType implements Frame.
func (*RequestResolvedFrame) FrameType() string { return FrameRequestResolved }

// FrameType implements Frame.
func (*EventFrame) FrameType() string { return FrameEvent }

// FrameType implements Frame.
func (*ErrorFrame) FrameType() string { return FrameError }

// FrameType implements Frame.
func (*PingFrame) FrameType() string { return FramePing }

// FrameType implements Frame.
func (*ProgressFrame) FrameType() string { return FrameProgress }

// frameOf makes an empty frame of a type; nil: there is no such type.
func frameOf(kind string) Frame {
	switch kind {
	case FrameHello:
		return &HelloFrame{}
	case FrameAttach:
		return &AttachFrame{}
	case FrameToolCall:
		return &ToolCallFrame{}
	case FrameToolResult:
		return &ToolResultFrame{}
	case FrameApprovalRequest:
		return &ApprovalRequestFrame{}
	case FrameApprovalResponse:
		return &ApprovalResponseFrame{}
	case FrameRequestResolved:
		return &RequestResolvedFrame{}
	case FrameEvent:
		return &EventFrame{}
	case FrameError:
		return &ErrorFrame{}
	case FramePing:
		return &PingFrame{}
	case FrameProgress:
		return &ProgressFrame{}
	case FrameJob:
		return &JobFrame{}
	}
	return nil
}

// DecodeFrame reads one frame. Fields that are not known are passed over, so that either side may be newer. A refusal is a *Failure of code
// `invalid_message`.
func DecodeFrame(b []byte) (Frame, error) {
	fail := func(format string, args ...any) (Frame, error) {
		return nil, Fail(CodeInvalidMessage, fmt.Sprintf(format, args...), "docs/ws.md has the frames")
	}
	if !utf8.Valid(b) {
		return fail("the frame is not UTF-8")
	}
	var head struct {
		Type *string `json:"type"`
	}
	if err := decodeOne(b, &head); err != nil {
		return fail("the frame is no JSON object: %s", frameText(err))
	}
	if head.Type == nil {
		return fail("the frame has no type")
	}
	f := frameOf(*head.Type)
	if f == nil {
		return fail("there is no frame of type %.40q", *head.Type)
	}
	if err := decodeOne(b, f); err != nil {
		return fail("frame %s: %s", *head.Type, frameText(err))
	}
	if r, ok := f.(*ToolResultFrame); ok && (r.Error != nil) == (len(r.Result) > 0) {
		return fail("frame tool_result: one of result and error has to be there, and not both")
	}
	return f, nil
}

func decodeOne(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more after the first value, at byte %d", dec.InputOffset())
	}
	return nil
}

// WrongKind says what stands where something else is wanted.
func WrongKind(e *json.UnmarshalTypeError) string {
	if e.Field == "" {
		return "it cannot be " + article(e.Value)
	}
	return fmt.Sprintf("field %q cannot be %s", sent(e.Field), article(e.Value))
}

// sent is a field as who sent it knows it: without the names of types that are part of others. Names that are sent begin with a small letter.
func sent(field string) string {
	parts := strings.Split(field, ".")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' }), ".")
}

func article(noun string) string {
	if strings.HasPrefix(noun, "array") || strings.HasPrefix(noun, "object") {
		return "an " + noun
	}
	return "a " + noun
}

func frameText(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return WrongKind(kind)
	}
	return err.Error()
}

// EncodeFrame writes one frame, with its type.
func EncodeFrame(f Frame) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // it would make six bytes of one
	if err := e.Encode(f); err != nil {
		return nil, fmt.Errorf("encode frame %s: %w", f.FrameType(), err)
	}
	b := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if rest, ok := bytes.CutPrefix(b, []byte(`{"type":""`)); ok {
		return append([]byte(`{"type":"`+f.FrameType()+`"`), rest...), nil
	}
	return b, nil
}
