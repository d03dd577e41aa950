package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

func text(s string) *messages.Part { return &messages.Part{Kind: &messages.Part_Text{Text: s}} }

func file(name, s string) *messages.Part {
	return &messages.Part{Kind: &messages.Part_File{File: &messages.FilePart{Name: name, Text: s}}}
}

// routeCases is the API at a glance: a request, what it asks of the house, the reply, the answer.
func routeCases() []routeCase {
	usage := `"usage":{"input_tokens":0,"output_tokens":0,"cost_usd":0}`
	worker := &messages.WorkerView{Id: "wrk_1", SessionId: "ses_1", State: "inactive"}
	workerJSON := `{"id":"wrk_1","state":"inactive","session":"ses_1","turns":0,"staged":0,"restarts":0,` + usage + `}`
	return []routeCase{
		{
			"POST /api/sessions", `{"agent":"coder","model":"p/m","system":"Be brief.","project":"prj","workspaces":[{"uri":"local:/a","name":"a","trust":"full","primary":true}],` +
				`"env":[{"name":"A","value":"b"}],"rules":["exec(go test*)"],"no_input":true,"input":{"input_id":"i1","text":"hi","files":[{"name":"f","text":"x"}]}}`,
			&messages.CreateSession{
				Agent: "coder", Model: "p/m", System: "Be brief.", ProjectId: "prj", Rules: []string{"exec(go test*)"}, NoInput: true,
				Workspaces: []*messages.WorkspaceSpec{{Uri: "local:/a", Name: "a", Trust: messages.Trust_FULL, Primary: true}},
				Env:        []*messages.EnvVar{{Name: "A", Value: "b"}},
				First:      &messages.SubmitInput{InputId: "i1", Parts: []*messages.Part{text("hi"), file("f", "x")}},
			},
			&messages.SessionView{Id: "ses_1", State: "working", CreatedAtUnixMs: 1, First: &messages.InputReply{InputId: "i1", Seq: 4}},
			201, `{"id":"ses_1","state":"working","created_at":"1970-01-01T00:00:00.001Z","turns":0,` + usage + `,"input":{"input_id":"i1","seq":4}}`,
		},
		{"GET /api/sessions", "", &messages.ListSessions{}, &messages.Sessions{}, 200, `[]`},
		{"GET /api/sessions?folder=local%3A%2Fa&limit=2", "", &messages.ListSessions{Folder: "local:/a", Limit: 3}, &messages.Sessions{}, 200, `[]`},
		{
			"GET /api/sessions/ses_1", "", &messages.Show{Id: "ses_1"}, &messages.Shown{Session: &messages.SessionView{Id: "ses_1", State: "inactive"}},
			200, `{"id":"ses_1","state":"inactive","session":{"id":"ses_1","state":"inactive","turns":0,` + usage + `},"turns":[]}`,
		},
		{
			"POST /api/sessions/ses_1/inputs", `{"input_id":"i1","text":"go on","mode":"reject"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{
				InputId: "i1", Mode: messages.InputAccepted_REJECT, Parts: []*messages.Part{text("go on")},
			}}}), &messages.InputReply{InputId: "i1", Seq: 7}, 202, `{"input_id":"i1","seq":7}`,
		},
		{
			"GET /api/sessions/ses_1/inputs", "", to("ses_1", &messages.ToSession{Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{}}}),
			&messages.Inputs{Inputs: []*messages.InputView{{InputId: "i1", State: "staged", Text: "x"}}}, 200, `[{"id":"i1","state":"staged","text":"x"}]`,
		},
		{
			"DELETE /api/sessions/ses_1/inputs/a%2Fb%20c", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_WithdrawInput{WithdrawInput: &messages.WithdrawInput{InputId: "a/b c"}}}),
			&messages.Ack{}, 204, ``,
		},
		{
			"GET /api/sessions/ses_1/wait?input_id=i1", "", to("ses_1", &messages.ToSession{Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: "i1"}}}),
			&messages.TurnResult{SessionId: "ses_1", TurnId: "t1", Outcome: messages.TurnCompleted_DONE, Text: "ok"},
			200, `{"session":"ses_1","turn":"t1","text":"ok","outcome":"done",` + usage + `,"tool_calls":[]}`,
		},
		{
			"POST /api/sessions/ses_1/cancel", `{"by":"me","reason":"enough"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{By: "me", Reason: "enough"}}}),
			&messages.Cancelled{Turns: 1}, 200, `{"turns":1}`,
		},
		{
			"POST /api/sessions/ses_1/save", `{"worker":"w"}`, to("ses_1", &messages.ToSession{Command: &messages.ToSession_Save{Save: &messages.SaveHistory{WorkerId: "w"}}}),
			&messages.Ack{}, 204, "",
		},
		{
			"POST /api/sessions/ses_1/compact", `{"worker":"w","by":"me"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_Compact{Compact: &messages.CompactHistory{WorkerId: "w", By: "me"}}}),
			&messages.Compacted{WorkerId: "w", Reason: "nothing"}, 200,
			`{"worker":"w","compacted":false,"upto_seq":0,"tokens_before":0,"tokens_after":0,"fallback":false,"reason":"nothing"}`,
		},
		{
			"POST /api/sessions/ses_1/tools/read_file", `{"call_id":"c1","arguments":{"path": "a"}}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_CallTool{CallTool: &messages.CallTool{Tool: "read_file", CallId: "c1", Arguments: `{"path": "a"}`}}}),
			&messages.ToolReply{CallId: "c1", Tool: "read_file", Status: messages.ToolFinished_DENIED, ErrorCode: "denied", Content: "no"},
			200, `{"call_id":"c1","tool":"read_file","ok":false,"status":"denied","content":"no","error_code":"denied","truncated":false,"meta":{}}`,
		},
		{"GET /api/workers?session=ses_1", "", &messages.ListWorkers{SessionId: "ses_1"}, &messages.Workers{Workers: []*messages.WorkerView{worker}}, 200, `[` + workerJSON + `]`},
		{"GET /api/sessions/ses_1/workers", "", &messages.ListWorkers{SessionId: "ses_1"}, &messages.Workers{}, 200, `[]`},
		{
			"POST /api/sessions/ses_1/workers/wrk_1/release", `{"by":"me"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_ReleaseWorker{ReleaseWorker: &messages.ReleaseWorker{WorkerId: "wrk_1", By: "me"}}}),
			worker, 200, workerJSON,
		},
		{
			"GET /api/calls?session=ses_1&state=in_doubt", "", &messages.ListCalls{SessionId: "ses_1", State: "in_doubt"},
			&messages.Calls{Calls: []*messages.CallView{{ExecId: "exe_1", State: "in_doubt", Tool: "exec", Status: "interrupted_unknown"}}},
			200, `[{"id":"exe_1","state":"in_doubt","session":"","worker":"","turn":"","tool":"exec","status":"interrupted_unknown","arguments":"","exec_id":"exe_1"}]`,
		},
		{
			"POST /api/calls/exe_1", `{"resolution":"done","note":"I saw it","by":"me"}`,
			&messages.ResolveCall{ExecId: "exe_1", Resolution: messages.CallResolved_DONE, Note: "I saw it", By: "me"}, &messages.Ack{}, 204, "",
		},
		{
			"POST /api/calls/exe_1", `{"resolution":"retry"}`, &messages.ResolveCall{ExecId: "exe_1", Resolution: messages.CallResolved_RETRY},
			messages.Fail(messages.CodeResolved, "call exe_1 was resolved already: done", ""), 409,
			`{"type":"about:blank","title":"Conflict","status":409,"code":"already_resolved","detail":"call exe_1 was resolved already: done"}`,
		},
		{
			"GET /api/approvals?session=ses_1", "", &messages.ListApprovals{SessionId: "ses_1"},
			&messages.Approvals{Approvals: []*messages.ApprovalView{{ApprovalId: "apr_1", State: "pending", Tool: "exec", Kind: "command", Preview: "make", ArgsHash: []byte{1}, AtUnixMs: 1772355600123}}},
			200, `[{"id":"apr_1","state":"pending","session":"","worker":"","turn":"","exec_id":"","tool":"exec","arguments":"","kind":"command","preview":"make","args_hash":"01","at":"2026-03-01T09:00:00.123Z"}]`,
		},
		{
			"POST /api/approvals/apr_1", `{"decision":"rejected","message":"not now","args_hash":"01","by":"me"}`,
			&messages.ResolveApproval{ApprovalId: "apr_1", Decision: messages.Decision_REJECTED, Message: "not now", ArgsHash: []byte{1}, By: "me"}, &messages.Ack{}, 204, "",
		},
		{
			"GET /api/sessions/ses_1/workspaces", "", &messages.ListWorkspaces{SessionId: "ses_1"},
			&messages.Workspaces{Workspaces: []*messages.SessionWorkspace{{SessionId: "ses_1", State: "gone", Workspace: &messages.WorkspaceGrant{
				Id: "w", Name: "lib", Uri: "local:/lib", Kind: "client", Mode: "local", Trust: messages.Trust_FULL, Path: "/lib", Order: 2, Tools: []string{"grep"},
			}}}},
			200, `[{"id":"w","name":"lib","uri":"local:/lib","kind":"client","mode":"local","trust":"full","path":"/lib","order":2,"primary":false,"tools":["grep"],"state":"gone","session":"ses_1"}]`,
		},
		{
			"GET /api/sessions/ses_1/files?path=notes", "", to("ses_1", &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Path: "notes"}}}),
			&messages.Files{Entries: []*messages.FileEntry{{Path: "notes/a", Size: 3, ModifiedUnixMs: 1}, {Path: "notes/b", Folder: true}}},
			200, `[{"id":"notes/a","state":"file","size":3,"modified_at":"1970-01-01T00:00:00.001Z"},{"id":"notes/b","state":"folder","size":0}]`,
		},
		{
			"DELETE /api/sessions/ses_1/files/notes/a%20b", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Action: messages.UseFile_DELETE, Path: "notes/a b"}}}),
			&messages.Files{}, 204, "",
		},
		{
			"GET /api/sessions/ses_1/files/%2e%2e%2fx", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Action: messages.UseFile_READ, Path: "../x"}}}),
			messages.Fail(messages.CodeBadRequest, "no", ""), 400, `{"type":"about:blank","title":"Bad Request","status":400,"code":"bad_request","detail":"no"}`,
		},
		{
			"GET /api/projects", "", &messages.ListProjects{}, &messages.Projects{Projects: []*messages.Project{{
				Id: "prj_1", Name: "p", Path: "/p", Variables: []*messages.Variable{{Name: "A", Value: "1"}, {Name: "T", Secret: true}},
			}}},
			200, `[{"id":"prj_1","state":"active","name":"p","path":"/p","variables":[{"name":"A","value":"1"},{"name":"T","secret":true}]}]`,
		},
		{
			"POST /api/projects", `{"path":"/p","name":"p"}`, &messages.SaveProject{Path: "/p", Name: "p"}, &messages.Project{Id: "prj_1", Name: "p", Path: "/p"},
			201, `{"id":"prj_1","state":"active","name":"p","path":"/p","variables":[]}`,
		},
		{
			"PATCH /api/projects/p/variables", `{"set":[{"name":"T","value":"x","secret":true}],"unset":["A"]}`,
			&messages.SetVariables{Project: "p", Set: []*messages.Variable{{Name: "T", Value: "x", Secret: true}}, Unset: []string{"A"}},
			&messages.Project{Id: "prj_1", Name: "p", Path: "/p"}, 200, `{"id":"prj_1","state":"active","name":"p","path":"/p","variables":[]}`,
		},
		{"DELETE /api/projects/p", "", &messages.RemoveProject{Project: "p"}, &messages.Ack{}, 204, ""},
		{
			"GET /api/sessions/ses_1/fields?workspace=lib", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_ReadFields{ReadFields: &messages.ReadFields{Workspace: "lib"}}}),
			&messages.FieldsView{Workspace: "local:/lib", Rev: 3, Schema: `{"properties":{"a":{}}}`, Fields: []*messages.FieldView{{Name: "a", Editable: true}}},
			200, `{"workspace":"local:/lib","rev":3,"schema":{"properties":{"a":{}}},"fields":[{"name":"a","editable":true,"value":null,"set":false}]}`,
		},
		{
			"PUT /api/sessions/ses_1/fields", `{"schema":"{\"properties\": {}}","by":"me"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_DeclareFields{DeclareFields: &messages.DeclareFields{Schema: `{"properties": {}}`, By: "me"}}}),
			messages.Fail(messages.CodeBadRequest, "no", ""), 400, `{"type":"about:blank","title":"Bad Request","status":400,"code":"bad_request","detail":"no"}`,
		},
		{
			"PUT /api/sessions/ses_1/fields/status", `{"value":"done","rev":3,"edit_id":"e1"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_SetField{SetField: &messages.SetField{Field: "status", Value: `"done"`, IfRev: 3, ExecId: "e1"}}}),
			&messages.FieldUpdated{Workspace: "local:/a", Set: &messages.FieldSet{Field: "status", Old: `"idle"`, New: `"done"`, Rev: 4, ExecId: "e1"}},
			200, `{"workspace":"local:/a","field":"status","old":"idle","new":"done","rev":4,"edit_id":"e1"}`,
		},
		{"PUT /api/sessions/ses_1/fields/status", `{}`, nil, nil, 400, `{"type":"about:blank","title":"Bad Request","status":400,"code":"bad_request","detail":"the value of the field is missing","hint":"null clears it"}`},
		{"GET /api/workspaces", "", &messages.ListWorkspaces{}, &messages.Workspaces{}, 200, `[]`},
		{
			"POST /api/sessions/ses_1/workspaces", `{"uri":"local:/lib","name":"lib","trust":"full","tools":["grep"]}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_AttachWorkspace{AttachWorkspace: &messages.AttachWorkspace{
				Workspace: &messages.WorkspaceSpec{Uri: "local:/lib", Name: "lib", Trust: messages.Trust_FULL, Tools: []string{"grep"}},
			}}}),
			&messages.WorkspaceGrant{Id: "w", Name: "lib", Uri: "local:/lib", Kind: "client", Mode: "local", Trust: messages.Trust_FULL},
			201, `{"id":"w","name":"lib","uri":"local:/lib","kind":"client","mode":"local","trust":"full","order":0,"primary":false}`,
		},
		{
			"DELETE /api/sessions/ses_1/workspaces/local%3A%2Flib?by=me", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_DetachWorkspace{DetachWorkspace: &messages.DetachWorkspace{Workspace: "local:/lib", By: "me"}}}),
			messages.Fail(messages.CodeNoWorkspace, "no", ""), 404, `{"type":"about:blank","title":"Not Found","status":404,"code":"workspace_not_found","detail":"no"}`,
		},
		{
			"POST /api/approvals/apr_1", `{"decision":"approved","scope":"session","rule":"@read"}`,
			&messages.ResolveApproval{ApprovalId: "apr_1", Decision: messages.Decision_APPROVED, Scope: "session", Rule: "@read", ArgsHash: []byte{}}, &messages.Ack{}, 204, "",
		},
		{
			"GET /api/rules?session=ses_1", "", &messages.ListRules{SessionId: "ses_1"},
			&messages.Rules{Rules: []*messages.RuleView{{RuleId: "rul_1", Rule: "exec(go test ./...)", Scope: "always", Workspace: "local:/a", SessionId: "ses_1", By: "me", AtUnixMs: 1772355600123}}},
			200, `[{"id":"rul_1","state":"in_force","rule":"exec(go test ./...)","scope":"always","workspace":"local:/a","session":"ses_1","by":"me","at":"2026-03-01T09:00:00.123Z"}]`,
		},
		{"DELETE /api/rules/rul_1?by=me", "", &messages.RevokeRule{RuleId: "rul_1", By: "me"}, &messages.Ack{}, 204, ""},
		{"GET /api/tree", "", &messages.DescribeTree{Deep: true}, &messages.Tree{Root: &messages.ActorView{Kind: "supervisor", Id: "troupe", State: "running"}}, 200, `{"id":"troupe","kind":"supervisor","state":"running","restarts":0}`},
		{"GET /api/tree?depth=1", "", &messages.DescribeTree{}, &messages.Tree{Root: &messages.ActorView{Id: "troupe"}}, 200, `{"id":"troupe","kind":"","state":"","restarts":0}`},
		{
			"GET /api/damage", "", &messages.ListDamage{}, &messages.Damage{Findings: []*messages.Finding{{Stream: "ses/ses_1", Seq: 3, Problem: "lost records"}}},
			200, `[{"stream":"ses/ses_1","seq":3,"problem":"lost records"}]`,
		},
		{
			"POST /api/verify", `{"sessions":["ses_1"]}`, &messages.Verify{SessionIds: []string{"ses_1"}}, &messages.Verified{Streams: 2, Records: 9},
			200, `{"streams":2,"records":9,"findings":[]}`,
		},
		{
			"GET /version", "", &messages.Hello{}, &messages.Holder{Pid: 7, Data: "/d", StartedAtUnixMs: 1},
			200, `{"pid":7,"version":"v1.2.3","data":"/d","started_at":"1970-01-01T00:00:00.001Z"}`,
		},
		{
			"POST /api/sessions/ses_1/fork", `{"at":7,"model":"p/m"}`, &messages.ForkSession{SessionId: "ses_1", At: 7, Model: "p/m"},
			&messages.Forked{Session: &messages.SessionView{Id: "ses_2", State: "inactive"}, Origin: "ses_1", At: 7, ClosedCalls: 2, ClosedTurns: 1},
			201, `{"id":"ses_2","state":"inactive","origin":{"session":"ses_1","seq":7},"closed_calls":2,"closed_turns":1,"staged":0,` +
				`"session":{"id":"ses_2","state":"inactive","turns":0,` + usage + `}}`,
		},
		{
			"POST /api/sessions/ses_1/fork", "", &messages.ForkSession{SessionId: "ses_1"}, messages.Fail(messages.CodeNotFound, "none", ""), 404,
			`{"type":"about:blank","title":"Not Found","status":404,"code":"not_found","detail":"none"}`,
		},
		{
			"POST /api/sessions/ses_1/timers", `{"id":"t1","worker":"w","at":"2026-03-01T10:00:00+01:00","text":"hi","misfire":"skip","by":"me"}`,
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_SetTimer{SetTimer: &messages.SetTimer{
				TimerId: "t1", WorkerId: "w", DueUnixMs: 1772355600000, Parts: []*messages.Part{text("hi")}, Misfire: messages.TimerSet_SKIP, By: "me",
			}}}), &messages.TimerView{TimerId: "t1", State: "set", DueUnixMs: 1772355600000, Text: "hi", Misfire: "skip", WorkerId: "w"},
			201, `{"id":"t1","state":"set","at":"2026-03-01T09:00:00.000Z","text":"hi","misfire":"skip","worker":"w"}`,
		},
		{
			"GET /api/sessions/ses_1/timers", "", to("ses_1", &messages.ToSession{Command: &messages.ToSession_ListTimers{ListTimers: &messages.ListTimers{}}}),
			&messages.Timers{}, 200, `[]`,
		},
		{
			"DELETE /api/sessions/ses_1/timers/t%2F1?by=me", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_CancelTimer{CancelTimer: &messages.CancelTimer{TimerId: "t/1", By: "me"}}}),
			&messages.Ack{}, 204, ``,
		},
		{
			"DELETE /api/sessions/ses_1/jobs/job_1?by=me&reason=enough", "",
			to("ses_1", &messages.ToSession{Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: "job_1", By: "me", Reason: "enough"}}}),
			&messages.Ack{}, 204, ``,
		},
		{"GET /livez", "", nil, nil, 200, `{"status":"ok"}`},
	}
}

type routeCase struct {
	request string // method and address
	body    string
	asks    proto.Message
	reply   proto.Message
	status  int
	answer  string
}

func to(id string, m *messages.ToSession) *messages.ToSession {
	m.SessionId = id
	return m
}

func TestEveryRouteAsksItsQuestionAndAnswersTheReply(t *testing.T) {
	for _, c := range routeCases() {
		t.Run(c.request, func(t *testing.T) {
			b := always(c.reply)
			s := serve(t, b, gateway.Options{Version: "v1.2.3"})
			method, address, _ := strings.Cut(c.request, " ")
			res, body := s.do(t, method, address, c.body)
			if res.StatusCode != c.status || body != c.answer {
				t.Errorf("answered %s\n%s\nwant %d\n%s", res.Status, body, c.status, c.answer)
			}
			asked := b.questions()
			if c.asks == nil && len(asked) == 0 {
				return
			}
			if len(asked) != 1 || !proto.Equal(asked[0], c.asks) {
				t.Errorf("asked\n%v\nwant\n%v", asked, c.asks)
			}
		})
	}
}

func TestANewSessionIsFoundAtItsLocation(t *testing.T) {
	s := serve(t, always(&messages.SessionView{Id: "ses_1"}), gateway.Options{})
	res, _ := s.do(t, "POST", "/api/sessions", "")
	if at := res.Header.Get("Location"); at != "/api/sessions/ses_1" {
		t.Errorf("location %q", at)
	}
}

func TestAnInputSentAgainGetsTheSameBodyAndAMark(t *testing.T) {
	reply := &messages.InputReply{InputId: "i1", Seq: 7, SessionId: "ses_1", WorkerId: "wrk_1"}
	s := serve(t, always(reply), gateway.Options{})
	first, body := s.do(t, "POST", "/api/sessions/ses_1/inputs", `{"input_id":"i1","text":"x"}`)
	again := proto.CloneOf(reply)
	again.Duplicate = true
	s2 := serve(t, always(again), gateway.Options{})
	second, same := s2.do(t, "POST", "/api/sessions/ses_1/inputs", `{"input_id":"i1","text":"x"}`)
	if first.StatusCode != 202 || second.StatusCode != 202 || body != same {
		t.Errorf("%s %s, then %s %s", first.Status, body, second.Status, same)
	}
	if first.Header.Get(gateway.ReplayedHeader) != "" || second.Header.Get(gateway.ReplayedHeader) != "true" {
		t.Errorf("marks %q, then %q", first.Header.Get(gateway.ReplayedHeader), second.Header.Get(gateway.ReplayedHeader))
	}
}

func TestAFailureBecomesAProblemWithItsCode(t *testing.T) {
	for code, status := range map[string]int{
		messages.CodeNotFound: 404, messages.CodeBadRequest: 400, messages.CodeConflict: 409, messages.CodeCommitted: 409,
		messages.CodeBusy: 409, messages.CodeNoTurn: 404, messages.CodeModel: 422, messages.CodeAgent: 422,
		messages.CodeUnavailable: 503, messages.CodeQuarantined: 409, messages.CodeCorrupt: 500, messages.CodeClosed: 410,
		messages.CodeStaleLease: 409, messages.CodeWithdrawn: 410, messages.CodeInternal: 500, messages.CodeInvalidURI: 400,
		messages.CodeAlreadyExists: 409, messages.CodeResolved: 409, messages.CodeTooLarge: 413, messages.CodeFull: 507, "news": 500,
	} {
		fail := messages.Fail(code, "it failed", "do this")
		for how, b := range map[string]*backend{
			"as an error": {answer: func(context.Context, proto.Message) (proto.Message, error) {
				return nil, errors.Join(errors.New("ask"), fail)
			}},
			"as a reply": always(fail),
		} {
			s := serve(t, b, gateway.Options{})
			res, body := s.do(t, "GET", "/api/sessions/ses_1", "")
			if p := refused(t, res, body, status, code); p.Detail != "it failed" || p.Hint != "do this" {
				t.Errorf("%s %s: %+v", code, how, p)
			}
			if (res.Header.Get("Retry-After") != "") != (code == messages.CodeUnavailable) {
				t.Errorf("%s: Retry-After %q", code, res.Header.Get("Retry-After"))
			}
		}
	}
}

func TestAnUnexpectedErrorOrPanicIsAnInternalError(t *testing.T) {
	for how, answer := range map[string]func(context.Context, proto.Message) (proto.Message, error){
		"error":       func(context.Context, proto.Message) (proto.Message, error) { return nil, errors.New("disk on fire") },
		"panic":       func(context.Context, proto.Message) (proto.Message, error) { panic("no") },
		"other reply": func(context.Context, proto.Message) (proto.Message, error) { return &messages.Ack{}, nil },
	} {
		t.Run(how, func(t *testing.T) {
			s := serve(t, &backend{answer: answer}, gateway.Options{})
			res, body := s.do(t, "GET", "/api/sessions", "")
			refused(t, res, body, 500, messages.CodeInternal)
			res, body = s.do(t, "GET", "/livez", "")
			if res.StatusCode != http.StatusOK {
				t.Errorf("afterwards: %s %s", res.Status, body)
			}
		})
	}
}
