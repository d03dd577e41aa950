package gateway

import (
	"net/http"

	"github.com/troupe-dev/troupe/messages"
)

// row is one route: how it is served, and how it is described in /openapi.json.
type row struct {
	pattern string // method and path
	scope   Scope
	summary string
	query   []string // parameters
	in      any      // a value of the body's type; nil: there is no body
	out     any      // a value of the answer's type; nil: no content, or what kind says
	status  int      // of the answer; 0: 200, and 204 without content
	waits   any      // a value of the type of the answer, 200, to who prefers to wait (header Prefer); nil: nobody may
	kind    string   // content type of an answer that is not JSON
	takes   string   // content type of a body that is not JSON
	begins  bool     // something new, which a server that stops refuses
	serve   endpoint
	stream  http.HandlerFunc // instead of serve, for what writes its answer itself
}

// table is the whole API, the console and what is mounted aside.
func (a *api) table() []row {
	var all []row
	for _, part := range [][]row{a.serverRows(), a.sessionRows(), a.inputRows(), a.workerRows(), a.conversationRows(), a.placeRows(), a.projectRows(), a.approvalRows(), a.runRows(), a.storeRows()} {
		all = append(all, part...)
	}
	return all
}

func (a *api) serverRows() []row {
	return []row{
		{pattern: "GET /livez", summary: "Whether the process answers", out: map[string]string{}, serve: a.alive},
		{pattern: "GET /readyz", summary: "Whether the server takes work: 503 while it recovers, stops or has no room on its disk", out: map[string]string{}, serve: a.ready},
		{pattern: "GET /metrics", scope: ScopeRead, summary: "Counters and gauges in the text format of Prometheus", kind: "text/plain", stream: a.metrics},
		{pattern: "POST /api/stop", scope: ScopeAdmin, summary: "Stop the server in order", in: struct{}{}, serve: a.stopServer},
		{pattern: "GET /ws", scope: ScopeRead, summary: "The WebSocket of tool calls, approvals and workspaces of other machines (docs/ws.md)", kind: "websocket", stream: a.socket},
		{pattern: "GET /openapi.json", summary: "This description", out: map[string]any{}, serve: a.openAPI},
		{pattern: "GET /version", scope: ScopeRead, summary: "Which process answers", out: messages.HolderJSON{}, serve: a.version},
	}
}

func (a *api) sessionRows() []row {
	return []row{
		{pattern: "POST /api/sessions", begins: true, scope: ScopePrompt, summary: "Make a session", in: messages.CreateJSON{}, out: messages.SessionJSON{}, status: http.StatusCreated, serve: a.create},
		{pattern: "GET /api/sessions", scope: ScopeRead, summary: "List the sessions, the last changed first", query: []string{"folder", "limit", "after"}, out: []messages.SessionJSON{}, serve: a.sessions},
		{pattern: "GET /api/sessions/{id}", scope: ScopeRead, summary: "A session with its turns", out: messages.ShownJSON{}, serve: a.show},
		{pattern: "PATCH /api/sessions/{id}", scope: ScopePrompt, summary: "Change what a worker works with from its next turn on", in: messages.ConfigureJSON{}, out: messages.WorkerJSON{}, serve: a.configure},
		{pattern: "DELETE /api/sessions/{id}", scope: ScopePrompt, summary: "Close a session", query: []string{"reason", "forget", "by"}, serve: a.closeSession},
		{pattern: "POST /api/sessions/{id}/open", begins: true, scope: ScopePrompt, summary: "Bring a session into memory: a turn that was cut off goes on", in: struct{}{}, out: messages.SessionJSON{}, serve: a.open},
		{pattern: "POST /api/sessions/{id}/fork", begins: true, scope: ScopePrompt, summary: "A new session that goes on from a record of this one", in: messages.ForkJSON{}, out: messages.ForkedJSON{}, status: http.StatusCreated, serve: a.fork},
		{pattern: "POST /api/sessions/import", begins: true, scope: ScopeAdmin, summary: "Bring an exported session in", query: []string{"new_id", "keep_trust"}, takes: exportType, out: messages.ImportedJSON{}, status: http.StatusCreated, serve: a.importSession},
		{pattern: "GET /api/sessions/{id}/export", scope: ScopeRead, summary: "A session as a file", kind: exportType, stream: a.export},
		{pattern: "POST /api/sessions/{id}/compact", begins: true, scope: ScopePrompt, summary: "Replace the older turns by a summary; answers when that is done", in: messages.CompactJSON{}, out: messages.CompactedJSON{}, serve: a.compact},
		{pattern: "POST /api/sessions/{id}/save", scope: ScopePrompt, summary: "Make durable what the session's policy keeps back", in: messages.SaveJSON{}, serve: a.save},
		{pattern: "GET /api/sessions/{id}/jobs", scope: ScopeRead, summary: "How many turns run and inputs wait, and which commands agents left running", out: messages.JobsJSON{}, serve: a.jobs},
		{pattern: "DELETE /api/sessions/{id}/jobs/{job}", scope: ScopePrompt, summary: "End one command that an agent left running; answers when nothing of it is left", query: []string{"by", "reason"}, serve: a.endJob},
		{pattern: "GET /api/sessions/{id}/idle", scope: ScopeRead, summary: "Answers when nothing is left to do", query: []string{"worker"}, serve: a.idle},
		{pattern: "GET /api/sessions/{id}/events", scope: ScopeRead, summary: "Events after a cursor, then live ones, as server-sent events", query: []string{"after"}, kind: "text/event-stream", stream: a.events},
	}
}

func (a *api) inputRows() []row {
	return []row{
		{pattern: "POST /api/sessions/{id}/inputs", begins: true, scope: ScopePrompt, summary: "Give a session an input; answers once it is durable", in: messages.InputJSON{}, out: messages.AcceptedJSON{}, status: http.StatusAccepted, waits: messages.ResultJSON{}, serve: a.submit},
		{pattern: "GET /api/sessions/{id}/inputs", scope: ScopeRead, summary: "Inputs that wait", query: []string{"worker"}, out: []messages.StagedJSON{}, serve: a.inputs},
		{pattern: "DELETE /api/sessions/{id}/inputs/{input}", scope: ScopePrompt, summary: "Take an input back that waits", query: []string{"worker", "by"}, serve: a.withdraw},
		{pattern: "GET /api/sessions/{id}/wait", scope: ScopeRead, summary: "Answers when a turn is done, with what it came to: a result, or the reply of a tool that was called", query: []string{"worker", "input_id"}, out: oneOf{messages.ResultJSON{}, messages.CalledJSON{}}, serve: a.wait},
		{pattern: "POST /api/sessions/{id}/cancel", scope: ScopePrompt, summary: "Cancel what is under way", in: messages.CancelJSON{}, out: messages.CancelledJSON{}, serve: a.cancel},
		{pattern: "POST /api/sessions/{id}/tools/{name}", begins: true, scope: ScopePrompt, summary: "Run one tool; answers when it is done", in: messages.CallToolJSON{}, out: messages.CalledJSON{}, serve: a.callTool},
		{pattern: "POST /api/sessions/{id}/timers", scope: ScopePrompt, summary: "Set a timer", in: messages.SetTimerJSON{}, out: messages.TimerJSON{}, status: http.StatusCreated, serve: a.setTimer},
		{pattern: "GET /api/sessions/{id}/timers", scope: ScopeRead, summary: "Timers that are set", query: []string{"worker"}, out: []messages.TimerJSON{}, serve: a.timers},
		{pattern: "DELETE /api/sessions/{id}/timers/{timer}", scope: ScopePrompt, summary: "Take a timer back", query: []string{"worker", "by"}, serve: a.cancelTimer},
	}
}

func (a *api) workerRows() []row {
	return []row{
		{pattern: "GET /api/sessions/{id}/history", scope: ScopeRead, summary: "The conversation of the session's first worker", out: messages.HistoryJSON{}, serve: a.history},
		{pattern: "GET /api/sessions/{id}/workers", scope: ScopeRead, summary: "Workers of a session", query: []string{"session"}, out: []messages.WorkerJSON{}, serve: a.workers},
		{pattern: "POST /api/sessions/{id}/workers", begins: true, scope: ScopePrompt, summary: "Add a worker", in: messages.SpawnJSON{}, out: messages.WorkerJSON{}, status: http.StatusCreated, serve: a.spawn},
		{pattern: "DELETE /api/sessions/{id}/workers/{worker}", scope: ScopePrompt, summary: "End a worker", query: []string{"by", "reason"}, serve: a.deleteWorker},
		{pattern: "POST /api/sessions/{id}/workers/{worker}/release", scope: ScopePrompt, summary: "Let a quarantined worker try again", in: messages.ReleaseJSON{}, out: messages.WorkerJSON{}, serve: a.release},
		{pattern: "GET /api/sessions/{id}/workers/{worker}/history", scope: ScopeRead, summary: "The conversation of a worker", out: messages.HistoryJSON{}, serve: a.history},
		{pattern: "GET /api/workers", scope: ScopeRead, summary: "Workers of all sessions, or of one", query: []string{"session"}, out: []messages.WorkerJSON{}, serve: a.workers},
		{pattern: "GET /api/calls", scope: ScopeRead, summary: "Calls of tools", query: []string{"session", "state"}, out: []messages.CallJSON{}, serve: a.calls},
		{pattern: "POST /api/calls/{exec}", scope: ScopeApprove, summary: "Say what became of a call in doubt", in: messages.ResolveJSON{}, serve: a.resolve},
	}
}

func (a *api) placeRows() []row {
	return []row{
		{pattern: "GET /api/sessions/{id}/workspaces", scope: ScopeRead, summary: "Workspaces of a session", out: []messages.ListedWorkspaceJSON{}, serve: a.workspaces},
		{pattern: "POST /api/sessions/{id}/workspaces", scope: ScopePrompt, summary: "Attach a workspace", in: messages.AttachJSON{}, out: messages.WorkspaceJSON{}, status: http.StatusCreated, serve: a.attach},
		{pattern: "DELETE /api/sessions/{id}/workspaces/{workspace}", scope: ScopePrompt, summary: "Detach a workspace", query: []string{"by"}, serve: a.detach},
		{pattern: "GET /api/workspaces", scope: ScopeRead, summary: "Workspaces of all sessions", out: []messages.ListedWorkspaceJSON{}, serve: a.workspaces},
		{pattern: "GET /api/sessions/{id}/fields", scope: ScopeRead, summary: "Fields of a workspace", query: []string{"workspace"}, out: messages.FieldsJSON{}, serve: a.fields},
		{pattern: "PUT /api/sessions/{id}/fields", scope: ScopePrompt, summary: "Say which fields a workspace has", in: messages.DeclareFieldsJSON{}, out: messages.FieldsJSON{}, serve: a.declareFields},
		{pattern: "PUT /api/sessions/{id}/fields/{name}", scope: ScopePrompt, summary: "Set a field", in: messages.SetFieldJSON{}, out: messages.FieldUpdatedJSON{}, serve: a.setField},
		{pattern: "POST /api/sessions/{id}/budget", scope: ScopeApprove, summary: "Give the session more budget", in: messages.AddBudgetJSON{}, out: messages.BudgetViewJSON{}, serve: a.addBudget},
		{pattern: "GET /api/sessions/{id}/changes", scope: ScopeRead, summary: "What was changed in the copy of the folder that the session has, or one of its workers", query: []string{"worker"}, out: messages.ChangesJSON{}, serve: a.changes},
		{pattern: "POST /api/sessions/{id}/changes", scope: ScopePrompt, summary: "Bring the changes back to the folder", in: messages.ApplyJSON{}, out: messages.ChangesJSON{}, serve: a.apply},
		{pattern: "GET /api/sessions/{id}/files", scope: ScopeRead, summary: "Files that a session keeps", query: []string{"path"}, out: []messages.FileEntryJSON{}, serve: a.files},
		{pattern: "GET /api/sessions/{id}/files/{path...}", scope: ScopeRead, summary: "The content of a file", kind: fileType, stream: a.file},
		{pattern: "PUT /api/sessions/{id}/files/{path...}", scope: ScopePrompt, summary: "Write a file", takes: fileType, out: messages.FileEntryJSON{}, serve: a.putFile},
		{pattern: "DELETE /api/sessions/{id}/files/{path...}", scope: ScopePrompt, summary: "Delete a file", serve: a.deleteFile},
	}
}

func (a *api) projectRows() []row {
	return []row{
		{pattern: "GET /api/projects", scope: ScopeRead, summary: "Projects, without the values of secrets", out: []messages.ProjectJSON{}, serve: a.projects},
		{pattern: "POST /api/projects", scope: ScopeAdmin, summary: "Make a project of a folder", in: messages.SaveProjectJSON{}, out: messages.ProjectJSON{}, status: http.StatusCreated, serve: a.saveProject},
		{pattern: "DELETE /api/projects/{project}", scope: ScopeAdmin, summary: "Forget a project", serve: a.removeProject},
		{pattern: "PATCH /api/projects/{project}/variables", scope: ScopeAdmin, summary: "Change the variables of a project", in: messages.SetVariablesJSON{}, out: messages.ProjectJSON{}, serve: a.setVariables},
	}
}

func (a *api) approvalRows() []row {
	return []row{
		{pattern: "GET /api/approvals", scope: ScopeRead, summary: "Calls that wait for an answer", query: []string{"session"}, out: []messages.ApprovalJSON{}, serve: a.approvals},
		{pattern: "POST /api/approvals/{approval}", scope: ScopeApprove, summary: "Answer an approval", in: messages.AnswerJSON{}, serve: a.approve},
		{pattern: "POST /api/approvals/{approval}/shown", scope: ScopeApprove, summary: "Say that somebody sees an approval, for as long as the request is open", in: messages.ShowJSON{}, serve: a.showApproval},
		{pattern: "GET /api/rules", scope: ScopeRead, summary: "Rules that answers left behind", query: []string{"session"}, out: []messages.RuleJSON{}, serve: a.rules},
		{pattern: "DELETE /api/rules/{rule}", scope: ScopeApprove, summary: "Take a rule back", query: []string{"by"}, serve: a.revoke},
		{pattern: "GET /api/audit", scope: ScopeRead, summary: "Who let what run", query: []string{"session", "limit", "before"}, out: []messages.AuditJSON{}, serve: a.audit},
	}
}

func (a *api) storeRows() []row {
	return []row{
		{pattern: "GET /api/tokens", scope: ScopeAdmin, summary: "Tokens, without their secrets", out: []messages.TokenJSON{}, serve: a.tokens},
		{pattern: "POST /api/tokens", scope: ScopeAdmin, summary: "Make a token of the hash of its secret", in: messages.CreateTokenJSON{}, out: messages.TokenJSON{}, status: http.StatusCreated, serve: a.createToken},
		{pattern: "DELETE /api/tokens/{token}", scope: ScopeAdmin, summary: "Revoke a token", query: []string{"by"}, serve: a.revokeToken},
		{pattern: "GET /api/tree", scope: ScopeAdmin, summary: "The live tree of actors", query: []string{"depth"}, out: messages.ActorJSON{}, serve: a.tree},
		{pattern: "POST /api/verify", scope: ScopeAdmin, summary: "Check the store", in: messages.VerifyJSON{}, out: messages.VerifiedJSON{}, serve: a.verify},
		{pattern: "GET /api/damage", scope: ScopeRead, summary: "What the store is known to have lost, until a repair: listings may be short of it", out: []messages.FindingJSON{}, serve: a.damage},
		{pattern: "GET /api/backup", scope: ScopeAdmin, summary: "A backup of the store", query: []string{"since"}, kind: fileType, stream: a.backup},
	}
}

// oneOf is an answer of one of several types.
type oneOf []any
