package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
)

// The bodies of the HTTP API's requests. Proto says what is asked of the house, or refuses with a
// Failure; the ...From functions are the way there, for clients.

// maxInputID is the longest id of an input, in bytes.
const maxInputID = 128

// CreateJSON asks for a session.
type CreateJSON struct {
	ID         string       `json:"id,omitempty"` // empty: made by the server
	Agent      string       `json:"agent,omitempty"`
	Model      string       `json:"model,omitempty"`
	System     string       `json:"system,omitempty"` // instead of the agent's system prompt
	Project    string       `json:"project,omitempty"`
	Workspaces []AttachJSON `json:"workspaces,omitempty"` // the first is primary unless one says so
	Env        []EnvVarJSON `json:"env,omitempty"`
	Rules      []string     `json:"rules,omitempty"`
	NoInput    bool         `json:"no_input,omitempty"`                           // nobody answers: every question is a denial
	Ask        *bool        `json:"ask,omitempty"`                                // calls that need an approval wait for an answer (default, unless no_input); false: they are denied
	Persist    string       `json:"persist,omitempty" enum:"message,task,manual"` // message (default) | task | manual
	Input      *InputJSON   `json:"input,omitempty"`                              // accepted in the same append

	Budget *BudgetJSON `json:"budget,omitempty"` // of the session with all its workers; the server's own bounds it, too

	Fields json.RawMessage `json:"fields,omitempty"` // schema of the primary workspace's fields: an object, or a text that holds one

	Origin *LineageJSON   `json:"origin,omitempty"` // the conversation that the first worker continues
	Copied []ExchangeJSON `json:"copied,omitempty"` // its turns, by value

	Run json.RawMessage `json:"run,omitempty"` // a RunStarted: the pipeline run that it is made for

	By string `json:"by,omitempty"` // who asks; a token's name counts more
}

// AttachJSON asks for one workspace.
type AttachJSON struct {
	URI     string `json:"uri"` // canonical address
	Name    string `json:"name,omitempty"`
	Trust   string `json:"trust,omitempty" enum:"full,restricted"` // full | restricted; empty: restricted
	Primary bool   `json:"primary,omitempty"`

	Tools   []string `json:"tools,omitempty"`                       // what it offers; none: every tool
	Isolate bool     `json:"isolate,omitempty"`                     // of a folder: work in a copy of it
	Mode    string   `json:"mode,omitempty" enum:"local,container"` // local | container; empty: as configured
}

// Proto is the workspace that is asked for.
func (j *AttachJSON) Proto() (*WorkspaceSpec, error) {
	t := trustNamed(j.Trust)
	if j.Trust != "" && (t == Trust_UNSPECIFIED || j.Trust != TrustName(t)) {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("trust %q of workspace %s is not known", j.Trust, j.URI), "one of full, restricted")
	}
	return &WorkspaceSpec{Uri: j.URI, Name: j.Name, Trust: t, Primary: j.Primary, Tools: j.Tools, Isolate: j.Isolate, Mode: j.Mode}, nil
}

// AttachFrom is the body that asks for a workspace.
func AttachFrom(w *WorkspaceSpec) AttachJSON {
	return AttachJSON{URI: w.GetUri(), Name: w.GetName(), Trust: TrustName(w.GetTrust()), Primary: w.GetPrimary(), Tools: w.GetTools(), Isolate: w.GetIsolate(), Mode: w.GetMode()}
}

// EnvVarJSON is one variable.
type EnvVarJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// InputJSON submits an input: text and files, or parts when their order matters.
type InputJSON struct {
	InputID string     `json:"input_id,omitempty"` // empty: made by the server
	Worker  string     `json:"worker,omitempty"`   // empty: the session's first
	Text    string     `json:"text,omitempty"`
	Files   []FileJSON `json:"files,omitempty"`
	Parts   []PartJSON `json:"parts,omitempty"`
	Mode    string     `json:"mode,omitempty" enum:"queue,steer,interrupt,reject"` // queue | steer | interrupt | reject; empty: queue
	From    string     `json:"from,omitempty"`                                     // who sends it, for the record
	People  string     `json:"people,omitempty"`                                   // asked | nobody: whether what its turn asks can be answered; empty: as the session was made
}

// FileJSON is a file given along with an input, as text.
type FileJSON struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// PartJSON is one piece of an input: a file or a text.
type PartJSON struct {
	Text string    `json:"text,omitempty"`
	File *FileJSON `json:"file,omitempty"`
}

// AcceptedJSON answers an input, once it is durable. The same id gets the same answer.
type AcceptedJSON struct {
	InputID string `json:"input_id"`
	Seq     uint64 `json:"seq"` // session cursor of the acceptance
	Session string `json:"session,omitempty"`
	Worker  string `json:"worker,omitempty"`
}

// CancelJSON cancels the open turns of a session, or of one worker.
type CancelJSON struct {
	Worker string `json:"worker,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	Inputs bool   `json:"inputs,omitempty"` // take back the inputs that wait, too
	Jobs   bool   `json:"jobs,omitempty"`   // end the commands that agents left running, too
}

// ReleaseJSON lets a quarantined worker try again.
type ReleaseJSON struct {
	By string `json:"by,omitempty"`
}

// CancelledJSON says how many turns were told to stop.
type CancelledJSON struct {
	Turns    int32 `json:"turns"`
	Inputs   int32 `json:"inputs,omitempty"`   // taken back
	Messages int32 `json:"messages,omitempty"` // of agents to each other that had not arrived, and were dropped
	Jobs     int32 `json:"jobs,omitempty"`     // commands that agents left running, and that go on
	Ended    int32 `json:"ended,omitempty"`    // commands that agents had left running, and that were ended
}

// CallToolJSON calls a tool in a session. Arguments are an object, or a string that holds one, as
// models write them; either way the tool gets the bytes as they are.
type CallToolJSON struct {
	Worker    string          `json:"worker,omitempty"`
	CallID    string          `json:"call_id,omitempty"` // the same id again gets the same result
	Arguments json.RawMessage `json:"arguments,omitempty"`

	RequiresApproval bool  `json:"requires_approval,omitempty"` // a person is asked, whatever the policy says
	ApprovalMs       int64 `json:"approval_ms,omitempty"`       // that an approval may wait; 0: as the runtime says
}

// ConfigureJSON changes what later generations of a worker use; what is left out stays.
type ConfigureJSON struct {
	Worker string   `json:"worker,omitempty"`
	Model  string   `json:"model,omitempty"`
	Agent  string   `json:"agent,omitempty"`
	System string   `json:"system,omitempty"`
	Tools  []string `json:"tools,omitempty"`
	MCP    string   `json:"mcp,omitempty"` // on or off
	By     string   `json:"by,omitempty"`
}

// SpawnJSON adds a worker to a session.
type SpawnJSON struct {
	Agent  string         `json:"agent,omitempty"`
	Model  string         `json:"model,omitempty"`
	System string         `json:"system,omitempty"`
	Origin *LineageJSON   `json:"origin,omitempty"`
	Copied []ExchangeJSON `json:"copied,omitempty"`

	Isolate bool `json:"isolate,omitempty"` // it works in a copy of its own of the primary folder
}

// LineageJSON names a conversation at a record.
type LineageJSON struct {
	Conversation string `json:"conversation"`
	Seq          uint64 `json:"seq"`
}

// VerifyJSON names what to check; nothing is the whole store.
type VerifyJSON struct {
	Sessions []string `json:"sessions,omitempty"`
}

// asks says whether calls that need an approval wait for one: a server has a place where they are listed and answered, and whoever looks there may.
func (j *CreateJSON) asks() bool {
	if j.Ask == nil {
		return !j.NoInput
	}
	return *j.Ask
}

// Proto is what is asked for.
func (j *CreateJSON) Proto() (*CreateSession, error) {
	m := &CreateSession{
		SessionId: j.ID, Agent: j.Agent, Model: j.Model, System: j.System, ProjectId: j.Project, Rules: j.Rules, NoInput: j.NoInput, Ask: j.asks(), By: j.By,
		Env: convert(j.Env, func(v EnvVarJSON) *EnvVar { return &EnvVar{Name: v.Name, Value: v.Value} }), Fields: schemaText(j.Fields),
	}
	for _, w := range j.Workspaces {
		spec, err := w.Proto()
		if err != nil {
			return nil, err
		}
		m.Workspaces = append(m.Workspaces, spec)
	}
	persist, ok := Persist_Policy_value[strings.ToUpper(j.Persist)]
	if j.Persist != "" && (!ok || j.Persist != strings.ToLower(j.Persist)) {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("persistence policy %q is not known", j.Persist), "one of message, task, manual")
	}
	m.Persist = Persist_Policy(persist)
	var err error
	if m.Budget, err = j.Budget.Proto(); err != nil {
		return nil, err
	}
	m.Origin, m.Copied = j.Origin.proto(), convert(j.Copied, ExchangeJSON.Proto)
	if j.Input != nil {
		first, err := j.Input.Proto()
		if err != nil {
			return nil, err
		}
		m.First = first
	}
	if len(j.Run) > 0 {
		m.Run = &RunStarted{}
		if err := protojson.Unmarshal(j.Run, m.GetRun()); err != nil {
			return nil, Fail(CodeBadRequest, "run: "+err.Error(), "start runs with POST /api/pipelines/runs")
		}
		m.Run.Traceparent = "" // of requests that is their header's to say
	}
	return m, nil
}

// GetWorkerId is the worker that the input is for.
func (x *RunInput) GetWorkerId() string { return x.GetInput().GetWorkerId() }

// CreateFrom is the body that asks for a session. Whose tenant it is, the server decides.
func CreateFrom(m *CreateSession) (*CreateJSON, error) {
	if m.GetTenant() != "" {
		return nil, Fail(CodeBadRequest, "a client cannot choose the tenant of a session", "leave it out")
	}
	j := &CreateJSON{
		ID: m.GetSessionId(), Agent: m.GetAgent(), Model: m.GetModel(), System: m.GetSystem(), Project: m.GetProjectId(),
		Rules: m.GetRules(), NoInput: m.GetNoInput(), Ask: new(m.GetAsk()), By: m.GetBy(),
		Env:        convert(m.GetEnv(), func(v *EnvVar) EnvVarJSON { return EnvVarJSON{v.GetName(), v.GetValue()} }),
		Workspaces: convert(m.GetWorkspaces(), AttachFrom), Budget: m.GetBudget().JSON(),
	}
	if m.GetFields() != "" {
		fields, err := json.Marshal(m.GetFields())
		if err != nil {
			return nil, fmt.Errorf("encode the schema of the fields: %w", err)
		}
		j.Fields = fields
	}
	if m.GetPersist() != Persist_MESSAGE {
		j.Persist = strings.ToLower(m.GetPersist().String())
	}
	j.Origin, j.Copied = lineageJSON(m.GetOrigin()), convert(m.GetCopied(), (*Turn).JSON)
	if m.GetFirst() != nil {
		first, err := InputFrom(m.GetFirst())
		if err != nil {
			return nil, err
		}
		j.Input = first
	}
	if m.GetRun() != nil {
		run, err := protojson.Marshal(m.GetRun())
		if err != nil {
			return nil, fmt.Errorf("encode the run: %w", err)
		}
		j.Run = run
	}
	return j, nil
}

// Proto is the input that is submitted.
func (j *InputJSON) Proto() (*SubmitInput, error) {
	mode, ok := InputAccepted_Mode_value[strings.ToUpper(j.Mode)]
	switch {
	case j.Mode != "" && (!ok || j.Mode != strings.ToLower(j.Mode)):
		return nil, Fail(CodeBadRequest, fmt.Sprintf("mode %q is not known", j.Mode), "one of queue, steer, interrupt, reject")
	case len(j.Parts) > 0 && (j.Text != "" || len(j.Files) > 0):
		return nil, Fail(CodeBadRequest, "the input has parts besides text or files", "give either")
	}
	if err := CheckInputID(j.InputID); err != nil {
		return nil, err
	}
	people, ok := InputAccepted_People_value[strings.ToUpper(j.People)]
	if j.People != "" && (!ok || j.People != strings.ToLower(j.People)) {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("people %q is not known", j.People), "one of asked, nobody")
	}
	m := &SubmitInput{InputId: j.InputID, WorkerId: j.Worker, Mode: InputAccepted_Mode(mode), From: j.From, People: InputAccepted_People(people)}
	if j.Text != "" {
		m.Parts = append(m.Parts, textPart(j.Text))
	}
	for _, f := range j.Files {
		m.Parts = append(m.Parts, filePart(f))
	}
	for _, p := range j.Parts {
		switch {
		case p.File == nil:
			m.Parts = append(m.Parts, textPart(p.Text))
		case p.Text != "":
			return nil, Fail(CodeBadRequest, "a part of the input is both text and file", "make it two parts")
		default:
			m.Parts = append(m.Parts, filePart(*p.File))
		}
	}
	return m, nil
}

// InputFrom is the body that submits an input. That an input comes from another worker, a timer or
// the system, a client cannot say.
func InputFrom(m *SubmitInput) (*InputJSON, error) {
	if m.GetOrigin() != InputAccepted_USER {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("a client cannot submit an input of origin %s", strings.ToLower(m.GetOrigin().String())), "")
	}
	j := &InputJSON{InputID: m.GetInputId(), Worker: m.GetWorkerId(), From: m.GetFrom()}
	if m.GetPeople() != InputAccepted_AS_SESSION {
		j.People = strings.ToLower(m.GetPeople().String())
	}
	if m.GetMode() != InputAccepted_QUEUE {
		j.Mode = strings.ToLower(m.GetMode().String())
	}
	if p := m.GetParts(); len(p) == 1 && p[0].GetFile() == nil {
		j.Text = p[0].GetText()
		return j, nil
	}
	for _, p := range m.GetParts() {
		if f := p.GetFile(); f != nil {
			j.Parts = append(j.Parts, PartJSON{File: &FileJSON{f.GetName(), f.GetText()}})
			continue
		}
		j.Parts = append(j.Parts, PartJSON{Text: p.GetText()})
	}
	return j, nil
}

func textPart(text string) *Part { return &Part{Kind: &Part_Text{Text: text}} }

func filePart(f FileJSON) *Part {
	return &Part{Kind: &Part_File{File: &FilePart{Name: f.Name, Text: f.Text}}}
}

// CheckInputID refuses ids that cannot stand in an address or on a terminal. Empty is allowed.
func CheckInputID(id string) error {
	if len(id) > maxInputID {
		return Fail(CodeBadRequest, fmt.Sprintf("the input id is longer than %d bytes", maxInputID), "")
	}
	if !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Fail(CodeBadRequest, fmt.Sprintf("the input id %+q has characters that cannot be printed", id), "")
	}
	return nil
}

// JSON is the answer in its wire form.
func (x *InputReply) JSON() AcceptedJSON {
	return AcceptedJSON{InputID: x.GetInputId(), Seq: x.GetSeq(), Session: x.GetSessionId(), Worker: x.GetWorkerId()}
}

// Proto is the way back.
func (j AcceptedJSON) Proto() *InputReply {
	return &InputReply{InputId: j.InputID, Seq: j.Seq, SessionId: j.Session, WorkerId: j.Worker}
}

// Proto is the call that is asked for.
func (j *CallToolJSON) Proto(tool string) (*CallTool, error) {
	if err := CheckInputID(j.CallID); err != nil {
		return nil, err
	}
	args := string(j.Arguments)
	switch first := bytes.TrimLeft(j.Arguments, " \t\r\n"); {
	case len(first) == 0 || string(first) == "null":
		args = "{}"
	case first[0] == '"':
		if err := json.Unmarshal(j.Arguments, &args); err != nil {
			return nil, Fail(CodeBadRequest, "the arguments are no JSON", "")
		}
	case first[0] != '{':
		return nil, Fail(CodeBadRequest, "the arguments are neither an object nor a string", "")
	}
	return &CallTool{
		WorkerId: j.Worker, Tool: tool, CallId: j.CallID, Arguments: args, RequiresApproval: j.RequiresApproval, ApprovalMs: max(j.ApprovalMs, 0),
	}, nil
}

// CallToolFrom is the body that calls a tool, with the arguments to the byte.
func CallToolFrom(m *CallTool) (*CallToolJSON, error) {
	args, err := json.Marshal(m.GetArguments())
	if err != nil {
		return nil, fmt.Errorf("encode arguments of %s: %w", m.GetTool(), err)
	}
	return &CallToolJSON{
		Worker: m.GetWorkerId(), CallID: m.GetCallId(), Arguments: args, RequiresApproval: m.GetRequiresApproval(), ApprovalMs: m.GetApprovalMs(),
	}, nil
}

// Proto is the worker that is asked for.
func (j *SpawnJSON) Proto() *SpawnWorker {
	return &SpawnWorker{
		Agent: j.Agent, Model: j.Model, System: j.System, Origin: j.Origin.proto(), Copied: convert(j.Copied, ExchangeJSON.Proto),
		Isolate: j.Isolate,
	}
}

// SpawnFrom is the body that asks for a worker.
func SpawnFrom(m *SpawnWorker) *SpawnJSON {
	return &SpawnJSON{
		Agent: m.GetAgent(), Model: m.GetModel(), System: m.GetSystem(), Origin: lineageJSON(m.GetOrigin()), Copied: convert(m.GetCopied(), (*Turn).JSON),
		Isolate: m.GetIsolate(),
	}
}

func (j *LineageJSON) proto() *Lineage {
	if j == nil {
		return nil
	}
	return &Lineage{Conversation: j.Conversation, Seq: j.Seq}
}

func lineageJSON(o *Lineage) *LineageJSON {
	if o == nil {
		return nil
	}
	return &LineageJSON{o.GetConversation(), o.GetSeq()}
}
