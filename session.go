package troupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// SessionOptions describe a new session. The zero value works in its own server workspace.
type SessionOptions struct {
	// ID names the session, with up to 64 letters, digits, - and _. The same id again, also in a later process, is the same session: it is opened,
	// and what else stands here does not count. "" makes a new one.
	ID string

	Dir   string // folder to work in; "" for the session's own
	Trust Trust  // of Dir; unspecified is Restricted
	// Isolate has the session work in a copy of Dir, with what is not committed: see Session.Changes and Session.Apply.
	Isolate bool
	Agent   string   // profile; "" is "default"
	Model   string   // "" is the agent's or the default one
	Rules   []string // policy rules, such as `exec(go test*)`
	Ask     bool     // calls that ask wait for an answer (Runtime.Approvals, ResolveApproval); else, without Options.Approve, they are denied
	// Env holds variables of commands. They are written down with the session: secrets do not belong here.
	Env map[string]string

	// Workspaces are attached besides Dir, in this order. A call that names no workspace goes to Dir, or without one to the first.
	Workspaces []WorkspaceSpec

	// Fields is a JSON schema: the fields of the primary workspace. "" declares those of the agent's profile, if it has some.
	Fields string

	Conversation *Conversation // that the first worker continues; nil begins a new one

	// Budget bounds what the session may spend with all its workers, those that agents delegate to among them. The zero value bounds nothing.
	Budget Budget

	// Persist says what a crash may lose of the session's turns while nobody watches its events. Prompts that were accepted, and
	// what tools with effects did, are durable under each policy.
	Persist Persist
}

// Session is one conversation space. Its methods besides ID and Worker are those of its first
// worker. It is safe for concurrent use: prompts queue.
type Session struct {
	*Worker
}

// Worker is one agent of a session, with a conversation of its own. It is safe for concurrent use.
type Worker struct {
	rt      *Runtime
	session string
	id      string // "" is the session's first worker
}

// Result is what a turn came to.
type Result struct {
	Session   string
	Turn      string
	Text      string
	Outcome   string // done, error, limit, stuck, budget, timeout, aborted
	Reason    string // when the outcome is not done
	Usage     *Usage
	ToolCalls []*messages.ToolCallView
	Scripted  bool // no language model was running
	// Conversation and Seq refer to the conversation as it was after this turn.
	Conversation string
	Seq          uint64
}

// Session makes a session, or opens the one of this id. It is durable when Session returns.
func (rt *Runtime) Session(ctx context.Context, o SessionOptions) (*Session, error) {
	id, err := named(messages.SessionPrefix, o.ID)
	if err != nil {
		return nil, fmt.Errorf("make a session: %w", err)
	}
	m := &messages.CreateSession{SessionId: id, Agent: o.Agent, Model: o.Model, Rules: o.Rules, Ask: o.Ask, Persist: o.Persist, Fields: o.Fields}
	if o.Budget.bounds() {
		m.Budget = o.Budget.message()
	}
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		m.Env = append(m.Env, &messages.EnvVar{Name: name, Value: o.Env[name]})
	}
	if o.Conversation != nil {
		m.Origin, m.Copied = o.Conversation.lineage(), o.Conversation.Turns
	}
	if o.Dir != "" {
		uri, err := workspace.Called(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("open folder %s: %w", o.Dir, err)
		}
		m.Workspaces = []*messages.WorkspaceSpec{{Uri: uri, Trust: o.Trust, Primary: true, Isolate: o.Isolate}}
	}
	for _, w := range o.Workspaces {
		spec, err := w.message()
		if err != nil {
			return nil, err
		}
		m.Workspaces = append(m.Workspaces, spec)
	}
	v, err := send[*messages.SessionView](ctx, rt, m)
	switch {
	case id != "" && isCode(err, messages.CodeAlreadyExists):
		return rt.Open(ctx, id)
	case err != nil:
		return nil, err
	}
	return &Session{&Worker{rt: rt, session: v.GetId()}}, nil
}

// named is an id of a program's choosing, with its prefix. "" stays what it is.
func named(prefix, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	full := prefix + strings.TrimPrefix(id, prefix)
	if !messages.ValidID(prefix, full) {
		return "", messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no id", id), "an id has up to 64 letters, digits, - and _")
	}
	return full, nil
}

func isCode(err error, code string) bool {
	var f *Failure
	return errors.As(err, &f) && f.GetCode() == code
}

// Open returns an existing session. A turn that a crash cut off goes on.
func (rt *Runtime) Open(ctx context.Context, id string) (*Session, error) {
	if _, err := ask[*messages.SessionView](ctx, rt, id, &messages.DescribeSession{}); err != nil {
		return nil, err
	}
	return &Session{&Worker{rt: rt, session: id}}, nil
}

// ID is the session's id: Open finds it again.
func (s *Session) ID() string { return s.session }

// WorkerOptions describe a further worker. Empty fields are the session's.
type WorkerOptions struct {
	Agent        string
	Model        string
	Conversation *Conversation // that it continues; nil begins a new one
	Isolate      bool          // it works in a copy of its own of the session's folder: see Worker.Changes and Worker.Apply
}

// NewWorker adds a worker to the session, with a conversation of its own. It is durable when
// NewWorker returns. Workers of one session work side by side, as far as their workspaces allow.
func (s *Session) NewWorker(ctx context.Context, o WorkerOptions) (*Worker, error) {
	m := &messages.SpawnWorker{Agent: o.Agent, Model: o.Model, Isolate: o.Isolate}
	if o.Conversation != nil {
		m.Origin, m.Copied = o.Conversation.lineage(), o.Conversation.Turns
	}
	v, err := ask[*messages.WorkerView](ctx, s.rt, s.session, m)
	if err != nil {
		return nil, err
	}
	return &Worker{rt: s.rt, session: s.session, id: v.GetId()}, nil
}

// Workers returns the workers of the session, the first one first.
func (s *Session) Workers(ctx context.Context) ([]*Worker, error) {
	v, err := ask[*messages.SessionView](ctx, s.rt, s.session, &messages.DescribeSession{})
	if err != nil {
		return nil, err
	}
	var out []*Worker
	for _, w := range v.GetWorkers() {
		out = append(out, &Worker{rt: s.rt, session: s.session, id: w.GetId()})
	}
	return out, nil
}

// ID is the worker's id, and its conversation's. It is "" for the first worker of a session
// that has not been asked for its workers.
func (w *Worker) ID() string { return w.id }

// Run sends a prompt and returns when its turn is done. An outcome other than done is no error:
// look at Result.Outcome. When ctx ends first, the turn goes on; Cancel ends it.
func (w *Worker) Run(ctx context.Context, prompt string) (*Result, error) {
	return w.result(ask[*messages.TurnResult](ctx, w.rt, w.session, &messages.RunInput{Input: w.input(prompt)}))
}

// RunOnce is Run, but the same id again is the same prompt, also in a later process: it is not asked a second time, and what its turn came to is
// returned. Another prompt under the id is refused with the code `conflict`. So a program that does not know how far it came before it was killed
// does it all again, with the ids of SessionOptions, Task, RunOptions and of here.
func (w *Worker) RunOnce(ctx context.Context, id, prompt string) (*Result, error) {
	in := w.input(prompt)
	if id != "" {
		in.InputId = id
	}
	return w.result(ask[*messages.TurnResult](ctx, w.rt, w.session, &messages.RunInput{Input: in}))
}

// Wait returns the result of the open turn, or of the last one.
func (w *Worker) Wait(ctx context.Context) (*Result, error) {
	return w.result(ask[*messages.TurnResult](ctx, w.rt, w.session, &messages.AwaitTurn{WorkerId: w.id}))
}

func (w *Worker) submit(ctx context.Context, prompt string) (*messages.InputReply, error) {
	return ask[*messages.InputReply](ctx, w.rt, w.session, w.input(prompt))
}

func (w *Worker) input(prompt string) *messages.SubmitInput {
	return &messages.SubmitInput{
		WorkerId: w.id, InputId: messages.NewID(messages.InputPrefix),
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: prompt}}},
	}
}

func (w *Worker) result(r *messages.TurnResult, err error) (*Result, error) {
	if err != nil {
		return nil, err
	}
	return &Result{
		Session: w.session, Turn: r.GetTurnId(), Text: r.GetText(), Outcome: conversation.OutcomeName(r.GetOutcome()), Reason: r.GetReason(),
		Usage: r.GetUsage(), ToolCalls: r.GetToolCalls(), Scripted: r.GetScripted(), Conversation: r.GetWorkerId(), Seq: r.GetConversationSeq(),
	}, nil
}

// Stream sends a prompt and yields what happens until its turn is done: the last event is
// turn.completed. Breaking out of the loop leaves the turn running.
func (w *Worker) Stream(ctx context.Context, prompt string) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		f, err := w.rt.subscribe(ctx, w.session)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.close()
		in, err := w.submit(ctx, prompt)
		if err != nil {
			yield(nil, err)
			return
		}
		turn := ""
		for ev, err := range f.events(ctx) {
			if !yield(ev, err) || err != nil {
				return
			}
			switch {
			case ev.GetType() == messages.EventTurnStarted && ev.GetInputId() == in.GetInputId():
				turn = ev.GetTurn()
			case ev.GetType() == messages.EventTurnCompleted && ev.GetTurn() == turn:
				return
			}
		}
	}
}

// Save makes durable what the session's persistence policy has kept in memory so far.
func (w *Worker) Save(ctx context.Context) error {
	_, err := ask[*messages.Ack](ctx, w.rt, w.session, &messages.SaveHistory{WorkerId: w.id})
	return err
}

// Compaction is what Compact came to.
type Compaction struct {
	UptoSeq      uint64 // records of the worker's journal up to here are no longer sent to a model; 0: nothing was done
	TokensBefore int64  // of the history, as estimated
	TokensAfter  int64
	Fallback     bool   // turns were dropped without a summary
	Reason       string // of the fallback, or why nothing was done
}

// Compact replaces the older turns of the conversation, in what is sent to the model, by a summary that the model
// writes. It waits for the end of a turn under way. History and the journal keep every turn.
func (w *Worker) Compact(ctx context.Context) (*Compaction, error) {
	c, err := ask[*messages.Compacted](ctx, w.rt, w.session, &messages.CompactHistory{WorkerId: w.id, By: "program"})
	if err != nil {
		return nil, err
	}
	return &Compaction{
		UptoSeq: c.GetUptoSeq(), TokensBefore: c.GetTokensBefore(), TokensAfter: c.GetTokensAfter(), Fallback: c.GetFallback(), Reason: c.GetReason(),
	}, nil
}

// Call runs one tool in the session for the program: with the same context, policy and journal
// as an agent's call, in its place in the queue of turns.
func (w *Worker) Call(ctx context.Context, tool string, args any) (*messages.ToolReply, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("encode arguments of %s: %w", tool, err)
	}
	return ask[*messages.ToolReply](ctx, w.rt, w.session, &messages.CallTool{
		WorkerId: w.id, Tool: tool, Arguments: string(raw), CallId: messages.NewID("call_"),
	})
}

// Cancel ends the open turn, and that of a Session those of all its workers; when it returns, nothing of them runs any
// more. Prompts that wait for their turn stay. What was said so far is kept, and marked as cut off.
func (w *Worker) Cancel(ctx context.Context) error {
	_, err := ask[*messages.Cancelled](ctx, w.rt, w.session, &messages.CancelSession{WorkerId: w.id, By: "program"})
	return err
}

// History returns the finished exchanges as a value: nothing that happens later changes it.
func (w *Worker) History(ctx context.Context) (*messages.History, error) {
	return ask[*messages.History](ctx, w.rt, w.session, &messages.ReadHistory{WorkerId: w.id})
}

// SetModel changes the model of later generations.
func (w *Worker) SetModel(ctx context.Context, name string) error {
	_, err := ask[*messages.WorkerView](ctx, w.rt, w.session, &messages.ConfigureWorker{WorkerId: w.id, Model: name})
	return err
}

// SetMCP offers the tools of the agent's MCP servers to the worker from the next turn on, or no longer does.
func (w *Worker) SetMCP(ctx context.Context, on bool) error {
	word := map[bool]string{true: "on", false: "off"}[on]
	_, err := ask[*messages.WorkerView](ctx, w.rt, w.session, &messages.ConfigureWorker{WorkerId: w.id, Mcp: word})
	return err
}

// SetTools gives the worker a toolset of its own: the tools named, and no others, where the trust in a workspace allows them; AgentTools alone
// gives it that of its agent again. It is durable when SetTools returns, the next model call is offered it, and of
// calls that wait those of other tools are refused.
func (w *Worker) SetTools(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return messages.Fail(messages.CodeBadRequest, "no tools are named", "name some, or AgentTools")
	}
	_, err := ask[*messages.WorkerView](ctx, w.rt, w.session, &messages.ConfigureWorker{WorkerId: w.id, Tools: names, By: "program"})
	return err
}

// AgentTools stands for the toolset of a worker's agent.
const AgentTools = conversation.AgentsTools

// ask sends a command to a session, through the Supervisor, which finds or starts it.
func ask[T any](ctx context.Context, rt *Runtime, session string, cmd any) (T, error) {
	m, err := toSession(session, cmd)
	if err != nil {
		var zero T
		return zero, err
	}
	return send[T](ctx, rt, m)
}

// send asks the Supervisor. A message that reached an actor just as it ended was not delivered: it is
// sent again, to the successor.
func send[T any](ctx context.Context, rt *Runtime, m proto.Message) (T, error) {
	if err := rt.room(m); err != nil {
		var zero T
		return zero, err
	}
	m = rt.carry(ctx, m)
	for try := 1; ; try++ {
		r, err := act.Ask[T](ctx, rt.sys, rt.root, m)
		if !errors.Is(err, act.ErrGone) {
			return r, err
		}
		if try == 10 {
			return r, messages.Fail(messages.CodeUnavailable, "the session is restarting", "try again")
		}
		pause := time.NewTimer(time.Duration(try) * 5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return r, context.Cause(ctx)
		}
	}
}

func toSession(session string, cmd any) (*messages.ToSession, error) {
	m := &messages.ToSession{SessionId: session}
	switch x := cmd.(type) {
	case *messages.SubmitInput:
		m.Command = &messages.ToSession_Submit{Submit: x}
	case *messages.RunInput:
		m.Command = &messages.ToSession_Run{Run: x}
	case *messages.AwaitTurn:
		m.Command = &messages.ToSession_AwaitTurn{AwaitTurn: x}
	case *messages.CancelSession:
		m.Command = &messages.ToSession_Cancel{Cancel: x}
	case *messages.CallTool:
		m.Command = &messages.ToSession_CallTool{CallTool: x}
	case *messages.DescribeSession:
		m.Command = &messages.ToSession_Describe{Describe: x}
	case *messages.Subscribe:
		m.Command = &messages.ToSession_Subscribe{Subscribe: x}
	case *messages.UseFile:
		m.Command = &messages.ToSession_UseFile{UseFile: x}
	case *messages.AttachWorkspace:
		m.Command = &messages.ToSession_AttachWorkspace{AttachWorkspace: x}
	case *messages.AddBudget:
		m.Command = &messages.ToSession_AddBudget{AddBudget: x}
	case *messages.DiffCopy:
		m.Command = &messages.ToSession_DiffCopy{DiffCopy: x}
	case *messages.ApplyCopy:
		m.Command = &messages.ToSession_ApplyCopy{ApplyCopy: x}
	case *messages.DetachWorkspace:
		m.Command = &messages.ToSession_DetachWorkspace{DetachWorkspace: x}
	case *messages.ReadFields:
		m.Command = &messages.ToSession_ReadFields{ReadFields: x}
	case *messages.SetField:
		m.Command = &messages.ToSession_SetField{SetField: x}
	case *messages.DeclareFields:
		m.Command = &messages.ToSession_DeclareFields{DeclareFields: x}
	case *messages.SpawnWorker:
		m.Command = &messages.ToSession_SpawnWorker{SpawnWorker: x}
	case *messages.SaveHistory:
		m.Command = &messages.ToSession_Save{Save: x}
	case *messages.CompactHistory:
		m.Command = &messages.ToSession_Compact{Compact: x}
	case *messages.ReadHistory:
		m.Command = &messages.ToSession_History{History: x}
	case *messages.SetTimer:
		m.Command = &messages.ToSession_SetTimer{SetTimer: x}
	case *messages.CancelTimer:
		m.Command = &messages.ToSession_CancelTimer{CancelTimer: x}
	case *messages.ListTimers:
		m.Command = &messages.ToSession_ListTimers{ListTimers: x}
	case *messages.ConfigureWorker:
		m.Command = &messages.ToSession_Configure{Configure: x}
	default:
		return m, aboutShared(m, cmd)
	}
	return m, nil
}

// aboutShared is toSession for what is about shared conversations.
func aboutShared(m *messages.ToSession, cmd any) error {
	switch x := cmd.(type) {
	case *messages.ShareConversation:
		m.Command = &messages.ToSession_ShareConversation{ShareConversation: x}
	case *messages.TakeTurn:
		m.Command = &messages.ToSession_TakeTurn{TakeTurn: x}
	case *messages.SubmitTurn:
		m.Command = &messages.ToSession_SubmitTurn{SubmitTurn: x}
	case *messages.ReadConversation:
		m.Command = &messages.ToSession_ReadConversation{ReadConversation: x}
	case *messages.AwaitSharedTurn:
		m.Command = &messages.ToSession_AwaitSharedTurn{AwaitSharedTurn: x}
	case *messages.WithdrawTurn:
		m.Command = &messages.ToSession_WithdrawTurn{WithdrawTurn: x}
	default:
		return errors.New("command is not one for a session")
	}
	return nil
}
