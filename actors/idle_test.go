package actors_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// children are what is live below the root, by kind.
func children(h *actortest.House) map[string]int {
	kinds := map[string]int{}
	for _, a := range actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
		kinds[a.GetKind()]++
	}
	return kinds
}

// asleep waits until nothing is in memory but what is never given up.
func asleep(t testing.TB, h *actortest.House) {
	t.Helper()
	actortest.Until(t, "sessions and workspaces have left memory", func() bool {
		k := children(h)
		return k["session"] == 0 && k["workspace"] == 0
	})
}

// TestAnIdleSessionLeavesMemoryAndTheNextMessageBringsItBack also looks at the registry: workers, executors and
// workspaces are gone, too.
func TestAnIdleSessionLeavesMemoryAndTheNextMessageBringsItBack(t *testing.T) {
	h := actortest.New(t, actortest.Options{
		IdleAfter: time.Millisecond,
		Model:     actortest.CallThenSay(actortest.Call("1", "act", `{"name":"x"}`)),
		Tools:     []tools.Tool{tool(t, "act", atMostOnce, func(context.Context, string) (string, error) { return "did", nil })},
	})
	s, w := h.Create(&messages.CreateSession{})
	for i := range 3 {
		if r := h.Run(s, fmt.Sprint("turn ", i)); r.GetText() != "did\n" {
			t.Fatalf("%v", r)
		}
		asleep(t, h)
		for _, bucket := range h.Sys.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, id := range bucket.Keys() {
				if id != "troupe" && id != "troupe/limiter-default" && id != "troupe/timers" && id != "troupe/rules" && len(id) > 6 && id[:6] == "troupe" {
					t.Errorf("%s is still there", id)
				}
			}
		}
	}
	if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}); len(got.GetTurns()) != 3 {
		t.Errorf("%d turns", len(got.GetTurns()))
	}
	if n := len(actortest.Of[*messages.Activated](h.Facts(w))); n != 3 {
		t.Errorf("%d activations wrote something, want 3", n)
	}
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{}); r.GetText() != "did\n" {
		t.Errorf("the last turn, asked of a session that slept: %v", r)
	}
}

func TestWhatKeepsASessionInMemory(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		IdleAfter: time.Millisecond,
		Model: plainOr(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	turn, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	submit(h, turn, "hold")
	actortest.Wait(t, "the call", gate.Came)
	staged, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	submit(h, staged, "plain")
	watched, _ := h.Create(&messages.CreateSession{})
	inbox := act.NewInbox(h.Sys, 16)
	defer inbox.Close()
	h.Sys.Root.RequestWithCustomSender(h.Root, actortest.Command(watched, &messages.Subscribe{}), inbox.PID())
	free, _ := h.Create(&messages.CreateSession{})
	h.Run(free, "plain")
	actortest.Until(t, "the one with nothing to do has left", func() bool { return children(h)["session"] == 3 })
	for _, k := range actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{}).GetRoot().GetChildren() {
		if k.GetId() == free {
			t.Errorf("%s is the one that stayed", k.GetId())
		}
	}
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, staged, &messages.AwaitTurn{}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	actortest.Until(t, "only the one that is watched is left", func() bool { return children(h)["session"] == 1 })
	h.Sys.Root.RequestWithCustomSender(h.Root, actortest.Command(watched, &messages.Unsubscribe{}), inbox.PID())
	asleep(t, h)
	// Nobody is woken to hear that somebody no longer listens.
	h.Sys.Root.RequestWithCustomSender(h.Root, actortest.Command(watched, &messages.Unsubscribe{}), inbox.PID())
	if k := children(h); k["session"] != 0 {
		t.Errorf("%v", k)
	}
}

// asking tells when a session asks to leave, and stops the Supervisor where the test wants it.
type asking struct {
	*logGate
	asked chan struct{}
}

func (a *asking) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "session leaves memory") {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}
	return a.logGate.Handle(ctx, r)
}
func (a *asking) WithAttrs([]slog.Attr) slog.Handler { return a }

// TestASessionThatIsNeededWhileItLeavesStays has a command wait at the Supervisor ahead of the session's wish.
func TestASessionThatIsNeededWhileItLeavesStays(t *testing.T) {
	log := &asking{logGate: &logGate{gate: actortest.NewGate()}, asked: make(chan struct{}, 1)}
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Log: log, IdleAfter: 50 * time.Millisecond,
		Model: actortest.Model(func(ctx context.Context, _ *model.Request) actortest.Reply {
			return actortest.Reply{Text: "ok", Err: gate.Pass(ctx)}
		}),
	})
	s, w := h.Create(&messages.CreateSession{})
	h.Sys.Root.Send(h.Root, &messages.Ack{}) // it does not know that, and says so in the log
	actortest.Wait(t, "the root to stand still", log.gate.Came)
	in := actortest.Later[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "inp_1", Parts: actortest.Text("go")})
	actortest.Wait(t, "the session to ask", log.asked)
	log.gate.Open()
	if a := actortest.Wait(t, "the acceptance", in); a.Err != nil {
		t.Fatal(a.Err)
	}
	actortest.Wait(t, "the model call", gate.Came)
	actortest.Ask[*messages.Inputs](h, s, &messages.ListInputs{}) // routed to it again
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, s, &messages.AwaitTurn{InputId: "inp_1"}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	if n := len(actortest.Of[*messages.Activated](h.Facts(w))); n != 1 {
		t.Errorf("%d activations: the session left in the middle of a turn", n)
	}
}

func TestAWorkspaceStaysUntilTheLastEffectInItHasEndedThoughNobodyUsesItAnyMore(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		IdleAfter: time.Millisecond, Limits: actors.Limits{Grace: time.Millisecond},
		Model: plainOr(actortest.CallThenSay(actortest.Call("1", "deaf", `{"name":"x"}`))),
		Tools: []tools.Tool{tool(t, "deaf", atMostOnce, func(context.Context, string) (string, error) {
			return "", gate.Pass(context.Background())
		})},
	})
	dir := []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}
	s, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	submit(h, s, "go")
	actortest.Wait(t, "the call", gate.Came)
	cancelled(t, h, s)
	actortest.Until(t, "the session and its own workspace have left", func() bool {
		k := children(h)
		return k["session"] == 0 && k["workspace"] == 1
	})
	other, _ := h.Create(&messages.CreateSession{Workspaces: dir})
	in := submit(h, other, "plain")
	h.State(other, "waiting")
	gate.Open()
	if r := actortest.Ask[*messages.TurnResult](h, other, &messages.AwaitTurn{InputId: in}); r.GetText() != "ok" {
		t.Errorf("%v", r)
	}
	asleep(t, h)
}

func TestTokensGrowAcrossTheLivesOfAWorkspace(t *testing.T) {
	h := actortest.New(t, actortest.Options{IdleAfter: time.Millisecond, Model: actortest.Say("ok")})
	s, w := h.Create(&messages.CreateSession{})
	for range 4 {
		h.Run(s, "go")
		asleep(t, h)
	}
	last := map[string]uint64{}
	for _, f := range actortest.Of[*messages.TurnStarted](h.Facts(w)) {
		for _, l := range f.GetLeases() {
			if l.GetToken() <= last[l.GetWorkspace()] {
				t.Errorf("token %d after %d", l.GetToken(), last[l.GetWorkspace()])
			}
			last[l.GetWorkspace()] = l.GetToken()
		}
	}
	if len(last) != 2 {
		t.Errorf("leases on %v", last)
	}
}

// TestNoMessageIsLostWhileSessionsLeaveMemory hammers sessions that leave memory whenever they can. Each command
// has one answer, and each input is accepted once, in the order in which its sender sent it, and has its turn.
func TestNoMessageIsLostWhileSessionsLeaveMemory(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	h := actortest.New(t, actortest.Options{IdleAfter: 20 * time.Microsecond, Model: actortest.Say("ok")})
	var sessions, workers []string
	for range 4 {
		s, w := h.Create(&messages.CreateSession{})
		sessions, workers = append(sessions, s), append(workers, w)
	}
	const storms = 5
	hammers := make([]*hammer, 8)
	for n := range hammers {
		x := &hammer{t: t, h: h, rng: rand.New(rand.NewPCG(1, uint64(n))), inbox: act.NewInbox(h.Sys, 1<<16), name: fmt.Sprint("inp_", n, "_")}
		defer x.inbox.Close()
		hammers[n] = x
	}
	for range storms {
		var all sync.WaitGroup
		for _, x := range hammers {
			all.Go(func() {
				for range rounds / storms {
					x.ask(sessions[x.rng.IntN(len(sessions))])
					for range x.rng.IntN(20) { // meanwhile they may leave
						children(h)
					}
				}
			})
		}
		all.Wait()
		actortest.Until(t, "all have left", func() bool { return children(h)["session"] == 0 })
	}
	commands, activations, accepted := 0, 0, 0
	for i, s := range sessions {
		actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
		facts := h.Facts(workers[i])
		activations += len(actortest.Of[*messages.Activated](facts))
		turns, newest := len(actortest.Of[*messages.TurnCompleted](facts)), map[string]int{}
		inputs := actortest.Of[*messages.InputAccepted](facts)
		for _, in := range inputs {
			var n, k int
			if _, err := fmt.Sscanf(in.GetInputId(), "inp_%d_%d", &n, &k); err != nil || k <= newest[fmt.Sprint(n)] {
				t.Errorf("input %s after %d", in.GetInputId(), newest[fmt.Sprint(n)])
			}
			newest[fmt.Sprint(n)] = k
		}
		if turns != len(inputs) {
			t.Errorf("%d turns for %d inputs", turns, len(inputs))
		}
		accepted += turns
	}
	submitted := 0
	for _, x := range hammers {
		commands, submitted = commands+x.asked, submitted+x.submitted
	}
	if accepted != submitted {
		t.Errorf("%d of %d inputs were accepted", accepted, submitted)
	}
	t.Logf("%d commands, %d inputs, %d activations", commands, accepted, activations)
	if least := storms * len(sessions); activations < least { // each storm finds them gone
		t.Errorf("%d activations, want at least %d", activations, least)
	}
}

// hammer is a client that waits for the answers of a burst before it sends the next.
type hammer struct {
	t                *testing.T
	h                *actortest.House
	rng              *rand.Rand
	inbox            *act.Inbox
	name             string
	asked, submitted int
}

func (x *hammer) ask(session string) {
	burst := 1 + x.rng.IntN(8)
	for range burst {
		x.asked++
		x.h.Sys.Root.RequestWithCustomSender(x.h.Root, actortest.Command(session, x.question()), x.inbox.PID())
	}
	for burst > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), actortest.Patience)
		msgs, _, err := x.inbox.Take(ctx)
		cancel()
		if err != nil {
			x.t.Errorf("%d commands are not answered", burst)
			return
		}
		for _, m := range msgs {
			if f, refused := m.(*messages.Failure); refused && f.GetCode() != messages.CodeNoTurn {
				x.t.Errorf("refused: %v", f)
			}
			if v, is := m.(*messages.SessionView); is && len(v.GetWorkers()) != 1 {
				x.t.Errorf("a session of %d workers", len(v.GetWorkers()))
			}
		}
		burst -= len(msgs)
	}
	if burst < 0 {
		x.t.Errorf("%d answers too many", -burst)
	}
}

func (x *hammer) question() proto.Message {
	switch x.rng.IntN(6) {
	case 0, 1:
		x.submitted++
		return &messages.SubmitInput{InputId: fmt.Sprint(x.name, x.asked), Parts: actortest.Text("go")}
	case 2:
		return &messages.DescribeSession{}
	case 3:
		return &messages.ListInputs{}
	case 4:
		return &messages.AwaitTurn{}
	}
	return &messages.ReadHistory{}
}
