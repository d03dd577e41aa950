// Package actortest runs the whole tree of actors in a test: real mailboxes, a store in memory
// whose appends can be held back or refused, and a model that is a function of the request.
package actortest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// Patience bounds every wait of a test: it is far beyond what anything here takes.
const Patience = 30 * time.Second

// Options of a house. The zero value has a model that says "ok" and the built-in tools.
type Options struct {
	Model   model.Model
	Models  actors.Models // instead of Model
	Store   persistence.Store
	DataDir string // homes and temporary folders; default: the test's own
	Tools   []tools.Tool
	Agents  []actors.Agent
	Limits  actors.Limits
	Log     slog.Handler
	Node    string
	Now     func() time.Time
	Clock   act.Clock // instead of Now

	Still, IgnoreTimers bool

	IdleAfter      time.Duration // 0: sessions stay in memory
	ProviderLimits map[string]actors.ProviderLimits
	Trim           time.Duration
	Copies         actors.Copies
	Redact         actors.Redactor // nil: there are no secrets
}

// House is a running tree of actors.
type House struct {
	Sys   *actor.ActorSystem
	Root  *actor.PID
	Svc   *actors.Services
	Store persistence.Store

	t      testing.TB
	sent   sent
	once   sync.Once
	failed chan error
}

// New starts a house. It is stopped at the end of the test, and complains when that takes too long.
func New(t testing.TB, o Options) *House {
	t.Helper()
	h := &House{t: t, Store: o.Store, failed: make(chan error, 16)}
	if h.Store == nil {
		s := memory.New()
		t.Cleanup(func() { _ = s.Close() })
		h.Store = s
	}
	registry, err := tools.NewRegistry(append(append(tools.Builtin(), actors.NewDelegate(names(o.Agents)), actors.NewHandoff(o.Agents), actors.NewSend()), o.Tools...)...)
	if err != nil {
		t.Fatal(err)
	}
	if o.Log == nil {
		o.Log = slog.DiscardHandler
	}
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	agents := map[string]actors.Agent{actors.DefaultAgent: {Name: actors.DefaultAgent, System: "You are a test."}}
	for _, a := range o.Agents {
		agents[a.Name] = a
	}
	if o.Models == nil {
		o.Models = One{o.Model}
	}
	h.Svc = &actors.Services{
		Store: h.Store, Models: o.Models, Tools: registry, Agents: agents, Log: slog.New(o.Log), Limits: o.Limits, Now: o.Now, Clock: o.Clock, Still: o.Still, IgnoreTimers: o.IgnoreTimers, IdleAfter: o.IdleAfter, ProviderLimits: o.ProviderLimits, Trim: o.Trim, Copies: o.Copies, Redact: o.Redact,
		Node: "test/" + o.Node, ServerName: "troupe", DataDir: o.DataDir, TempDir: o.DataDir + "/tmp",
		Env:   func(string, []*messages.EnvVar, messages.Trust_Level) ([]string, error) { return nil, nil },
		Fatal: func(err error) { h.failed <- err }, Sent: h.sent.see,
	}
	h.Sys = act.NewSystem(slog.New(o.Log), actor.WithDeadLetterThrottleInterval(time.Millisecond))
	if h.Root, err = actors.Start(h.Sys, h.Svc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	Ask[*messages.Tree](h, "", &messages.DescribeTree{}) // now its own children are there
	return h
}

func names(agents []actors.Agent) (out []string) {
	for _, a := range agents {
		out = append(out, a.Name)
	}
	return out
}

// Stop ends the house as a runtime does: the tree, then the goroutines of calls.
func (h *House) Stop() {
	h.once.Do(func() {
		if err := h.Sys.Root.StopFuture(h.Root).Wait(); err != nil {
			h.t.Errorf("stop the tree: %v", err)
		}
		h.Svc.Stop()
		drained := make(chan struct{})
		h.Svc.Drain(func() { close(drained) })
		select {
		case <-drained:
		case <-time.After(Patience):
			h.t.Error("goroutines of calls outlive the house")
			return
		}
		h.sent.check(h.t)
	})
}

// Failed delivers what the house called fatal.
func (h *House) Failed() <-chan error { return h.failed }

// Try asks the root, or when msg is a command of a session that session, and returns its reply.
func Try[T any](h *House, session string, msg proto.Message) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return act.Ask[T](ctx, h.Sys, h.Root, Command(session, msg))
}

// Ask is Try for what must not be refused.
func Ask[T any](h *House, session string, msg proto.Message) T {
	h.t.Helper()
	r, err := Try[T](h, session, msg)
	if err != nil {
		h.t.Fatalf("%T: %v", msg, err)
	}
	return r
}

// Answer is what an ask that was started came to.
type Answer[T any] struct {
	Reply T
	Err   error
}

// Later asks at once, so that what is asked afterwards comes behind it, and waits in a goroutine. The channel delivers
// exactly once.
func Later[T any](h *House, session string, msg proto.Message) <-chan Answer[T] {
	out := make(chan Answer[T], 1)
	wait := act.Asked[T](h.Sys, h.Root, Command(session, msg))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		r, err := wait(ctx)
		out <- Answer[T]{r, err}
	}()
	return out
}

// Wait takes what a channel delivers.
func Wait[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable") //nolint:forbidigo // Fatalf does not return
	}
}

// Until asks again and again until ok says so. There is no pause: every question is a message.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Code is the code of a refusal, "" of anything else.
func Code(err error) string {
	var f *messages.Failure
	if errors.As(err, &f) {
		return f.GetCode()
	}
	return ""
}

// Text is an input of one part.
func Text(text string) []*messages.Part {
	return []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}
}

// Create makes a session in a trusted folder of the test and returns its id and its first worker's.
func (h *House) Create(m *messages.CreateSession) (session, worker string) {
	h.t.Helper()
	if m.GetWorkspaces() == nil {
		m.Workspaces = []*messages.WorkspaceSpec{{Uri: "local:" + h.t.TempDir(), Trust: messages.Trust_FULL}}
	}
	v := Ask[*messages.SessionView](h, "", m)
	return v.GetId(), h.Worker(v.GetId()).GetId()
}

// Worker is the live view of a session's first worker.
func (h *House) Worker(session string) *messages.WorkerView {
	h.t.Helper()
	v := Ask[*messages.SessionView](h, session, &messages.DescribeSession{})
	if len(v.GetWorkers()) == 0 {
		return &messages.WorkerView{}
	}
	return v.GetWorkers()[0]
}

// State waits until the first worker of a session is in a state.
func (h *House) State(session, state string) {
	h.t.Helper()
	Until(h.t, "the worker is "+state, func() bool { return h.Worker(session).GetState() == state })
}

// Generating waits until the first worker of a session has begun a generation, and has asked for its permit.
func (h *House) Generating(session string) {
	h.t.Helper()
	Until(h.t, "a generation has begun", func() bool {
		return len(Of[*messages.GenerationStarted](h.Facts(h.Worker(session).GetId()))) > 0
	})
	Ask[*messages.Inputs](h, session, &messages.ListInputs{}) // waits while an append is under way
}

// Run sends a prompt and returns its turn's result.
func (h *House) Run(session, prompt string) *messages.TurnResult {
	h.t.Helper()
	in := Ask[*messages.InputReply](h, session, &messages.SubmitInput{Parts: Text(prompt)})
	return Ask[*messages.TurnResult](h, session, &messages.AwaitTurn{InputId: in.GetInputId()})
}

// Facts reads a worker's journal.
func (h *House) Facts(worker string) []proto.Message {
	h.t.Helper()
	var out []proto.Message
	err := h.Store.Read(context.Background(), messages.WorkerStream(worker), 1, func(e persistence.Entry) error {
		f, err := messages.WorkerFactIn(e.Record)
		out = append(out, f)
		return err
	})
	if err != nil {
		h.t.Fatalf("read the journal of %s: %v", worker, err)
	}
	return out
}

// Of picks the facts of one type.
func Of[T proto.Message](facts []proto.Message) []T {
	var out []T
	for _, f := range facts {
		if x, ok := f.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

// Command wraps a command for a session as surfaces do; with no session, msg goes to the root itself.
func Command(session string, msg proto.Message) proto.Message {
	if session == "" {
		return msg
	}
	m := &messages.ToSession{SessionId: session}
	r := m.ProtoReflect()
	fields := r.Descriptor().Oneofs().ByName("command").Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); fd.Message().FullName() == msg.ProtoReflect().Descriptor().FullName() {
			r.Set(fd, protoreflectValue(msg))
			return m
		}
	}
	panic(fmt.Sprintf("%T is no command of a session", msg)) //nolint:forbidigo // a defect of the test
}
