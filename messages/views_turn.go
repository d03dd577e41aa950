package messages

import (
	"encoding/json"
	"strings"
)

// ToolCallJSON is one tool call inside a turn or a result.
type ToolCallJSON struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	ExecID    string `json:"exec_id,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Content   string `json:"content,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
}

// GenerationJSON is one answer of a model, with the metadata of its request.
type GenerationJSON struct {
	ID                string    `json:"id"`
	Model             string    `json:"model,omitempty"`
	InsteadOf         string    `json:"instead_of,omitempty"` // the model that was to be asked, when this one stood in for it
	ProviderRequestID string    `json:"provider_request_id,omitempty"`
	Attempts          int32     `json:"attempts,omitempty"` // requests sent, retries included
	FinishReason      string    `json:"finish_reason,omitempty"`
	StartedAt         string    `json:"started_at,omitempty"`
	FirstTokenUs      int64     `json:"first_token_us,omitempty"`
	DurationUs        int64     `json:"duration_us,omitempty"`
	Usage             UsageJSON `json:"usage"`
	Calls             int32     `json:"calls"`          // that it asked for: the next ones of the turn's tool_calls
	Text              string    `json:"text,omitempty"` // what it said beside them
}

// TurnJSON is one turn of a session. Without an outcome it is still open.
type TurnJSON struct {
	ID          string           `json:"id"`
	Worker      string           `json:"worker"`
	Input       string           `json:"input"`
	Text        string           `json:"text"`
	Outcome     string           `json:"outcome,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Compacted   bool             `json:"compacted,omitempty"` // a summary is sent in its place
	Partial     string           `json:"partial,omitempty"`   // what had arrived of an answer that a stop has cut off; it is asked for again
	Usage       UsageJSON        `json:"usage"`
	StartedAt   string           `json:"started_at,omitempty"`
	CompletedAt string           `json:"completed_at,omitempty"`
	ToolCalls   []ToolCallJSON   `json:"tool_calls"`
	Generations []GenerationJSON `json:"generations"`
}

// ShownJSON is one session whole.
type ShownJSON struct {
	ID      string      `json:"id"`
	State   string      `json:"state"`
	Session SessionJSON `json:"session"`
	Turns   []TurnJSON  `json:"turns"`
	Trimmed bool        `json:"trimmed,omitempty"` // the oldest turns are gone for good
}

// ResultJSON is what one turn came to.
type ResultJSON struct {
	Session         string         `json:"session"`
	Worker          string         `json:"worker,omitempty"`
	Turn            string         `json:"turn"`
	Text            string         `json:"text"`
	Outcome         string         `json:"outcome"`
	Reason          string         `json:"reason,omitempty"` // when the outcome is not done
	ErrorCode       string         `json:"error_code,omitempty"`
	Unheard         bool           `json:"unheard,omitempty"` // what it was asked does not stand in the conversation
	Model           string         `json:"model,omitempty"`
	Scripted        bool           `json:"scripted,omitempty"` // no language model was running
	Usage           UsageJSON      `json:"usage"`
	ToolCalls       []ToolCallJSON `json:"tool_calls"`
	Seq             uint64         `json:"seq,omitempty"`
	ConversationSeq uint64         `json:"conversation_seq,omitempty"`
	StartedAt       string         `json:"started_at,omitempty"`
	CompletedAt     string         `json:"completed_at,omitempty"`
}

// CalledJSON is the result envelope of a tool that a program called. A refused call has one too.
type CalledJSON struct {
	CallID     string          `json:"call_id"`
	ExecID     string          `json:"exec_id,omitempty"`
	Tool       string          `json:"tool"`
	OK         bool            `json:"ok"`
	Status     string          `json:"status"`
	Content    string          `json:"content"`
	ErrorCode  string          `json:"error_code,omitempty"`
	Details    json.RawMessage `json:"details,omitempty"`
	Truncated  bool            `json:"truncated"`
	Meta       json.RawMessage `json:"meta"`
	DurationUs int64           `json:"duration_us,omitempty"`
	Diff       string          `json:"diff,omitempty"`
	Files      []FileHashJSON  `json:"files,omitempty"`
}

// FileHashJSON names the content of one file.
type FileHashJSON struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // hex; empty: there was no file

	PlannedSHA256 string `json:"planned_sha256,omitempty"` // in frames: of what a call is about to leave there
}

// MessageJSON is one message of a conversation.
type MessageJSON struct {
	Role       string     `json:"role"` // user | assistant | tool
	Content    string     `json:"content"`
	Reasoning  string     `json:"reasoning,omitempty"`
	ToolCalls  []callJSON `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Name       string     `json:"name,omitempty"`
}

// ExchangeJSON is one exchange of a conversation as a value.
type ExchangeJSON struct {
	Outcome   string        `json:"outcome"`
	Compacted bool          `json:"compacted,omitempty"` // a summary is sent in its place
	Messages  []MessageJSON `json:"messages"`
}

// HistoryJSON is a conversation up to a record of its worker.
type HistoryJSON struct {
	Worker string         `json:"worker"`
	Seq    uint64         `json:"seq"`
	Turns  []ExchangeJSON `json:"turns"`

	Summary string `json:"summary,omitempty"` // what is sent in place of the compacted ones
	Trimmed bool   `json:"trimmed,omitempty"` // the oldest turns are gone for good; the first one here says what stands for them
}

// JSON is the call in its wire form.
func (x *ToolCallView) JSON() ToolCallJSON {
	return ToolCallJSON{
		Name: x.GetName(), Status: x.GetStatus(), ExecID: x.GetExecId(), CallID: x.GetCallId(), Arguments: x.GetArguments(),
		Content: x.GetContent(), ErrorCode: x.GetErrorCode(),
	}
}

// Proto is the way back.
func (j ToolCallJSON) Proto() *ToolCallView {
	return &ToolCallView{
		Name: j.Name, Status: j.Status, ExecId: j.ExecID, CallId: j.CallID, Arguments: j.Arguments, Content: j.Content,
		ErrorCode: j.ErrorCode,
	}
}

// JSON is the answer in its wire form.
func (x *GenerationView) JSON() GenerationJSON {
	return GenerationJSON{
		ID: x.GetGenId(), Model: x.GetModel(), ProviderRequestID: x.GetProviderRequestId(), Attempts: x.GetAttempts(),
		FinishReason: x.GetFinishReason(), StartedAt: timeText(x.GetTiming().GetStartedAtUnixMs()),
		FirstTokenUs: x.GetTiming().GetFirstTokenUs(), DurationUs: x.GetTiming().GetDurationUs(), Usage: x.GetUsage().JSON(), InsteadOf: x.GetInsteadOf(),
		Calls: x.GetCalls(), Text: x.GetText(),
	}
}

// Proto is the way back.
func (j GenerationJSON) Proto() *GenerationView {
	return &GenerationView{
		GenId: j.ID, Model: j.Model, ProviderRequestId: j.ProviderRequestID, Attempts: j.Attempts, FinishReason: j.FinishReason,
		Usage: j.Usage.Proto(), InsteadOf: j.InsteadOf, Calls: j.Calls, Text: j.Text, Timing: &Timing{
			StartedAtUnixMs: timeRead(j.StartedAt), FirstTokenUs: j.FirstTokenUs, DurationUs: j.DurationUs, ProviderAttempts: j.Attempts,
		},
	}
}

// JSON is the turn in its wire form.
func (x *TurnView) JSON() TurnJSON {
	return TurnJSON{
		ID: x.GetTurnId(), Worker: x.GetWorkerId(), Input: x.GetInput(), Text: x.GetText(), Outcome: x.GetOutcome(),
		Reason: x.GetReason(), Usage: x.GetUsage().JSON(), StartedAt: timeText(x.GetStartedAtUnixMs()),
		CompletedAt: timeText(x.GetCompletedAtUnixMs()), ToolCalls: list(x.GetToolCalls(), (*ToolCallView).JSON),
		Generations: list(x.GetGenerations(), (*GenerationView).JSON), Compacted: x.GetCompacted(), Partial: x.GetPartial(),
	}
}

// Proto is the way back.
func (j TurnJSON) Proto() *TurnView {
	return &TurnView{
		TurnId: j.ID, WorkerId: j.Worker, Input: j.Input, Text: j.Text, Outcome: j.Outcome, Reason: j.Reason, Usage: j.Usage.Proto(),
		StartedAtUnixMs: timeRead(j.StartedAt), CompletedAtUnixMs: timeRead(j.CompletedAt),
		ToolCalls: convert(j.ToolCalls, ToolCallJSON.Proto), Generations: convert(j.Generations, GenerationJSON.Proto),
		Compacted: j.Compacted, Partial: j.Partial,
	}
}

// JSON is the session with its turns in its wire form.
func (x *Shown) JSON() ShownJSON {
	s := x.GetSession().JSON()
	return ShownJSON{ID: s.ID, State: s.State, Session: s, Turns: list(x.GetTurns(), (*TurnView).JSON), Trimmed: x.GetTrimmed()}
}

// Proto is the way back.
func (j ShownJSON) Proto() *Shown {
	return &Shown{Session: j.Session.Proto(), Turns: convert(j.Turns, TurnJSON.Proto), Trimmed: j.Trimmed}
}

// JSON is the result in its wire form.
func (x *TurnResult) JSON() ResultJSON {
	return ResultJSON{
		Session: x.GetSessionId(), Worker: x.GetWorkerId(), Turn: x.GetTurnId(), Text: x.GetText(),
		Outcome: enumName(x.GetOutcome().String(), x.GetOutcome() == TurnCompleted_UNSPECIFIED), Reason: x.GetReason(),
		ErrorCode: x.GetErrorCode(), Unheard: x.GetUnheard(), Model: x.GetModel(), Scripted: x.GetScripted(), Usage: x.GetUsage().JSON(),
		ToolCalls: list(x.GetToolCalls(), (*ToolCallView).JSON), Seq: x.GetSeq(), ConversationSeq: x.GetConversationSeq(),
		StartedAt: timeText(x.GetStartedAtUnixMs()), CompletedAt: timeText(x.GetCompletedAtUnixMs()),
	}
}

// Proto is the way back.
func (j ResultJSON) Proto() *TurnResult {
	return &TurnResult{
		SessionId: j.Session, WorkerId: j.Worker, TurnId: j.Turn, Text: j.Text,
		Outcome: TurnCompleted_Outcome(TurnCompleted_Outcome_value[strings.ToUpper(j.Outcome)]), Reason: j.Reason, ErrorCode: j.ErrorCode, Unheard: j.Unheard,
		Model: j.Model, Scripted: j.Scripted, Usage: j.Usage.Proto(), ToolCalls: convert(j.ToolCalls, ToolCallJSON.Proto), Seq: j.Seq,
		ConversationSeq: j.ConversationSeq, StartedAtUnixMs: timeRead(j.StartedAt), CompletedAtUnixMs: timeRead(j.CompletedAt),
	}
}

// JSON is the reply in its wire form. What only a recovery asks for is not in it.
func (x *ToolReply) JSON() CalledJSON {
	meta := raw(x.GetMetaJson())
	if meta == nil {
		meta = json.RawMessage("{}")
	}
	return CalledJSON{
		CallID: x.GetCallId(), ExecID: x.GetExecId(), Tool: x.GetTool(), OK: x.GetStatus() == ToolFinished_OK,
		Status: enumName(x.GetStatus().String(), x.GetStatus() == ToolFinished_UNSPECIFIED), Content: x.GetContent(),
		ErrorCode: x.GetErrorCode(), Details: raw(x.GetDetailsJson()), Truncated: x.GetTruncated(), Meta: meta,
		DurationUs: x.GetDurationUs(), Diff: x.GetDiff(),
		Files: convert(x.GetFiles(), func(f *FileHash) FileHashJSON { return FileHashJSON{Path: f.GetPath(), SHA256: f.GetSha256()} }),
	}
}

// Proto is the way back.
func (j CalledJSON) Proto() *ToolReply {
	meta := string(j.Meta)
	if meta == "{}" || meta == "null" {
		meta = ""
	}
	return &ToolReply{
		CallId: j.CallID, ExecId: j.ExecID, Tool: j.Tool,
		Status:  ToolFinished_Status(ToolFinished_Status_value[strings.ToUpper(j.Status)]),
		Content: j.Content, ErrorCode: j.ErrorCode, DetailsJson: string(j.Details), Truncated: j.Truncated, MetaJson: meta,
		DurationUs: j.DurationUs, Diff: j.Diff,
		Files: convert(j.Files, func(f FileHashJSON) *FileHash { return &FileHash{Path: f.Path, Sha256: f.SHA256} }),
	}
}

// JSON is the exchange in its wire form.
func (x *Turn) JSON() ExchangeJSON {
	return ExchangeJSON{Outcome: x.GetOutcome(), Compacted: x.GetCompacted(), Messages: list(x.GetMessages(), func(m *ChatMessage) MessageJSON {
		return MessageJSON{
			Role: m.GetRole(), Content: m.GetContent(), Reasoning: m.GetReasoning(), ToolCallID: m.GetToolCallId(), Name: m.GetName(),
			ToolCalls: convert(m.GetToolCalls(), func(c *ToolCall) callJSON { return callJSON{c.GetId(), c.GetName(), c.GetArguments()} }),
		}
	})}
}

// Proto is the way back.
func (j ExchangeJSON) Proto() *Turn {
	return &Turn{Outcome: j.Outcome, Compacted: j.Compacted, Messages: convert(j.Messages, func(m MessageJSON) *ChatMessage {
		return &ChatMessage{
			Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, ToolCallId: m.ToolCallID, Name: m.Name,
			ToolCalls: convert(m.ToolCalls, func(c callJSON) *ToolCall { return &ToolCall{Id: c.ID, Name: c.Name, Arguments: c.Arguments} }),
		}
	})}
}

// JSON is the history in its wire form.
func (x *History) JSON() HistoryJSON {
	return HistoryJSON{Worker: x.GetWorkerId(), Seq: x.GetSeq(), Turns: list(x.GetTurns(), (*Turn).JSON), Summary: x.GetSummary(), Trimmed: x.GetTrimmed()}
}

// Proto is the way back.
func (j HistoryJSON) Proto() *History {
	return &History{WorkerId: j.Worker, Seq: j.Seq, Turns: convert(j.Turns, ExchangeJSON.Proto), Summary: j.Summary, Trimmed: j.Trimmed}
}
