package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// running decides about a step under way: which items begin, which are over, and whether it is.
func (d *decider) running(ss *StepState, broken bool) {
	before := len(d.out)
	under := len(ss.tally.under)
	stop := broken || ss.tally.lost > 0 && ss.Step.OnError != Continue && ss.Step.Quorum == 0 && ss.Step.Kind != GroupStep
	held := !ss.met()
	for _, i := range ss.tally.under {
		switch it := ss.Items[i]; {
		case it.Status == Running:
			d.watch(it)
		case (!held || stop) && d.waiting(it, stop):
			under--
		}
	}
	if !stop && !held {
		under += d.starts(ss, under)
	}
	enough := !held
	if ss.Step.Repeat != nil && under == 0 && !stop && !held && ss.rested() { // a round follows one that is over
		enough = d.round(ss)
	}
	if ss.Step.Kind == GroupStep && under == 0 && !stop && !held && ss.rested() { // one speaks after the other
		enough = d.word(ss)
	}
	switch {
	case len(d.out) != before || under > 0 || !stop && (!enough || !ss.settled()):
	case stop && ss.Step.Kind == GroupStep:
		d.fail(ss, "another step has failed before everybody had spoken")
	default:
		d.finish(ss)
	}
}

// starts begins as many items as there is room for beside those under way, and says how many it began.
func (d *decider) starts(ss *StepState, under int) (begun int) {
	for _, i := range ss.tally.pending {
		if under+begun >= d.most(ss) || len(d.out) >= mostFacts {
			break
		}
		if d.start(ss.Items[i]) {
			begun++
		} else if !ss.Step.asks() {
			break // nor is there room for the next one
		}
	}
	return begun
}

// asks says whether a person is asked before an item begins.
func (s *Step) asks() bool {
	return s.Kind == HumanStep || s.Approve != nil && len(s.Approve.Before) == 0
}

// met says whether all that a step needs is over. Of one under way it may be otherwise when its plan has changed.
func (ss *StepState) met() bool {
	for _, need := range ss.Step.Needs {
		if n := ss.scope.steps[need]; !n.over() || n.fatal() {
			return false
		}
	}
	return true
}

// rested says whether the newest item is over, or there is none.
func (ss *StepState) rested() bool {
	n := len(ss.Items)
	return n == 0 || !ss.Items[n-1].open()
}

// settled says whether every item is over.
func (ss *StepState) settled() bool {
	return ss.left() == 0 && (ss.Step.Repeat == nil || len(ss.Items) > 0)
}

// watch looks after an item under way: its time, and the pipeline that it is.
func (d *decider) watch(it *ItemState) {
	if at := it.Deadline; at != 0 && d.w.Now.UnixMilli() >= at {
		if it.inner != nil {
			before := len(d.out)
			if d.cancelAll(it.inner) || len(d.out) > before {
				return
			}
		}
		if d.ending(it) {
			return
		}
		d.say(d.late(it, nil))
		return
	}
	if it.inner == nil {
		return
	}
	before := len(d.out)
	d.scope(it.inner)
	switch bad := it.inner.broken(); {
	case len(d.out) > before:
	case bad != nil && !it.inner.busy():
		d.say(d.finished(it, Failed, "", bad.why()))
	case bad == nil && it.inner.done():
		out, err := d.outputs(it.inner)
		if err != nil {
			d.say(d.finished(it, Failed, "", err.Error()))
			return
		}
		f := d.finished(it, Succeeded, "", "")
		f.OutputJson = encodeJSON(out)
		d.say(f)
	}
}

// late is what follows an attempt whose time is over.
func (d *decider) late(it *ItemState, used *messages.Usage) proto.Message {
	return d.after(it, "timeout", fmt.Sprintf("it took longer than %s", d.s.timeout(it.step)), used)
}

// cut is what a worker has come to that had to end, and nil when it had not: its time is over, or that of a pipeline around it, or the run is cancelled.
func (d *decider) cut(it *ItemState, used *messages.Usage) proto.Message {
	now := d.w.Now.UnixMilli()
	over := func(it *ItemState) bool { return it.Deadline != 0 && now >= it.Deadline }
	cancelled := d.s.Cancel != nil
	for owner := it.step.scope.owner; owner != nil; owner = owner.step.scope.owner {
		cancelled = cancelled || over(owner)
	}
	switch {
	case !it.step.Step.speaks():
		return nil
	case cancelled:
		f := d.finished(it, Cancelled, "", "the run was cancelled")
		f.Usage = used
		return f
	case over(it):
		return d.late(it, used)
	}
	return nil
}

// waiting looks after an item that waits. It is true when it is under way no longer.
func (d *decider) waiting(it *ItemState, stop bool) bool {
	now := d.w.Now.UnixMilli()
	asked := it.Asked
	switch {
	case asked != nil && it.Answer == nil:
		if at := asked.GetExpiresAtUnixMs(); at != 0 && now >= at || d.w.Nobody {
			d.say(&messages.HumanAnswered{Step: asked.GetStep(), Index: asked.GetIndex(), ApprovalId: asked.GetApprovalId(), Choice: asked.GetOnTimeout(), Expired: true})
			return true
		}
		return false
	case stop:
		d.say(d.finished(it, Cancelled, it.Class, "not tried again: another step or item has failed"))
		return true
	case now >= it.NotBefore:
		d.start(it) // it stays under way, or waits on for room: its place is nobody else's
	}
	return false
}

// start begins an item, or asks the person whose word it needs. It is false when there is no room.
func (d *decider) start(it *ItemState) bool {
	st := it.step.Step
	if st.asks() {
		if it.Answer == nil {
			if d.questions <= 0 {
				return false
			}
			d.questions--
			d.say(d.ask(it))
			return true
		}
		if f := d.answered(it); f != nil {
			d.say(f)
			return true
		}
	}
	if !d.free(it.step) {
		return false
	}
	f, err := d.begin(it.step, it, it.Index, it.Attempt+1)
	if err != nil {
		d.say(d.finished(it, Failed, "", err.Error()))
		return true
	}
	d.take(it.step, f)
	return true
}

// begin evaluates what an attempt is asked.
func (d *decider) begin(ss *StepState, it *ItemState, index, attempt int) (*messages.StepItemStarted, error) {
	st, env := ss.Step, d.env(ss, it)
	key := ""
	if it != nil {
		key = it.Key
	}
	f := &messages.StepItemStarted{
		Step: ss.Path, Key: key, Index: int32(index), Attempt: int32(attempt), //nolint:gosec // at most maxItems, and few attempts
		ExecId: d.id(messages.ExecPrefix, ss.name(), index, attempt), InputId: d.id(messages.InputPrefix, ss.name(), index, attempt),
	}
	if t := d.s.timeout(ss); t > 0 {
		f.ExpiresAtUnixMs = d.w.Now.Add(t).UnixMilli()
	}
	var err error
	switch st.Kind {
	case AgentStep, ParallelStep, GroupStep:
		err = d.prompt(f, ss, it, env)
	case ToolStep, NestedStep:
		var args any
		if args, err = st.Args.eval(env); err == nil {
			if args == nil {
				args = map[string]any{}
			}
			if st.Kind == NestedStep {
				given, _ := args.(map[string]any)
				args, err = d.s.Plan.nested(ss.scope.file, st).Fill(given, d.w.Read)
			}
			if f.ArgumentsJson = encodeJSON(args); len(f.GetArgumentsJson()) > maxValue {
				return nil, fmt.Errorf("with: the values are longer than %d bytes together", maxValue)
			}
		}
	case HumanStep:
	}
	return f, err
}

func (d *decider) prompt(f *messages.StepItemStarted, ss *StepState, it *ItemState, env map[string]any) error {
	st := ss.Step
	var err error
	if f.Prompt, err = st.Prompt.string(env); err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	if f.Agent = st.Agent; st.Kind == ParallelStep {
		f.Agent, _ = it.Value.(string)
	}
	if st.Kind == GroupStep {
		d.speaks(f, it)
	}
	model := st.Model
	if a := ss.scope.file.Agent(f.GetAgent()); model == nil && a != nil {
		model = a.Model
	}
	if model == nil && d.s.Started.GetModel() == "" {
		model = ss.scope.file.Defaults.Model
	}
	if f.Model, err = model.string(env); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if d.s.bounded && messages.ModelInFile(f.GetModel()) {
		return fmt.Errorf("model: %s", outOfBounds(f.GetModel()).GetMessage())
	}
	f.Model = cmp.Or(f.GetModel(), d.s.Started.GetModel())
	if st.Conversation == nil {
		return nil
	}
	v, err := st.Conversation.eval(env)
	if err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	if v == nil {
		return nil // of a step that was skipped: it begins a new one
	}
	c, _ := v.(map[string]any)
	id, _ := c["conversation"].(string)
	seq, _ := c["seq"].(int)
	if id == "" || seq < 0 {
		return fmt.Errorf("conversation: %s is none; take that of a step, as in ${{ steps.draft.conversation }}", clip(Show(v)))
	}
	f.Origin = &messages.Lineage{Conversation: id, Seq: uint64(seq)}
	return nil
}

// timeout is how long an attempt of a step may take. A person has the time of the question.
func (s *State) timeout(ss *StepState) time.Duration {
	if ss.Step.Kind == NestedStep {
		return ss.Step.Timeout
	}
	return cmp.Or(ss.Step.Timeout, ss.scope.file.Defaults.Timeout)
}

// id makes an id that is the same whenever it is made: what was begun is found again by it.
func (d *decider) id(prefix, path string, index, n int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{d.s.ID, path, strconv.Itoa(index), strconv.Itoa(n)}, "\x00")))
	return prefix + hex.EncodeToString(sum[:16])
}

// ask is the question to a person.
func (d *decider) ask(it *ItemState) proto.Message {
	st, env := it.step.Step, d.env(it.step, it)
	f := &messages.HumanAsked{
		Step: it.step.Path, Index: int32(it.Index), ApprovalId: d.id(messages.ApprovalPrefix, it.step.name(), it.Index, it.Attempt+int(d.s.Seq)), //nolint:gosec // as above
	}
	var err error
	var shown any
	var wait time.Duration
	if h := st.Human; h != nil {
		f.Choices, f.OnTimeout, wait = h.Choices, h.OnTimeout, h.Timeout
		if f.Message, err = h.Message.string(env); err == nil {
			shown, err = h.Show.eval(env)
		}
	} else {
		f.Choices, f.OnTimeout, wait = []string{"approve", "reject"}, "reject", st.Approve.Timeout
		f.Message, err = st.Approve.Message.string(env)
		f.Message = cmp.Or(f.Message, fmt.Sprintf("Begin step %s?", it.step.Path))
	}
	if err != nil {
		return d.finished(it, Failed, "", err.Error())
	}
	if f.ShowJson = encodeJSON(shown); len(f.GetShowJson()) > maxText {
		return d.finished(it, Failed, "", fmt.Sprintf("show: what is shown is longer than %d bytes", maxText))
	}
	if wait > 0 {
		f.ExpiresAtUnixMs = d.w.Now.Add(wait).UnixMilli()
	}
	return f
}

// answered is what an answer makes of its item; nil: it may begin.
func (d *decider) answered(it *ItemState) proto.Message {
	a := it.Answer
	if it.step.Step.Kind != HumanStep {
		if a.GetChoice() == "approve" {
			return nil
		}
		return d.finished(it, Failed, "denied", orElse(a.GetMessage(), "it was not approved"))
	}
	if a.GetChoice() == "" {
		return d.finished(it, Failed, "timeout", "nobody has answered in time")
	}
	f := d.finished(it, Succeeded, "", "")
	f.OutputJson = encodeJSON(a.GetChoice())
	return f
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// round begins the next round of a step that repeats. It is true when there are to be no more.
func (d *decider) round(ss *StepState) bool {
	r, n := ss.Step.Repeat, len(ss.Items)
	if n > 0 {
		env := d.env(ss, ss.Items[n-1])
		env["output"] = ss.Items[n-1].Output
		v, err := r.Until.eval(env)
		switch {
		case err != nil:
			d.fail(ss, "until: "+err.Error())
			return true
		case v == true:
			return true
		case n >= r.Max:
			d.fail(ss, fmt.Sprintf("%s did not hold after %d rounds", strings.TrimSpace(r.Until.Src), n))
			return true
		}
	}
	if !d.free(ss) {
		return false
	}
	if err := d.counts(1); err != nil {
		d.fail(ss, err.Error())
		return true
	}
	item := &ItemState{Key: strconv.Itoa(n + 1), Index: n, step: ss}
	f, err := d.begin(ss, item, n, 1)
	if err != nil {
		d.fail(ss, err.Error())
		return true
	}
	f.Item = &messages.RunItem{Key: item.Key}
	d.take(ss, f)
	return false
}

// finish closes a step whose items are over.
func (d *decider) finish(ss *StepState) {
	good, first := 0, ""
	for _, it := range ss.Items {
		switch {
		case it.Status == Succeeded:
			good++
		case first == "" && it.Error != "":
			first = it.Error
			if ss.Step.Fan() {
				first = fmt.Sprintf("item %s: %s", it.Key, it.Error)
			}
		}
	}
	f := &messages.StepFinished{Step: ss.Path, Status: Succeeded}
	switch {
	case ss.Step.Kind == GroupStep:
		f.Status, f.Error = ss.grouped(first)
	case ss.Step.Quorum > 0 && good < ss.Step.Quorum:
		f.Status, f.Error = Failed, fmt.Sprintf("%d of %d succeeded, and the quorum is %d; %s", good, len(ss.Items), ss.Step.Quorum, first)
	case ss.Step.Quorum > 0:
	case good < len(ss.Items) && !(ss.Step.Fan() && ss.Step.OnError == Continue):
		f.Status, f.Error = Failed, orElse(first, "not everything was done")
	}
	d.say(f)
}

// finished is the end of an item.
func (d *decider) finished(it *ItemState, status, class, why string) *messages.StepItemFinished {
	return &messages.StepItemFinished{Step: it.step.Path, Key: it.Key, Index: int32(it.Index), Status: status, Class: class, Error: why} //nolint:gosec // as above
}
