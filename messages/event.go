package messages

import (
	"encoding/json"
	"fmt"
	"time"
)

// The types of event, the same on every surface. Deltas, progress, shown and discarded carry no seq.
const (
	EventSessionCreated      = "session.created"
	EventInputAccepted       = "input.accepted"
	EventInputWithdrawn      = "input.withdrawn"
	EventInputJoined         = "input.joined" // one of mode steer: the open turn's next model call reads it
	EventTurnStarted         = "turn.started"
	EventGenerationStarted   = "generation.started"
	EventTextDelta           = "text.delta"
	EventReasoningDelta      = "reasoning.delta"
	EventGenerationDiscarded = "generation.discarded"
	EventGenerationSuspended = "generation.suspended" // an orderly stop cut the answer off: its text so far, which is void; it is asked for again
	EventGenerationCompleted = "generation.completed"
	EventToolPlanned         = "tool.planned"
	EventApprovalRequested   = "approval.requested"
	EventApprovalShown       = "approval.shown"
	EventApprovalResolved    = "approval.resolved"
	EventToolDispatched      = "tool.dispatched"
	EventToolProgress        = "tool.progress"
	EventWorkspaceProgress   = "workspace.progress" // a clone is being made
	EventToolInDoubt         = "tool.in_doubt"
	EventToolResolved        = "tool.resolved"
	EventToolFinished        = "tool.finished"
	EventWorkerSpawned       = "worker.spawned"
	EventWorkerEnded         = "worker.ended"
	EventWorkerHandedOver    = "worker.handed_over" // from one agent to another
	EventMessageSent         = "message.sent"       // to another worker
	EventMessageRefused      = "message.refused"    // by the worker that it was sent to
	EventFieldChanged        = "field.changed"
	EventBudgetChanged       = "budget.changed"
	EventTurnCompleted       = "turn.completed"
	EventHistoryCompacted    = "history.compacted" // done of total tokens are left; status summarised | dropped
	EventSessionClosed       = "session.closed"

	// Of conversations that workers share; input_id is the turn's id.
	EventConversationShared    = "conversation.shared"
	EventConversationJoined    = "conversation.joined"    // worker, as member
	EventConversationLeft      = "conversation.left"      // reason
	EventConversationAsked     = "conversation.asked"     // a turn waits for the word
	EventConversationWithdrawn = "conversation.withdrawn" // it was taken back before
	EventConversationGiven     = "conversation.given"     // the worker has the word
	EventConversationSaid      = "conversation.said"      // its turn is over; without a worker: from outside, by whom it says
	EventConversationCut       = "conversation.cut"       // its turn did not come to its end
)

// eventJSON is the wire form: absent fields are left out.
type eventJSON struct {
	Seq          uint64          `json:"seq,omitempty"`
	Type         string          `json:"type"`
	At           string          `json:"at"`
	Session      string          `json:"session,omitempty"`
	Worker       string          `json:"worker,omitempty"`
	Turn         string          `json:"turn,omitempty"`
	Text         *string         `json:"text,omitempty"`
	InputID      string          `json:"input_id,omitempty"`
	GenID        string          `json:"gen_id,omitempty"`
	Agent        string          `json:"agent,omitempty"`
	Parent       string          `json:"parent,omitempty"` // of a worker that was spawned: who delegated to it
	Model        string          `json:"model,omitempty"`
	InsteadOf    string          `json:"instead_of,omitempty"` // the model that was to be asked, when another one stands in for it
	ToolCalls    []callJSON      `json:"tool_calls,omitempty"`
	FinishReason string          `json:"finish_reason,omitempty"`
	Usage        *UsageJSON      `json:"usage,omitempty"`
	CallID       string          `json:"call_id,omitempty"`
	ExecID       string          `json:"exec_id,omitempty"`
	Tool         string          `json:"tool,omitempty"`
	Arguments    string          `json:"arguments,omitempty"`
	Status       string          `json:"status,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	Truncated    bool            `json:"truncated,omitempty"`
	Outcome      string          `json:"outcome,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	ApprovalID   string          `json:"approval_id,omitempty"`
	Decision     string          `json:"decision,omitempty"`
	Workspace    string          `json:"workspace,omitempty"`
	DurationUs   int64           `json:"duration_us,omitempty"`
	Scripted     bool            `json:"scripted,omitempty"`
	Diff         string          `json:"diff,omitempty"`
	Details      json.RawMessage `json:"details,omitempty"`
	Meta         json.RawMessage `json:"meta,omitempty"`
	Effect       string          `json:"effect,omitempty"`
	Done         int64           `json:"done,omitempty"`
	Total        int64           `json:"total,omitempty"`
	Unit         string          `json:"unit,omitempty"`
	State        string          `json:"state,omitempty"`        // of a tool call, as in listings; of an approval: shown | pending
	By           string          `json:"by,omitempty"`           // who sees an approval
	From         string          `json:"from,omitempty"`         // worker that sent an input; agent that gave a conversation away
	To           string          `json:"to,omitempty"`           // worker that a message goes to
	Spent        *AmountsJSON    `json:"spent,omitempty"`        // of a budget, by one model call and what follows from it
	Budget       *BudgetJSON     `json:"budget,omitempty"`       // as it is from now on
	Step         string          `json:"step,omitempty"`         // of a run, whose budget it is; absent: the session's
	Conversation string          `json:"conversation,omitempty"` // that workers share
	Member       string          `json:"member,omitempty"`       // what the others of it know the worker by
	Name         string          `json:"name,omitempty"`         // of a conversation
}

type callJSON struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// UsageJSON is Usage as every surface writes it.
type UsageJSON struct {
	InputTokens     int64   `json:"input_tokens"`
	OutputTokens    int64   `json:"output_tokens"`
	CachedTokens    int64   `json:"cached_tokens,omitempty"`
	ReasoningTokens int64   `json:"reasoning_tokens,omitempty"`
	CostUSD         float64 `json:"cost_usd"`
}

// JSON returns the usage in its wire form.
func (u *Usage) JSON() UsageJSON {
	return UsageJSON{
		InputTokens: u.GetInputTokens(), OutputTokens: u.GetOutputTokens(), CachedTokens: u.GetCachedTokens(),
		ReasoningTokens: u.GetReasoningTokens(), CostUSD: float64(u.GetCostMicroUsd()) / 1e6,
	}
}

// Proto is the reverse of Usage.JSON.
func (j UsageJSON) Proto() *Usage {
	return &Usage{
		InputTokens: j.InputTokens, OutputTokens: j.OutputTokens, CachedTokens: j.CachedTokens,
		ReasoningTokens: j.ReasoningTokens, CostMicroUsd: int64(j.CostUSD*1e6 + 0.5),
	}
}

// textual says which types always have a text, also an empty one.
func textual(typ string) bool {
	switch typ {
	case EventTextDelta, EventReasoningDelta, EventTurnCompleted, EventInputAccepted, EventGenerationCompleted, EventToolFinished, EventConversationSaid:
		return true
	}
	return false
}

// FormatTime writes milliseconds since 1970 as RFC 3339 in UTC.
func FormatTime(unixMs int64) string {
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// MarshalJSON writes the event as every surface shows it.
func (x *Event) MarshalJSON() ([]byte, error) {
	j := eventJSON{
		Seq: x.GetSeq(), Type: x.GetType(), At: FormatTime(x.GetAtUnixMs()), Session: x.GetSession(), Worker: x.GetWorker(),
		Turn: x.GetTurn(), InputID: x.GetInputId(), GenID: x.GetGenId(), Agent: x.GetAgent(), Model: x.GetModel(), InsteadOf: x.GetInsteadOf(),
		FinishReason: x.GetFinishReason(), CallID: x.GetCallId(), ExecID: x.GetExecId(), Tool: x.GetTool(),
		Arguments: x.GetArguments(), Status: x.GetStatus(), ErrorCode: x.GetErrorCode(), Truncated: x.GetTruncated(),
		Outcome: x.GetOutcome(), Reason: x.GetReason(), ApprovalID: x.GetApprovalId(), Decision: x.GetDecision(),
		Workspace: x.GetWorkspace(), DurationUs: x.GetDurationUs(), Scripted: x.GetScripted(), Diff: x.GetDiff(),
		Details: raw(x.GetDetailsJson()), Meta: raw(x.GetMetaJson()), Effect: x.GetEffect(),
		Done: x.GetDone(), Total: x.GetTotal(), Unit: x.GetUnit(), State: x.GetState(), Parent: x.GetParent(), By: x.GetBy(), From: x.GetFrom(), To: x.GetTo(),
	}
	if t := x.GetText(); t != "" || textual(x.GetType()) {
		j.Text = &t
	}
	for _, c := range x.GetToolCalls() {
		j.ToolCalls = append(j.ToolCalls, callJSON{c.GetId(), c.GetName(), c.GetArguments()})
	}
	if x.GetUsage() != nil {
		u := x.GetUsage().JSON()
		j.Usage = &u
	}
	if x.GetSpent() != nil {
		a := x.GetSpent().JSON()
		j.Spent = &a
	}
	j.Budget, j.Step, j.Conversation, j.Member, j.Name = x.GetBudget().JSON(), x.GetStep(), x.GetConversation(), x.GetMember(), x.GetName()
	return json.Marshal(j)
}

func raw(s string) json.RawMessage {
	if !json.Valid([]byte(s)) {
		return nil
	}
	return json.RawMessage(s)
}

// UnmarshalJSON is the reverse, for clients.
func (x *Event) UnmarshalJSON(b []byte) error {
	var j eventJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, j.At)
	if err != nil {
		return fmt.Errorf("decode event time: %w", err)
	}
	x.Seq, x.Type, x.AtUnixMs, x.Session, x.Worker, x.Turn = j.Seq, j.Type, at.UnixMilli(), j.Session, j.Worker, j.Turn
	x.InputId, x.GenId, x.Agent, x.Model, x.InsteadOf, x.FinishReason = j.InputID, j.GenID, j.Agent, j.Model, j.InsteadOf, j.FinishReason
	x.CallId, x.ExecId, x.Tool, x.Arguments, x.Status = j.CallID, j.ExecID, j.Tool, j.Arguments, j.Status
	x.ErrorCode, x.Truncated, x.Outcome, x.Reason = j.ErrorCode, j.Truncated, j.Outcome, j.Reason
	x.ApprovalId, x.Decision, x.Workspace, x.DurationUs = j.ApprovalID, j.Decision, j.Workspace, j.DurationUs
	x.Scripted, x.Diff, x.DetailsJson, x.MetaJson = j.Scripted, j.Diff, string(j.Details), string(j.Meta)
	x.From, x.To, x.Step = j.From, j.To, j.Step
	x.Conversation, x.Member, x.Name = j.Conversation, j.Member, j.Name
	x.Effect, x.Done, x.Total, x.Unit, x.State, x.Parent, x.By = j.Effect, j.Done, j.Total, j.Unit, j.State, j.Parent, j.By
	if j.Text != nil {
		x.Text = *j.Text
	}
	for _, c := range j.ToolCalls {
		x.ToolCalls = append(x.ToolCalls, &ToolCall{Id: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	if j.Usage != nil {
		x.Usage = j.Usage.Proto()
	}
	if j.Spent != nil {
		x.Spent = j.Spent.amounts()
	}
	if x.Budget, err = j.Budget.Proto(); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	return nil
}
