package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/pipeline"
)

// working is an item that somebody works on.
type working struct {
	input  string
	over   bool // whoever worked on it has answered
	stop   context.CancelFunc
	end    *atomic.Bool // it is to end, also when its worker was not there yet when that was asked to
	recall *messages.RecallInput
}

// itemEnded is what the work on an item came to.
type itemEnded struct {
	step   string
	index  int
	input  string
	result pipeline.Result
	recall *messages.RecallInput
}

func (e *itemEnded) key() string { return fmt.Sprint(e.step, "\x00", e.index) }

// act has what runs by the facts run, and ends what does not any more.
func (r *PipelineRun) act(c actor.Context) {
	if r.svc.Still || r.stopped {
		return
	}
	if r.working == nil {
		r.working = make(map[string]*working)
	}
	runs := make(map[string]bool)
	for _, ss := range r.state.Live() {
		if ss.Step.Kind == pipeline.NestedStep || ss.Step.Kind == pipeline.HumanStep {
			continue
		}
		for _, it := range ss.Under() {
			if it.Status != pipeline.Running {
				continue
			}
			key := fmt.Sprint(ss.Path, "\x00", it.Index)
			runs[key] = true
			if w := r.working[key]; w == nil || w.input != it.Input {
				if w != nil {
					delete(r.ending, w.input)
					w.stop()
				}
				r.working[key] = r.start(c, it)
				if w != nil && w.recall.GetWorkerId() != r.working[key].recall.GetWorkerId() {
					r.dismiss(c, w.recall, w.over)
				}
			}
		}
	}
	for key, w := range r.working {
		if !runs[key] {
			delete(r.working, key)
			delete(r.ending, w.input)
			w.stop()
			r.dismiss(c, w.recall, w.over)
		}
	}
}

// heard takes note of what the work on an item came to. Work on one that was over before may have asked for something, its worker too, after it was recalled.
func (r *PipelineRun) heard(c actor.Context, m *itemEnded) {
	if w := r.working[m.key()]; w != nil && w.input == m.input {
		w.over = m.result.OK
	} else if !r.stopped {
		r.dismiss(c, m.recall, false)
	}
	r.ended, r.scripted = append(r.ended, m), r.scripted || m.result.Scripted
	r.next(c)
}

// dismiss ends what somebody may still do for an attempt that is over, and lets its worker leave memory. One that is asked for after that does it again
// once it has answered.
func (r *PipelineRun) dismiss(c actor.Context, m *messages.RecallInput, over bool) {
	if !over {
		c.Send(c.Parent(), m)
	}
	if m.GetWorkerId() != "" {
		c.Send(c.Parent(), &messages.StepOver{WorkerId: m.GetWorkerId()})
	}
}

// recallLeft recalls what items that are over may have left under way: a process that ended between the fact and the word did not say it.
func (r *PipelineRun) recallLeft(c actor.Context) {
	if r.svc.Still {
		return
	}
	for _, ss := range r.state.Steps() {
		if ss.Step.Kind == pipeline.NestedStep || ss.Step.Kind == pipeline.HumanStep {
			continue
		}
		for _, it := range ss.Items {
			if it.Start != nil && it.Status != pipeline.Running && it.Status != pipeline.Succeeded {
				c.Send(c.Parent(), recallOf(it))
			}
		}
	}
}

// toEnd asks workers to end, whose last words say what they used.
func (r *PipelineRun) toEnd(c actor.Context, recalls []*messages.RecallInput) {
	if r.stopped {
		return
	}
	for _, m := range recalls {
		if r.ending == nil {
			r.ending = make(map[string]time.Time)
		}
		r.ending[m.GetInputId()] = r.looked
		for _, w := range r.working {
			if w.input == m.GetInputId() {
				w.end.Store(true)
			}
		}
		c.Send(c.Parent(), m)
	}
}

// lastWordAt is when one has waited long enough for a worker's last word, if that is before another time.
func (r *PipelineRun) lastWordAt(due time.Time) time.Time {
	for _, since := range r.ending {
		if at := since.Add(lastWord); at.After(r.looked) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// replanned tells the Session which budgets the steps of a changed plan have.
func (r *PipelineRun) replanned(c actor.Context) {
	if r.svc.Still || r.stopped || !r.state.Changed {
		return
	}
	m := &planBudgets{plan: int64(r.state.Changes()), budgets: make(map[string]*messages.Budget)}
	for _, ss := range r.state.Steps() {
		for _, b := range ss.Budgets() {
			m.budgets[b.GetStep()] = b.GetBudget()
		}
	}
	c.Send(c.Parent(), m)
}

// recallOf ends the newest attempt of an item at whoever works on it: a turn goes no further than its item.
func recallOf(it *pipeline.ItemState) *messages.RecallInput {
	m := &messages.RecallInput{InputId: it.Input, By: "pipeline", Reason: "its step is over"}
	if it.Step().Step.Kind == pipeline.ToolStep {
		m.InputId = stepCall(it.Start)
	} else {
		m.WorkerId, m.Conversation = childOf(it.Start.GetExecId()), it.Start.GetConversation()
	}
	return m
}

// stepCall is the id of a tool step's call.
func stepCall(f *messages.StepItemStarted) string {
	return "call_" + strings.TrimPrefix(f.GetExecId(), messages.ExecPrefix)
}

// start works on an item, off the mailbox.
func (r *PipelineRun) start(c actor.Context, it *pipeline.ItemState) *working {
	ctx, stop := context.WithCancel(context.Background())
	j := &job{trace: r.svc.inRun(r.trace()), svc: r.svc, sys: c.ActorSystem(), session: c.Parent(), run: r.id, item: it.Start, input: it.Input, step: it.Step().Step, file: it.Step().File(), repair: it.Repair, end: new(atomic.Bool), budgets: it.Step().Budgets(), plan: int64(r.state.Changes())}
	w := &working{input: it.Input, stop: stop, end: j.end, recall: recallOf(it)}
	end := &itemEnded{step: it.Step().Path, index: it.Index, input: it.Input, recall: w.recall}
	r.svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		end.result = pipeline.Result{Error: p.Error()}
		return end
	}, func() any {
		defer stop()
		end.result = j.do(ctx)
		return end
	})
	return w
}

// job is the work on one attempt of an item.
type job struct {
	svc     *Services
	sys     *actor.ActorSystem
	session *actor.PID
	run     string
	trace   string // the run's span; "": there is none
	item    *messages.StepItemStarted
	input   string // of the newest prompt
	repair  string // that prompt, when it is not the first
	end     *atomic.Bool
	step    *pipeline.Step
	file    *pipeline.File
	budgets []*messages.StepBudget
	plan    int64 // that they are of
}

func (j *job) do(ctx context.Context) pipeline.Result {
	switch {
	case j.step.Kind == pipeline.ToolStep:
		return j.tool(ctx)
	case j.step.Kind == pipeline.GroupStep:
		return j.turn(ctx)
	}
	spawn, err := j.spawn(ctx)
	if err != nil {
		return refused(err)
	}
	ready, err := patiently(ctx, func() (*messages.ChildReady, error) {
		return act.Ask[*messages.ChildReady](ctx, j.sys, j.session, spawn)
	})
	if err != nil {
		return refused(err)
	}
	if j.repair != "" {
		_, err := patiently(ctx, func() (*messages.InputReply, error) {
			return act.Ask[*messages.InputReply](ctx, j.sys, j.session, &messages.SubmitInput{
				WorkerId: ready.GetWorkerId(), InputId: j.input, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: j.repair}}}, Traceparent: j.trace,
			})
		})
		if err != nil {
			return refused(err)
		}
	}
	if j.end.Load() { // its worker may not have been there when it was asked to end
		j.sys.Root.Send(j.session, &messages.RecallInput{WorkerId: ready.GetWorkerId(), InputId: j.input, By: "pipeline", Reason: "its step is over"})
	}
	res, err := patiently(ctx, func() (*messages.TurnResult, error) {
		return act.Ask[*messages.TurnResult](ctx, j.sys, j.session, &messages.AwaitTurn{WorkerId: ready.GetWorkerId(), InputId: j.input})
	})
	if err != nil {
		return refused(err)
	}
	return resultOf(res)
}

// turn has a member of a group speak. Its worker is made with its first turn, and the conversation with the first one of all.
func (j *job) turn(ctx context.Context) pipeline.Result {
	name := j.item.GetConversation()
	_, err := patiently(ctx, func() (*messages.SharedConversation, error) {
		return act.Ask[*messages.SharedConversation](ctx, j.sys, j.session, &messages.ShareConversation{Name: name})
	})
	if err != nil {
		return refused(err)
	}
	spawn, err := j.spawn(ctx)
	if err != nil {
		return refused(err)
	}
	spawn.InputId, spawn.Prompt = "", "" // it is told by the conversation
	ready, err := patiently(ctx, func() (*messages.ChildReady, error) {
		return act.Ask[*messages.ChildReady](ctx, j.sys, j.session, spawn)
	})
	if err != nil {
		return refused(err)
	}
	res, err := patiently(ctx, func() (*messages.TurnResult, error) {
		return act.Ask[*messages.TurnResult](ctx, j.sys, j.session, &messages.TakeTurn{
			Name: name, WorkerId: ready.GetWorkerId(), TurnId: j.input, Prompt: j.item.GetPrompt(), Member: j.item.GetAgent(), Traceparent: j.trace,
		})
	})
	if err != nil {
		return refused(err)
	}
	return resultOf(res)
}

// spawn is the worker that the item needs.
func (j *job) spawn(ctx context.Context) (*messages.SpawnStep, error) {
	m := &messages.SpawnStep{
		RunId: j.run, ExecId: j.item.GetExecId(), Agent: j.item.GetAgent(), Model: j.item.GetModel(), InputId: j.item.GetInputId(),
		Prompt: j.item.GetPrompt() + j.step.SchemaPrompt(), Origin: j.item.GetOrigin(), Budgets: j.budgets, Plan: j.plan, Traceparent: j.trace,
	}
	if a := j.file.Agent(m.GetAgent()); a != nil { // of the file: it has what it names, and nothing else
		m.Alias, m.Agent, m.System = a.Name, DefaultAgent, a.System
		if m.Tools = a.Tools; len(m.GetTools()) == 0 {
			m.Tools = []string{conversation.NoTools}
		}
	}
	if g := j.step.Approve; g != nil {
		for _, tool := range g.Before {
			m.Rules = append(m.Rules, "ask "+tool)
		}
		m.ApprovalMs, m.ApprovalReason = g.Timeout.Milliseconds(), g.Message.Plain()
	}
	if o := m.GetOrigin(); o != nil {
		h, err := patiently(ctx, func() (*messages.History, error) {
			return act.Ask[*messages.History](ctx, j.sys, j.session, &messages.ReadHistory{WorkerId: o.GetConversation()})
		})
		if err != nil {
			return nil, err
		}
		m.Copied = h.GetTurns()
	}
	return m, nil
}

// tool runs one tool, as the program would, in the session's first worker.
func (j *job) tool(ctx context.Context) pipeline.Result {
	name, args := j.step.Tool, j.item.GetArgumentsJson()
	if name == pipeline.WriteCSV {
		var err error
		if args, err = csvArguments(args); err != nil {
			return pipeline.Result{Error: err.Error()}
		}
		name = "write_file"
	}
	m := &messages.CallTool{Tool: name, Arguments: args, CallId: stepCall(j.item), Traceparent: j.trace}
	reply, err := patiently(ctx, func() (*messages.ToolReply, error) {
		return act.Ask[*messages.ToolReply](ctx, j.sys, j.session, m)
	})
	if err != nil {
		return refused(err)
	}
	res := pipeline.Result{OK: reply.GetStatus() == messages.ToolFinished_OK, Text: reply.GetContent()}
	if !res.OK {
		res.Error, res.Class = reply.GetContent(), classOfTool(reply)
	}
	return res
}

func classOfTool(reply *messages.ToolReply) string {
	switch reply.GetStatus() {
	case messages.ToolFinished_TIMEOUT:
		return "timeout"
	case messages.ToolFinished_DENIED:
		return "denied"
	case messages.ToolFinished_INTERRUPTED_UNKNOWN:
		return pipeline.Unknown
	default:
	}
	return reply.GetErrorCode()
}

// resultOf is what a turn came to.
func resultOf(t *messages.TurnResult) pipeline.Result {
	res := pipeline.Result{
		OK: t.GetOutcome() == messages.TurnCompleted_DONE, Text: t.GetText(), Usage: t.GetUsage(), Scripted: t.GetScripted(),
		Lineage: &messages.Lineage{Conversation: t.GetWorkerId(), Seq: t.GetConversationSeq()},
	}
	if res.OK {
		return res
	}
	res.Error = fmt.Sprintf("its turn ended as %s: %s", conversation.OutcomeName(t.GetOutcome()), t.GetReason())
	switch t.GetOutcome() {
	case messages.TurnCompleted_TIMEOUT:
		res.Class = "timeout"
	case messages.TurnCompleted_BUDGET:
		res.Class = "budget"
	case messages.TurnCompleted_ERROR:
		res.Class = modelClass(t.GetErrorCode())
	default:
	}
	return res
}

// modelClass is the word that pipelines have for an error of a model.
func modelClass(code string) string {
	switch model.Class(code) {
	case model.RateLimited:
		return "rate_limited"
	case model.Overloaded:
		return "overloaded"
	case model.Truncated:
		return "truncated"
	default:
	}
	return code
}

func refused(err error) pipeline.Result {
	var f *messages.Failure
	if errors.As(err, &f) {
		return pipeline.Result{Error: f.GetMessage(), Class: f.GetCode()}
	}
	return pipeline.Result{Error: err.Error()}
}

// patiently asks again while something restarts.
func patiently[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := ask()
		var f *messages.Failure
		passing := errors.Is(err, act.ErrGone) || errors.As(err, &f) && f.GetCode() == messages.CodeUnavailable
		if err == nil || !passing || try == 50 || ctx.Err() != nil {
			return v, err
		}
		pause := time.NewTimer(min(time.Duration(try)*5*time.Millisecond, 200*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return v, err
		}
	}
}
