package messages

import "encoding/hex"

// AuditJSON is one decision, as an audit lists it.
type AuditJSON struct {
	At         string `json:"at"`
	Seq        uint64 `json:"seq,omitempty"` // of the session's events; absent: it is about more than one session
	Kind       string `json:"kind"`          // call | trust | rule | toolset | session | turn | timer | job | run | damage
	Session    string `json:"session,omitempty"`
	Worker     string `json:"worker,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Turn       string `json:"turn,omitempty"`
	ExecID     string `json:"exec_id,omitempty"`
	What       string `json:"what"` // the tool, the level of trust, the rule, the names of the tools, which agent a session was created with and why it was closed, why a turn was cancelled, a timer's id, the command that was left running, the name of a run's pipeline or the step that asked, or what is damaged
	Workspace  string `json:"workspace,omitempty"`
	ArgsHash   string `json:"args_hash,omitempty"` // hex
	Edited     bool   `json:"edited,omitempty"`    // the arguments are those of who answered
	Decision   string `json:"decision"`
	By         string `json:"by,omitempty"`  // absent: no person was asked
	Why        string `json:"why,omitempty"` // the rule or the trust that decided; of a job, why somebody ended it
	ApprovalID string `json:"approval_id,omitempty"`
	Scope      string `json:"scope,omitempty"`
	Rule       string `json:"rule,omitempty"` // that the answer left behind
	RuleID     string `json:"rule_id,omitempty"`
	Message    string `json:"message,omitempty"`
	Outcome    string `json:"outcome,omitempty"` // absent: it has not ended
	ErrorCode  string `json:"error_code,omitempty"`
	DurationUS int64  `json:"duration_us,omitempty"`
	WaitedMS   int64  `json:"waited_ms,omitempty"`
	JobID      string `json:"job_id,omitempty"`
}

// JSON is the form that every surface shows.
func (x *AuditView) JSON() AuditJSON {
	return AuditJSON{
		At: FormatTime(x.GetAtUnixMs()), Seq: x.GetCursor(), Kind: x.GetKind(), Session: x.GetSessionId(), Worker: x.GetWorkerId(), Agent: x.GetAgent(),
		Turn: x.GetTurnId(), ExecID: x.GetExecId(), What: x.GetWhat(), Workspace: x.GetWorkspace(), ArgsHash: hex.EncodeToString(x.GetArgsHash()),
		Edited: x.GetEdited(), Decision: x.GetDecision(), By: x.GetBy(), Why: x.GetWhy(), ApprovalID: x.GetApprovalId(), Scope: x.GetScope(),
		Rule: x.GetRule(), RuleID: x.GetRuleId(), Message: x.GetMessage(), Outcome: x.GetOutcome(), ErrorCode: x.GetErrorCode(),
		DurationUS: x.GetDurationUs(), WaitedMS: x.GetWaitedMs(), JobID: x.GetJobId(),
	}
}

// Proto is the way back, for clients.
func (j AuditJSON) Proto() *AuditView {
	hash, _ := hex.DecodeString(j.ArgsHash)
	return &AuditView{
		AtUnixMs: timeRead(j.At), Cursor: j.Seq, Kind: j.Kind, SessionId: j.Session, WorkerId: j.Worker, Agent: j.Agent, TurnId: j.Turn, ExecId: j.ExecID,
		What: j.What, Workspace: j.Workspace, ArgsHash: hash, Edited: j.Edited, Decision: j.Decision, By: j.By, Why: j.Why, ApprovalId: j.ApprovalID,
		Scope: j.Scope, Rule: j.Rule, RuleId: j.RuleID, Message: j.Message, Outcome: j.Outcome, ErrorCode: j.ErrorCode, DurationUs: j.DurationUS,
		WaitedMs: j.WaitedMS, JobId: j.JobID,
	}
}

// TrimmedHeader is set where the oldest records of a session are gone for good.
const TrimmedHeader = "Troupe-Trimmed"

// JSON lists them; never null.
func (x *Audit) JSON() []AuditJSON { return list(x.GetEntries(), (*AuditView).JSON) }

// AuditDamage is the kind of an entry that says what of an audit cannot be read. Such entries are its last, whatever their time.
const AuditDamage = "damage"
