package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/workspace"
)

// What a run's inputs, outputs and error may weigh in its listing each, and the text of a question; whole they are in its journal.
const (
	roomInListing  = 32 << 10
	roomOfQuestion = 8 << 10
	roomOfMany     = 1 << 10 // for the inputs of a run of more than manyItems, whose listing is written with each of them
	manyItems      = 100
)

// RunKey is the listing entry of a run; the value is a RunView without its steps.
func RunKey(id string) string { return "run/" + id }

// detail is how much of a run is shown.
type detail int

const (
	listedRun detail = iota // no steps
	briefRun                // the steps, and of their items those that wait for a person
	wholeRun
)

// view is what the run has come to.
func (r *PipelineRun) view(how detail) *messages.RunView {
	s := r.state
	v := &messages.RunView{
		RunId: r.id, SessionId: r.session, Name: s.Started.GetName(), State: pipeline.Running, StartedAtUnixMs: s.AtMs, UpdatedAtUnixMs: s.UpdatedMs,
		Revision: s.Seq, Usage: s.Usage, UsageGone: s.Gone(), Waits: r.waiting(), InputsJson: s.Started.GetInputsJson(), Scripted: s.Scripted || r.scripted,
	}
	if s.Plan != nil {
		v.PlanHash = s.Plan.Hash
	}
	waits, works, now := false, false, r.svc.Now()
	for _, ss := range s.Steps() {
		sv := r.stepView(ss, how)
		v.Steps++
		v.Items += int64(sv.GetItems())
		v.ItemsDone += int64(sv.GetDone())
		if done := sv.GetState(); done == pipeline.Succeeded || done == pipeline.Failed || done == pipeline.Skipped {
			v.StepsDone++
		}
		for _, it := range ss.Under() {
			on := r.waitOf(it)
			if first := orQuestion(it, on); first != nil && (v.GetWaiting() == nil || rank(first) < rank(v.GetWaiting())) {
				v.Waiting = first
			}
			waits = waits || it.Asks() || on != nil
			works = works || it.Status == pipeline.Running && ss.Step.Kind != pipeline.NestedStep && on == nil
		}
		if how != listedRun {
			if each, left := ss.Pace(now); left > 0 {
				sv.PerSecond, sv.LeftMs = each, left.Milliseconds()
			}
			v.StepViews = append(v.StepViews, sv)
		}
	}
	switch {
	case s.Finished != nil:
		v.State, v.OutputsJson, v.Error = s.Finished.GetStatus(), s.Finished.GetOutputsJson(), s.Finished.GetError()
	case waits && !works:
		v.State = pipeline.Waiting
	}
	return v
}

// show gives somebody the run as it is. How the budgets of its steps stand its Session knows.
func (r *PipelineRun) show(c actor.Context, to *actor.PID, how detail) {
	v := r.view(how)
	if to == nil || r.state.Plan == nil || !r.state.Plan.Budgeted() || r.stopped {
		r.tell(c, to, v)
		return
	}
	sys, session := c.ActorSystem(), c.Parent()
	r.svc.spawn(sys, to, func(*act.Panic) any { return v }, func() any {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if all, err := act.AskSoon[*messages.StepBudgets](ctx, sys, session, &messages.ReadStepBudgets{}); err == nil { // else it is shown without them
			budgets := make(map[string]*messages.BudgetView, len(all.GetSteps()))
			for _, b := range all.GetSteps() {
				budgets[b.GetStep()] = b.GetBudget()
			}
			for _, sv := range v.GetStepViews() {
				sv.Budget = budgets[sv.GetStep()]
			}
		}
		return v
	})
}

func (r *PipelineRun) stepView(ss *pipeline.StepState, how detail) *messages.RunStepView {
	v := &messages.RunStepView{Step: ss.Path, Kind: string(ss.Step.Kind), State: ss.Status, Error: ss.Error, Needs: ss.Step.Needs, Items: int32(len(ss.Items)), Usage: ss.Usage()} //nolint:gosec // bounded
	done, lost := ss.Ended()
	v.Done, v.Failed = int32(done), int32(lost) //nolint:gosec // bounded
	items := ss.Items
	if how != wholeRun {
		items = ss.Under()
	}
	works := false
	for _, it := range items {
		asks, on := it.Asks(), r.waitOf(it)
		if asks || on.ForPeople() {
			v.State = pipeline.Waiting
		}
		if on != nil {
			if v.Waits++; v.GetWaiting() == nil || on.ForPeople() && !v.GetWaiting().ForPeople() {
				v.Waiting = on
			}
		}
		works = works || it.Status == pipeline.Running && on == nil
		if how == wholeRun || how == briefRun && (asks || on.ForPeople()) {
			v.ItemViews = append(v.ItemViews, itemView(ss, it, on))
		}
	}
	if v.GetWaits() > 0 && !works {
		v.State = pipeline.Waiting
	}
	return v
}

func itemView(ss *pipeline.StepState, it *pipeline.ItemState, on *messages.Waiting) *messages.RunItemView {
	v := &messages.RunItemView{Key: it.Key, Index: int32(it.Index), State: it.Status, Attempt: int32(it.Attempt), Error: it.Error, Usage: it.Usage, Waiting: on} //nolint:gosec // bounded
	if it.Start != nil && ss.Step.Kind != pipeline.ToolStep && ss.Step.Kind != pipeline.NestedStep {
		v.WorkerId = childOf(it.Start.GetExecId())
	}
	if on != nil {
		v.State = pipeline.Waiting
	}
	if v.ApprovalId = on.GetApprovalId(); it.Asks() {
		v.ApprovalId = it.Asked.GetApprovalId()
	}
	return v
}

// index keeps the run listed, and its questions.
func (r *PipelineRun) index(facts []proto.Message) []persistence.IndexOp {
	ops, waits := r.questions(facts, r.svc.Now().UnixMilli())
	v := r.view(listedRun)
	for _, f := range facts {
		if end, ok := f.(*messages.RunFinished); ok {
			v.State, v.OutputsJson, v.Error = end.GetStatus(), end.GetOutputsJson(), end.GetError()
			v.Waiting, v.Waits = nil, 0
		}
		if _, again := f.(*messages.RunResumed); again {
			v.State, v.Error = pipeline.Running, ""
		}
	}
	if waits && v.GetState() == pipeline.Running {
		v.State = pipeline.Waiting
	}
	v.Revision += uint64(len(facts))
	r.waits.listed, r.waits.known = v.GetWaits(), true
	return append(ops, r.listing(v)...)
}

// listing is the entry of a run in the listing.
func (r *PipelineRun) listing(v *messages.RunView) []persistence.IndexOp {
	room := roomInListing
	if v.GetItems() > manyItems {
		room = roomOfMany
	}
	v.InputsJson, v.OutputsJson = cutArguments(v.GetInputsJson(), room), cutArguments(v.GetOutputsJson(), roomInListing)
	v.Error = cutText(v.GetError(), roomInListing)
	b, err := proto.Marshal(v)
	if err != nil {
		return nil // it was read from one
	}
	return []persistence.IndexOp{{Key: RunKey(r.id), Value: b}}
}

// questions are the entries of what facts ask people at a time, and of what they answer; waits: they ask something.
func (r *PipelineRun) questions(facts []proto.Message, atMs int64) (ops []persistence.IndexOp, waits bool) {
	for _, f := range facts {
		switch f := f.(type) {
		case *messages.HumanAsked:
			v := r.question(f)
			v.AtUnixMs = atMs
			if b, err := proto.Marshal(cutApproval(v, roomOfQuestion)); err == nil {
				ops = append(ops, persistence.IndexOp{Key: ApprovalKey(r.session, f.GetApprovalId()), Value: b})
			}
			waits = true
		case *messages.HumanAnswered:
			ops = append(ops, r.answered(f.GetApprovalId(), f.GetChoice())...)
		case *messages.StepItemFinished:
			if it := r.state.Item(f.GetStep(), int(f.GetIndex())); it != nil && it.Asked != nil && it.Answer == nil {
				ops = append(ops, r.answered(it.Asked.GetApprovalId(), f.GetStatus())...)
			}
		}
	}
	return ops, waits
}

func (r *PipelineRun) answered(approval, choice string) []persistence.IndexOp {
	return []persistence.IndexOp{{Key: ApprovalKey(r.session, approval), Delete: true}, {Key: AnsweredKey(approval, r.session), Value: []byte(orText(choice, "expired"))}}
}

// question is how people see what the run asks.
func (r *PipelineRun) question(f *messages.HumanAsked) *messages.ApprovalView {
	shown := f.GetMessage()
	if f.GetShowJson() != "" {
		shown += "\n\n" + f.GetShowJson()
	}
	arguments, _ := json.Marshal(map[string]any{"step": f.GetStep(), "choices": f.GetChoices()}) // texts, which cannot fail
	return &messages.ApprovalView{
		ApprovalId: f.GetApprovalId(), SessionId: r.session, WorkerId: r.id, TurnId: r.id, ExecId: f.GetStep(), Tool: "pipeline", State: "pending",
		Arguments: string(arguments), Preview: shown, Kind: "arguments", Reason: "step " + f.GetStep() + " asks; approve with --reason CHOICE",
		AtUnixMs: r.svc.Now().UnixMilli(), ExpiresAtUnixMs: f.GetExpiresAtUnixMs(), Unremembered: "the question of a pipeline is answered once",
	}
}

// reader reads files of the run's folder, for expressions.
func (r *PipelineRun) reader() func(string) (string, error) {
	svc, g := r.svc, r.open.folder
	return func(path string) (string, error) {
		if g == nil {
			return "", errors.New("read: the run has no folder")
		}
		ws, err := handleOf(svc, g)
		if err != nil {
			return "", err
		}
		f, err := ws.ReadFile(path, maxRead)
		if err != nil {
			return "", fmt.Errorf("read %q: %w", path, err)
		}
		if !utf8.Valid(f.Data) {
			return "", fmt.Errorf("read %q: it is no text", path)
		}
		return string(f.Data), nil
	}
}

// handleOf is the handle of a run's folder. A session that comes into memory starts its run and the folder's Workspace at the same time: the run
// waits for that, off its mailbox.
func handleOf(svc *Services, g *messages.WorkspaceGrant) (*workspace.Workspace, error) {
	for try := range 200 {
		ws, err := svc.folders.handle(g)
		if !errors.Is(err, errElsewhere) {
			return ws, err
		}
		<-time.After(time.Duration(min(try, 25)) * time.Millisecond)
	}
	return svc.folders.handle(g)
}

// maxRead is the most bytes that read() takes of a file.
const maxRead = 1 << 20

// tellApprover puts questions to the program, once they are durable.
func (r *PipelineRun) tellApprover(facts []proto.Message) {
	for _, f := range facts {
		if q, ok := f.(*messages.HumanAsked); ok && r.svc.Asked != nil && !r.open.nobody {
			v := r.question(q)
			r.svc.aside(func() { r.svc.Asked(v) })
		}
	}
}
