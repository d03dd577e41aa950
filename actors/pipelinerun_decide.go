package actors

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// deciding is one decision of a run: of a command, of results, or of what comes by itself. It only reads the state.
type deciding struct {
	run   *pipeline.State
	world pipeline.World
	known pipeline.Options // what a changed plan may name
	asked *runOrder
	ended []*itemEnded

	ending map[string]time.Time    // since when workers are asked to end, by the inputs
	toEnd  []*messages.RecallInput // those that are to be asked now
}

// lastWord is how long a worker that has to end is given to say what it used. After that its item is over, and what it used is not known to the run.
const lastWord = 2 * time.Second

// isEnding says whether the worker of an item that has to end is still to say what it used, and has it asked.
func (d *deciding) isEnding(it *pipeline.ItemState) bool {
	since, asked := d.ending[it.Input]
	if !asked {
		d.toEnd = append(d.toEnd, recallOf(it))
		return true
	}
	return d.world.Now.Before(since.Add(lastWord))
}

func (d *deciding) decide() *runDecided {
	if d.asked != nil {
		facts, fail := d.command()
		return &runDecided{facts: facts, asked: d.asked, fail: fail}
	}
	var facts []proto.Message
	var batch pipeline.Batch
	seen := make(map[string]bool)
	for i, e := range d.ended {
		if f := d.run.Settle(d.world, e.step, e.index, e.input, e.result); f != nil && !seen[e.key()] {
			if !batch.Takes(f) {
				return &runDecided{facts: facts, left: d.ended[i:]}
			}
			seen[e.key()] = true
			facts = append(facts, f)
		}
	}
	if len(facts) == 0 {
		d.world.Ending = d.isEnding
		facts = d.run.Decide(d.world)
	}
	return &runDecided{facts: facts, toEnd: d.toEnd}
}

func (d *deciding) command() ([]proto.Message, *messages.Failure) {
	switch m := d.asked.cmd.(type) {
	case *messages.CancelRun:
		if d.run.Finished != nil || d.run.Cancel != nil {
			return nil, nil
		}
		return []proto.Message{&messages.RunCancelled{By: m.GetBy(), Reason: orText(m.GetReason(), "cancelled")}}, nil
	case *messages.ResumeRun:
		return d.resume(m)
	case *messages.ResolveApproval:
		return d.resolve(m)
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("a run does not know %T", d.asked.cmd), "")
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// resume lets a run go on. A changed file is refused, unless somebody says that it counts.
func (d *deciding) resume(m *messages.ResumeRun) ([]proto.Message, *messages.Failure) {
	var facts []proto.Message
	if len(m.GetPlanHash()) > 0 && !bytes.Equal(m.GetPlanHash(), d.run.Plan.Hash) {
		if !m.GetAcceptChanges() {
			return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("the pipeline has changed since run %s began", d.run.ID),
				"run it as it was, without naming the file; or let the change count with --accept-changes")
		}
		plan, err := pipeline.FromSources(m.GetSources(), knownTo(m.GetBounded(), d.known))
		if err == nil {
			err = plan.Bounds(m.GetBounded())
		}
		if err == nil {
			_, err = plan.Root.Refill(d.run.Given())
		}
		if err != nil {
			return nil, refusedPlan(err, "the changed pipeline: ")
		}
		facts = append(facts, &messages.PlanChanged{PlanHash: m.GetPlanHash(), Sources: m.GetSources(), By: m.GetBy(), Bounded: m.GetBounded()})
	}
	if f := d.run.Finished; f != nil && f.GetStatus() != pipeline.Succeeded || len(facts) > 0 {
		facts = append(facts, &messages.RunResumed{By: m.GetBy()})
	}
	return facts, nil
}

// refusedPlan refuses a pipeline that cannot be run, or not by who asks.
func refusedPlan(err error, what string) *messages.Failure {
	var f *messages.Failure
	if errors.As(err, &f) {
		return messages.Fail(f.GetCode(), what+f.GetMessage(), f.GetHint())
	}
	return messages.Fail(messages.CodeBadRequest, what+err.Error(), "check it with: troupe pipeline validate")
}

// resolve takes a person's answer to a question of the run.
func (d *deciding) resolve(m *messages.ResolveApproval) ([]proto.Message, *messages.Failure) {
	for _, ss := range d.run.Steps() {
		for _, it := range ss.Items {
			if it.Asked.GetApprovalId() != m.GetApprovalId() || it.Asked == nil {
				continue
			}
			if it.Answer != nil || it.Status != pipeline.Waiting {
				return nil, AlreadyAnswered(m.GetApprovalId(), orText(it.Answer.GetChoice(), it.Status))
			}
			if choices := it.Asked.GetChoices(); messages.NoChoice(choices, m) { // what somebody mistyped is not taken for the first one
				return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%.80q is no choice of step %s", m.GetMessage(), ss.Path), pipeline.DidYouMean(m.GetMessage(), choices))
			}
			return []proto.Message{&messages.HumanAnswered{
				Step: ss.Path, Index: it.Asked.GetIndex(), ApprovalId: m.GetApprovalId(), Choice: messages.ChoiceOf(it.Asked.GetChoices(), m), By: m.GetBy(), Message: m.GetMessage(),
			}}, nil
		}
	}
	return nil, NotAsked(m.GetApprovalId())
}
