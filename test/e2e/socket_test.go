package e2e

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

func TestATurnOverTheSocketIsTheRuntimesOwn(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "read note.txt")
	if s.GetFirst().GetInputId() != "first" || s.GetFirst().GetSeq() == 0 || s.GetFolder() != "local:"+h.folder {
		t.Errorf("created %v", s)
	}
	r := ask[*messages.TurnResult](t, c, await(s.GetId(), "first"))
	if r.GetOutcome() != messages.TurnCompleted_DONE || !strings.Contains(r.GetText(), "buy milk") || !r.GetScripted() ||
		len(r.GetToolCalls()) != 1 || r.GetToolCalls()[0].GetStatus() != "ok" {
		t.Errorf("the turn came to %v", r)
	}
	far, near := until(t, c, s.GetId(), 0, completed), until(t, h.rt, s.GetId(), 0, completed)
	if got, want := durable(t, far), durable(t, near); !slices.Equal(got, want) || len(want) < 8 {
		t.Errorf("the client saw\n%s\nthe runtime\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryQuestionGetsTheRuntimesAnswer(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "read note.txt")
	ask[*messages.TurnResult](t, c, await(s.GetId(), "first"))
	id := s.GetId()
	for _, m := range []proto.Message{
		&messages.ListSessions{}, &messages.ListSessions{Folder: s.GetFolder(), Limit: 1}, &messages.ListSessions{Folder: "local:/elsewhere"},
		&messages.ListWorkers{}, &messages.ListWorkers{SessionId: id}, &messages.ListCalls{}, &messages.ListCalls{SessionId: id, State: "failed"},
		&messages.Show{Id: id}, &messages.Verify{}, &messages.Verify{SessionIds: []string{id}}, &messages.DescribeTree{},
		await(id, ""), await(id, "first"), submit(id, "first", "read note.txt"),
		&messages.ToSession{SessionId: id, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}},
		&messages.ToSession{SessionId: id, Command: &messages.ToSession_History{History: &messages.ReadHistory{}}},
		&messages.ToSession{SessionId: id, Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{}}},
		&messages.ToSession{SessionId: id, Command: &messages.ToSession_WaitIdle{WaitIdle: &messages.WaitIdle{}}},
		&messages.ToSession{SessionId: id, Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{}}},
	} {
		far, near := ask[proto.Message](t, c, m), ask[proto.Message](t, h.rt, m)
		for _, reply := range []proto.Message{far, near} {
			settle(reply)
		}
		if !proto.Equal(far, near) {
			t.Errorf("%T %v: the client got\n%v\nthe runtime says\n%v", m, m, far, near)
		}
	}
	holder := ask[*messages.Holder](t, c, &messages.Hello{})
	if int(holder.GetPid()) != os.Getpid() || holder.GetVersion() != "v0" || holder.GetData() != h.data || holder.GetStartedAtUnixMs() == 0 {
		t.Errorf("the holder is %v", holder)
	}
}

// settle takes out what is another at every look: the order of a map, and the time of the look.
func settle(reply proto.Message) {
	var sessions []*messages.SessionView
	var workers []*messages.WorkerView
	switch x := reply.(type) {
	case *messages.Tree:
		x.GetRoot().MemoryBytes = 0
		slices.SortFunc(x.GetRoot().Children, func(a, b *messages.ActorView) int { return strings.Compare(a.GetId(), b.GetId()) })
	case *messages.Sessions:
		sessions = x.GetSessions()
	case *messages.SessionView:
		sessions = append(sessions, x)
	case *messages.Shown:
		sessions = append(sessions, x.GetSession())
	case *messages.Workers:
		workers = x.GetWorkers()
	}
	for _, v := range sessions {
		v.UpdatedAtUnixMs = 0
		workers = append(workers, v.GetWorkers()...)
	}
	for _, w := range workers {
		w.UpdatedAtUnixMs = 0
	}
}

func TestEveryRefusalIsTheRuntimesOwn(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "hello")
	ask[*messages.TurnResult](t, c, await(s.GetId(), "first"))
	id := s.GetId()
	for code, m := range map[string]proto.Message{
		messages.CodeNotFound:   &messages.Show{Id: "ses_nobody"},
		messages.CodeConflict:   submit(id, "first", "something else"),
		messages.CodeAgent:      &messages.CreateSession{Agent: "nobody"},
		messages.CodeInvalidURI: &messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "::"}}},
		messages.CodeBadRequest: submit(id, "other", "  "),
		messages.CodeCommitted: &messages.ToSession{SessionId: id, Command: &messages.ToSession_WithdrawInput{
			WithdrawInput: &messages.WithdrawInput{InputId: "first"},
		}},
	} {
		far, near := refusal(t, c, m), refusal(t, h.rt, m)
		if far.GetCode() != code || !proto.Equal(far, near) {
			t.Errorf("%v: the client got %v, the runtime says %v, want %s", m, far, near, code)
		}
	}
	withdraw := func(input string) proto.Message {
		return &messages.ToSession{SessionId: id, Command: &messages.ToSession_WithdrawInput{WithdrawInput: &messages.WithdrawInput{InputId: input}}}
	}
	for _, m := range []proto.Message{
		await(messages.NewID(messages.SessionPrefix), ""), await("", ""), await("../x", ""), await(id, "unknown"),
		&messages.ListCalls{SessionId: "x"}, &messages.Show{}, withdraw("unknown"), withdraw(".."), withdraw("a/../b?c#d"), withdraw(""),
	} {
		if f := refusal(t, c, m); f.GetCode() != messages.CodeNotFound || f.GetMessage() == "" {
			t.Errorf("%v: %v", m, f)
		}
	}
	for _, err := range c.Events(t.Context(), messages.NewID(messages.SessionPrefix), 0) {
		var f *messages.Failure
		if !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound {
			t.Errorf("events of nobody: %v", err)
		}
	}
}

func TestAReaderResumesInTheMiddle(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "read note.txt")
	all := until(t, c, s.GetId(), 0, completed)
	for _, last := range all {
		if last.GetSeq() == 0 || completed(last) {
			continue
		}
		far, near := until(t, c, s.GetId(), last.GetSeq(), completed), until(t, h.rt, s.GetId(), last.GetSeq(), completed)
		if got, want := durable(t, far), durable(t, near); !slices.Equal(got, want) {
			t.Errorf("after %d the client saw\n%s\nthe runtime\n%s", last.GetSeq(), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got, want := seqs(far), seqs(all); !slices.Equal(got, want[slices.Index(want, last.GetSeq())+1:]) {
			t.Errorf("after %d came %v of %v", last.GetSeq(), got, want)
		}
	}
}

// seqs are the places of the durable events.
func seqs(events []*messages.Event) []uint64 {
	var all []uint64
	for _, ev := range events {
		if ev.GetSeq() != 0 {
			all = append(all, ev.GetSeq())
		}
	}
	return all
}

func TestAReaderOutlivesTheServer(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "hello")
	var far []*messages.Event
	turns := 0
	for ev, err := range c.Events(t.Context(), s.GetId(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		far = append(far, ev)
		if !completed(ev) {
			continue
		}
		if turns++; turns == 2 {
			break
		}
		// The server goes, a turn happens that nobody is told of, and a server comes again.
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		ask[*messages.InputReply](t, h.rt, submit(s.GetId(), "second", "read note.txt"))
		ask[*messages.TurnResult](t, h.rt, await(s.GetId(), "second"))
		h.stop, _ = h.serve(t)
	}
	near := until(t, h.rt, s.GetId(), 0, func(ev *messages.Event) bool { return ev.GetSeq() == far[len(far)-1].GetSeq() })
	if got, want := durable(t, far), durable(t, near); !slices.Equal(got, want) {
		t.Errorf("the client saw\n%s\nthe runtime\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDeltasReachAReaderThatWatches(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "")
	text, sent := "", false
	for ev, err := range c.Events(t.Context(), s.GetId(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if !sent { // the first event shows that the stream is live
			ask[*messages.InputReply](t, c, submit(s.GetId(), "i1", "dictate"))
			sent = true
		}
		if ev.GetType() == messages.EventTextDelta {
			text += ev.GetText()
		}
		if completed(ev) {
			break
		}
	}
	if text != "one two three four five six seven eight nine ten" {
		t.Errorf("the deltas make %q", text)
	}
}

func TestCancelAndWithdrawOverTheSocket(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "wait")
	id := s.GetId()
	until(t, c, id, 0, func(ev *messages.Event) bool { return ev.GetType() == messages.EventGenerationStarted })
	ask[*messages.InputReply](t, c, submit(id, "second", "hello"))
	inputs := ask[*messages.Inputs](t, c, &messages.ToSession{SessionId: id, Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{}}})
	if n := len(inputs.GetInputs()); n == 0 || inputs.GetInputs()[n-1].GetInputId() != "second" || inputs.GetInputs()[n-1].GetState() != "staged" {
		t.Errorf("inputs are %v", inputs)
	}
	busy := submit(id, "third", "hello")
	busy.GetSubmit().Mode = messages.InputAccepted_REJECT
	if f := refusal(t, c, busy); f.GetCode() != messages.CodeBusy {
		t.Errorf("while a turn is open: %v", f)
	}
	ask[*messages.Ack](t, c, &messages.ToSession{SessionId: id, Command: &messages.ToSession_WithdrawInput{WithdrawInput: &messages.WithdrawInput{InputId: "second"}}})
	if f := refusal(t, c, await(id, "second")); f.GetCode() != messages.CodeWithdrawn {
		t.Errorf("the withdrawn input: %v", f)
	}
	if n := ask[*messages.Cancelled](t, c, &messages.ToSession{SessionId: id, Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{By: "me"}}}); n.GetTurns() != 1 {
		t.Errorf("cancelled %v", n)
	}
	if r := ask[*messages.TurnResult](t, c, await(id, "first")); r.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("the turn came to %v", r)
	}
}

func TestAProgramCallsAToolOverTheSocket(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "")
	call := func(id, args string) *messages.ToSession {
		return &messages.ToSession{SessionId: s.GetId(), Command: &messages.ToSession_CallTool{CallTool: &messages.CallTool{Tool: "read_file", CallId: id, Arguments: args}}}
	}
	r := ask[*messages.ToolReply](t, c, call("c1", `{"path": "note.txt"}`))
	if r.GetStatus() != messages.ToolFinished_OK || !strings.Contains(r.GetContent(), "buy milk") {
		t.Errorf("the call came to %v", r)
	}
	if near := ask[*messages.ToolReply](t, h.rt, call("c1", `{"path": "note.txt"}`)); !proto.Equal(r, near) {
		t.Errorf("the client got\n%v\nthe runtime says\n%v", r, near)
	}
	if again := ask[*messages.ToolReply](t, c, await(s.GetId(), "c1")); !proto.Equal(r, again) {
		t.Errorf("waiting for the call came to\n%v\ninstead of\n%v", again, r)
	}
	if r := ask[*messages.ToolReply](t, c, call("c2", `not json`)); r.GetStatus() == messages.ToolFinished_OK || r.GetContent() == "" {
		t.Errorf("broken arguments came to %v", r)
	}
}

func TestTwoClientsShareAHouse(t *testing.T) {
	h := newHouse(t)
	a, b := h.dial(t), h.dial(t)
	s := h.create(t, a, "")
	var wg sync.WaitGroup
	for i, c := range []*client.Client{a, b} {
		wg.Go(func() {
			for n := range 10 {
				id := string(rune('a'+i)) + string(rune('0'+n))
				for range 2 { // sent twice, accepted once
					if _, err := c.Ask(t.Context(), submit(s.GetId(), id, "hello "+id)); err != nil {
						t.Errorf("submit %s: %v", id, err)
					}
				}
				reply, err := c.Ask(t.Context(), await(s.GetId(), id))
				if r, ok := reply.(*messages.TurnResult); err != nil || !ok || r.GetText() != "You said hello "+id {
					t.Errorf("%s came to %v, %v", id, reply, err)
				}
			}
		})
	}
	wg.Wait()
	if v := ask[*messages.Shown](t, b, &messages.Show{Id: s.GetId()}); len(v.GetTurns()) != 20 {
		t.Errorf("%d turns instead of 20", len(v.GetTurns()))
	}
}

func TestBigInputsGoThroughAndTooBigOnesAreRefused(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	s := h.create(t, c, "")
	big := strings.Repeat("größer <&> \u2028 \\ \" 世界 ", 40_000) // 1.2 MB
	m := submit(s.GetId(), "big", big)
	m.GetSubmit().Parts = append(m.GetSubmit().Parts, &messages.Part{Kind: &messages.Part_File{File: &messages.FilePart{Name: "a.txt", Text: big}}}, say("and this")[0])
	ask[*messages.InputReply](t, c, m)
	r := ask[*messages.TurnResult](t, c, await(s.GetId(), "big"))
	if want := "You said " + big + "\n\nFile a.txt:\n" + big + "\n\nand this"; r.GetText() != want {
		t.Errorf("%d bytes came back instead of %d", len(r.GetText()), len(want))
	}
	if f := refusal(t, c, submit(s.GetId(), "huge", strings.Repeat("x", 17<<20))); f.GetCode() != messages.CodeTooLarge {
		t.Errorf("17 MB: %v", f)
	}
}

func TestClosingTheHouseEndsEveryClientAndLeavesNothing(t *testing.T) {
	data := t.TempDir()
	h := open(t, data)
	c := h.dial(t)
	s := h.create(t, c, "wait")
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Ask(t.Context(), await(s.GetId(), "first"))
		waiting <- err
	}()
	until(t, c, s.GetId(), 0, func(ev *messages.Event) bool { return ev.GetType() == messages.EventGenerationStarted })
	if err := h.closed(); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err == nil {
		t.Error("the wait ended without an error")
	}
	if _, err := os.Lstat(h.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := c.Ask(t.Context(), &messages.ListSessions{}); !errors.Is(err, client.ErrNoHolder) {
		t.Errorf("asking nobody: %v", err)
	}
	// The next holder goes on with what was open, for the same client.
	open(t, data)
	if v := ask[*messages.Sessions](t, c, &messages.ListSessions{}); len(v.GetSessions()) != 1 || v.GetSessions()[0].GetState() != "waiting" {
		t.Errorf("the next holder lists %v", v)
	}
	ask[*messages.SessionView](t, c, &messages.ToSession{SessionId: s.GetId(), Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
	ask[*messages.Cancelled](t, c, &messages.ToSession{SessionId: s.GetId(), Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{}}})
	if r := ask[*messages.TurnResult](t, c, await(s.GetId(), "first")); r.GetOutcome() != messages.TurnCompleted_ABORTED {
		t.Errorf("the turn came to %v", r)
	}
}
