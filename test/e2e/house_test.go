// Package e2e drives troupe from outside: a real runtime, the gateway on a real socket, the client.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

func TestMain(m *testing.M) {
	if data := os.Getenv(childVariable); data != "" {
		if err := serveAsChild(data); err != nil {
			fmt.Fprintln(os.Stderr, "the server of a test:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The actor library counts dead letters in a goroutine that ends by itself after a second.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// node is what a surface works with: the runtime itself, or the client of the process that has it.
type node interface {
	Ask(ctx context.Context, m proto.Message) (proto.Message, error)
	Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error]
}

// The two are the same to a surface.
var (
	_ node = (*troupe.Runtime)(nil)
	_ node = (*client.Client)(nil)
)

// house is a runtime on a data directory, served on its socket.
type house struct {
	rt     *troupe.Runtime
	data   string
	folder string // a workspace
	socket string
	stop   func() error // the server alone; may be called twice
	closed func() error // server and runtime; may be called twice

	options gateway.Options // of the server
}

const plot = `
name: plot
rules:
  - match: '^read (\S+)$'
    steps:
      - text: I read it.
        tool_calls:
          - name: read_file
            arguments: {path: '${1}'}
      - text: 'It says: ${tool.content}'
  - match: '^share$'
    steps:
      - text: I write it there.
        tool_calls:
          - name: write_file
            arguments: {path: main.swift, content: print(1), workspace_id: lap}
      - text: 'It says: ${tool.content}'
  - match: '^wait$'
    reply: {text: never, delay: 1h}
  - match: '^dictate$'
    reply: {text: 'one two three four five six seven eight nine ten', chunk_size: 4}
  - reply: {text: 'You said ${user}'}
`

// model is the scripted one. One is shared by runtimes that follow each other on a directory.
func model(t testing.TB) troupe.Model {
	t.Helper()
	s, err := script.Parse("plot.yaml", []byte(plot))
	if err != nil {
		t.Fatal(err)
	}
	return s.Model()
}

// open starts a runtime on a data directory and serves it.
func open(t *testing.T, data string) *house {
	t.Helper()
	rt, err := troupe.New(t.Context(), troupe.Options{Model: model(t), DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{rt: rt, data: data}
	var l interface{ Close() error }
	h.stop, l = h.serve(t)
	h.closed = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return errors.Join(h.stop(), l.Close(), rt.Close(ctx))
	})
	t.Cleanup(func() {
		if err := h.closed(); err != nil {
			t.Errorf("close the house: %v", err)
		}
	})
	h.folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(h.folder, "note.txt"), []byte("buy milk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func newHouse(t *testing.T) *house { return open(t, t.TempDir()) }

// serve begins to answer on the socket; stop ends that and leaves the runtime alone.
func (h *house) serve(t *testing.T) (stop func() error, l interface{ Close() error }) {
	t.Helper()
	lis, path, err := gateway.ListenSocket(h.data)
	if err != nil {
		t.Fatal(err)
	}
	h.socket = path
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := h.options
	o.Version = "v0"
	go func() { done <- gateway.Serve(ctx, lis, gateway.New(h.rt, o)) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	}), lis
}

func (h *house) dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), h.data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask puts a question and wants a reply of one type.
func ask[T proto.Message](t *testing.T, n node, m proto.Message) T {
	t.Helper()
	reply, err := n.Ask(t.Context(), m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	r, ok := reply.(T)
	if !ok {
		t.Fatalf("%T: answered %T", m, reply)
	}
	return r
}

// refusal is the failure that a question ends in.
func refusal(t *testing.T, n node, m proto.Message) *messages.Failure {
	t.Helper()
	reply, err := n.Ask(t.Context(), m)
	var f *messages.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%T: answered %.300v, %v", m, reply, err)
	}
	return f
}

// create makes a session in the house's folder, with a first prompt when there is one.
func (h *house) create(t *testing.T, n node, prompt string) *messages.SessionView {
	t.Helper()
	m := &messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + h.folder, Trust: messages.Trust_FULL, Primary: true}}}
	if prompt != "" {
		m.First = &messages.SubmitInput{InputId: "first", Parts: say(prompt)}
	}
	return ask[*messages.SessionView](t, n, m)
}

func say(text string) []*messages.Part {
	return []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}
}

func submit(session, id, text string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{InputId: id, Parts: say(text)}}}
}

func await(session, input string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: input}}}
}

// until reads events up to and including the first that is wanted.
func until(t *testing.T, n node, session string, after uint64, wanted func(*messages.Event) bool) []*messages.Event {
	t.Helper()
	var all []*messages.Event
	for ev, err := range n.Events(t.Context(), session, after) {
		if err != nil {
			t.Fatalf("events of %s: %v", session, err)
		}
		all = append(all, ev)
		if wanted(ev) {
			break
		}
	}
	return all
}

func completed(ev *messages.Event) bool { return ev.GetType() == messages.EventTurnCompleted }

// durable are those with a seq, as JSON, which is what everybody sees.
func durable(t *testing.T, events []*messages.Event) []string {
	t.Helper()
	var all []string
	for _, ev := range events {
		if ev.GetSeq() == 0 {
			continue
		}
		b, err := ev.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}
