package messages

import (
	"strings"
	"time"
)

// The JSON of listings and single objects, the same from the HTTP API and the command line. Every
// listing is an array of objects with `id` and `state`; names are snake_case, times RFC 3339 in UTC,
// fields that say nothing are left out. Each has its way back, which a client takes.

// WorkspaceJSON is one workspace of a session.
type WorkspaceJSON struct {
	ID      string   `json:"id,omitempty"`
	Name    string   `json:"name"`
	URI     string   `json:"uri"`
	Kind    string   `json:"kind"` // server | client | git
	Mode    string   `json:"mode"` // local | container
	Trust   string   `json:"trust"`
	Path    string   `json:"path,omitempty"` // folder on the machine of the process that answers
	Order   int32    `json:"order"`
	Primary bool     `json:"primary"`
	Tools   []string `json:"tools,omitempty"` // none: every registered one

	Source     string `json:"source,omitempty"`      // of a copy: the address that it was made of
	Commit     string `json:"commit,omitempty"`      // of a clone
	ClonePath  string `json:"clone_path,omitempty"`  // of a copy: its root
	ProjectDir string `json:"project_dir,omitempty"` // of a copy of a folder: that folder
	Owner      string `json:"owner,omitempty"`       // the machine that runs its calls, when that is another one
	Worker     string `json:"worker,omitempty"`      // of a copy that one worker has: that worker
}

// ListedWorkspaceJSON is one workspace of a listing.
type ListedWorkspaceJSON struct {
	WorkspaceJSON
	State   string `json:"state"` // attached | gone | offline
	Session string `json:"session"`
}

// FileEntryJSON is one file that a session keeps.
type FileEntryJSON struct {
	ID         string `json:"id"`    // its path
	State      string `json:"state"` // file | folder
	Size       int64  `json:"size"`
	ModifiedAt string `json:"modified_at,omitempty"`
}

// SessionJSON is one session of a listing.
type SessionJSON struct {
	ID         string           `json:"id"`
	State      string           `json:"state"` // of the busiest worker
	CreatedAt  string           `json:"created_at,omitempty"`
	UpdatedAt  string           `json:"updated_at,omitempty"`
	Folder     string           `json:"folder,omitempty"` // canonical address
	Project    string           `json:"project,omitempty"`
	Agent      string           `json:"agent,omitempty"`
	Model      string           `json:"model,omitempty"`
	Title      string           `json:"title,omitempty"` // the first input, cut
	Turns      int32            `json:"turns"`
	Usage      UsageJSON        `json:"usage"`
	Workspaces []WorkspaceJSON  `json:"workspaces,omitempty"`
	Workers    []WorkerJSON     `json:"workers,omitempty"`
	Input      *AcceptedJSON    `json:"input,omitempty"`        // in the answer to a creation with a first input
	Persist    string           `json:"persist,omitempty"`      // task | manual: a crash may lose what was not saved; absent: nothing
	Budget     *BudgetViewJSON  `json:"budget,omitempty"`       // absent: there is no limit
	Steps      []StepBudgetJSON `json:"step_budgets,omitempty"` // of its run, of steps that have begun; of a session that is shown and in memory
	Tenant     string           `json:"tenant,omitempty"`       // whose it is; absent: the default tenant

	Conversations []ConversationJSON `json:"conversations,omitempty"` // that its workers share; of one session that is shown
}

// WorkerJSON is one worker of a listing.
type WorkerJSON struct {
	ID          string    `json:"id"`
	State       string    `json:"state"` // inactive | working | requesting | receiving | waiting | using_tool | inactive_failed
	Session     string    `json:"session"`
	Agent       string    `json:"agent,omitempty"`
	Model       string    `json:"model,omitempty"`
	Turns       int32     `json:"turns"`
	Staged      int32     `json:"staged"` // inputs that wait for their turn
	Restarts    int32     `json:"restarts"`
	LastOutcome string    `json:"last_outcome,omitempty"`
	Turn        string    `json:"turn,omitempty"`        // the open one
	WaitsFor    string    `json:"waits_for,omitempty"`   // in words, while it waits
	Pending     int32     `json:"pending,omitempty"`     // messages that it keeps for later
	Executor    string    `json:"executor,omitempty"`    // the actor that runs its calls
	Calls       int32     `json:"calls,omitempty"`       // that run
	Quarantined bool      `json:"quarantined,omitempty"` // not started again until it is released
	Approvals   int32     `json:"approvals,omitempty"`   // calls that wait for an approval
	InDoubt     int32     `json:"in_doubt,omitempty"`    // calls that wait for a person to say what became of them
	LastError   string    `json:"last_error,omitempty"`
	UpdatedAt   string    `json:"updated_at,omitempty"`
	Usage       UsageJSON `json:"usage"`
	Tools       []string  `json:"tools,omitempty"`        // its own toolset, where it was given one
	Parent      string    `json:"parent,omitempty"`       // the worker that delegated to it
	Memory      int64     `json:"memory_bytes,omitempty"` // that its conversation takes in memory, about; of a live worker

	Background bool  `json:"background,omitempty"` // nobody waits for it
	Outbox     int32 `json:"outbox,omitempty"`     // messages to others that are not known to be there

	Waiting *WaitingJSON `json:"waiting,omitempty"` // on what, besides people and its calls; of a live worker
	Spent   *AmountsJSON `json:"spent,omitempty"`   // of its session's budget

	Reserved *AmountsJSON `json:"reserved,omitempty"` // of it, for model calls under way
}

// WaitingJSON is what a worker waits for, besides people and its calls.
type WaitingJSON struct {
	Kind    string `json:"kind"`    // permit | model | retry | lease | call
	Subject string `json:"subject"` // the provider, the model, or the workspace's address
	Since   string `json:"since,omitempty"`
	Until   string `json:"until,omitempty"`   // of a retry
	Session string `json:"session,omitempty"` // of a lease: that works there, when it is known
	Reason  string `json:"reason,omitempty"`  // of a retry: why the last try gave nothing

	InsteadOf string `json:"instead_of,omitempty"` // the model that the one which is asked stands in for
	Step      string `json:"step,omitempty"`       // of a budget: whose it is; absent: the session's

	// Of items of runs alone.
	Approval string `json:"approval,omitempty"` // id
	Call     string `json:"call,omitempty"`     // exec id of one in doubt
	Worker   string `json:"worker,omitempty"`   // who waits
	Text     string `json:"text,omitempty"`     // what is waited for, behind "waits for"
	Command  string `json:"command,omitempty"`  // what a person may type
}

// CallJSON is one tool call of a listing. ID is the exec id, or the provider's id of a call that
// has none yet.
type CallJSON struct {
	ID        string `json:"id"`
	State     string `json:"state"` // received | requested | executing | succeeded | failed | in_doubt
	Session   string `json:"session"`
	Worker    string `json:"worker"`
	Turn      string `json:"turn"`
	Tool      string `json:"tool"`
	Status    string `json:"status"`
	Effect    string `json:"effect,omitempty"`
	Arguments string `json:"arguments"`
	ExecID    string `json:"exec_id,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
	At        string `json:"at,omitempty"`
	Workspace string `json:"workspace,omitempty"` // address
}

// UnreadJSON is a worker whose journal cannot be read, so that what it did is not in a list.
type UnreadJSON struct {
	Session string `json:"session"`
	Worker  string `json:"worker"`
	Problem string `json:"problem"`
}

// StagedJSON is one input of a listing.
type StagedJSON struct {
	ID    string `json:"id"`
	State string `json:"state"` // staged | running | committed
	Text  string `json:"text"`
	At    string `json:"at,omitempty"`
}

// ActorJSON is one actor of the live tree.
type ActorJSON struct {
	ID        string      `json:"id"`
	Kind      string      `json:"kind"`
	State     string      `json:"state"`
	Restarts  int32       `json:"restarts"`
	Pending   int32       `json:"pending,omitempty"`
	LastError string      `json:"last_error,omitempty"`
	Parent    string      `json:"parent,omitempty"`  // the worker that delegated to this one
	Agent     string      `json:"agent,omitempty"`   // of a worker
	Waiting   []string    `json:"waiting,omitempty"` // of a limiter: the workers that wait for a permit, the next one first
	Children  []ActorJSON `json:"children,omitempty"`

	Background bool  `json:"background,omitempty"`   // a worker that nobody waits for
	Memory     int64 `json:"memory_bytes,omitempty"` // of the root: heap and stacks of the process; of a worker: what its conversation takes, about
	Room       int32 `json:"room,omitempty"`         // of the root: sessions that may be in memory at a time
}

// VerifiedJSON is what a check of the store came to.
type VerifiedJSON struct {
	Streams  int64         `json:"streams"`
	Records  int64         `json:"records"`
	Findings []FindingJSON `json:"findings"`
}

// FindingJSON is one thing that does not hold together.
type FindingJSON struct {
	Stream  string `json:"stream"`
	Seq     uint64 `json:"seq,omitempty"`
	Problem string `json:"problem"`
}

// HolderJSON names the process that holds a data directory.
type HolderJSON struct {
	PID       int32  `json:"pid"`
	Version   string `json:"version"`
	Data      string `json:"data"`
	StartedAt string `json:"started_at,omitempty"`
}

// JSON is the workspace in its wire form.
func (x *WorkspaceGrant) JSON() WorkspaceJSON {
	return WorkspaceJSON{
		ID: x.GetId(), Name: x.GetName(), URI: x.GetUri(), Kind: x.GetKind(), Mode: x.GetMode(), Trust: TrustName(x.GetTrust()),
		Path: x.GetPath(), Order: x.GetOrder(), Primary: x.GetPrimary(), Tools: x.GetTools(),
		Source: x.GetSource(), Commit: x.GetCommit(), ClonePath: x.GetClonePath(), ProjectDir: x.GetProjectDir(), Owner: x.GetOwner(), Worker: x.GetWorker(),
	}
}

// Proto is the way back.
func (j WorkspaceJSON) Proto() *WorkspaceGrant {
	return &WorkspaceGrant{
		Id: j.ID, Name: j.Name, Uri: j.URI, Kind: j.Kind, Mode: j.Mode, Trust: trustNamed(j.Trust),
		Path: j.Path, Order: j.Order, Primary: j.Primary, Tools: j.Tools,
		Source: j.Source, Commit: j.Commit, ClonePath: j.ClonePath, ProjectDir: j.ProjectDir, Owner: j.Owner, Worker: j.Worker,
	}
}

// JSON is the workspace in its wire form.
func (x *SessionWorkspace) JSON() ListedWorkspaceJSON {
	return ListedWorkspaceJSON{WorkspaceJSON: x.GetWorkspace().JSON(), State: x.GetState(), Session: x.GetSessionId()}
}

// Proto is the way back.
func (j ListedWorkspaceJSON) Proto() *SessionWorkspace {
	return &SessionWorkspace{SessionId: j.Session, Workspace: j.WorkspaceJSON.Proto(), State: j.State}
}

// JSON is the list in its wire form, never null.
func (x *Workspaces) JSON() []ListedWorkspaceJSON {
	return append([]ListedWorkspaceJSON{}, convert(x.GetWorkspaces(), (*SessionWorkspace).JSON)...)
}

// JSON is the file in its wire form.
func (x *FileEntry) JSON() FileEntryJSON {
	j := FileEntryJSON{ID: x.GetPath(), State: "file", Size: x.GetSize(), ModifiedAt: timeText(x.GetModifiedUnixMs())}
	if x.GetFolder() {
		j.State = "folder"
	}
	return j
}

// Proto is the way back.
func (j FileEntryJSON) Proto() *FileEntry {
	return &FileEntry{Path: j.ID, Size: j.Size, Folder: j.State == "folder", ModifiedUnixMs: timeRead(j.ModifiedAt)}
}

// JSON is the list in its wire form, never null.
func (x *Files) JSON() []FileEntryJSON {
	return append([]FileEntryJSON{}, convert(x.GetEntries(), (*FileEntry).JSON)...)
}

// JSON is the session in its wire form.
func (x *SessionView) JSON() SessionJSON {
	j := SessionJSON{
		ID: x.GetId(), State: x.GetState(), CreatedAt: timeText(x.GetCreatedAtUnixMs()), UpdatedAt: timeText(x.GetUpdatedAtUnixMs()),
		Folder: x.GetFolder(), Project: x.GetProjectId(), Agent: x.GetAgent(), Model: x.GetModel(), Title: x.GetTitle(), Tenant: x.GetTenant(),
		Turns: x.GetTurns(), Usage: x.GetUsage().JSON(), Workspaces: convert(x.GetWorkspaces(), (*WorkspaceGrant).JSON),
		Workers: convert(x.GetWorkers(), (*WorkerView).JSON),
	}
	if x.GetFirst() != nil {
		a := x.GetFirst().JSON()
		j.Input = &a
	}
	if x.GetPersist() != Persist_MESSAGE {
		j.Persist = strings.ToLower(x.GetPersist().String())
	}
	j.Steps = convert(x.GetStepBudgets(), (*StepBudgetView).JSON)
	j.Budget, j.Conversations = x.GetBudget().JSON(), convert(x.GetConversations(), (*SharedConversation).JSON)
	return j
}

// Proto is the way back.
func (j SessionJSON) Proto() *SessionView {
	v := &SessionView{
		Id: j.ID, State: j.State, CreatedAtUnixMs: timeRead(j.CreatedAt), UpdatedAtUnixMs: timeRead(j.UpdatedAt),
		Folder: j.Folder, ProjectId: j.Project, Agent: j.Agent, Model: j.Model, Title: j.Title, Turns: j.Turns, Tenant: j.Tenant,
		Usage: j.Usage.Proto(), Workspaces: convert(j.Workspaces, WorkspaceJSON.Proto), Workers: convert(j.Workers, WorkerJSON.Proto),
		Persist: Persist_Policy(Persist_Policy_value[strings.ToUpper(j.Persist)]),
	}
	if j.Input != nil {
		v.First = j.Input.Proto()
	}
	if j.Budget != nil {
		v.Budget = j.Budget.Proto()
	}
	v.StepBudgets = convert(j.Steps, StepBudgetJSON.Proto)
	v.Conversations = convert(j.Conversations, ConversationJSON.Proto)
	return v
}

// JSON is the worker in its wire form.
func (x *WorkerView) JSON() WorkerJSON {
	j := WorkerJSON{
		ID: x.GetId(), State: x.GetState(), Session: x.GetSessionId(), Agent: x.GetAgent(), Model: x.GetModel(), Turns: x.GetTurns(),
		Staged: x.GetStaged(), Restarts: x.GetRestarts(), LastOutcome: x.GetLastOutcome(), LastError: x.GetLastError(),
		Quarantined: x.GetQuarantined(), InDoubt: x.GetInDoubt(), Approvals: x.GetApprovals(), Turn: x.GetTurn(),
		WaitsFor: x.GetWaitsFor(), Pending: x.GetPending(), Executor: x.GetExecutor(), Calls: x.GetCalls(),
		UpdatedAt: timeText(x.GetUpdatedAtUnixMs()), Usage: x.GetUsage().JSON(), Tools: x.GetTools(), Parent: x.GetParent(), Background: x.GetBackground(), Outbox: x.GetOutbox(), Memory: x.GetMemoryBytes(),
		Waiting: x.GetWaiting().JSON(),
	}
	if x.GetSpent() != nil {
		spent := x.GetSpent().JSON()
		j.Spent = &spent
	}
	if x.GetReserved() != nil {
		reserved := x.GetReserved().JSON()
		j.Reserved = &reserved
	}
	return j
}

// Proto is the way back.
func (j WorkerJSON) Proto() *WorkerView {
	v := &WorkerView{
		Id: j.ID, State: j.State, SessionId: j.Session, Agent: j.Agent, Model: j.Model, Turns: j.Turns, Staged: j.Staged,
		Restarts: j.Restarts, LastOutcome: j.LastOutcome, LastError: j.LastError, UpdatedAtUnixMs: timeRead(j.UpdatedAt),
		Quarantined: j.Quarantined, InDoubt: j.InDoubt, Approvals: j.Approvals, Turn: j.Turn,
		WaitsFor: j.WaitsFor, Pending: j.Pending, Executor: j.Executor, Calls: j.Calls,
		Usage: j.Usage.Proto(), Tools: j.Tools, Parent: j.Parent, Background: j.Background, Outbox: j.Outbox, MemoryBytes: j.Memory, Waiting: j.Waiting.Proto(),
	}
	if j.Spent != nil {
		v.Spent = j.Spent.amounts()
	}
	if j.Reserved != nil {
		v.Reserved = j.Reserved.amounts()
	}
	return v
}

// JSON is the wait in its wire form; nil when there is none.
func (x *Waiting) JSON() *WaitingJSON {
	if x == nil {
		return nil
	}
	return &WaitingJSON{
		Kind: x.GetKind(), Subject: x.GetSubject(), Since: timeText(x.GetSinceUnixMs()), Until: timeText(x.GetUntilUnixMs()),
		Session: x.GetSession(), Reason: x.GetReason(), InsteadOf: x.GetInsteadOf(), Step: x.GetStep(),
		Approval: x.GetApprovalId(), Call: x.GetExecId(), Worker: x.GetWorkerId(),
	}
}

// Proto is the way back.
func (j *WaitingJSON) Proto() *Waiting {
	if j == nil {
		return nil
	}
	return &Waiting{
		Kind: j.Kind, Subject: j.Subject, SinceUnixMs: timeRead(j.Since), UntilUnixMs: timeRead(j.Until), Session: j.Session, Reason: j.Reason,
		InsteadOf: j.InsteadOf, Step: j.Step, ApprovalId: j.Approval, ExecId: j.Call, WorkerId: j.Worker,
	}
}

// JSON is the call in its wire form.
func (x *CallView) JSON() CallJSON {
	id := x.GetExecId()
	if id == "" {
		id = x.GetCallId()
	}
	return CallJSON{
		ID: id, State: x.GetState(), Session: x.GetSessionId(), Worker: x.GetWorkerId(), Turn: x.GetTurnId(), Tool: x.GetTool(),
		Status: x.GetStatus(), Effect: x.GetEffect(), Arguments: x.GetArguments(), ExecID: x.GetExecId(), CallID: x.GetCallId(),
		ErrorCode: x.GetErrorCode(), At: timeText(x.GetAtUnixMs()), Workspace: x.GetWorkspace(),
	}
}

// Proto is the way back.
func (j CallJSON) Proto() *CallView {
	return &CallView{
		ExecId: j.ExecID, CallId: j.CallID, SessionId: j.Session, WorkerId: j.Worker, TurnId: j.Turn, Tool: j.Tool, State: j.State,
		Status: j.Status, Effect: j.Effect, Arguments: j.Arguments, ErrorCode: j.ErrorCode, AtUnixMs: timeRead(j.At),
		Workspace: j.Workspace,
	}
}

// JSON is the input in its wire form.
func (x *InputView) JSON() StagedJSON {
	return StagedJSON{ID: x.GetInputId(), State: x.GetState(), Text: x.GetText(), At: timeText(x.GetAtUnixMs())}
}

// Proto is the way back.
func (j StagedJSON) Proto() *InputView {
	return &InputView{InputId: j.ID, State: j.State, Text: j.Text, AtUnixMs: timeRead(j.At)}
}

// JSON is the actor and all below it in their wire form.
func (x *ActorView) JSON() ActorJSON {
	return ActorJSON{
		ID: x.GetId(), Kind: x.GetKind(), State: x.GetState(), Restarts: x.GetRestarts(), Pending: x.GetPending(),
		LastError: x.GetLastError(), Parent: x.GetParent(), Agent: x.GetAgent(), Background: x.GetBackground(), Memory: x.GetMemoryBytes(), Room: x.GetRoom(),
		Waiting: x.GetWaiting(), Children: convert(x.GetChildren(), (*ActorView).JSON),
	}
}

// Proto is the way back.
func (j ActorJSON) Proto() *ActorView {
	return &ActorView{
		Id: j.ID, Kind: j.Kind, State: j.State, Restarts: j.Restarts, Pending: j.Pending, LastError: j.LastError,
		Parent: j.Parent, Agent: j.Agent, Background: j.Background, MemoryBytes: j.Memory, Room: j.Room, Waiting: j.Waiting,
		Children: convert(j.Children, ActorJSON.Proto),
	}
}

// JSON is the outcome of a check in its wire form.
func (x *Verified) JSON() VerifiedJSON {
	return VerifiedJSON{Streams: x.GetStreams(), Records: x.GetRecords(), Findings: findings(x.GetFindings())}
}

// JSON is what the store has lost in its wire form.
func (x *Damage) JSON() []FindingJSON { return findings(x.GetFindings()) }

func findings(all []*Finding) []FindingJSON {
	out := []FindingJSON{}
	for _, f := range all {
		out = append(out, FindingJSON{Stream: f.GetStream(), Seq: f.GetSeq(), Problem: f.GetProblem()})
	}
	return out
}

// Proto is the way back.
func (j FindingJSON) Proto() *Finding {
	return &Finding{Stream: j.Stream, Seq: j.Seq, Problem: j.Problem}
}

// Proto is the way back.
func (j VerifiedJSON) Proto() *Verified {
	return &Verified{Streams: j.Streams, Records: j.Records, Findings: convert(j.Findings, FindingJSON.Proto)}
}

// JSON is the holder in its wire form.
func (x *Holder) JSON() HolderJSON {
	return HolderJSON{PID: x.GetPid(), Version: x.GetVersion(), Data: x.GetData(), StartedAt: timeText(x.GetStartedAtUnixMs())}
}

// Proto is the way back.
func (j HolderJSON) Proto() *Holder {
	return &Holder{Pid: j.PID, Version: j.Version, Data: j.Data, StartedAtUnixMs: timeRead(j.StartedAt)}
}

// JSON is the listing in its wire form: never null.
func (x *Sessions) JSON() []SessionJSON { return list(x.GetSessions(), (*SessionView).JSON) }

// JSON is the listing in its wire form: never null.
func (x *Workers) JSON() []WorkerJSON { return list(x.GetWorkers(), (*WorkerView).JSON) }

// JSON is the listing in its wire form: never null.
func (x *Calls) JSON() []CallJSON { return list(x.GetCalls(), (*CallView).JSON) }

// JSON is the listing in its wire form: never null.
func (x *Inputs) JSON() []StagedJSON { return list(x.GetInputs(), (*InputView).JSON) }

// TrustName is a level of trust as every surface writes it: full, restricted, or nothing.
func TrustName(t Trust_Level) string { return enumName(t.String(), t == Trust_UNSPECIFIED) }

func trustNamed(s string) Trust_Level { return Trust_Level(Trust_Level_value[strings.ToUpper(s)]) }

// enumName writes the name of an enumeration's value in lower case, nothing for the unspecified one.
func enumName(name string, unspecified bool) string {
	if unspecified {
		return ""
	}
	return strings.ToLower(name)
}

// timeText is FormatTime for times that may be missing.
func timeText(unixMs int64) string {
	if unixMs == 0 {
		return ""
	}
	return FormatTime(unixMs)
}

// timeRead is the way back; what is no time is none.
func timeRead(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

func convert[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	return list(in, f)
}

// list is convert for what must be an array in JSON even when it is empty.
func list[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, a := range in {
		out = append(out, f(a))
	}
	return out
}
