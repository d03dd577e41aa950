package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/messages"
)

// The WebSocket protocol (docs/ws.md): clients take part in sessions, answer approvals, and own workspaces of their machines. What is pending belongs to
// the workers: a connection holds nothing that is not asked again of the next one.

const (
	defaultPing = 15 * time.Second // between pings
	pingMisses  = 2                // after so many without an answer the connection is closed
	queueFrames = 512              // that wait to be sent; a client that is slower is dropped
	queueBytes  = 4 * messages.MaxFrame
	maxOwnCalls = 16 // that one connection has under way in sessions
	maxSessions = 64 // that one connection takes part in
	queueWords  = 64 // of an owner, that wait to be heard
)

// WorkspaceOwner is a connection to the machine that owns a workspace; it means what the house means by it.
type WorkspaceOwner = interface {
	Deliver(ctx context.Context, call *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error)
	Cancel(execID string)
	Settle(execID string, attempt uint32)
}

// Owners is a Backend that takes owners of workspaces on other machines.
type Owners interface {
	// ConnectOwner makes a connection the owner of a workspace of a session, until leave, for good or not. A refusal is a *messages.Failure.
	ConnectOwner(ctx context.Context, m *messages.ConnectOwner, owner WorkspaceOwner) (epoch uint64, leave func(forGood bool), err error)
}

// OwnedJobs is a Backend that looks after what calls left running on the machines of owners.
type OwnedJobs interface {
	// OwnedJob takes what an owner says of a job. A refusal is a *messages.Failure.
	OwnedJob(ctx context.Context, m *messages.OwnedJob) error
}

// sockets are the open WebSockets.
type sockets struct {
	open sync.WaitGroup

	mu      sync.Mutex
	calls   map[string]*ownedCall // that owners run, by their id on the wire
	results answered
}

// conn is one WebSocket.
type conn struct {
	a     *api
	ws    *websocket.Conn
	who   Principal
	ctx   context.Context //nolint:containedctx // as long as the connection
	close context.CancelCauseFunc
	tasks sync.WaitGroup

	client, name string
	features     []string
	greeted      bool // by a hello, or by the first other frame

	queue  chan []byte
	qmu    sync.Mutex
	queued int // bytes

	mu       sync.Mutex
	sessions map[string]bool              // that it takes part in
	owned    map[place]func(forGood bool) // that it owns
	epochs   map[place]uint64             // of those
	leaving  map[place]bool               // those that are left for good, as soon as what was said before is heard
	robbed   map[place]int                // how often another program has taken one of them
	calls    int                          // of its own, under way

	words chan func() // of an owner about its jobs, and that it leaves: in their order, off the reader
}

type place struct{ session, uri string }

var (
	errSlow   = errors.New("the client reads too slowly")
	errSilent = errors.New("the client answers no ping")
)

// socket serves one WebSocket, until either side closes it.
func (a *api) socket(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		a.problem(w, r, http.StatusForbidden, messages.Fail(messages.CodeBadRequest, "the WebSocket was opened by a page of another origin", ""))
		return
	}
	if err := upgrades(r); err != nil {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		a.problem(w, r, http.StatusUpgradeRequired, messages.Fail(messages.CodeBadRequest, err.Error(), "open it as a WebSocket (RFC 6455, version 13)"))
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the origin was checked: sameOrigin
	if err != nil {
		a.log.Debug("websocket was not accepted", "err", err)
		return
	}
	a.ws.open.Add(1)
	defer a.ws.open.Done()
	ws.SetReadLimit(-1) // it is held below, where it can be said
	stop, end := a.untilStopped(context.WithoutCancel(r.Context()))
	defer end()
	ctx, cancel := context.WithCancelCause(stop)
	unwatch := context.AfterFunc(r.Context(), func() { //nolint:contextcheck // it is of the request: a token that is revoked ends its WebSocket
		if why := context.Cause(r.Context()); errors.As(why, new(*messages.Failure)) {
			cancel(why)
		}
	})
	defer unwatch()
	c := &conn{
		a: a, ws: ws, who: PrincipalOf(r.Context()), ctx: ctx, close: cancel, queue: make(chan []byte, queueFrames),
		sessions: make(map[string]bool), owned: make(map[place]func(bool)), epochs: make(map[place]uint64), leaving: make(map[place]bool), robbed: make(map[place]int), words: make(chan func(), queueWords),
	}
	c.spawn(c.hearOwner)
	c.spawn(c.write)
	c.spawn(c.ping)
	c.spawn(func() {
		<-ctx.Done()
		c.bye(context.Cause(ctx))
	})
	cancel(c.read(context.WithoutCancel(ctx))) // its end is that of the WebSocket, so that a last word can be said
	c.leaveAll()
	c.tasks.Wait()
}

// upgrades refuses what opens no WebSocket, in words of this API; the library would answer with a text.
func upgrades(r *http.Request) error {
	has := func(header, word string) bool {
		return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values(header), ","), ","), func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), word) })
	}
	keys := r.Header.Values("Sec-WebSocket-Key")
	key := ""
	if len(keys) == 1 {
		key = strings.TrimSpace(keys[0])
	}
	raw, err := base64.StdEncoding.DecodeString(key)
	switch {
	case !r.ProtoAtLeast(1, 1), !has("Connection", "Upgrade"), !has("Upgrade", "websocket"):
		return errors.New("this address is a WebSocket, and the request does not ask for one")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return errors.New("this version of the WebSocket protocol is not spoken")
	case err != nil || len(raw) != 16:
		return errors.New("Sec-WebSocket-Key is not 16 bytes in base64")
	}
	return nil
}

// sameOrigin refuses pages of other origins. The guard lets a GET of theirs pass, since no page may read what it answers; but
// a browser opens a WebSocket for any page, and the page reads and writes what goes over it.
func sameOrigin(r *http.Request) error {
	asked := r.Clone(r.Context())
	asked.Method = http.MethodPost // one that changes something
	return http.NewCrossOriginProtection().Check(asked)
}

// spawn runs a part of the connection, which ends with it.
func (c *conn) spawn(fn func()) {
	c.tasks.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.a.log.Error("websocket panicked", "err", p)
				c.close(errors.New("the connection failed in a way that nobody expected"))
			}
		}()
		fn()
	})
}

// bye closes the WebSocket and says why.
func (c *conn) bye(why error) {
	status, text := websocket.StatusNormalClosure, ""
	switch {
	case errors.Is(why, errStopping):
		status, text = websocket.StatusGoingAway, "the server is stopping"
	case errors.Is(why, errSlow), errors.Is(why, errSilent), errors.As(why, new(*messages.Failure)):
		status, text = websocket.StatusPolicyViolation, why.Error()
	case errors.Is(why, errTooLarge):
		status, text = websocket.StatusMessageTooBig, why.Error()
	}
	if status == websocket.StatusNormalClosure || errors.Is(why, errSlow) {
		_ = c.ws.CloseNow() // the other side closed it, or does not listen
		return
	}
	_ = c.ws.Close(status, text) // it may be gone
}

// read takes frames one after the other. None of them is waited for here: pongs come by the same way.
func (c *conn) read(ctx context.Context) error {
	for {
		_, r, err := c.ws.Reader(ctx)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(r, messages.MaxFrame+1))
		switch {
		case err != nil:
			return err
		case len(b) > messages.MaxFrame:
			c.now(&messages.ErrorFrame{Code: messages.CodeMessageTooLarge, Message: errTooLarge.Error(), Hint: "send less, or in parts"}) //nolint:contextcheck // the connection has a context of its own
			return errTooLarge
		}
		f, err := messages.DecodeFrame(b)
		if err != nil {
			c.refuse(&messages.ErrorFrame{}, err)
			continue
		}
		c.take(f) //nolint:contextcheck // the connection has a context of its own
	}
}

var errTooLarge = errors.New("a frame has at most 8 MiB")

// take is the dispatch table.
func (c *conn) take(f messages.Frame) {
	if hello, ok := f.(*messages.HelloFrame); ok {
		c.hello(hello)
		return
	}
	c.greeted = true
	switch f := f.(type) {
	case *messages.AttachFrame:
		c.attach(f)
	case *messages.ToolCallFrame:
		c.call(f)
	case *messages.ToolResultFrame:
		c.result(f)
	case *messages.ApprovalResponseFrame:
		c.approve(f)
	case *messages.ProgressFrame:
		c.progress(f)
	case *messages.JobFrame:
		c.job(f)
	case *messages.PingFrame:
		if !f.Pong {
			c.send(&messages.PingFrame{ID: f.ID, Pong: true})
		}
	case *messages.ErrorFrame:
		c.a.log.Debug("a client says that something is wrong", "code", f.Code)
	default:
		c.refuse(&messages.ErrorFrame{About: f.FrameType()}, messages.Fail(messages.CodeInvalidMessage, "frame "+f.FrameType()+" is for clients", ""))
	}
}

// hello agrees on a version and on what both know. Only the first frame can.
func (c *conn) hello(f *messages.HelloFrame) {
	switch {
	case c.greeted:
		c.refuse(&messages.ErrorFrame{About: f.FrameType()}, messages.Fail(messages.CodeInvalidMessage, "hello is the first frame, once", ""))
		return
	case f.Version < 1:
		c.refuse(&messages.ErrorFrame{About: f.FrameType()}, messages.Fail(messages.CodeInvalidMessage, "hello names no version", "this server speaks version 1"))
		return
	}
	c.greeted = true
	c.client, c.name = f.Client, f.Name
	for _, known := range []string{messages.FeatureApprovals, messages.FeatureErrorCode, messages.FeatureEvents, messages.FeatureProgress, messages.FeaturePreview, messages.FeatureJobs} {
		if slices.Contains(f.Features, known) && (known != messages.FeatureJobs || c.a.keepsJobs()) {
			c.features = append(c.features, known)
		}
	}
	c.send(&messages.HelloFrame{Version: min(f.Version, messages.FrameVersion), Name: "troupe " + c.a.opts.Version, Features: c.features})
}

func (c *conn) has(feature string) bool { return slices.Contains(c.features, feature) }

// refuse says what is wrong with a frame.
func (c *conn) refuse(f *messages.ErrorFrame, err error) {
	var refused *messages.Failure
	if !errors.As(err, &refused) {
		if c.ctx.Err() != nil {
			return
		}
		c.a.log.Error("frame failed", "frame", f.About, "err", err)
		refused = messages.Fail(messages.CodeInternal, err.Error(), "")
	}
	f.Code, f.Message, f.Hint = refused.GetCode(), refused.GetMessage(), refused.GetHint()
	c.send(f)
}

// send queues a frame. A client that does not keep up is dropped.
func (c *conn) send(f messages.Frame) {
	b, err := messages.EncodeFrame(f)
	if err != nil {
		c.a.log.Error("frame cannot be encoded", "err", err)
		return
	}
	if len(b) > messages.MaxFrame { // the client would close the connection, and ask for it again
		c.refuse(&messages.ErrorFrame{About: f.FrameType()}, messages.Fail(messages.CodeMessageTooLarge, "a frame "+f.FrameType()+" has more than 8 MiB", "look at it over HTTP"))
		return
	}
	c.qmu.Lock()
	c.queued += len(b)
	full := c.queued > queueBytes
	c.qmu.Unlock()
	if !full {
		select {
		case c.queue <- b:
			return
		default:
		}
	}
	c.close(errSlow)
}

// now sends a last frame past the queue.
func (c *conn) now(f messages.Frame) {
	if b, err := messages.EncodeFrame(f); err == nil {
		ctx, cancel := c.within(writeTime)
		defer cancel()
		_ = c.ws.Write(ctx, websocket.MessageText, b) // the connection ends either way
	}
}

// within bounds what is written. The end of the connection does not end it: the library cuts the line off then, and no word of why could follow.
func (c *conn) within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.ctx), limit)
}

// write sends what is queued.
func (c *conn) write() {
	for {
		select {
		case b := <-c.queue:
			ctx, cancel := c.within(writeTime)
			err := c.ws.Write(ctx, websocket.MessageText, b)
			cancel()
			c.qmu.Lock()
			c.queued -= len(b)
			c.qmu.Unlock()
			if err != nil {
				c.close(errSlow)
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// ping makes sure that somebody is there.
func (c *conn) ping() {
	every := c.a.opts.Ping
	t := time.NewTicker(every)
	defer t.Stop()
	for missed := 0; missed < pingMisses; {
		select {
		case <-t.C:
		case <-c.ctx.Done():
			return
		}
		ctx, cancel := c.within(every)
		err := c.ws.Ping(ctx)
		cancel()
		missed++
		if err == nil {
			missed = 0
		}
	}
	c.close(errSilent)
}
