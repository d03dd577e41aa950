package actors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
)

// awake are the workers of a session that are in memory.
func awake(h *actortest.House, session string) (ids []string) {
	for _, bucket := range h.Sys.ProcessRegistry.LocalPIDs.LocalPIDs {
		for _, id := range bucket.Keys() {
			if rest, ok := strings.CutPrefix(id, h.Root.GetId()+"/"+session+"/"+messages.WorkerPrefix); ok && !strings.Contains(rest, "/") {
				ids = append(ids, messages.WorkerPrefix+rest)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// onlyFirst waits until none but the first worker of a session is in memory.
func onlyFirst(t *testing.T, h *actortest.House, session, first string) {
	t.Helper()
	actortest.Until(t, "the workers of items have left", func() bool { return slices.Equal(awake(h, session), []string{first}) })
}

const stepAndQuestion = `
steps:
  - {id: a, agent: default, prompt: x}
  - {id: b, needs: [a], human: {message: Well?}}
`

// itemWorker waits until a step asks, and gives the worker of the one before.
func itemWorker(t *testing.T, h *actortest.House, session, run string) string {
	t.Helper()
	actortest.Until(t, "the run asks", func() bool { return len(stepOf(h, session, run, "b").GetItemViews()) == 1 })
	return stepOf(h, session, run, "a").GetItemViews()[0].GetWorkerId()
}

func TestAWorkerOfAnItemThatIsOverLeavesAgainWheneverItIsWoken(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, first, run := startRun(t, h, stepAndQuestion)
	w := itemWorker(t, h, s, run)
	onlyFirst(t, h, s, first)
	if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{WorkerId: w}); len(got.GetTurns()) != 1 {
		t.Errorf("%d turns", len(got.GetTurns()))
	}
	onlyFirst(t, h, s, first)
	again := &messages.RunInput{Input: &messages.SubmitInput{WorkerId: w, Parts: actortest.Text("and now?")}}
	if got := actortest.Ask[*messages.TurnResult](h, s, again); got.GetOutcome() != messages.TurnCompleted_DONE {
		t.Errorf("a turn afterwards: %v", got)
	}
	onlyFirst(t, h, s, first)
}

// TestAWorkerThatIsMadeAfterItsItemWasOverLeavesMemory when who asked for it says again that it is over.
func TestAWorkerThatIsMadeAfterItsItemWasOverLeavesMemory(t *testing.T) {
	gate, m := gated()
	h := actortest.New(t, actortest.Options{Model: m})
	s, first, run := startRun(t, h, "steps: [{id: b, human: {message: Well?}}]\n")
	session := actor.NewPID(h.Sys.Address(), h.Root.GetId()+"/"+s)
	exec := messages.NewID(messages.ExecPrefix)
	worker := messages.WorkerPrefix + strings.TrimPrefix(exec, messages.ExecPrefix)
	over := []proto.Message{&messages.RecallInput{WorkerId: worker, InputId: "in_1", By: "pipeline"}, &messages.StepOver{WorkerId: worker}}
	made := &messages.SpawnStep{RunId: run, ExecId: exec, Agent: actors.DefaultAgent, InputId: "in_1", Prompt: "wait"}
	for _, word := range slices.Concat(over, []proto.Message{made}) {
		h.Sys.Root.Send(session, word)
	}
	actortest.Wait(t, "its model's call", gate.Came)
	for _, word := range over {
		h.Sys.Root.Send(session, word)
	}
	onlyFirst(t, h, s, first)
	if by := actortest.Of[*messages.CancelRequested](h.Facts(worker)); len(by) != 1 {
		t.Errorf("its turn was cancelled as %v", by)
	}
}

func TestAWorkerThatFailedWhileItsItemEndedLeavesMemory(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, first, run := startRun(t, h, stepAndQuestion)
	w := itemWorker(t, h, s, run)
	onlyFirst(t, h, s, first)
	session := actor.NewPID(h.Sys.Address(), h.Root.GetId()+"/"+s)
	// It works again, fails, and its item is over before its successor is there.
	h.Sys.Root.Send(session, &messages.SpawnStep{RunId: run, ExecId: messages.ExecPrefix + strings.TrimPrefix(w, messages.WorkerPrefix), Agent: actors.DefaultAgent})
	actortest.Ask[*messages.History](h, s, &messages.ReadHistory{WorkerId: w})
	h.Sys.Root.Send(session, &messages.WorkerFailed{WorkerId: w, Reason: "a test"})
	h.Sys.Root.Send(session, &messages.StepOver{WorkerId: w})
	if got := actortest.Ask[*messages.History](h, s, &messages.ReadHistory{WorkerId: w}); len(got.GetTurns()) != 1 {
		t.Errorf("%d turns", len(got.GetTurns()))
	}
	onlyFirst(t, h, s, first)
}

// TestTheNextProcessKeepsNoWorkerWhoseItemIsOver though its turn was under way when the process before ended, and it was no more said that it is to end.
func TestTheNextProcessKeepsNoWorkerWhoseItemIsOver(t *testing.T) {
	for _, status := range []string{"cancelled", "succeeded"} {
		t.Run(status, func(t *testing.T) {
			gate, m := gated()
			o := actortest.Options{Store: stored(t), DataDir: t.TempDir(), Model: m}
			h := actortest.New(t, o)
			s, first, run := startRun(t, h, "steps: [{id: a, agent: default, prompt: wait}]\n")
			actortest.Wait(t, "the call", gate.Came)
			h.Stop()
			journalled(t, o.Store, run, &messages.StepItemFinished{Step: "a", Status: status, OutputJson: `"x"`})
			h = actortest.New(t, o)
			actortest.Ask[*messages.RunView](h, s, &messages.ShowRun{RunId: run})
			if status == "succeeded" { // nobody recalls what may still be under way: it ends by itself
				actortest.Wait(t, "the call", gate.Came)
				gate.Open()
			}
			onlyFirst(t, h, s, first)
		})
	}
}

func TestThoseWhomAnItemHasDelegatedToLeaveMemoryAfterIt(t *testing.T) {
	for name, m := range map[string]actortest.Model{
		"waited for":        family(actortest.Say("done"), delegate("1", "count")),
		"in the background": apart(actortest.Say("done"), inBackground("1", "count")),
	} {
		t.Run(name, func(t *testing.T) {
			h := actortest.New(t, actortest.Options{Model: m})
			s, first, run := startRun(t, h, stepAndQuestion)
			itemWorker(t, h, s, run)
			actortest.Until(t, "the child is there", func() bool { return len(workers(h, s)) == 3 })
			onlyFirst(t, h, s, first)
		})
	}
}
