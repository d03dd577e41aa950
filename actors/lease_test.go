package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// probe is an actor of the test that asks for leases and permits, and keeps what it is told.
type probe struct {
	sys  *actor.ActorSystem
	pid  *actor.PID
	seen chan any
}

func newProbe(h *actortest.House) *probe {
	p := &probe{sys: h.Sys, seen: make(chan any, 4096)}
	p.pid = h.Sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started, *actor.Stopping, *actor.Stopped:
		default:
			p.seen <- m
		}
	}))
	return p
}

func (p *probe) send(to *actor.PID, m any) { p.sys.Root.RequestWithCustomSender(to, m, p.pid) }

func (p *probe) die(t testing.TB) {
	t.Helper()
	if err := p.sys.Root.StopFuture(p.pid).Wait(); err != nil {
		t.Fatal(err)
	}
}

// open makes the Workspace of an address.
func open(h *actortest.House, dir string) (uri string, pid *actor.PID) {
	id := strings.NewReplacer("/", "-", ":", "-").Replace(dir)
	uri = "local:" + dir
	actortest.Ask[*messages.WorkspaceReady](h, "", &messages.OpenWorkspace{Grant: &messages.WorkspaceGrant{Id: id, Uri: uri, Path: dir, Kind: "client"}})
	return uri, h.Sys.NewLocalPID("troupe/workspace-" + id)
}

func look(t testing.TB, h *actortest.House, ws *actor.PID) *messages.WorkspaceView {
	t.Helper()
	v, err := act.Ask[*messages.WorkspaceView](context.Background(), h.Sys, ws, &messages.DescribeWorkspace{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// granted waits for the grant of a request, passing over the notice that it is queued.
func (p *probe) granted(t testing.TB) *messages.LeaseGranted {
	t.Helper()
	for {
		switch m := actortest.Wait(t, "a lease", p.seen).(type) {
		case *messages.LeaseGranted:
			return m
		case *messages.LeaseQueued:
		default:
			t.Fatalf("instead of a lease: %T %v", m, m)
		}
	}
}

// TestLeasesAreFairAndExclusive drives one Workspace with arbitrary requests, releases, effects and
// deaths, and holds what it does against the queue as it was specified.
func TestLeasesAreFairAndExclusive(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	dirs := 0
	rapid.Check(t, func(rt *rapid.T) {
		dirs++
		uri, ws := open(h, fmt.Sprintf("/prop/%d", dirs))
		m := &queueModel{t: t, h: h, ws: ws, uri: uri}
		rt.Repeat(map[string]func(*rapid.T){
			"ask":     func(rt *rapid.T) { m.ask(rapid.Bool().Draw(rt, "shared")) },
			"release": func(rt *rapid.T) { m.pick(rt, m.release) },
			"die":     func(rt *rapid.T) { m.pick(rt, m.die) },
			"begin":   func(rt *rapid.T) { m.pick(rt, m.begin) },
			"end":     func(rt *rapid.T) { m.pick(rt, m.end) },
			"":        func(rt *rapid.T) { m.check(rt) },
		})
		m.close()
	})
}

// queueModel is the specification: who holds, who waits, in order of arrival.
type queueModel struct {
	t       testing.TB
	h       *actortest.House
	ws      *actor.PID
	uri     string
	held    []*claim
	queue   []*claim
	all     []*claim
	last    uint64
	request uint64
}

type claim struct {
	p        *probe
	holder   string
	request  uint64
	shared   bool
	token    uint64
	released bool
	dead     bool
	effects  map[string]bool
}

func (m *queueModel) ask(shared bool) {
	m.request++
	c := &claim{p: newProbe(m.h), holder: fmt.Sprint("wrk_", m.request), request: m.request, shared: shared, effects: map[string]bool{}}
	c.p.send(m.ws, &messages.AcquireLease{Workspace: m.uri, Holder: c.holder, Request: c.request, Shared: shared})
	m.queue, m.all = append(m.queue, c), append(m.all, c)
	m.settle()
}

// settle grants what the specification says: the head of the queue, when it may stand beside all holders.
func (m *queueModel) settle() {
	for i := 0; i < len(m.held); {
		if c := m.held[i]; c.released && len(c.effects) == 0 {
			m.held = append(m.held[:i:i], m.held[i+1:]...)
			continue
		}
		i++
	}
	for len(m.queue) > 0 {
		c := m.queue[0]
		for _, x := range m.held {
			if !x.shared || !c.shared {
				return
			}
		}
		m.queue, m.held = m.queue[1:], append(m.held, c)
		g := c.p.granted(m.t)
		if g.GetRequest() != c.request || g.GetToken() <= m.last {
			m.t.Fatalf("granted %v after token %d, want request %d", g, m.last, c.request)
		}
		c.token, m.last = g.GetToken(), g.GetToken()
	}
}

func (m *queueModel) pick(rt *rapid.T, fn func(*claim)) {
	if len(m.all) == 0 {
		rt.Skip("nobody has asked yet")
	}
	fn(rapid.SampledFrom(m.all).Draw(rt, "who"))
	m.settle()
}

func (m *queueModel) leave(c *claim) {
	c.released = true
	for i, q := range m.queue {
		if q == c {
			m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
			return
		}
	}
}

func (m *queueModel) release(c *claim) {
	if c.dead {
		return
	}
	c.p.send(m.ws, &messages.ReleaseLease{Workspace: m.uri, Token: c.token, Request: c.request, Holder: c.holder})
	m.leave(c)
}

func (m *queueModel) die(c *claim) {
	if c.dead {
		return
	}
	c.dead = true
	c.p.die(m.t)
	m.leave(c)
}

// begin starts an effect: allowed exactly to who holds an exclusive lease and has not given it back.
func (m *queueModel) begin(c *claim) {
	id := fmt.Sprint("exe_", len(c.effects), "_", c.request)
	_, err := act.Ask[*messages.EffectAllowed](context.Background(), m.h.Sys, m.ws, &messages.EffectBegun{Workspace: m.uri, Token: c.token, ExecId: id})
	if may := c.token != 0 && !c.released && !c.shared; may != (err == nil) {
		m.t.Fatalf("effect of %+v: %v", c, err)
	}
	if err == nil {
		c.effects[id] = true
	} else if code := actortest.Code(err); code != messages.CodeStaleLease && (code != messages.CodeDenied || !c.shared || c.released) {
		m.t.Fatalf("refused with %v", err)
	}
}

func (m *queueModel) end(c *claim) {
	for id := range c.effects {
		delete(c.effects, id)
		c.p.send(m.ws, &messages.EffectEnded{Workspace: m.uri, Token: c.token, ExecId: id})
		return
	}
}

func (m *queueModel) check(rt *rapid.T) {
	effects := 0
	for _, c := range m.held {
		effects += len(c.effects)
	}
	// A death is news that travels: the Workspace may hear of it after the test has.
	actortest.Until(m.t, "the workspace is as specified", func() bool {
		v := look(m.t, m.h, m.ws)
		return len(v.GetHolders()) == len(m.held) && int(v.GetWaiting()) == len(m.queue) && v.GetEffects() == int32(effects)
	})
	for _, c := range m.queue { // nobody overtook
		select {
		case x := <-c.p.seen:
			if g, ok := x.(*messages.LeaseGranted); ok {
				rt.Fatalf("%v granted out of turn", g)
			}
		default:
		}
	}
}

func (m *queueModel) close() {
	for _, c := range m.all {
		for len(c.effects) > 0 {
			m.end(c)
		}
		if !c.dead {
			c.p.die(m.t)
		}
	}
}

func TestARespawnedWorkspaceGivesHigherTokensAndKnowsNoOldOnes(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	uri, ws := open(h, "/a")
	p := newProbe(h)
	defer p.die(t)
	var last uint64
	for i := range 5 {
		var g *messages.LeaseGranted
		actortest.Until(t, "the successor answers", func() bool {
			p.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_1", Request: uint64(i)})
			var ok bool
			g, ok = actortest.Wait(t, "an answer", p.seen).(*messages.LeaseGranted)
			return ok
		})
		if g.GetToken() <= last {
			t.Fatalf("token %d after %d", g.GetToken(), last)
		}
		if last != 0 {
			_, err := act.Ask[*messages.EffectAllowed](context.Background(), h.Sys, ws, &messages.EffectBegun{Workspace: uri, Token: last, ExecId: "exe_1"})
			if actortest.Code(err) != messages.CodeStaleLease {
				t.Errorf("a token of the one before: %v", err)
			}
		}
		last = g.GetToken()
		if err := h.Sys.Root.StopFuture(ws).Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAWorkspaceThatStopsSaysSoToThoseWhoWait(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	uri, ws := open(h, "/a")
	first, second := newProbe(h), newProbe(h)
	defer first.die(t)
	defer second.die(t)
	first.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_1", Request: 1})
	first.granted(t)
	second.send(ws, &messages.AcquireLease{Workspace: uri, Holder: "wrk_2", Request: 1})
	if q, ok := actortest.Wait(t, "a place in the queue", second.seen).(*messages.LeaseQueued); !ok || q.GetAhead() != 1 {
		t.Fatalf("queued: %v", q)
	}
	h.Sys.Root.Stop(ws)
	if f, ok := actortest.Wait(t, "a refusal", second.seen).(*messages.Failure); !ok || f.GetCode() != messages.CodeUnavailable {
		t.Errorf("told %v", f)
	}
}
