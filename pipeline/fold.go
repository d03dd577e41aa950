package pipeline

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// maxBegun is how many beginnings are remembered for the rate.
const maxBegun = 1024

// applyStep folds a fact about a step or an item.
func (s *State) applyStep(fact proto.Message, r *messages.Record) {
	named, ok := fact.(interface{ GetStep() string })
	if !ok {
		return
	}
	ss := s.find(named.GetStep())
	if ss == nil {
		return
	}
	ss.unseen()
	switch f := fact.(type) {
	case *messages.StepStarted:
		s.items -= len(ss.Items)
		ss.begin(f)
		s.items += len(ss.Items)
	case *messages.StepSkipped:
		ss.Status = Skipped
	case *messages.StepFinished:
		ss.finish(f)
	case *messages.StepItemStarted:
		if f.GetItem() != nil && int(f.GetIndex()) == len(ss.Items) { // of a step that repeats
			ss.add(f.GetItem())
			s.items++
		}
		if it := s.Item(ss.Path, int(f.GetIndex())); it != nil {
			s.begin(it, f, r.GetAtUnixMs())
		}
	default:
		if indexed, ok := fact.(interface{ GetIndex() int32 }); ok {
			if it := s.Item(ss.Path, int(indexed.GetIndex())); it != nil {
				if _, ended := fact.(*messages.StepItemFinished); ended {
					ss.pace.note(r.GetAtUnixMs())
				}
				s.applyItem(it, fact)
			}
		}
	}
}

func (ss *StepState) begin(f *messages.StepStarted) {
	ss.Status, ss.Items, ss.tally = Running, nil, tally{}
	for _, item := range f.GetItems() {
		ss.add(item)
	}
}

func (ss *StepState) add(item *messages.RunItem) {
	v, err := decodeJSON(item.GetValueJson())
	if err != nil {
		v = nil // it was written by encodeJSON
	}
	if item.GetOfStep() != "" {
		v = ss.referred(item)
	}
	it := &ItemState{Key: item.GetKey(), Index: len(ss.Items), Value: v, Usage: &messages.Usage{}, step: ss}
	ss.Items = append(ss.Items, it)
	it.to(Pending)
}

// begin starts an attempt of an item; of a step that runs another pipeline, that.
func (s *State) begin(it *ItemState, f *messages.StepItemStarted, atMs int64) {
	it.to(Running)
	it.Start, it.Attempt, it.Input, it.Repairs = f, int(f.GetAttempt()), f.GetInputId(), 0
	it.Repair, it.Deadline = "", f.GetExpiresAtUnixMs()
	if s.begun = append(s.begun, atMs); len(s.begun) > maxBegun {
		s.begun = append([]int64(nil), s.begun[len(s.begun)-maxBegun/2:]...)
	}
	if it.step.Step.Kind != NestedStep {
		return
	}
	s.leave(it)
	nested := s.Plan.nested(it.step.scope.file, it.step.Step)
	inputs, err := decodeMap(f.GetArgumentsJson())
	if nested == nil || err != nil {
		return
	}
	prefix := it.step.Path + "/"
	if it.step.Step.ForEach != nil || it.step.Step.Repeat != nil {
		prefix = it.step.Path + "[" + it.Key + "]/"
	}
	it.inner = newScope(nested, prefix, inputs)
	it.inner.owner, it.inner.depth = it, it.step.scope.depth+1
	s.place(it.inner)
	if it.inner.salt = it.step.scope.salt + it.step.salt; it.Attempt > 1 {
		it.inner.salt += fmt.Sprintf("#attempt %d", it.Attempt)
	}
}

// leave gives up the pipeline of an attempt before. What it has used stays its item's: the steps of the next attempt stand in the places of its own.
func (s *State) leave(it *ItemState) {
	if it.inner == nil {
		return
	}
	used := &messages.Usage{}
	it.inner.each(func(ss *StepState) {
		used = addUsage(used, ss.Usage())
		s.items -= len(ss.Items)
	})
	it.Usage, it.step.tally.used, it.inner = addUsage(it.Usage, used), addUsage(it.step.tally.used, used), nil
}

func (s *State) applyItem(it *ItemState, fact proto.Message) {
	if f, answered := fact.(interface{ GetScripted() bool }); answered {
		s.Scripted = s.Scripted || f.GetScripted()
	}
	switch f := fact.(type) {
	case *messages.StepItemRepaired:
		it.Repairs, it.Input = it.Repairs+1, f.GetInputId()
		it.Repair = f.GetPrompt()
		s.use(it, f.GetUsage())
	case *messages.StepItemRetried:
		it.to(Waiting)
		it.NotBefore, it.Error, it.Class = f.GetNotBeforeUnixMs(), f.GetError(), f.GetClass()
		s.use(it, f.GetUsage())
	case *messages.StepItemFinished:
		out, err := decodeJSON(f.GetOutputJson())
		if err != nil {
			out = nil // it was written by encodeJSON
		}
		it.to(f.GetStatus())
		it.Output, it.Error, it.Class, it.Lineage = out, f.GetError(), f.GetClass(), f.GetConversation()
		s.use(it, f.GetUsage())
	case *messages.HumanAsked:
		it.to(Waiting)
		it.Asked, it.Answer = f, nil
	case *messages.HumanAnswered:
		if it.Asked.GetApprovalId() == f.GetApprovalId() && it.Answer == nil {
			it.Answer = f
			if it.Status == Waiting {
				it.to(Pending)
			}
		}
	}
}

// use counts what an attempt has used.
func (s *State) use(it *ItemState, u *messages.Usage) {
	it.Usage = addUsage(it.Usage, u)
	it.step.tally.used = addUsage(it.step.tally.used, u)
	s.Usage = addUsage(s.Usage, u)
}

func addUsage(a, b *messages.Usage) *messages.Usage {
	return &messages.Usage{
		InputTokens: a.GetInputTokens() + b.GetInputTokens(), OutputTokens: a.GetOutputTokens() + b.GetOutputTokens(),
		CachedTokens: a.GetCachedTokens() + b.GetCachedTokens(), ReasoningTokens: a.GetReasoningTokens() + b.GetReasoningTokens(),
		CostMicroUsd: a.GetCostMicroUsd() + b.GetCostMicroUsd(),
	}
}

func (ss *StepState) finish(f *messages.StepFinished) {
	ss.Status, ss.Error = f.GetStatus(), f.GetError()
	st := ss.Step
	switch {
	case len(ss.Items) == 0 && !st.Fan():
	case st.Fan():
		out := make([]any, len(ss.Items))
		for i, it := range ss.Items {
			out[i] = it.Output
		}
		ss.Output = out
	default:
		ss.Output = ss.Items[len(ss.Items)-1].Output
	}
}
