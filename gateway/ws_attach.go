package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// needs refuses what the connection's principal may not do.
func (c *conn) needs(s Scope) error {
	if c.who.May(s) {
		return nil
	}
	return messages.Fail(messages.CodeForbidden, "this needs scope "+string(s), "use a token that has it")
}

// attach makes the connection take part in a session, off the reader.
func (c *conn) attach(f *messages.AttachFrame) {
	if f.Leave {
		p := place{f.Session, f.Workspace}
		c.mu.Lock()
		if c.owned[p] != nil {
			c.leaving[p] = true
		}
		c.mu.Unlock()
		if !c.later(func() { c.leave(p) }) { // how its jobs ended is heard before
			c.leave(p)
		}
		return
	}
	if c.busy() {
		c.refuse(&messages.ErrorFrame{About: f.FrameType(), Session: f.Session}, messages.Fail(messages.CodeBusy, fmt.Sprintf("%d requests of the connection are under way", maxOwnCalls), "wait for one"))
		return
	}
	c.spawn(func() {
		defer c.done()
		err := c.attached(f)
		switch {
		case errors.Is(err, errRobbed): // which was said
		case err != nil:
			c.refuse(&messages.ErrorFrame{About: f.FrameType(), Session: f.Session}, err)
		default:
			c.watch(f)
		}
	})
}

// busy counts a request of the client's that takes its time; true: there are too many.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls >= maxOwnCalls {
		return true
	}
	c.calls++
	return false
}

func (c *conn) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
}

// attached makes the connection take part, and answers.
func (c *conn) attached(f *messages.AttachFrame) error {
	if err := errors.Join(printable("the session", f.Session), printable("the workspace", f.Workspace), c.needs(ScopeRead)); err != nil {
		return err
	}
	have, err := ask[*messages.Workspaces](c.asking(), c.a, &messages.ListWorkspaces{SessionId: f.Session})
	if f.Session == "" || err != nil {
		return orNoSession(err)
	}
	if !c.takesPart(f.Session) {
		return messages.Fail(messages.CodeBusy, fmt.Sprintf("a connection takes part in at most %d sessions", maxSessions), "open another one")
	}
	answer := &messages.AttachFrame{Session: f.Session}
	if f.Workspace == "" {
		c.send(answer)
		return nil
	}
	if err := c.needs(ScopePrompt); err != nil {
		return err
	}
	if err := elsewhere(have, f.Workspace); err != nil {
		return err
	}
	owners, ok := c.a.backend.(Owners)
	if _, takes := c.a.raw.(Owners); !ok || !takes {
		return messages.Fail(messages.CodeBadRequest, "this server takes no owners of workspaces", "")
	}
	g := ownedBy(have, f.Workspace)
	if g == nil {
		spec, err := (&messages.AttachJSON{URI: f.Workspace, Name: f.Name, Trust: f.Trust, Tools: f.Tools}).Proto()
		if err != nil {
			return err
		}
		g, err = ask[*messages.WorkspaceGrant](c.asking(), c.a, &messages.ToSession{SessionId: f.Session, Command: &messages.ToSession_AttachWorkspace{
			AttachWorkspace: &messages.AttachWorkspace{Workspace: spec, By: "owner"},
		}})
		if err != nil {
			return err
		}
	}
	m := &messages.ConnectOwner{SessionId: f.Session, Uri: g.GetUri(), Client: c.client, Steal: f.Steal, TokenId: c.who.Name}
	if c.has(messages.FeatureJobs) {
		for _, j := range f.Jobs {
			m.Jobs = append(m.Jobs, j.Proto())
		}
	}
	p := place{f.Session, g.GetUri()}
	before := c.robberies(p)
	epoch, leave, err := owners.ConnectOwner(c.asking(), m, c)
	if err != nil {
		return err
	}
	j := g.JSON()
	answer.Workspace, answer.Name, answer.Trust, answer.Epoch, answer.Attached = g.GetUri(), g.GetName(), j.Trust, epoch, &j
	if err := c.own(p, answer, leave, before); err != nil {
		leave(false)
		return err
	}
	return nil
}

// errRobbed: another program has taken the place before who attached was answered.
var errRobbed = errors.New("another program has taken the place meanwhile")

// robberies counts how often a place was taken from the connection.
func (c *conn) robberies(p place) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.robbed[p]
}

// takesPart says whether there is room for a session.
func (c *conn) takesPart(session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, already := c.sessions[session]
	switch {
	case already:
		return true
	case len(c.sessions) >= maxSessions:
		return false
	}
	c.sessions[session] = false // it counts from now on; what it sees begins with the answer
	return true
}

// elsewhere refuses an address that is not of another machine: who owns the server's own folders is no question of connections.
func elsewhere(have *messages.Workspaces, uri string) error {
	host, _, ok := strings.Cut(uri, ":")
	if !ok {
		return messages.Fail(messages.CodeInvalidURI, "workspace "+visible(uri)+" is no address HOST:PATH", "")
	}
	mine := strings.EqualFold(host, "local") || strings.EqualFold(host, "git")
	for _, w := range have.GetWorkspaces() {
		g := w.GetWorkspace()
		name, _, _ := strings.Cut(g.GetUri(), ":")
		mine = mine || g.GetKind() == "server" && strings.EqualFold(host, name)
	}
	if mine {
		return messages.Fail(messages.CodeDenied, "the host name "+visible(host)+" is the server's own", "use another name (`troupe attach --as NAME`)")
	}
	return nil
}

// asking is the context of what the connection asks of the house: with its principal.
func (c *conn) asking() context.Context { return context.WithValue(c.ctx, principalKey{}, c.who) }

func orNoSession(err error) error {
	if err != nil {
		return err
	}
	return messages.Fail(messages.CodeBadRequest, "attach names no session", "")
}

// ownedBy finds the workspace of another machine with an address.
func ownedBy(all *messages.Workspaces, uri string) *messages.WorkspaceGrant {
	for _, w := range all.GetWorkspaces() {
		if g := w.GetWorkspace(); g.GetUri() == uri && g.GetOwner() != "" {
			return g
		}
	}
	return nil
}

// own keeps a place of the connection, and answers who attached it, unless it was taken since, or the connection has ended. Both are done at once: whoever takes the
// place next says so behind the answer.
func (c *conn) own(p place, answer *messages.AttachFrame, leave func(bool), robberies int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.owned == nil:
		return context.Cause(c.ctx)
	case c.robbed[p] != robberies:
		return errRobbed
	}
	c.owned[p], c.epochs[p] = leave, answer.Epoch
	c.send(answer)
	return nil
}

// leave gives a place back for good.
func (c *conn) leave(p place) {
	c.mu.Lock()
	fn := c.owned[p]
	delete(c.owned, p)
	delete(c.epochs, p)
	delete(c.leaving, p)
	c.mu.Unlock()
	if fn != nil {
		fn(true)
	}
	c.send(&messages.AttachFrame{Session: p.session, Workspace: p.uri, Leave: true})
}

// Taken says that another program has a place now: nothing more comes to this one, and nothing that it says of the place is heard.
func (c *conn) Taken(session, uri string) {
	p := place{session, uri}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owned, p)
	delete(c.epochs, p)
	delete(c.leaving, p)
	c.robbed[p]++
	c.refuse(&messages.ErrorFrame{About: messages.FrameAttach, Session: session}, messages.Fail(messages.CodeConflict, "another program has taken the workspace "+uri+" of session "+session, "take it back with steal"))
}

// leaveAll gives every place back: the client may come back for those that it has not said it leaves.
func (c *conn) leaveAll() {
	c.mu.Lock()
	all, leaving := c.owned, c.leaving
	c.owned, c.leaving = nil, nil
	c.mu.Unlock()
	for p, fn := range all {
		fn(leaving[p])
	}
}

// lookAgain is how often what waits for an answer is listed anew: events tell sooner.
const lookAgain = 5 * time.Second

// watch shows the approvals of a session, and its events, to clients that announced that they can. Once per session.
func (c *conn) watch(f *messages.AttachFrame) {
	c.mu.Lock()
	again := c.sessions[f.Session]
	c.sessions[f.Session] = true
	c.mu.Unlock()
	if again || !c.has(messages.FeatureApprovals) && !c.has(messages.FeatureEvents) {
		return
	}
	after := uint64(messages.FromNow)
	if f.After != nil && *f.After < messages.FromNow {
		after = *f.After
	}
	w := &watch{conn: c, session: f.Session, shown: make(map[string]context.CancelFunc)}
	items := make(chan item)
	c.spawn(func() {
		defer close(items)
		c.a.each(c.ctx, f.Session, after, func(e *messages.Event, err error) bool {
			select {
			case items <- item{e, err}:
				return true
			case <-c.ctx.Done():
				return false
			}
		})
	})
	c.spawn(func() { w.run(items) })
}

// item is an event, or the error that is the last one.
type item struct {
	event *messages.Event
	err   error
}

// watch is what one connection sees of one session.
type watch struct {
	conn    *conn
	session string
	shown   map[string]context.CancelFunc // approvals that the client sees
}

func (w *watch) run(items <-chan item) {
	defer func() {
		for range items { // until who sends them has ended
		}
	}()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	w.list()
	for {
		select {
		case it, more := <-items:
			switch {
			case !more:
				return
			case it.err != nil:
				w.conn.refuse(&messages.ErrorFrame{About: messages.FrameEvent, Session: w.session}, it.err)
				return
			}
			w.event(it.event)
		case <-tick.C:
			w.list()
		case <-w.conn.ctx.Done():
			return
		}
	}
}

func (w *watch) event(e *messages.Event) {
	c := w.conn
	progress := e.GetType() == messages.EventToolProgress
	if c.has(messages.FeatureEvents) && (!progress || c.has(messages.FeatureProgress)) {
		c.send(&messages.EventFrame{Event: e})
	}
	switch e.GetType() {
	case messages.EventApprovalRequested:
		w.list()
	case messages.EventApprovalResolved:
		w.resolved(&messages.RequestResolvedFrame{ApprovalID: e.GetApprovalId(), Decision: e.GetDecision(), By: e.GetBy()})
	}
}

// list asks about everything that waits for an answer and was not asked yet.
func (w *watch) list() {
	c := w.conn
	if !c.has(messages.FeatureApprovals) || c.needs(ScopeApprove) != nil {
		return
	}
	all, err := ask[*messages.Approvals](c.asking(), c.a, &messages.ListApprovals{SessionId: w.session})
	if err != nil {
		return // asked again soon
	}
	waits := make(map[string]bool)
	for _, v := range all.GetApprovals() {
		waits[v.GetApprovalId()] = true
		if w.shown[v.GetApprovalId()] != nil {
			continue
		}
		c.send(&messages.ApprovalRequestFrame{Approval: v.JSON()})
		ctx, cancel := context.WithCancel(c.asking())
		w.shown[v.GetApprovalId()] = cancel
		c.spawn(func() { // noted for as long as the client is there
			_, _ = c.a.askAny(ctx, &messages.ShowApproval{ApprovalId: v.GetApprovalId(), By: c.called()})
		})
	}
	for id := range w.shown {
		if !waits[id] {
			w.resolved(&messages.RequestResolvedFrame{ApprovalID: id})
		}
	}
}

// resolved says that an approval waits no longer, once.
func (w *watch) resolved(f *messages.RequestResolvedFrame) {
	cancel := w.shown[f.ApprovalID]
	if cancel == nil {
		return
	}
	cancel()
	delete(w.shown, f.ApprovalID)
	w.conn.send(f)
}

// called is who the client is, for people: the name of its token, and what it calls itself.
func (c *conn) called() string {
	switch name := clip(c.name, 64); {
	case c.who.Name != "" && name != "":
		return c.who.Name + " (" + name + ")"
	case c.who.Name != "":
		return c.who.Name
	case name != "":
		return name
	}
	return "websocket"
}
