package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// replayedHeader marks the answer to an input that was accepted before.
const replayedHeader = "Idempotent-Replayed"

// route says which request a message is.
func route(m proto.Message) (*call, error) {
	switch x := m.(type) {
	case *messages.CreateSession:
		body, err := messages.CreateFrom(x)
		if err != nil {
			return nil, err
		}
		return post("/api/sessions", body, as[messages.SessionJSON]), nil
	case *messages.ToSession:
		return toSession("/api/sessions/"+segment(x.GetSessionId()), x)
	case *messages.DescribeTree:
		depth := "1"
		if x.GetDeep() {
			depth = ""
		}
		return get("/api/tree", tree, "depth", depth), nil
	case *messages.ListSessions:
		q := get("/api/sessions", listed[messages.SessionJSON](func(v []*messages.SessionView) proto.Message { return &messages.Sessions{Sessions: v} }),
			"folder", x.GetFolder())
		if x.GetLimit() > 0 {
			q.query.Set("limit", strconv.Itoa(int(x.GetLimit())))
		}
		return q, nil
	case *messages.ListWorkers:
		return get("/api/workers", listed[messages.WorkerJSON](func(v []*messages.WorkerView) proto.Message { return &messages.Workers{Workers: v} }),
			"session", x.GetSessionId()), nil
	case *messages.ListCalls:
		return get("/api/calls", calls, "session", x.GetSessionId(), "state", x.GetState()), nil
	case *messages.ResolveCall:
		return post("/api/calls/"+segment(x.GetExecId()), messages.ResolveFrom(x), acked), nil
	case *messages.Show:
		return get("/api/sessions/"+segment(x.GetId()), as[messages.ShownJSON]), nil
	case *messages.Verify:
		return safely(post("/api/verify", messages.VerifyJSON{Sessions: x.GetSessionIds()}, as[messages.VerifiedJSON])), nil
	case *messages.ListDamage:
		return get("/api/damage", listed[messages.FindingJSON](func(v []*messages.Finding) proto.Message { return &messages.Damage{Findings: v} })), nil
	case *messages.ForkSession:
		return post("/api/sessions/"+segment(x.GetSessionId())+"/fork", messages.ForkFrom(x), as[messages.ForkedJSON]), nil
	case *messages.ListTokens:
		return get("/api/tokens", listed[messages.TokenJSON](func(v []*messages.Token) proto.Message { return &messages.Tokens{Tokens: v} })), nil
	case *messages.CreateToken:
		return post("/api/tokens", messages.CreateTokenFrom(x), as[messages.TokenJSON]), nil
	case *messages.RevokeToken:
		return remove("/api/tokens/"+segment(x.GetName()), "by", x.GetBy()), nil
	case *messages.Hello:
		return get("/version", as[messages.HolderJSON]), nil
	}
	if q := places(m); q != nil {
		return q, nil
	}
	if q := runs(m); q != nil {
		return q, nil
	}
	if q := answers(m); q != nil {
		return q, nil
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%T is not a question for a runtime", m), "")
}

func tree(body []byte, h http.Header) (proto.Message, error) {
	root, err := as[messages.ActorJSON](body, h)
	if err != nil {
		return nil, err
	}
	return &messages.Tree{Root: root.(*messages.ActorView)}, nil
}

// places are the questions about workspaces and projects; nil for any other.
func places(m proto.Message) *call {
	switch x := m.(type) {
	case *messages.ListWorkspaces:
		where := "/api/workspaces"
		if x.GetSessionId() != "" {
			where = "/api/sessions/" + segment(x.GetSessionId()) + "/workspaces"
		}
		return get(where, listed[messages.ListedWorkspaceJSON](func(v []*messages.SessionWorkspace) proto.Message { return &messages.Workspaces{Workspaces: v} }))
	case *messages.ListConversations:
		return get("/api/conversations", listed[messages.ConversationJSON](func(v []*messages.SharedConversation) proto.Message { return &messages.Conversations{Conversations: v} }),
			"session", x.GetSessionId())
	case *messages.ListProjects:
		return get("/api/projects", listed[messages.ProjectJSON](func(v []*messages.Project) proto.Message { return &messages.Projects{Projects: v} }))
	case *messages.SaveProject:
		return post("/api/projects", messages.SaveProjectJSON{Name: x.GetName(), Path: x.GetPath()}, as[messages.ProjectJSON])
	case *messages.RemoveProject:
		return remove("/api/projects/" + segment(x.GetProject()))
	case *messages.SetVariables:
		q := post("/api/projects/"+segment(x.GetProject())+"/variables", messages.SetVariablesFrom(x), as[messages.ProjectJSON])
		q.method = http.MethodPatch
		return q
	}
	return nil
}

// answers are those about what people are asked, and the rules that they leave behind.
func answers(m proto.Message) *call {
	switch x := m.(type) {
	case *messages.ListApprovals:
		return get("/api/approvals", listed[messages.ApprovalJSON](func(v []*messages.ApprovalView) proto.Message { return &messages.Approvals{Approvals: v} }),
			"session", x.GetSessionId())
	case *messages.ResolveApproval:
		return post("/api/approvals/"+segment(x.GetApprovalId()), messages.AnswerFrom(x), acked)
	case *messages.ListRules:
		return get("/api/rules", listed[messages.RuleJSON](func(v []*messages.RuleView) proto.Message { return &messages.Rules{Rules: v} }),
			"session", x.GetSessionId())
	case *messages.ShowApproval:
		return post("/api/approvals/"+segment(x.GetApprovalId())+"/shown", messages.ShowJSON{By: x.GetBy()}, acked)
	case *messages.ListAudit:
		limit := ""
		if x.GetLimit() > 0 {
			limit = strconv.Itoa(int(x.GetLimit()))
		}
		return get("/api/audit", audited, "session", x.GetSessionId(), "limit", limit, "before", x.GetBefore())
	case *messages.RevokeRule:
		return remove("/api/rules/"+segment(x.GetRuleId()), "by", x.GetBy())
	}
	return nil
}

// toSession says which request a command for one session is.
func toSession(base string, m *messages.ToSession) (*call, error) {
	switch x := m.GetCommand().(type) {
	case *messages.ToSession_Submit:
		return submit(base, x.Submit)
	case *messages.ToSession_CallTool:
		return callTool(base, x.CallTool)
	case *messages.ToSession_AwaitTurn:
		return get(base+"/wait", outcome, "worker", x.AwaitTurn.GetWorkerId(), "input_id", x.AwaitTurn.GetInputId()), nil
	case *messages.ToSession_Cancel:
		body := messages.CancelJSON{Worker: x.Cancel.GetWorkerId(), By: x.Cancel.GetBy(), Reason: x.Cancel.GetReason(), Inputs: x.Cancel.GetInputs(), Jobs: x.Cancel.GetJobs()}
		return post(base+"/cancel", body, cancelled), nil
	case *messages.ToSession_ListInputs:
		return get(base+"/inputs", listed[messages.StagedJSON](func(v []*messages.InputView) proto.Message { return &messages.Inputs{Inputs: v} }),
			"worker", x.ListInputs.GetWorkerId()), nil
	case *messages.ToSession_WithdrawInput:
		return remove(base+"/inputs/"+segment(x.WithdrawInput.GetInputId()),
			"worker", x.WithdrawInput.GetWorkerId(), "by", x.WithdrawInput.GetBy()), nil
	case *messages.ToSession_Describe:
		return safely(post(base+"/open", nil, as[messages.SessionJSON])), nil
	case *messages.ToSession_History:
		if w := x.History.GetWorkerId(); w != "" {
			base += "/workers/" + segment(w)
		}
		return get(base+"/history", as[messages.HistoryJSON]), nil
	case *messages.ToSession_Configure:
		w := x.Configure
		body := messages.ConfigureJSON{Worker: w.GetWorkerId(), Model: w.GetModel(), Agent: w.GetAgent(), System: w.GetSystem(), Tools: w.GetTools(), MCP: w.GetMcp(), By: w.GetBy()}
		return &call{method: http.MethodPatch, path: base, body: body, read: as[messages.WorkerJSON]}, nil
	case *messages.ToSession_WaitIdle:
		q := get(base+"/idle", acked, "worker", x.WaitIdle.GetWorkerId())
		return q, nil
	case *messages.ToSession_SetTimer, *messages.ToSession_ListTimers, *messages.ToSession_CancelTimer:
		return timers(base+"/timers", m)
	case *messages.ToSession_ResolveCall:
		return route(x.ResolveCall)
	case *messages.ToSession_ResolveApproval:
		return route(x.ResolveApproval)
	case *messages.ToSession_Save:
		return post(base+"/save", messages.SaveJSON{Worker: x.Save.GetWorkerId()}, acked), nil
	case *messages.ToSession_Compact:
		body := messages.CompactJSON{Worker: x.Compact.GetWorkerId(), By: x.Compact.GetBy()}
		return post(base+"/compact", body, as[messages.CompactedJSON]), nil
	case *messages.ToSession_CountJobs:
		return get(base+"/jobs", jobs), nil
	case *messages.ToSession_EndJob:
		return remove(base+"/jobs/"+segment(x.EndJob.GetJobId()), "by", x.EndJob.GetBy(), "reason", x.EndJob.GetReason()), nil
	case *messages.ToSession_Close:
		forget := ""
		if x.Close.GetForget() {
			forget = "true"
		}
		return remove(base, "reason", x.Close.GetReason(), "forget", forget, "by", x.Close.GetBy()), nil
	}
	if q := members(base, m); q != nil {
		return q, nil
	}
	if q := shared(base+"/conversations", m); q != nil {
		return q, nil
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%T is no command that a client can send", m.GetCommand()), "")
}

// members are the commands about a session's workers and workspaces; nil for any other.
func members(base string, m *messages.ToSession) *call {
	switch x := m.GetCommand().(type) {
	case *messages.ToSession_SpawnWorker:
		return post(base+"/workers", messages.SpawnFrom(x.SpawnWorker), as[messages.WorkerJSON])
	case *messages.ToSession_DeleteWorker:
		return remove(base+"/workers/"+segment(x.DeleteWorker.GetWorkerId()), "by", x.DeleteWorker.GetBy(), "reason", x.DeleteWorker.GetReason())
	case *messages.ToSession_ReleaseWorker:
		body := messages.ReleaseJSON{By: x.ReleaseWorker.GetBy()}
		return post(base+"/workers/"+segment(x.ReleaseWorker.GetWorkerId())+"/release", body, as[messages.WorkerJSON])
	case *messages.ToSession_AttachWorkspace:
		return post(base+"/workspaces", messages.AttachFrom(x.AttachWorkspace.GetWorkspace()), as[messages.WorkspaceJSON])
	case *messages.ToSession_DetachWorkspace:
		return remove(base+"/workspaces/"+segment(x.DetachWorkspace.GetWorkspace()), "by", x.DetachWorkspace.GetBy())
	case *messages.ToSession_AddBudget:
		return addBudget(base+"/budget", x.AddBudget)
	case *messages.ToSession_DiffCopy:
		return get(base+"/changes", as[messages.ChangesJSON], "worker", x.DiffCopy.GetWorker())
	case *messages.ToSession_ApplyCopy:
		return post(base+"/changes", messages.ApplyJSON{By: x.ApplyCopy.GetBy(), Worker: x.ApplyCopy.GetWorker()}, as[messages.ChangesJSON])
	case *messages.ToSession_UseFile:
		return useFile(base+"/files", x.UseFile)
	case *messages.ToSession_ReadFields:
		return get(base+"/fields", as[messages.FieldsJSON], "workspace", x.ReadFields.GetWorkspace())
	case *messages.ToSession_DeclareFields:
		body, err := messages.DeclareFieldsFrom(x.DeclareFields)
		if err != nil {
			return nil
		}
		return &call{method: http.MethodPut, path: base + "/fields", body: body, read: as[messages.FieldsJSON]}
	case *messages.ToSession_SetField:
		return setField(base+"/fields/"+segment(x.SetField.GetField()), x.SetField)
	}
	return nil
}

// addBudget gives a change its id here, when it has none: sent twice, it is made once.
func addBudget(path string, m *messages.AddBudget) *call {
	body := messages.AddBudgetFrom(m)
	if body.ChangeID == "" {
		body.ChangeID = messages.NewID(messages.InputPrefix)
	}
	q := post(path, body, as[messages.BudgetViewJSON])
	q.key = body.ChangeID
	return q
}

// setField gives an edit its id here, when it has none: sent twice, it is made once. That a program owns a field, a client cannot say.
func setField(path string, m *messages.SetField) *call {
	if m.GetOwner() {
		return nil
	}
	body := messages.SetFieldFrom(m)
	if body.EditID == "" {
		body.EditID = messages.NewID(messages.ExecPrefix)
	}
	return &call{method: http.MethodPut, path: path, body: body, read: as[messages.FieldUpdatedJSON], key: body.EditID}
}

// submit gives an input its id here, when it has none: sent twice, it is accepted once.
func submit(base string, m *messages.SubmitInput) (*call, error) {
	body, err := messages.InputFrom(m)
	if err != nil {
		return nil, err
	}
	if body.InputID == "" {
		body.InputID = messages.NewID(messages.InputPrefix)
	}
	q := post(base+"/inputs", body, func(b []byte, h http.Header) (proto.Message, error) {
		m, err := as[messages.AcceptedJSON](b, h)
		if err != nil {
			return nil, err
		}
		r := m.(*messages.InputReply)
		r.Duplicate = h.Get(replayedHeader) != ""
		return r, nil
	})
	q.key = body.InputID
	return q, nil
}

// callTool gives a call its id here, when it has none: sent twice, it runs once.
func callTool(base string, m *messages.CallTool) (*call, error) {
	body, err := messages.CallToolFrom(m)
	if err != nil {
		return nil, err
	}
	if body.CallID == "" {
		body.CallID = messages.NewID("call_")
	}
	q := post(base+"/tools/"+segment(m.GetTool()), body, outcome)
	q.key = body.CallID
	return q, nil
}

// outcome reads what a turn came to: a result, or the reply of a tool that a program called.
func outcome(body []byte, h http.Header) (proto.Message, error) {
	var kind struct {
		Tool *string `json:"tool"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, fmt.Errorf("decode the reply: %w", err)
	}
	if kind.Tool != nil {
		return as[messages.CalledJSON](body, h)
	}
	return as[messages.ResultJSON](body, h)
}

func cancelled(body []byte, _ http.Header) (proto.Message, error) {
	var j messages.CancelledJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return nil, fmt.Errorf("decode the reply: %w", err)
	}
	return &messages.Cancelled{Turns: j.Turns, Inputs: j.Inputs, Messages: j.Messages, Jobs: j.Jobs, Ended: j.Ended}, nil
}

func jobs(body []byte, _ http.Header) (proto.Message, error) {
	var j messages.JobsJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return nil, fmt.Errorf("decode the reply: %w", err)
	}
	return j.Proto(), nil
}

func audited(body []byte, h http.Header) (proto.Message, error) {
	m, err := listed[messages.AuditJSON](func(v []*messages.AuditView) proto.Message { return &messages.Audit{Entries: v} })(body, h)
	if a, ok := m.(*messages.Audit); ok {
		a.Trimmed = h.Get(messages.TrimmedHeader) != ""
	}
	return m, err
}

func post(path string, body any, read reader) *call {
	return &call{method: http.MethodPost, path: path, body: body, read: read}
}

// safely is a request that a second time changes nothing further.
func safely(q *call) *call {
	q.safe = true
	return q
}

// get asks with parameters, name and value in turn; empty ones are left out.
func get(path string, read reader, params ...string) *call {
	q := &call{method: http.MethodGet, path: path, query: url.Values{}, read: read}
	for i := 0; i+1 < len(params); i += 2 {
		if params[i+1] != "" {
			q.query.Set(params[i], params[i+1])
		}
	}
	return q
}

func remove(path string, params ...string) *call {
	q := get(path, acked, params...)
	q.method = http.MethodDelete
	return q
}

// segment makes one segment of an address of any text, also of dots, which would else be cleaned.
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

// calls reads a list of calls, and whose are missing in it.
func calls(body []byte, h http.Header) (proto.Message, error) {
	m, err := listed[messages.CallJSON](func(v []*messages.CallView) proto.Message { return &messages.Calls{Calls: v} })(body, h)
	if list, ok := m.(*messages.Calls); ok {
		list.ReadUnread(h.Get(messages.UnreadHeader))
	}
	return m, err
}
