package pipeline

import (
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// maxQuestions is how many questions of a run wait for people at once.
const maxQuestions = 1000

// rooms are how many items may begin besides those under way: of those that somebody works on, of pipelines by their depth, and of questions to people. Pipelines
// are counted apart, and at each depth for itself: one that is under way needs room for what it begins, which those beside it may not take. Those that wait for people
// alone take none.
func (s *State) rooms() (items int, pipelines map[int]int, questions int) {
	most := s.Plan.Root.Limits.Concurrency
	if most == 0 {
		most = DefaultConcurrency
	}
	r := &rooming{pipelines: make(map[int]int)}
	r.count(s.top)
	for depth := range maxNested {
		r.pipelines[depth] = most - r.pipelines[depth]
	}
	return most - r.items, r.pipelines, maxQuestions - r.questions
}

// rooming counts what is under way.
type rooming struct {
	items, questions int
	pipelines        map[int]int
}

// count goes through a pipeline, and says whether it only waits for people.
func (r *rooming) count(sc *scope) bool {
	asks, works := false, false
	for _, st := range sc.file.Steps {
		ss := sc.steps[st.ID]
		for _, i := range ss.tally.under {
			switch it := ss.Items[i]; {
			case it.Asks():
				r.questions++
				asks = true
			case it.Status == Waiting:
				works = true
			case it.inner == nil:
				r.items++
				works = true
			case r.count(it.inner):
				asks = true
			default:
				r.pipelines[sc.depth]++
				works = true
			}
		}
	}
	return asks && !works
}

// free says whether there is room for an item of a step.
func (d *decider) free(ss *StepState) bool {
	if ss.Step.Kind == NestedStep {
		return d.rate > 0 && d.pipelines[ss.scope.depth] > 0
	}
	return d.rate > 0 && d.room > 0
}

// take says that an item of a step begins.
func (d *decider) take(ss *StepState, f *messages.StepItemStarted) {
	if ss.Step.Kind == NestedStep {
		d.pipelines[ss.scope.depth]--
	} else {
		d.room--
	}
	d.rate--
	d.say(f)
}

// most is how many items of a step are under way at once.
func (d *decider) most(ss *StepState) int {
	if ss.Step.Concurrency > 0 {
		return ss.Step.Concurrency
	}
	return maxItems // what the whole run may have under way counts
}

// What the facts of one append may be: so many, of so many bytes; and so many questions, which stand in listings.
const (
	mostFacts     = 1000
	mostBytes     = 4 << 20
	mostQuestions = 64
)

// atOnce are those of the facts of a decision that are written down together, at least one. The rest is decided on again.
func atOnce(facts []proto.Message) []proto.Message {
	var b Batch
	for i, f := range facts {
		if !b.Takes(f) {
			return facts[:i]
		}
	}
	return facts
}

// Batch counts the facts of an append. The zero value is an empty one.
type Batch struct{ facts, bytes, questions int }

// Takes says whether one more fact can be in the same append; the first one always can.
func (b *Batch) Takes(f proto.Message) bool {
	b.facts++
	b.bytes += proto.Size(f)
	if _, asks := f.(*messages.HumanAsked); asks {
		b.questions++
	}
	return b.facts == 1 || b.facts <= mostFacts && b.bytes <= mostBytes && b.questions <= mostQuestions
}
