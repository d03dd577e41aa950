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
}

// Decide says which facts come next, in order. None: the run waits for what is under way, for a person or for a time, or is
// over. It changes nothing that can be seen: what it gives is to be written down and applied, then it is asked again. One decision is made at a time.
func (s *State) Decide(w World) []proto.Message {
	if s.top == nil || s.Finished != nil {
		return nil
	}
	d := &decider{s: s, w: w, room: s.room(), rate: s.allowance(w.Now)}
	if s.Cancel != nil {
		d.cancelAll(s.top)
		if len(d.out) == 0 {
			d.say(&messages.RunFinished{Status: Cancelled, Error: s.Cancel.GetReason(), Usage: s.Usage})
		}
		return d.out
	}
	d.scope(s.top)
	if len(d.out) > 0 {
		return d.out
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
}

func (d *decider) say(facts ...proto.Message) { d.out = append(d.out, facts...) }

// room is how many items may be under way besides those that are.
func (s *State) room() int {
	most := s.Plan.Root.Limits.Concurrency
	if most == 0 {
		most = DefaultConcurrency
	}
	s.top.live(func(ss *StepState) {
		for _, i := range ss.tally.under {
			if it := ss.Items[i]; it.Status == Running && it.inner == nil {
				most--
			}
		}
	})
	return most
}

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
	items, err := d.items(ss)
	if err != nil {
		d.fail(ss, err.Error())
		return
	}
	d.say(&messages.StepStarted{Step: ss.Path, Items: items})
}

func (d *decider) fail(ss *StepState, why string) {
	d.say(&messages.StepFinished{Step: ss.Path, Status: Failed, Error: why})
}

// maxItems is how many items a step has at most.
const maxItems = 10_000

// items are what a step works on.
func (d *decider) items(ss *StepState) ([]*messages.RunItem, error) {
	st := ss.Step
	switch {
	case st.Kind == ParallelStep:
		var out []*messages.RunItem
		for i, agent := range st.Parallel {
			out = append(out, &messages.RunItem{Key: unique(out, agent, i), ValueJson: encodeJSON(agent)})
		}
		return out, nil
	case st.ForEach == nil && st.Repeat != nil, st.Kind == GroupStep:
		return nil, nil // they come one by one
	case st.ForEach == nil:
		return []*messages.RunItem{{}}, nil
	}
	v, err := st.ForEach.eval(d.env(ss, nil))
	if err != nil {
		return nil, fmt.Errorf("foreach: %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("foreach: %s gives %s, and not a list", strings.TrimSpace(st.ForEach.Src), clip(Show(v)))
	}
	if len(list) > maxItems {
		return nil, fmt.Errorf("foreach: %d items, and a step has at most %d", len(list), maxItems)
	}
	seen := make(map[string]bool, len(list))
	out := make([]*messages.RunItem, 0, len(list))
	for i, item := range list {
		key := keyOf(item, i)
		if st.Key != nil {
			env := d.env(ss, nil)
			env[st.As], env["index"] = item, i
			k, err := st.Key.eval(env)
			if err != nil {
				return nil, fmt.Errorf("key of item %d: %w", i, err)
			}
			key = Show(k)
		}
		if seen[key] {
			key = fmt.Sprintf("%s#%d", key, i)
		}
		seen[key] = true
		out = append(out, &messages.RunItem{Key: key, ValueJson: encodeJSON(item)})
	}
	return out, nil
}

func unique(items []*messages.RunItem, key string, i int) string {
	for _, it := range items {
		if it.GetKey() == key {
			return fmt.Sprintf("%s#%d", key, i)
		}
	}
	return key
}

// keyOf names an item that has no key: by itself when it is a short text, else by its place.
func keyOf(item any, i int) string {
	switch v := item.(type) {
	case string:
		if v != "" && len(v) <= 200 && !strings.ContainsAny(v, "\n[]") {
			return v
		}
	case map[string]any:
		for _, k := range []string{"id", "key", "name", "path"} {
			if t, ok := v[k].(string); ok && t != "" && len(t) <= 200 && !strings.ContainsAny(t, "\n[]") {
				return t
			}
		}
	}
	return fmt.Sprint(i)
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
	return out, nil
}

// cancelAll ends what is under way.
func (d *decider) cancelAll(sc *scope) {
	for _, st := range sc.file.Steps {
		for _, it := range sc.steps[st.ID].Items {
			if it.inner != nil {
				d.cancelAll(it.inner)
			}
			if it.Start != nil && it.open() || it.Status == Waiting {
				d.say(d.finished(it, Cancelled, "", "the run was cancelled"))
			}
		}
	}
}
