package act_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/actors/act"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAnActorCanBeSentToByNameWhileItIsSpawned sends to names that are spawned at that moment: every
// message is a dead letter or is handled, in order, after Started, and the actor goes on.
func TestAnActorCanBeSentToByNameWhileItIsSpawned(t *testing.T) {
	sys := act.NewSystem(slog.New(slog.DiscardHandler), actor.WithDeadLetterThrottleInterval(time.Millisecond))
	for i := range 300 {
		name := fmt.Sprint("born-", i)
		stop, done := make(chan struct{}), make(chan int, 1)
		var sender sync.WaitGroup
		sender.Go(func() {
			to := sys.NewLocalPID(name)
			for n := 1; ; n++ {
				select {
				case <-stop:
					sys.Root.Send(to, "last")
					return
				default:
					sys.Root.Send(to, n)
				}
			}
		})
		started, last := false, 0
		props := actor.PropsFromFunc(func(c actor.Context) {
			switch m := c.Message().(type) {
			case *actor.Started:
				started = true
			case int:
				if !started || m <= last {
					t.Errorf("message %d after %d, started %v", m, last, started)
				}
				last = m
			case string:
				done <- last
			}
		}, actor.WithMailbox(act.Mailbox(nil)))
		pid, err := sys.Root.SpawnNamed(props, name)
		if err != nil {
			t.Fatal(err)
		}
		close(stop)
		sender.Wait()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatal("the actor hears nothing")
		}
		if err := sys.Root.StopFuture(pid).Wait(); err != nil {
			t.Fatal(err)
		}
	}
}
