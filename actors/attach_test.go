package actors_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

func space(dir, name string) *messages.WorkspaceSpec {
	return &messages.WorkspaceSpec{Uri: "local:" + dir, Name: name, Trust: messages.Trust_FULL}
}

func attach(h *actortest.House, session string, spec *messages.WorkspaceSpec) *messages.WorkspaceGrant {
	return actortest.Ask[*messages.WorkspaceGrant](h, session, &messages.AttachWorkspace{Workspace: spec})
}

func detach(h *actortest.House, session, name string) {
	actortest.Ask[*messages.Ack](h, session, &messages.DetachWorkspace{Workspace: name})
}

// holder is a tool that runs until it is let go, by its argument.
type holder struct {
	running chan string
	mu      sync.Mutex
	doors   map[string]chan struct{}
}

func newHolder() *holder {
	return &holder{running: make(chan string, 256), doors: map[string]chan struct{}{}}
}

func (x *holder) door(name string) chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.doors[name] == nil {
		x.doors[name] = make(chan struct{})
	}
	return x.doors[name]
}

func (x *holder) tool(t testing.TB) tools.Tool {
	return tool(t, "hold", atMostOnce, func(ctx context.Context, name string) (string, error) {
		x.running <- name
		select {
		case <-x.door(name):
			return "held " + name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
}

func (x *holder) runs(t testing.TB, names ...string) {
	t.Helper()
	for range names {
		if got := actortest.Wait(t, "a call to run", x.running); !slices.Contains(names, got) {
			t.Fatalf("%s runs", got)
		}
	}
}

func codes(r *messages.TurnResult) string {
	var out []string
	for _, c := range r.GetToolCalls() {
		word := c.GetErrorCode()
		if word == "" {
			word = c.GetStatus()
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

func TestADetachEndsWhatRunsInTheWorkspaceAndNothingElse(t *testing.T) {
	x := newHolder()
	h := actortest.New(t, actortest.Options{Tools: []tools.Tool{x.tool(t)}, Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
		if what := actortest.Asked(r); what != "go" {
			return actortest.CallThenSay(actortest.Call("1", "hold", fmt.Sprintf(`{"name":%q,"workspace_id":"lib"}`, what)))(ctx, r)
		}
		return actortest.CallThenSay(
			actortest.Call("1", "hold", `{"name":"lib","workspace_id":"lib"}`), actortest.Call("2", "hold", `{"name":"dir"}`),
			actortest.Call("3", "hold", `{"name":"queued","workspace_id":"lib"}`),
		)(ctx, r)
	})})
	dir, lib := t.TempDir(), t.TempDir()
	s, _ := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{space(dir, "dir"), space(lib, "lib")}})
	in := submit(h, s, "go")
	x.runs(t, "lib", "dir")
	other, _ := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{space(lib, "lib")}})
	waits := submit(h, other, "other")
	detach(h, s, "lib")
	x.runs(t, "other") // though the turn goes on, it has given the workspace back
	close(x.door("other"))
	if r := actortest.Ask[*messages.TurnResult](h, other, &messages.AwaitTurn{InputId: waits}); codes(r) != "ok" {
		t.Errorf("the other session: %s", codes(r))
	}
	close(x.door("dir"))
	r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
	if got, want := codes(r), "workspace_not_available ok workspace_not_available"; got != want {
		t.Errorf("%s instead of %s", got, want)
	}
	if c := r.GetToolCalls(); c[0].GetStatus() != "cancelled" || !strings.Contains(c[0].GetContent(), "may have had effects") || strings.Contains(c[2].GetContent(), "effects") {
		t.Errorf("told: %q, %q", c[0].GetContent(), c[2].GetContent())
	}
	select {
	case name := <-x.running:
		t.Errorf("%s ran", name)
	default:
	}
}

// TestADetachAnswersWhatWaitsForAnApprovalThere: in the turn that waits, and in one that goes on only after a restart.
func TestADetachAnswersWhatWaitsForAnApprovalThere(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		store := memory.New()
		o := actortest.Options{Store: store, DataDir: t.TempDir(), Model: plainOr(actortest.CallThenSay(
			actortest.Call("1", "write_file", `{"path":"x","content":"y","workspace_id":"lib"}`), actortest.Call("2", "write_file", `{"path":"x","content":"y"}`),
		))}
		h := actortest.New(t, o)
		lib, dir := t.TempDir(), t.TempDir()
		s, _ := h.Create(&messages.CreateSession{Ask: true, Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + dir, Name: "dir"}, {Uri: "local:" + lib, Name: "lib"}}})
		in := submit(h, s, "go")
		asking := func(h *actortest.House, n int32) {
			actortest.Until(t, "the turn asks", func() bool { v := h.Worker(s); return v.GetApprovals() == n && v.GetState() == "waiting" })
		}
		asking(h, 2)
		if restarted {
			h.Stop()
			store = store.Reopen()
			o.Store, o.Still = store, true // as a command does it, where nobody works
			h = actortest.New(t, o)
			detach(h, s, "lib")
			h.Stop()
			store = store.Reopen()
			o.Store, o.Still = store, false
			h = actortest.New(t, o)
			h.Worker(s) // wakes it
		} else {
			detach(h, s, "lib")
		}
		asking(h, 1)
		left, err := actors.Approvals(context.Background(), store, s)
		if err != nil || len(left) != 1 || left[0].GetCallId() != "2" {
			t.Fatalf("left: %v %v", left, err)
		}
		actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{ApprovalId: left[0].GetApprovalId(), Decision: approved})
		r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: in})
		if got, want := codes(r), "workspace_not_available ok"; got != want {
			t.Errorf("restarted %v: %s instead of %s", restarted, got, want)
		}
		if _, err := os.Stat(filepath.Join(lib, "x")); err == nil {
			t.Error("the call ran in the workspace that was detached")
		}
		h.Stop()
		_ = store.Close()
	}
}

// TestFoldersThatOverlapShareTheirLease: two sessions, in a folder and in one below it, do not work at the same time, whoever
// came first; beside them one in a third folder does.
func TestFoldersThatOverlapShareTheirLease(t *testing.T) {
	for _, order := range [][2]string{{"", "sub/deep"}, {"sub/deep", ""}} {
		x := newHolder()
		h := actortest.New(t, actortest.Options{Tools: []tools.Tool{x.tool(t)}, Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			return actortest.CallThenSay(actortest.Call("1", "hold", fmt.Sprintf(`{"name":%q}`, actortest.Asked(r))))(ctx, r)
		})})
		base := t.TempDir()
		if err := os.MkdirAll(filepath.Join(base, "sub", "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
		in := func(dir string) string {
			s, _ := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{space(dir, "dir")}})
			return s
		}
		first, second, beside := in(filepath.Join(base, order[0])), in(filepath.Join(base, order[1])), in(t.TempDir())
		for _, pair := range [][2]string{{first, second}, {second, first}} {
			id := pair[0][len(pair[0])-6:]
			one := submit(h, pair[0], "one"+id)
			x.runs(t, "one"+id)
			two := submit(h, pair[1], "two"+id)
			three := submit(h, beside, "beside"+id)
			x.runs(t, "beside"+id)
			if v := h.Worker(pair[1]); v.GetState() != "waiting" {
				t.Errorf("%q: the other one is %s", order, v.GetState())
			}
			close(x.door("one" + id))
			x.runs(t, "two"+id)
			close(x.door("two" + id))
			close(x.door("beside" + id))
			for s, input := range map[string]string{pair[0]: one, pair[1]: two, beside: three} {
				if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: input}); codes(r) != "ok" {
					t.Errorf("%q: %s", order, codes(r))
				}
			}
		}
		h.Stop()
	}
}

// yard watches who is in which folder at the same time.
type yard struct {
	mu      sync.Mutex
	in      map[string]string // folder -> who
	clashes []string
}

func (y *yard) pass(dirs []string, who string) {
	y.mu.Lock()
	for _, d := range dirs {
		for o, other := range y.in {
			if other != who && (o == d || strings.HasPrefix(o, d+"/") || strings.HasPrefix(d, o+"/")) {
				y.clashes = append(y.clashes, fmt.Sprintf("%s in %s beside %s in %s", who, d, other, o))
			}
		}
	}
	for _, d := range dirs {
		y.in[d] = who
	}
	y.mu.Unlock()
	runtime.Gosched()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, d := range dirs {
		delete(y.in, d)
	}
}

// TestWorkersOverSeveralWorkspacesNeitherMeetNorWaitForEver runs sessions that each have some of a few folders, which partly lie in one
// another, in any order, with several workers each: every turn ends, and in no folder are two at the same time.
func TestWorkersOverSeveralWorkspacesNeitherMeetNorWaitForEver(t *testing.T) {
	base := t.TempDir()
	folders := []string{"a", "a/x", "a/x/y", "a/z", "b", "b/x", "c"}
	for _, f := range folders {
		if err := os.MkdirAll(filepath.Join(base, f), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		y := &yard{in: map[string]string{}}
		work := tool(t, "work", atMostOnce, func(_ context.Context, arg string) (string, error) {
			who, dirs, _ := strings.Cut(arg, " ")
			y.pass(strings.Split(dirs, " "), who)
			return "done", nil
		})
		h := actortest.New(t, actortest.Options{Tools: []tools.Tool{work}, Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			return actortest.CallThenSay(actortest.Call("1", "work", fmt.Sprintf(`{"name":%q}`, actortest.Asked(r))))(ctx, r)
		})})
		defer h.Stop()
		type turn struct{ session, worker, input string }
		var turns []turn
		n := 0
		for range rapid.IntRange(2, 5).Draw(rt, "sessions") {
			var dirs []string
			m := &messages.CreateSession{}
			for _, f := range rapid.Permutation(folders).Draw(rt, "order")[:rapid.IntRange(1, 4).Draw(rt, "folders")] {
				if !slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(d+"/", f+"/") || strings.HasPrefix(f+"/", d+"/") }) {
					dirs = append(dirs, f)
					m.Workspaces = append(m.Workspaces, space(filepath.Join(base, f), ""))
				}
			}
			s, w := h.Create(m)
			workers := []string{w}
			for range rapid.IntRange(0, 2).Draw(rt, "more workers") {
				workers = append(workers, actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{}).GetId())
			}
			apart := "" // it is detached while they work, so that nobody counts on it
			if len(dirs) > 1 && rapid.Bool().Draw(rt, "detach one") {
				apart, dirs = dirs[len(dirs)-1], dirs[:len(dirs)-1]
			}
			for range rapid.IntRange(1, 3).Draw(rt, "prompts") {
				for _, w := range workers {
					n++
					in := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: w, Parts: actortest.Text(fmt.Sprint(n, " ", strings.Join(dirs, " ")))})
					turns = append(turns, turn{s, w, in.GetInputId()})
				}
			}
			if apart != "" {
				detach(h, s, "local:"+filepath.Join(base, apart))
				attach(h, s, space(filepath.Join(base, apart), ""))
			}
		}
		for _, x := range turns {
			r := actortest.Ask[*messages.TurnResult](h, x.session, &messages.AwaitTurn{WorkerId: x.worker, InputId: x.input})
			if r.GetOutcome() != messages.TurnCompleted_DONE {
				rt.Errorf("a turn came to %v: %s", r.GetOutcome(), r.GetReason())
			}
		}
		for _, c := range y.clashes {
			rt.Errorf("%s", c)
		}
	})
}

// TestAHundredWorkersOnOneWorkspaceWorkInOrderOfArrival: those that change something one after the other, and as the journal has
// it; those that only read at the same time.
func TestAHundredWorkersOnOneWorkspaceWorkInOrderOfArrival(t *testing.T) {
	const writers, readers = 100, 3
	var mu sync.Mutex
	var order []string
	inside, together := 0, make(chan struct{})
	x := newHolder()
	work := tool(t, "work", atMostOnce, func(_ context.Context, name string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, name)
		return name, nil
	})
	peek := tool(t, "peek", pure, func(ctx context.Context, name string) (string, error) {
		mu.Lock()
		if inside++; inside == readers {
			close(together)
		}
		mu.Unlock()
		select {
		case <-together:
			return name, nil
		case <-ctx.Done():
			return "", errors.New("alone")
		}
	})
	h := actortest.New(t, actortest.Options{
		Tools: []tools.Tool{x.tool(t), work, peek}, Agents: []actors.Agent{{Name: "reader", Tools: []string{"peek"}}},
		Model: plainOr(func(ctx context.Context, r *model.Request) actortest.Reply {
			name, what, _ := strings.Cut(actortest.Asked(r), " ")
			return actortest.CallThenSay(actortest.Call("1", name, fmt.Sprintf(`{"name":%q}`, what)))(ctx, r)
		}),
	})
	s, first := h.Create(&messages.CreateSession{})
	in := map[string]string{}
	send := func(worker, text string) {
		in[worker] = actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{WorkerId: worker, Parts: actortest.Text(text)}).GetInputId()
	}
	send(first, "hold first")
	x.runs(t, "first")
	var want []string
	for i := range writers {
		agent, word := "", fmt.Sprint("work ", i)
		if i >= writers/2 && i < writers/2+readers {
			agent, word = "reader", fmt.Sprint("peek ", i)
		} else {
			want = append(want, fmt.Sprint(i))
		}
		send(actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Agent: agent}).GetId(), word)
	}
	close(x.door("first"))
	for worker, input := range in {
		if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{WorkerId: worker, InputId: input}); codes(r) != "ok" {
			t.Errorf("%s: %s", worker, codes(r))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, want) {
		t.Errorf("worked in the order %v", order)
	}
	exclusiveIntervals(t, h, s, writers+1-readers)
}

// exclusiveIntervals holds the turns of a session's journal against each other: who has a lease alone has it from the record that
// begins the turn to the one that ends it.
func exclusiveIntervals(t *testing.T, h *actortest.House, session string, want int) {
	t.Helper()
	reading, tokens := map[string]bool{}, map[string]uint64{}
	holder, turns, last, readers := "", 0, uint64(0), 0
	err := h.Store.ReadSession(context.Background(), session, 0, func(e persistence.Entry) error {
		if !strings.HasPrefix(e.Stream, "wrk/") {
			return nil
		}
		f, err := messages.WorkerFactIn(e.Record)
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *messages.WorkerCreated:
			reading[e.Stream] = f.GetAgent() == "reader"
		case *messages.TurnStarted:
			if reading[e.Stream] {
				if holder != "" {
					t.Errorf("%s reads while %s has the workspace", e.Stream, holder)
				}
				readers++
				return nil
			}
			token := f.GetLeases()[0].GetToken()
			if holder != "" || token <= last || readers > 0 {
				t.Errorf("%s begins with token %d after %d, while %q has the workspace and %d read", e.Stream, token, last, holder, readers)
			}
			holder, last, tokens[e.Stream] = e.Stream, token, token
			turns++
		case *messages.TurnCompleted:
			switch {
			case reading[e.Stream]:
				readers--
			case holder == e.Stream:
				holder = ""
			}
		}
		return nil
	})
	if err != nil || turns != want {
		t.Errorf("%d turns, %v", turns, err)
	}
}
