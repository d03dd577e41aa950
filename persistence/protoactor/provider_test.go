package protoactor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	plugin "github.com/asynkron/protoactor-go/persistence"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/persistence/protoactor"
)

// diary remembers every line it was told, through the plugin.
type diary struct {
	plugin.Mixin
	lines    []string
	replayed int // events of the last recovery
}

type (
	recall struct{}
	crash  struct{}
	memoir struct {
		lines    []string
		replayed int
	}
)

func (d *diary) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *plugin.RequestSnapshot:
		d.PersistSnapshot(wrapperspb.Bytes([]byte(strings.Join(d.lines, "\n"))))
	case *wrapperspb.BytesValue: // a snapshot
		d.lines = strings.Fields(string(m.Value))
	case *wrapperspb.StringValue:
		if d.Recovering() {
			d.replayed++
		} else {
			d.PersistReceive(m)
		}
		d.lines = append(d.lines, m.Value)
	case crash:
		panic("crash")
	case recall:
		ctx.Respond(memoir{append([]string(nil), d.lines...), d.replayed})
	}
}

// stage is an actor system whose one actor is a diary.
type stage struct {
	root *actor.RootContext
	pid  *actor.PID
}

func play(t *testing.T, s persistence.Store, o protoactor.Options, reasons chan<- any) stage {
	t.Helper()
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	props := actor.PropsFromProducer(func() actor.Actor { return &diary{} },
		actor.WithReceiverMiddleware(plugin.Using(protoactor.New(s, o))))
	made := make(chan *actor.PID, 1)
	parent := actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*actor.Started); ok {
			pid, err := ctx.SpawnNamed(props, "diary")
			if err != nil {
				t.Error(err)
			}
			made <- pid
		}
	}, actor.WithSupervisor(actor.NewOneForOneStrategy(3, time.Minute, func(reason any) actor.Directive {
		if reasons != nil {
			reasons <- reason
		}
		return actor.RestartDirective
	})))
	top, err := system.Root.SpawnNamed(parent, "stage")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = system.Root.PoisonFuture(top).Wait() })
	return stage{system.Root, <-made}
}

func (s stage) tell(lines ...string) {
	for _, line := range lines {
		s.root.Send(s.pid, wrapperspb.String(line))
	}
}

func (s stage) want(t *testing.T, replayed int, lines ...string) {
	t.Helper()
	answer, err := s.root.RequestFuture(s.pid, recall{}, 10*time.Second).Result()
	if err != nil {
		t.Fatal(err)
	}
	m := answer.(memoir)
	if strings.Join(m.lines, " ") != strings.Join(lines, " ") || m.replayed != replayed {
		t.Fatalf("diary holds %q after %d replayed events, want %q after %d", m.lines, m.replayed, lines, replayed)
	}
}

func TestRestartedActorRecoversItsEvents(t *testing.T) {
	s := memory.New()
	defer s.Close()
	a := play(t, s, protoactor.Options{SnapshotInterval: 1000}, nil)
	a.tell("one", "two", "three")
	a.want(t, 0, "one", "two", "three")
	a.root.Send(a.pid, crash{})
	a.tell("four")
	// The plugin asks for a snapshot at event 0: the state before it, from which all is replayed.
	a.want(t, 3, "one", "two", "three", "four")
}

func TestNextProcessRecoversFromTheSnapshot(t *testing.T) {
	s := memory.New()
	a := play(t, s, protoactor.Options{SnapshotInterval: 4}, nil)
	a.tell("1", "2", "3", "4", "5", "6")
	a.want(t, 0, "1", "2", "3", "4", "5", "6")
	if err := a.root.PoisonFuture(a.pid).Wait(); err != nil {
		t.Fatal(err)
	}
	s = s.Reopen()
	defer s.Close()
	b := play(t, s, protoactor.Options{SnapshotInterval: 4}, nil)
	b.want(t, 2, "1", "2", "3", "4", "5", "6")
	b.tell("7")
	b.want(t, 2, "1", "2", "3", "4", "5", "6", "7")
}

func TestSecondActivationFencesTheFirst(t *testing.T) {
	s := memory.New()
	defer s.Close()
	reasons := make(chan any, 10)
	a := play(t, s, protoactor.Options{SnapshotInterval: 1000}, reasons)
	a.tell("a")
	a.want(t, 0, "a")
	b := play(t, s, protoactor.Options{SnapshotInterval: 1000}, nil) // another system, the same store
	b.tell("b")
	b.want(t, 1, "a", "b")
	a.tell("lost")
	wantFailure(t, <-reasons, persistence.ErrFenced)
	a.want(t, 2, "a", "b") // restarted, with what the other one wrote
}

func TestFailureOfTheStoreReachesTheSupervisor(t *testing.T) {
	s := memory.New()
	reasons := make(chan any, 10)
	a := play(t, s, protoactor.Options{}, reasons)
	a.tell("a")
	a.want(t, 0, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	a.tell("b")
	wantFailure(t, <-reasons, persistence.ErrClosed)
}

func wantFailure(t *testing.T, reason any, want error) {
	t.Helper()
	var f *protoactor.Failure
	err, ok := reason.(error)
	if !ok || !errors.As(err, &f) || !errors.Is(err, want) || f.Actor == "" {
		t.Errorf("supervisor was told %v, want a failure of the kind %v", reason, want)
	}
}

func TestEventsAreReadByRange(t *testing.T) {
	s := memory.New()
	defer s.Close()
	state := protoactor.New(s, protoactor.Options{}).GetState()
	for i, line := range []string{"a", "b", "c", "d"} {
		state.PersistEvent("x", i, wrapperspb.String(line))
	}
	for _, c := range []struct {
		start, end int
		want       string
	}{{0, 0, "abcd"}, {2, 0, "cd"}, {1, 3, "bc"}, {4, 0, ""}, {9, 0, ""}} {
		got := ""
		state.GetEvents("x", c.start, c.end, func(e any) { got += e.(*wrapperspb.StringValue).Value })
		if got != c.want {
			t.Errorf("events from %d to %d: %q, want %q", c.start, c.end, got, c.want)
		}
	}
	if n, err := s.Head(context.Background(), "act/x"); err != nil || n != 4 {
		t.Errorf("stream holds %d events, %v", n, err)
	}
}
