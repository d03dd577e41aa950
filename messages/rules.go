package messages

// RuleJSON is a rule that an answer to an approval left behind, as it is listed.
type RuleJSON struct {
	ID        string `json:"id"`
	State     string `json:"state"` // in_force
	Rule      string `json:"rule"`
	Scope     string `json:"scope" enum:"session,agent,always"` // session | agent | always
	Workspace string `json:"workspace"`                         // in which it counts
	Agent     string `json:"agent,omitempty"`                   // with scope agent: whose calls it is about
	Session   string `json:"session,omitempty"`                 // with scope session: where it counts; else whose call it was
	By        string `json:"by,omitempty"`
	Approval  string `json:"approval,omitempty"`
	At        string `json:"at"`
	Tenant    string `json:"tenant,omitempty"` // whose sessions it is about; absent: the default tenant's
}

// ruleInForce is the state of every rule that is listed.
const ruleInForce = "in_force"

// JSON is the form that every surface shows.
func (x *RuleView) JSON() RuleJSON {
	return RuleJSON{
		ID: x.GetRuleId(), State: ruleInForce, Rule: x.GetRule(), Scope: x.GetScope(), Workspace: x.GetWorkspace(), Agent: x.GetAgent(),
		Session: x.GetSessionId(), By: x.GetBy(), Approval: x.GetApprovalId(), At: FormatTime(x.GetAtUnixMs()), Tenant: x.GetTenant(),
	}
}

// Proto is the way back, for clients.
func (j RuleJSON) Proto() *RuleView {
	return &RuleView{
		RuleId: j.ID, Rule: j.Rule, Scope: j.Scope, Workspace: j.Workspace, Agent: j.Agent, SessionId: j.Session, By: j.By, ApprovalId: j.Approval,
		AtUnixMs: timeRead(j.At), Tenant: j.Tenant,
	}
}

// JSON lists them; never null.
func (x *Rules) JSON() []RuleJSON { return list(x.GetRules(), (*RuleView).JSON) }
