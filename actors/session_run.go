package actors

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// A session that was made for a pipeline run has a PipelineRun besides its workers. It is started with the session, and anew after a pause
// when it ends by itself; the session stays in memory until the run rests: it is over, or waits for people alone (ADR 112).

// runner is a session's run as the session sees it.
type runner struct {
	id       string
	pid      *actor.PID // nil while it is down
	resting  bool
	failures int
	gaveUp   bool
	closing  bool // its session is closed
	queue    act.Stash
	timer    act.Timer
	waits    map[string]*workerWaits // by worker: those that wait
	plan     *planBudgets            // of the newest plan, when it has changed since the session came into memory
}

// rerun starts a run anew after its pause.
type rerun struct{ gen uint64 }

// maxRunFailures is how often a run is started anew before it is left alone.
const maxRunFailures = 8

func (s *Session) startRun(c actor.Context) {
	id := s.facts.created.GetRunId()
	if id == "" || s.doomed || s.ending {
		return
	}
	if s.run == nil {
		s.run = &runner{id: id}
	}
	pid, err := c.SpawnNamed(s.svc.props.run, id)
	if err != nil {
		s.log.Error("run cannot be spawned", "run", id, "err", err)
		s.run.gaveUp = true
		return
	}
	s.run.pid, s.run.resting = pid, false
	s.unneeded(c)
	open := &openRun{id: id, session: s.id, nobody: !s.canAsk()}
	for _, g := range s.grant.GetWorkspaces() {
		if g.GetPrimary() {
			open.folder = g
		}
	}
	for _, m := range s.run.waits {
		open.waits = append(open.waits, m)
	}
	c.Send(pid, open)
	s.run.queue.Forward(c, pid)
}

// ofRun takes what comes from the run, and from its timer.
func (s *Session) ofRun(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.SpawnStep:
		s.spawnStep(c, m)
	case *messages.RecallInput:
		s.recall(c, m)
	case *messages.RunResting:
		s.runResting(m)
	case *messages.StepOver:
		s.stepOver(c, m)
	case *restsAt:
		s.retire(c, m)
	case *rerun:
		s.rerun(c, m)
	case *messages.ReadStepBudgets:
		s.tellSteps(c)
	case *planBudgets:
		s.replan(c, m)
	case *workerWaits:
		s.workerWaits(c, m)
	default:
		s.ofShared(c)
	}
}

// resolveApproval passes a person's answer to who has asked: the run, or a worker.
func (s *Session) resolveApproval(c actor.Context, m *messages.ResolveApproval) {
	if id := m.GetWorkerId(); id != "" && id == s.facts.created.GetRunId() {
		s.toRun(c, m)
		return
	}
	s.route(c, m)
}

// toRun passes a command to the run, or keeps it while that is down.
func (s *Session) toRun(c actor.Context, cmd any) {
	switch {
	case s.run == nil:
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s was not made for a pipeline run", s.id), "see `troupe ls runs`"))
	case s.run.closing:
		s.answer(c, sessionClosed(s.id))
	case s.run.gaveUp:
		s.answer(c, messages.Fail(messages.CodeUnavailable, fmt.Sprintf("run %s failed again and again", s.run.id), "see the log; it is tried anew when its session comes into memory"))
	case s.run.pid == nil:
		s.run.queue.PutAs(c, cmd)
	default:
		c.RequestWithCustomSender(s.run.pid, cmd, c.Sender())
	}
}

// runEnded says whether it was the run that ended, and starts it anew after a pause.
func (s *Session) runEnded(c actor.Context, who *actor.PID) bool {
	r := s.run
	if r == nil || r.pid == nil || r.pid.GetId() != who.GetId() {
		return false
	}
	r.pid = nil
	switch {
	case s.ending:
		s.lastOut(c)
	case r.closing || s.doomed || s.facts.closed:
	case r.failures >= maxRunFailures:
		r.gaveUp = true
		r.queue.Replay(c, func(c actor.Context) { s.toRun(c, c.Message()) }, func() bool { return true })
	default:
		r.failures++
		r.timer.Set(c, restartPause(r.failures), func(gen uint64) any { return &rerun{gen} })
	}
	return true
}

func (s *Session) rerun(c actor.Context, m *rerun) {
	if s.run != nil && s.run.timer.Fresh(m.gen) && s.run.pid == nil {
		s.run.timer.Stop()
		s.startRun(c)
	}
}

// runResting notes whether the run has anything to do.
func (s *Session) runResting(m *messages.RunResting) {
	if s.run != nil && s.run.id == m.GetRunId() {
		s.run.resting, s.run.failures = m.GetResting(), 0
	}
}

// workerWaits notes what a worker waits for, and tells the run. Who was delegated to waits for the item whose worker that goes back to.
func (s *Session) workerWaits(c actor.Context, m *workerWaits) {
	w := s.workers[m.worker]
	if s.run == nil || w == nil {
		return
	}
	for w.spawned.GetParent() != "" && s.workers[w.spawned.GetParent()] != nil {
		w = s.workers[w.spawned.GetParent()]
	}
	told := &workerWaits{worker: m.worker, item: w.id, waits: m.waits}
	if w.id == s.first() {
		told.item = ""
	}
	if delete(s.run.waits, m.worker); m.waits != (waitsFor{}) {
		if s.run.waits == nil {
			s.run.waits = make(map[string]*workerWaits)
		}
		s.run.waits[m.worker] = told
	}
	if s.run.pid != nil {
		c.Send(s.run.pid, told)
	}
}

// runRests says whether the run keeps the session in memory.
func (s *Session) runRests() bool {
	return s.run == nil || s.run.gaveUp || s.run.pid != nil && s.run.resting && s.run.queue.Len() == 0
}

// closeRun ends the run of a session that is closed.
func (s *Session) closeRun(c actor.Context) {
	if s.run != nil {
		s.run.closing, s.run.gaveUp = true, true
		s.run.timer.Stop()
		if s.run.pid != nil {
			c.Stop(s.run.pid)
		}
	}
}

// cancelRun ends the run with everything else of the session.
func (s *Session) cancelRun(c actor.Context, m *messages.CancelSession) {
	if s.run != nil && s.run.pid != nil {
		c.Send(s.run.pid, &messages.CancelRun{RunId: s.run.id, By: m.GetBy(), Reason: m.GetReason()})
	}
}

// recall passes on that an item is over. A worker that is being written down hears of it when it is there; one that is out of memory has
// nothing under way.
func (s *Session) recall(c actor.Context, m *messages.RecallInput) {
	if m.GetConversation() != "" {
		s.toShared(c, m.GetConversation(), m)
		return
	}
	w := s.workers[m.GetWorkerId()]
	switch {
	case w != nil && (w.dormant || w.retiring && w.queue.Len() == 0): // and is not woken for it
	case m.GetWorkerId() == "" || w != nil:
		s.route(c, m)
	case s.building:
		s.builds.Put(c)
	}
}

// spawnStep makes the worker of an item, or finds it: an attempt has one, however often it is asked for.
func (s *Session) spawnStep(c actor.Context, m *messages.SpawnStep) {
	if s.building {
		s.builds.Put(c)
		return
	}
	if w := s.byCall[m.GetExecId()]; w != nil {
		if b := s.budgetsChanged(m); b != nil { // a member of a group speaks again, by another plan
			s.writeBudget(c, &budgetWritten{asker: c.Sender(), again: m, fact: &messages.BudgetChanged{Step: b.GetStep(), Budget: b.GetBudget(), By: "pipeline"}})
			return
		}
		w.needed = true
		s.answer(c, &messages.ChildReady{WorkerId: w.id, InputId: w.spawned.GetInputId()})
		return
	}
	profile, ok := s.svc.agent(m.GetAgent())
	switch {
	case s.facts.ended[m.GetExecId()]:
		s.answer(c, messages.Fail(messages.CodeClosed, "the worker of the step was deleted", ""))
		return
	case !ok:
		s.answer(c, messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is neither in the pipeline nor configured", m.GetAgent()), "see `agents:` in the configuration"))
		return
	}
	created := &messages.WorkerCreated{
		WorkerId: childOf(m.GetExecId()), SessionId: s.id, Agent: profile.Name, Alias: m.GetAlias(), Model: m.GetModel(), System: s.svc.Redact.String(m.GetSystem()),
		Origin: m.GetOrigin(), Copied: m.GetCopied(), Tools: m.GetTools(), Rules: m.GetRules(), ApprovalMs: m.GetApprovalMs(), ApprovalReason: s.svc.Redact.String(m.GetApprovalReason()),
	}
	for _, from := range []string{profile.Model, s.facts.created.GetModel()} {
		if created.GetModel() == "" {
			created.Model = from
		}
	}
	if created.GetSystem() == "" {
		created.System = profile.System
	}
	n := &newcomer{created: created, spawned: &messages.WorkerSpawned{
		WorkerId: created.GetWorkerId(), Agent: created.GetAgent(), Model: created.GetModel(), ExecId: m.GetExecId(), InputId: m.GetInputId(), RunId: m.GetRunId(),
		Budgets: s.byPlan(m),
	}}
	if m.GetInputId() != "" {
		parts := s.svc.cleanParts(textParts(m.GetPrompt()))
		n.task = s.svc.tracedInput(&messages.InputAccepted{
			InputId: m.GetInputId(), Origin: messages.InputAccepted_SYSTEM, From: m.GetRunId(), Parts: parts, ContentHash: conversation.ContentHash(parts, nil),
			Traceparent: m.GetTraceparent(),
		}, s.id, created.GetWorkerId())
	}
	s.build(c, c.Sender(), n, nil) // steps share the folder: what one leaves another one finds
}

// dormantFact says whether a worker stays out of memory until somebody wants something of it.
func dormantFact(f *messages.WorkerSpawned, amid map[string]bool) bool {
	return (f.GetParent() != "" || f.GetRunId() != "") && !amid[f.GetWorkerId()]
}

// known is what pipelines may name besides what they hold themselves.
func (s *Services) known() pipeline.Options {
	return pipeline.Options{
		Agents: append(s.agentNames(), DefaultAgent), Tools: s.Tools.Names(),
		Takes: func(tool string) []byte {
			if t, err := s.Tools.Lookup(tool); err == nil {
				return t.Spec().Schema
			}
			return nil
		},
		Model: func(name string) (what, fix string) {
			if _, err := s.Models.Resolve(name); err != nil {
				return "model: " + err.Error(), ""
			}
			return "", ""
		},
	}
}

// knownTo is known for who may not name models that are files: whether there is such a file, and what it holds, is not looked at.
func knownTo(bounded bool, o pipeline.Options) pipeline.Options {
	if find := o.Model; bounded && find != nil {
		o.Model = func(name string) (what, fix string) {
			if messages.ModelInFile(name) {
				return "", "" // Bounds refuses it
			}
			return find(name)
		}
	}
	return o
}

// checkRun refuses what is no run, and what names things that there are not.
func checkRun(svc *Services, m *messages.CreateSession) *messages.Failure {
	r := m.GetRun()
	if r == nil {
		return nil
	}
	if want := messages.RunOf(m.GetSessionId()); r.GetRunId() != want {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("run %q cannot be that of session %s", r.GetRunId(), m.GetSessionId()), "it is "+want)
	}
	plan, err := pipeline.FromSources(r.GetSources(), knownTo(r.GetBounded(), svc.known()))
	if err == nil {
		err = plan.Complete(r)
	}
	if err == nil {
		err = plan.Bounds(r.GetBounded())
	}
	if err != nil {
		return refusedPlan(err, "")
	}
	if m.GetBudget() == nil && plan.Root.Budget != nil {
		m.Budget = plan.Root.Budget.Message()
	}
	return nil
}

// run is the beginning of the run that the session is made for: it stands in the same append.
func (b *sessionBuilder) run() ([]persistence.Part, error) {
	r := b.m.GetRun()
	if r == nil {
		return nil, nil
	}
	j, err := persistence.OpenJournal(context.Background(), b.svc.Store, messages.RunStream(r.GetRunId()), "", b.svc.Node)
	if err != nil {
		return nil, err
	}
	if j.Next() != 1 {
		j.Release()
		return nil, fmt.Errorf("run %s exists: %w", r.GetRunId(), persistence.ErrConflict)
	}
	j.Now = b.svc.Now
	r.SessionId = b.m.GetSessionId()
	if b.svc.Tracer == nil {
		r.Traceparent = ""
	}
	rec, err := messages.NewRunRecord(r)
	if err != nil {
		return nil, err
	}
	v, err := proto.Marshal(&messages.RunView{
		RunId: r.GetRunId(), SessionId: r.GetSessionId(), Name: r.GetName(), State: pipeline.Running, StartedAtUnixMs: b.svc.Now().UnixMilli(), PlanHash: r.GetPlanHash(), Revision: 1,
	})
	if err != nil {
		return nil, err
	}
	return []persistence.Part{{Journal: j, Draft: persistence.Draft{Records: []*messages.Record{rec}, Index: []persistence.IndexOp{{Key: RunKey(r.GetRunId()), Value: v}}}}}, nil
}
