package pipeline

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// World is what a decision may know besides the facts.
type World struct {
	Now    time.Time
	Read   func(path string) (string, error) // a file of the run's folder; nil: there are none
	Nobody bool                              // answers questions

	// Ending says of an item that has to end whether its worker still is to say what it used; nil: of none. It is over when the worker has said so.
	Ending func(it *ItemState) bool
}

// Decide says which facts come next, in order. None: the run waits for what is under way, for a person or for a time, or is
// over. It changes nothing that can be seen: what it gives is to be written down and applied, then it is asked again. One decision is made at a time.
func (s *State) Decide(w World) []proto.Message {
	if s.top == nil || s.Finished != nil {
		return nil
	}
	d := &decider{s: s, w: w, rate: s.allowance(w.Now), items: s.items}
	d.room, d.pipelines, d.questions = s.rooms()
	if s.Cancel != nil {
		if !d.cancelAll(s.top) && len(d.out) == 0 {
			d.say(&messages.RunFinished{Status: Cancelled, Error: s.Cancel.GetReason(), Usage: s.Usage})
		}
		return atOnce(d.out)
	}
	d.scope(s.top)
	if len(d.out) > 0 {
		return atOnce(d.out)
	}
	if bad := s.top.broken(); bad != nil && !s.top.busy() {
		d.say(&messages.RunFinished{Status: Failed, Error: bad.why(), Usage: s.Usage})
	} else if bad == nil && s.top.done() {
		d.end()
	}
	return d.out
}

// decider collects the facts of one decision.
type decider struct {
	s    *State
	w    World
	room int // items that may still begin
	rate int // how many of them for the rate
	out  []proto.Message

	pipelines map[int]int // by depth: how many pipelines may still begin there
	questions int         // how many more people may be asked
	items     int         // that there are, with those that the facts begin
}

func (d *decider) say(facts ...proto.Message) { d.out = append(d.out, facts...) }

// allowance is how many items may begin now for the rate.
func (s *State) allowance(now time.Time) int {
	l := s.Plan.Root.Limits
	if l.Rate == 0 {
		return 1 << 30
	}
	left := l.Rate
	for _, at := range s.begun {
		if now.UnixMilli()-at < l.Per.Milliseconds() {
			left--
		}
	}
	return max(left, 0)
}

// done says whether every step of a scope is over.
func (sc *scope) done() bool {
	for _, ss := range sc.steps {
		if !ss.over() {
			return false
		}
	}
	return true
}

// broken is the first step whose failure ends the scope.
func (sc *scope) broken() *StepState {
	for _, st := range sc.file.Steps {
		if ss := sc.steps[st.ID]; ss.fatal() {
			return ss
		}
	}
	return nil
}

// busy says whether anything of a scope is under way.
func (sc *scope) busy() bool {
	for _, ss := range sc.steps {
		if ss.Status == Running && len(ss.tally.under) > 0 {
			return true
		}
	}
	return false
}

func (ss *StepState) why() string {
	return fmt.Sprintf("step %s failed: %s", ss.Path, ss.Error)
}

// scope decides about every step of a pipeline.
func (d *decider) scope(sc *scope) {
	broken := sc.broken() != nil
	for _, st := range sc.file.Steps {
		ss := sc.steps[st.ID]
		switch {
		case ss.Status == Pending && !broken:
			d.pending(ss)
		case ss.Status == Running:
			d.running(ss, broken)
		}
	}
}

// pending starts a step, or skips it, once everything that it needs is over.
func (d *decider) pending(ss *StepState) {
	if !ss.met() {
		return
	}
	skipped := 0
	for _, need := range ss.Step.Needs {
		if ss.scope.steps[need].Status == Skipped {
			skipped++
		}
	}
	if skipped > 0 && skipped == len(ss.Step.Needs) {
		d.say(&messages.StepSkipped{Step: ss.Path, Reason: "all that it needs was skipped"})
		return
	}
	if ss.Step.When != nil {
		v, err := ss.Step.When.eval(d.env(ss, nil))
		if err != nil {
			d.fail(ss, "when: "+err.Error())
			return
		}
		if v != true {
			d.say(&messages.StepSkipped{Step: ss.Path, Reason: "when: " + strings.TrimSpace(ss.Step.When.Src)})
			return
		}
	}
	items, err := d.itemsOf(ss)
	if err == nil {
		err = d.counts(len(items))
	}
	if err != nil {
		d.fail(ss, err.Error())
		return
	}
	d.say(&messages.StepStarted{Step: ss.Path, Items: items})
}

func (d *decider) fail(ss *StepState, why string) {
	d.say(&messages.StepFinished{Step: ss.Path, Status: Failed, Error: why})
}

// end evaluates what the run gives back.
func (d *decider) end() {
	out, err := d.outputs(d.s.top)
	if err != nil {
		d.say(&messages.RunFinished{Status: Failed, Error: err.Error(), Usage: d.s.Usage})
		return
	}
	d.say(&messages.RunFinished{Status: Succeeded, OutputsJson: encodeJSON(out), Usage: d.s.Usage})
}

func (d *decider) outputs(sc *scope) (map[string]any, error) {
	env := d.base(sc)
	env["steps"] = sc.view(sc.file.stepIDs())
	out := make(map[string]any, len(sc.file.Outputs))
	for _, o := range sc.file.Outputs {
		v, err := o.Value.value(env)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		out[o.Name] = v
	}
	if len(encodeJSON(out)) > maxValue {
		return nil, fmt.Errorf("the outputs are longer than %d bytes together; give back less of them, or write it to a file with write_csv", maxValue)
	}
	return out, nil
}

// ending says whether an item that has to end waits for the last word of its worker.
func (d *decider) ending(it *ItemState) bool {
	return d.w.Ending != nil && it.Status == Running && it.step.Step.speaks() && d.w.Ending(it)
}

// speaks says whether workers work on the items of a step, who use tokens.
func (s *Step) speaks() bool {
	return s.Kind == AgentStep || s.Kind == ParallelStep || s.Kind == GroupStep
}

// cancelAll ends what is under way. It is true while somebody is still to have the last word: the pipelines around that wait for it.
func (d *decider) cancelAll(sc *scope) (ending bool) {
	for _, st := range sc.file.Steps {
		for _, it := range sc.steps[st.ID].Items {
			if len(d.out) >= mostFacts {
				return true // the rest is decided on next
			}
			if it.inner != nil && d.cancelAll(it.inner) || d.ending(it) {
				ending = true
				continue
			}
			if it.Start != nil && it.open() || it.Status == Waiting {
				d.say(d.finished(it, Cancelled, "", "the run was cancelled"))
			}
		}
	}
	return ending
}
