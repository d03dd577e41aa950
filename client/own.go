package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/messages"
)

// Owner runs calls where their workspace is. It means what the house means by it.
type Owner = interface {
	Deliver(ctx context.Context, call *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error)
	Cancel(execID string)
	Settle(execID string, attempt uint32)
}

// previewer is an Owner that shows what a call would change.
type previewer interface {
	Preview(ctx context.Context, call *messages.Execute) (*messages.ToolReply, error)
}

// Ownership is a folder of this machine that a session works in. Session, Workspace and Owner are required.
type Ownership struct {
	Session   string
	Workspace string // HOST:PATH
	Name      string // in the session; "": as the session names it
	Trust     string // full | restricted
	Tools     []string
	Steal     bool   // take the place of another program
	Client    string // the same for all connections of a program
	Program   string // for people

	Owner Owner
	// Stop ends the calls that run, and waits for them: what they came to is still told. May be nil.
	Stop func()
	// Approve is put the approvals that the session asks, one after the other; nil is no answer. It ends with ctx when somebody else was first. nil: they are
	// not shown.
	Approve func(ctx context.Context, v *messages.ApprovalView) *messages.ResolveApproval
	// Attached is told of each connection.
	Attached func(f *messages.AttachFrame)
	// Refused is told what the server does not take; may be nil.
	Refused func(f *messages.ErrorFrame)
	Ping    time.Duration // between pings; default 15 s
}

const (
	ownPing   = 15 * time.Second
	ownWrite  = 30 * time.Second
	ownLeave  = 2 * time.Second // for a server to hear that the owner leaves
	ownMost   = 64              // calls at the same time
	pingTries = 2
)

// ErrLost says that a connection to the server ended: calls that it gave out may come again by the next one.
var ErrLost = errors.New("the connection to the server was lost")

// owning is one connection of an owner.
type owning struct {
	o     *Ownership
	ws    *websocket.Conn
	ctx   context.Context //nolint:containedctx // as long as the connection
	end   context.CancelCauseFunc
	tasks sync.WaitGroup // that end with the connection
	calls sync.WaitGroup
	room  chan struct{}

	write sync.Mutex
	mu    sync.Mutex
	asks  map[string]context.CancelFunc // approvals that are shown
	over  map[string]bool               // that were answered before they were
	queue chan *messages.ApprovalView
	left  chan struct{} // closed: the server knows that the owner leaves

	answers map[string]*messages.ApprovalResponseFrame // that were given and are not known to have counted
	refused map[string]int                             // by what was said: how often in a row the server had no room for it; of the reader alone
	untold  map[string]bool                            // jobs that it had no room for, and that are told of again soon
	again   sync.Mutex                                 // held while they are

	telling sync.Mutex      // of jobs: their words keep their order
	ended   map[string]bool // those that have, since the jobs were read that are told of again; nil: none are

	keeps   bool   // the server looks after jobs; of the reader alone, as what follows
	unwatch func() // ends what tells of jobs
}

// Own makes the caller the owner of a workspace for as long as one connection lasts. A refusal of the server is a *messages.Failure; ErrLost
// says that another connection may go on where this one ended; when ctx ends, the owner has left for good, and the error is ctx's.
func (c *Client) Own(ctx context.Context, o *Ownership) error {
	ws, err := c.socket(ctx)
	if err != nil {
		return err
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	x := &owning{
		o: o, ws: ws, ctx: life, end: end, room: make(chan struct{}, ownMost), asks: make(map[string]context.CancelFunc), over: make(map[string]bool),
		answers: make(map[string]*messages.ApprovalResponseFrame), refused: make(map[string]int), untold: make(map[string]bool), queue: make(chan *messages.ApprovalView, 256), left: make(chan struct{}),
	}
	ws.SetReadLimit(messages.MaxFrame)
	err = x.serve(ctx)
	end(err)
	_ = ws.CloseNow() // it is over on either side
	x.calls.Wait()
	x.tasks.Wait()
	if x.unwatch != nil {
		x.unwatch()
	}
	return err
}

// socket opens a WebSocket to the server.
func (c *Client) socket(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	h := http.Header{}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	ws, res, err := websocket.Dial(ctx, strings.Replace(c.origin, "http", "ws", 1)+"/ws", &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: h}) //nolint:bodyclose // the library closes it, unless it is read below
	if err == nil {
		return ws, nil
	}
	if res != nil && res.StatusCode >= http.StatusBadRequest && res.Body != nil {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what was read is told
		return nil, refusal(res, body)
	}
	return nil, fmt.Errorf("%w: %w", ErrLost, err)
}

func (x *owning) serve(ctx context.Context) error {
	features := []string{messages.FeatureErrorCode, messages.FeatureProgress}
	if _, shows := x.o.Owner.(previewer); shows {
		features = append(features, messages.FeaturePreview)
	}
	if x.jobs() != nil {
		features = append(features, messages.FeatureJobs)
	}
	if x.o.Approve != nil {
		features = append(features, messages.FeatureApprovals)
		x.tasks.Go(x.ask)
	}
	x.send(&messages.HelloFrame{Version: messages.FrameVersion, Client: x.o.Client, Name: x.o.Program, Features: features}) //nolint:contextcheck // the connection has a context of its own
	x.send(&messages.AttachFrame{                                                                                           //nolint:contextcheck // the connection has a context of its own
		Session: x.o.Session, Workspace: x.o.Workspace, Name: x.o.Name, Trust: x.o.Trust, Tools: x.o.Tools, Steal: x.o.Steal, Jobs: x.announced(),
	})
	x.tasks.Go(x.ping)
	read := make(chan error, 1)
	x.tasks.Go(func() { read <- x.read() }) //nolint:contextcheck // the connection has a context of its own
	select {
	case err := <-read:
		return err
	case <-ctx.Done():
	}
	if x.o.Stop != nil {
		x.o.Stop()
	}
	x.calls.Wait()
	x.send(&messages.AttachFrame{Session: x.o.Session, Workspace: x.o.Workspace, Leave: true}) //nolint:contextcheck // the connection has a context of its own
	t := time.NewTimer(ownLeave)
	defer t.Stop()
	select {
	case <-x.left:
	case <-read: //nolint:errcheck // how it ends does not matter any more
	case <-t.C:
	}
	return ctx.Err()
}

// read takes frames until the connection ends, or the server refuses it.
func (x *owning) read() error {
	for {
		_, b, err := x.ws.Read(x.ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		f, err := messages.DecodeFrame(b)
		if err != nil {
			continue // of a newer server: who sent it learns nothing from a refusal
		}
		switch f := f.(type) {
		case *messages.AttachFrame:
			if f.Leave {
				close(x.left)
				return ErrLost
			}
			x.tellJobs()
			if x.o.Attached != nil {
				x.o.Attached(f)
			}
		case *messages.HelloFrame:
			x.keeps = slices.Contains(f.Features, messages.FeatureJobs)
		case *messages.ErrorFrame:
			if f.About == messages.FrameAttach || f.About == messages.FrameHello {
				return messages.Fail(f.Code, f.Message, f.Hint)
			}
			if !x.sayAgain(f) && x.o.Refused != nil {
				x.o.Refused(f)
			}
		case *messages.ToolCallFrame:
			x.call(f)
		case *messages.RequestResolvedFrame:
			x.resolved(f)
		case *messages.ApprovalRequestFrame:
			x.approval(f)
		case *messages.PingFrame:
			if !f.Pong {
				x.send(&messages.PingFrame{ID: f.ID, Pong: true})
			}
		}
	}
}

// call runs a call, or finds out what became of it, and says so.
func (x *owning) call(f *messages.ToolCallFrame) {
	m := execute(f)
	m.KeepsJobs = x.keeps
	select {
	case x.room <- struct{}{}:
	default:
		text := "Tool execution failed: the owner of the workspace has too many calls under way"
		x.send(&messages.ToolResultFrame{CallID: f.CallID, Error: &text, ErrorCode: messages.CodeBusy})
		return
	}
	x.calls.Go(func() {
		defer func() { <-x.room }()
		if f.Preview {
			x.preview(f, m)
			return
		}
		r, err := x.o.Owner.Deliver(x.ctx, m, func(p *messages.Progress) {
			x.send(&messages.ProgressFrame{CallID: f.CallID, Done: p.GetDone(), Total: p.GetTotal(), Unit: p.GetUnit(), Text: p.GetText()})
		})
		if err != nil {
			return // the connection has ended: it is delivered again by the next one
		}
		x.send(messages.ResultOf(f.CallID, r))
	})
}

// preview says what a call would change. It never runs it, whatever the owner is.
func (x *owning) preview(f *messages.ToolCallFrame, m *messages.Execute) {
	p, shows := x.o.Owner.(previewer)
	if !shows {
		text := "Tool execution failed: the owner of the workspace shows nothing"
		x.send(&messages.ToolResultFrame{CallID: f.CallID, Error: &text, ErrorCode: messages.CodeInvalidMessage})
		return
	}
	if r, err := p.Preview(x.ctx, m); err == nil {
		x.send(messages.ResultOf(f.CallID, r))
	}
}

// execute is a call as an owner takes it.
func execute(f *messages.ToolCallFrame) *messages.Execute {
	m := &messages.Execute{
		ExecId: f.ExecID, Attempt: f.Attempt, CallId: f.CallID, Tool: f.ToolName, Arguments: string(f.Arguments), SessionId: f.Session, WorkerId: f.Worker,
		Agent: f.Agent, TimeoutMs: f.TimeoutMs, Workspace: &messages.WorkspaceGrant{Uri: f.Workspace}, ApprovalId: f.ApprovalID, ApprovedBy: f.ApprovedBy,
		RequiresApproval: f.Asks(), Preview: f.Preview, ApprovedFiles: messages.FileHashesOf(f.ApprovedFiles), ApprovedEdited: f.ApprovedEdited,
		KnownFiles: messages.FileHashesOf(f.KnownFiles),
	}
	if m.GetExecId() == "" { // of a server that knows no executions
		m.ExecId, m.Attempt = f.CallID, 1
	}
	if m.GetArguments() == "" || m.GetArguments() == "null" {
		m.Arguments = "{}"
	}
	return m
}

func (x *owning) resolved(f *messages.RequestResolvedFrame) {
	switch {
	case f.ApprovalID != "":
		x.answered(f.ApprovalID)
		x.mu.Lock()
		if cancel := x.asks[f.ApprovalID]; cancel != nil {
			cancel()
		} else {
			x.over[f.ApprovalID] = true
		}
		x.mu.Unlock()
	case f.State == messages.CallCancelled && strings.HasPrefix(f.CallID, messages.JobPrefix):
		if o := x.jobs(); o != nil {
			o.EndJob(f.CallID, cmp.Or(f.Reason, "the server wants it to end"))
		}
	case f.State == messages.CallCancelled:
		exec, _ := splitWireID(f.CallID)
		x.o.Owner.Cancel(exec)
	case f.State == messages.CallSettled:
		delete(x.refused, f.CallID)
		x.o.Owner.Settle(splitWireID(f.CallID))
	}
}

// splitWireID takes the id of a call on the wire apart.
func splitWireID(id string) (exec string, attempt uint32) {
	exec, n, more := strings.Cut(id, ".")
	if attempt = 1; more {
		if _, err := fmt.Sscanf(n, "%d", &attempt); err != nil {
			return id, 1
		}
	}
	return exec, attempt
}

// approval queues one to be shown.
func (x *owning) approval(f *messages.ApprovalRequestFrame) {
	v := f.Approval.Proto()
	select {
	case x.queue <- v:
	default: // more than anybody reads; others may answer them
	}
}

// ask puts approvals one after the other.
func (x *owning) ask() {
	for {
		var v *messages.ApprovalView
		select {
		case v = <-x.queue:
		case <-x.ctx.Done():
			return
		}
		ctx, cancel := context.WithCancel(x.ctx)
		x.mu.Lock()
		over := x.over[v.GetApprovalId()]
		delete(x.over, v.GetApprovalId())
		x.asks[v.GetApprovalId()] = cancel
		x.mu.Unlock()
		var m *messages.ResolveApproval
		if !over {
			m = x.o.Approve(ctx, v)
		}
		cancel()
		x.mu.Lock()
		delete(x.asks, v.GetApprovalId())
		x.mu.Unlock()
		if m != nil {
			f := &messages.ApprovalResponseFrame{ApprovalID: v.GetApprovalId(), AnswerJSON: *messages.AnswerFrom(m)}
			x.mu.Lock()
			x.answers[f.ApprovalID] = f
			x.mu.Unlock()
			x.send(f)
		}
	}
}

// send writes a frame. A connection that does not take it is over.
func (x *owning) send(f messages.Frame) {
	b, err := messages.EncodeFrame(f)
	if err == nil && len(b) > messages.MaxFrame {
		if r, ok := f.(*messages.ToolResultFrame); ok {
			text := "Tool execution failed: the result is too large to be sent"
			b, err = messages.EncodeFrame(&messages.ToolResultFrame{CallID: r.CallID, Error: &text, ErrorCode: messages.CodeMessageTooLarge})
		}
	}
	if err != nil {
		x.end(err)
		return
	}
	x.write.Lock()
	defer x.write.Unlock()
	ctx, cancel := context.WithTimeout(x.ctx, ownWrite)
	defer cancel()
	if err := x.ws.Write(ctx, websocket.MessageText, b); err != nil {
		x.end(fmt.Errorf("%w: %w", ErrLost, err))
	}
}

// ping makes sure that the server is there.
func (x *owning) ping() {
	every := x.o.Ping
	if every <= 0 {
		every = ownPing
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for missed := 0; missed < pingTries; {
		select {
		case <-t.C:
		case <-x.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(x.ctx, every)
		err := x.ws.Ping(ctx)
		cancel()
		missed++
		if err == nil {
			missed = 0
		}
	}
	x.end(fmt.Errorf("%w: it answers no ping", ErrLost))
}
