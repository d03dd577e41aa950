package messages

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// ApprovalJSON is a call that waits for an approval, as it is listed.
type ApprovalJSON struct {
	ID        string `json:"id"`
	State     string `json:"state"` // pending | shown
	Session   string `json:"session"`
	Worker    string `json:"worker"`
	Turn      string `json:"turn"`
	Agent     string `json:"agent,omitempty"`
	ExecID    string `json:"exec_id"`
	CallID    string `json:"call_id,omitempty"`
	Tool      string `json:"tool"`
	Workspace string `json:"workspace,omitempty"`
	Arguments string `json:"arguments"`
	Kind      string `json:"kind"` // of the preview: diff | command | arguments
	Preview   string `json:"preview"`
	Reason    string `json:"reason,omitempty"`
	ArgsHash  string `json:"args_hash"` // hex
	At        string `json:"at"`
	ExpiresAt string `json:"expires_at,omitempty"`

	Rules        []string `json:"rules,omitempty"`        // that an answer may leave behind, the exact one last
	Unremembered string   `json:"unremembered,omitempty"` // why there are none
	Parent       string   `json:"parent,omitempty"`       // the worker that delegated to the one that asks

	Shown []ViewerJSON `json:"shown,omitempty"` // who sees it now
}

// ViewerJSON is somebody who sees an approval.
type ViewerJSON struct {
	By    string `json:"by"`
	Since string `json:"since"`
}

// ShowJSON says who sees an approval.
type ShowJSON struct {
	By string `json:"by,omitempty"`
}

// JSON is the form that every surface shows.
func (x *ApprovalView) JSON() ApprovalJSON {
	j := ApprovalJSON{
		ID: x.GetApprovalId(), State: x.GetState(), Session: x.GetSessionId(), Worker: x.GetWorkerId(), Turn: x.GetTurnId(), Agent: x.GetAgent(),
		ExecID: x.GetExecId(), CallID: x.GetCallId(), Tool: x.GetTool(), Workspace: x.GetWorkspace(), Arguments: x.GetArguments(),
		Kind: x.GetKind(), Preview: x.GetPreview(), Reason: x.GetReason(), ArgsHash: hex.EncodeToString(x.GetArgsHash()),
		At: FormatTime(x.GetAtUnixMs()), Rules: x.GetRules(), Unremembered: x.GetUnremembered(), Parent: x.GetParent(),
	}
	for _, w := range x.GetShown() {
		j.Shown = append(j.Shown, ViewerJSON{w.GetBy(), FormatTime(w.GetSinceUnixMs())})
	}
	if at := x.GetExpiresAtUnixMs(); at != 0 {
		j.ExpiresAt = FormatTime(at)
	}
	return j
}

// Proto is the way back, for clients.
func (j ApprovalJSON) Proto() *ApprovalView {
	hash, _ := hex.DecodeString(j.ArgsHash)
	var shown []*Viewer
	for _, w := range j.Shown {
		shown = append(shown, &Viewer{By: w.By, SinceUnixMs: timeRead(w.Since)})
	}
	return &ApprovalView{
		Shown:      shown,
		ApprovalId: j.ID, State: j.State, SessionId: j.Session, WorkerId: j.Worker, TurnId: j.Turn, Agent: j.Agent, ExecId: j.ExecID, CallId: j.CallID,
		Tool: j.Tool, Workspace: j.Workspace, Arguments: j.Arguments, Kind: j.Kind, Preview: j.Preview, Reason: j.Reason, ArgsHash: hash,
		AtUnixMs: timeRead(j.At), ExpiresAtUnixMs: timeRead(j.ExpiresAt), Rules: j.Rules, Unremembered: j.Unremembered, Parent: j.Parent,
	}
}

// JSON lists them; never null.
func (x *Approvals) JSON() []ApprovalJSON { return list(x.GetApprovals(), (*ApprovalView).JSON) }

// AnswerJSON is an answer to an approval.
type AnswerJSON struct {
	Decision  string `json:"decision" enum:"approved,rejected,cancelled"`      // approved | rejected | cancelled
	Scope     string `json:"scope,omitempty" enum:"once,session,agent,always"` // once | session | agent | always
	Rule      string `json:"rule,omitempty"`                                   // to be remembered, of those that the approval offers; absent: the exact one
	Message   string `json:"message,omitempty"`                                // for the model
	Arguments string `json:"arguments,omitempty"`                              // a JSON object, as text, to run instead of the one that was asked with
	ArgsHash  string `json:"args_hash,omitempty"`                              // hex, of what was shown: an answer to anything else is refused
	By        string `json:"by,omitempty"`
}

// Proto is the answer to the approval with an id.
func (j *AnswerJSON) Proto(approvalID string) (*ResolveApproval, error) {
	d, ok := DecisionNamed(j.Decision)
	if !ok {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("decision %q is not known", j.Decision), "one of approved, rejected, cancelled")
	}
	hash, err := hex.DecodeString(j.ArgsHash)
	if err != nil {
		return nil, Fail(CodeBadRequest, "args_hash is no hex text", "send what GET /api/approvals gave")
	}
	return &ResolveApproval{ApprovalId: approvalID, Decision: d, Scope: j.Scope, Message: j.Message, Arguments: j.Arguments, ArgsHash: hash, By: j.By, Rule: j.Rule}, nil
}

// AnswerFrom is the way back, for clients. The server finds the worker.
func AnswerFrom(m *ResolveApproval) *AnswerJSON {
	return &AnswerJSON{
		Decision: strings.ToLower(m.GetDecision().String()), Scope: m.GetScope(), Message: m.GetMessage(), Arguments: m.GetArguments(),
		ArgsHash: hex.EncodeToString(m.GetArgsHash()), By: m.GetBy(), Rule: m.GetRule(),
	}
}

// DecisionNamed reads what a person may answer.
func DecisionNamed(word string) (Decision_Value, bool) {
	d := Decision_Value(Decision_Value_value[strings.ToUpper(word)])
	known := d == Decision_APPROVED || d == Decision_REJECTED || d == Decision_CANCELLED
	return d, known && word == strings.ToLower(word)
}

// ChoiceOf is what an answer means to the question of a pipeline: the choice that its message names; else the first one when it says yes, and the last one when it says no.
func ChoiceOf(choices []string, m *ResolveApproval) string {
	switch {
	case slices.Contains(choices, m.GetMessage()):
		return m.GetMessage()
	case m.GetDecision() == Decision_APPROVED:
		return choices[0]
	}
	return choices[len(choices)-1]
}

// NoChoice tells whether the message of an answer is none of the choices that a question names. Where they are no more than
// yes and no, a message may be a remark.
func NoChoice(choices []string, m *ResolveApproval) bool {
	plain := slices.Equal(choices, []string{"yes", "no"}) || slices.Equal(choices, []string{"approve", "reject"})
	return !plain && m.GetMessage() != "" && !slices.Contains(choices, m.GetMessage())
}
