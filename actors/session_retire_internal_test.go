package actors

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// TestWorkThatEndsAfterItsItemSaysAgainThatItIsOver because it may have asked for its worker after that was said first.
func TestWorkThatEndsAfterItsItemSaysAgainThatItIsOver(t *testing.T) {
	sys := actor.NewActorSystem()
	defer sys.Shutdown()
	said := make(chan any, 8)
	run := actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*actor.Started); ok {
			r := &PipelineRun{under: true}
			r.heard(c, &itemEnded{step: "a", input: "in_1", recall: &messages.RecallInput{WorkerId: "wrk_1", InputId: "in_1"}})
		}
	})
	sys.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Spawn(run)
		case *messages.RecallInput, *messages.StepOver:
			said <- m
		}
	}))
	for range 2 {
		select {
		case m := <-said:
			if over, ok := m.(*messages.StepOver); ok {
				if over.GetWorkerId() != "wrk_1" {
					t.Errorf("it says %v", over)
				}
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it does not say that the worker's step is over")
		}
	}
}

// TestAWorkerThatLeavesIsNotKeptByAWordThatItsItemIsOver: it rests, and what was for it has been handled.
func TestAWorkerThatLeavesIsNotKeptByAWordThatItsItemIsOver(t *testing.T) {
	s := newSession(&Services{})
	for _, w := range []*member{{id: "wrk_1", retiring: true}, {id: "wrk_2", dormant: true}} {
		s.workers[w.id] = w
		s.recall(nil, &messages.RecallInput{WorkerId: w.id, InputId: "in_1"})
		if w.queue.Len() > 0 || !w.dormant && !w.retiring {
			t.Errorf("%s is woken by it", w.id)
		}
	}
}
