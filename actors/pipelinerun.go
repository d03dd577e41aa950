package actors

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// PipelineRun is one run of a pipeline: it owns the run's journal and decides, by package pipeline, what comes next. Every
// step and item is a worker of its Session, made once for each attempt; it goes on wherever its journal ends.
//
// One decision is under way at a time: it is made off the mailbox (expressions may read files), written down, applied, and only then
// acted on. What comes in meanwhile waits.
//
// Accepts: openRun (first); of its Session ShowRun, AwaitRun, ResumeRun, CancelRun, ReportIdle and the ResolveApproval of a person; its own runRead, itemEnded, runDecided,
// runWritten and ticks. Tells its Session whether it rests (RunResting), and what is over (RecallInput). Parent: Session. Children: none.
type PipelineRun struct {
	svc *Services
	log *slog.Logger

	id, session string
	open        *openRun
	journal     *persistence.Journal
	state       *pipeline.State
	active      bool // the record of this activation is written
	under       bool // a decision or an append is under way

	ended    []*itemEnded // results that are not written yet
	asked    []*runOrder  // commands that are not decided yet
	order    *runOrder    // that is under decision, or whose facts are being written; nil: none
	working  map[string]*working
	ending   map[string]time.Time // since when workers are asked to end, by the inputs
	awaiting []*awaiting
	stash    act.Stash
	timer    act.Timer
	looked   time.Time // for when it was decided last
	stopped  bool
	waits    runWaits
	scripted bool // a turn that ended was answered by a script
}

// openRun is what a Session tells its run.
type openRun struct {
	id, session string
	folder      *messages.WorkspaceGrant // nil: none
	nobody      bool                     // whoever would be asked is not there
	waits       []*workerWaits           // what the session's workers wait for
}

// runOrder is a command with who waits for its answer.
type runOrder struct {
	cmd    proto.Message
	sender *actor.PID
}

// awaiting is somebody who waits for a change or for the end.
type awaiting struct {
	m      *messages.AwaitRun
	sender *actor.PID
}

// Messages of a run to itself.
type (
	runRead struct {
		journal *persistence.Journal
		state   *pipeline.State
		err     error
	}
	runDecided struct {
		facts []proto.Message
		left  []*itemEnded            // results for which there was no room beside them
		toEnd []*messages.RecallInput // to workers that have to end, and say what they used
		asked *runOrder               // that they answer
		fail  *messages.Failure
	}
	runWritten struct {
		facts   []proto.Message
		records []*messages.Record
		asked   *runOrder
		err     error
	}
	runTick struct{ gen uint64 }
)

// Receive dispatches.
func (r *PipelineRun) Receive(c actor.Context) {
	defer r.rescue(c)
	switch m := c.Message().(type) {
	case *actor.Started:
	case *openRun:
		r.begin(c, m)
	case *runRead:
		r.read(c, m)
	case *messages.ShowRun, *messages.AwaitRun, *messages.ResumeRun, *messages.CancelRun, *messages.ResolveApproval:
		r.command(c)
	case *messages.ReportIdle:
		c.Respond(r.idleness(c))
	case *itemEnded:
		r.heard(c, m)
	case *runDecided:
		r.decided(c, m)
	case *runWritten:
		r.written(c, m)
	case *workerWaits:
		r.noteWait(c, m)
	case *waitTick:
		if r.waits.timer.Fresh(m.gen) {
			r.waits.timer.Stop()
			r.waitsChanged(c)
		}
	case *runListed:
		r.relisted(c, m)
	case *runTick:
		if r.timer.Fresh(m.gen) {
			r.timer.Stop()
			r.next(c)
		}
	case *actor.Stopping:
		r.stopping(c)
	case *actor.Stopped:
		r.forget()
	default:
		act.Unexpected(c, r.log)
	}
}

// rescue turns a panic of a handler into an end: the Session starts the run anew, from its journal.
func (r *PipelineRun) rescue(c actor.Context) {
	if p := recover(); p != nil {
		r.log.Error("run panicked", "err", fmt.Sprint(p), "message", fmt.Sprintf("%T", c.Message()), "stack", string(debug.Stack()))
		c.Stop(c.Self())
	}
}

func (r *PipelineRun) begin(c actor.Context, m *openRun) {
	r.id, r.session, r.open, r.log = m.id, m.session, m, r.svc.Log.With("session", m.session, "run", m.id)
	for _, w := range m.waits {
		r.waits.note(w)
	}
	svc, id := r.svc, m.id
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any { return &runRead{err: p} }, func() any {
		ctx := context.Background()
		j, err := persistence.OpenJournal(ctx, svc.Store, messages.RunStream(id), "", svc.Node)
		if err != nil {
			return &runRead{err: err}
		}
		j.Now = svc.Now
		state := pipeline.NewState(pipeline.Options{})
		err = j.Replay(ctx, 1, func(e persistence.Entry) error {
			f, err := messages.RunFactIn(e.Record)
			if err == nil && f != nil {
				err = state.Apply(f, e.Record)
			}
			return err
		})
		return &runRead{journal: j, state: state, err: err}
	})
}

func (r *PipelineRun) read(c actor.Context, m *runRead) {
	if m.err != nil {
		r.log.Error("run cannot be read", "err", m.err)
		if m.journal != nil {
			m.journal.Release()
		}
		fail := messages.Fail(messages.CodeUnavailable, "read run "+r.id+": "+m.err.Error(), "see the log; `troupe verify` looks for damage")
		r.stash.Each(func(_ any, sender *actor.PID) {
			if sender != nil {
				c.Send(sender, fail)
			}
		})
		r.stash = act.Stash{}
		c.Stop(c.Self())
		return
	}
	r.journal, r.state = m.journal, m.state
	r.stash.Replay(c, r.command, func() bool { return true })
	r.recallLeft(c)
	r.replanned(c)
	r.act(c)
	r.next(c)
}

// command takes what others ask. Looking needs no decision.
func (r *PipelineRun) command(c actor.Context) {
	if r.state == nil {
		r.stash.Put(c)
		return
	}
	switch m := c.Message().(type) {
	case *messages.ShowRun:
		r.show(c, c.Sender(), wholeRun)
	case *messages.AwaitRun:
		if len(r.awaiting) == cap(r.awaiting) { // those who have stopped waiting make room
			left := slices.DeleteFunc(r.awaiting, func(a *awaiting) bool { return !act.Waits(c.ActorSystem(), a.sender) })
			r.awaiting = append(make([]*awaiting, 0, 2*len(left)+1), left...)
		}
		r.awaiting = append(r.awaiting, &awaiting{m, c.Sender()})
		r.announce(c)
	case proto.Message:
		r.asked = append(r.asked, &runOrder{m, c.Sender()})
		r.next(c)
	}
}

func (r *PipelineRun) tell(c actor.Context, to *actor.PID, m proto.Message) {
	if to != nil {
		c.Send(to, m)
	}
}

// next decides once more, unless that is under way already.
func (r *PipelineRun) next(c actor.Context) {
	if r.under || r.state == nil || r.stopped || r.svc.Still && len(r.asked) == 0 {
		return
	}
	r.under = true
	d := &deciding{run: r.state, known: r.svc.known(), ending: r.ending, world: pipeline.World{Now: r.svc.Now(), Read: r.reader(), Nobody: r.open.nobody}}
	if len(r.asked) > 0 {
		d.asked, r.asked = r.asked[0], r.asked[1:]
		r.order = d.asked
	} else {
		d.ended, r.ended, r.looked = r.ended, nil, d.world.Now
	}
	r.svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &runDecided{asked: d.asked, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any { return d.decide() })
}

// decided writes a decision down. Without facts everything rests until something happens, or a time comes.
func (r *PipelineRun) decided(c actor.Context, m *runDecided) {
	if m.fail != nil {
		r.log.Warn("run refused", "err", m.fail.GetMessage())
	}
	r.ended = append(m.left, r.ended...)
	r.toEnd(c, m.toEnd)
	if m.asked != nil && (m.fail != nil || len(m.facts) == 0) {
		r.answer(c, m.asked, m.fail)
	}
	if len(m.facts) == 0 {
		r.under = false
		if len(r.asked) > 0 || len(r.ended) > 0 || m.asked != nil && !r.svc.Still { // a command that comes to nothing took the place of what comes by itself
			r.next(c)
			return
		}
		r.rest(c)
		return
	}
	facts := m.facts
	if !r.active {
		r.active = true
		facts = append([]proto.Message{&messages.RunActivated{Epoch: r.journal.Lease().Epoch, Node: r.svc.Node}}, facts...)
	}
	w := &runWritten{facts: facts, asked: m.asked}
	for _, f := range facts {
		rec, err := messages.NewRunRecord(f)
		if err != nil {
			r.written(c, &runWritten{err: err, asked: m.asked})
			return
		}
		w.records = append(w.records, rec)
	}
	sys, self := c.ActorSystem(), c.Self()
	r.journal.Append(func(_ persistence.Receipt, err error) {
		w.err = err
		sys.Root.Send(self, w)
	}, persistence.Draft{Records: w.records, Index: r.index(facts)})
}

// written applies what is durable now, and acts on it.
func (r *PipelineRun) written(c actor.Context, m *runWritten) {
	if m.err != nil {
		r.log.Error("run cannot be written", "err", m.err)
		if m.asked != nil {
			r.answer(c, m.asked, messages.Fail(messages.CodeUnavailable, "write run "+r.id+": "+m.err.Error(), "try again"))
		}
		c.Stop(c.Self()) // the next incarnation knows what was written
		return
	}
	for i, f := range m.facts {
		if err := r.state.Apply(f, m.records[i]); err != nil {
			r.log.Error("a fact of the run does not fit", "err", err)
			c.Stop(c.Self())
			return
		}
	}
	r.under = false
	if f := runEnd(m.facts); f != nil {
		r.svc.traceRun(r.session, r.trace(), time.UnixMilli(max(r.state.AtMs, r.state.AgainMs)), f.GetStatus())
	}
	if m.asked != nil {
		r.answer(c, m.asked, nil)
	}
	r.tellApprover(m.facts)
	if slices.ContainsFunc(m.facts, func(f proto.Message) bool { _, changed := f.(*messages.PlanChanged); return changed }) {
		r.replanned(c)
	}
	r.act(c)
	r.announce(c)
	r.next(c)
}

// runEnd is the end of a run, if it is among facts.
func runEnd(facts []proto.Message) *messages.RunFinished {
	for _, f := range facts {
		if f, ok := f.(*messages.RunFinished); ok {
			return f
		}
	}
	return nil
}

// answer answers the command that was decided about, once (I10): one that came to its end while the run stops was told so.
func (r *PipelineRun) answer(c actor.Context, a *runOrder, fail *messages.Failure) {
	if a != r.order {
		return
	}
	r.order = nil
	switch {
	case fail != nil:
		r.tell(c, a.sender, fail)
	default:
		if _, approval := a.cmd.(*messages.ResolveApproval); approval {
			r.tell(c, a.sender, &messages.Ack{})
			return
		}
		r.show(c, a.sender, wholeRun)
	}
}

// rest arms the timer for what comes by itself, and tells the Session whether it may leave memory.
func (r *PipelineRun) rest(c actor.Context) {
	r.announce(c)
	if due := r.lastWordAt(r.state.Due(r.looked)); !due.IsZero() { // what came since the decision was not decided about
		r.timer.SetBy(r.svc.Clock, c, max(due.Sub(r.svc.Now()), time.Millisecond), func(gen uint64) any { return &runTick{gen} })
	}
	c.Send(c.Parent(), &messages.RunResting{RunId: r.id, Resting: r.rests()})
	r.relist(c)
}

// rests says whether nothing happens before somebody asks something of the run: it is over, or all that it waits for is people, who have all the time. A question that
// has a time keeps the run in memory as long.
func (r *PipelineRun) rests() bool {
	if r.state.Finished != nil {
		return true
	}
	asks := false
	for _, ss := range r.state.Live() {
		for _, it := range ss.Under() {
			switch {
			case it.Asks():
				asks = true
			case it.Status != pipeline.Running || ss.Step.Kind != pipeline.NestedStep:
				return false
			}
		}
	}
	return asks && r.state.Due(r.looked).IsZero()
}

// idleness says whether the run may leave memory: it rests, and nobody waits for its end. It is asked in turn, behind what it was sent before.
func (r *PipelineRun) idleness(c actor.Context) *messages.Idleness {
	if r.state == nil || r.under || len(r.asked)+len(r.ended)+len(r.working) > 0 || !r.rests() {
		return &messages.Idleness{}
	}
	waited := slices.ContainsFunc(r.awaiting, func(a *awaiting) bool { return act.Waits(c.ActorSystem(), a.sender) })
	return &messages.Idleness{Idle: !waited, SinceUnixMs: r.state.UpdatedMs}
}

// announce answers those who wait, as far as there is something to say.
func (r *PipelineRun) announce(c actor.Context) {
	left := r.awaiting[:0]
	for _, a := range r.awaiting {
		over := r.state.Finished != nil
		if over || a.m.GetChanges() && (r.state.Seq > a.m.GetAfter() || a.m.Waits != nil && a.m.GetWaits() != r.waiting()) {
			how := wholeRun
			if a.m.GetBrief() {
				how = briefRun
			}
			r.show(c, a.sender, how)
			continue
		}
		left = append(left, a)
	}
	r.awaiting = left
}

func (r *PipelineRun) stopping(c actor.Context) {
	r.stopped = true
	r.timer.Stop()
	r.waits.timer.Stop()
	for _, w := range r.working {
		w.stop()
	}
	gone := messages.Fail(messages.CodeUnavailable, "the run is stopping", "try again")
	for _, a := range r.awaiting {
		r.tell(c, a.sender, gone)
	}
	for _, a := range r.asked {
		r.tell(c, a.sender, gone)
	}
	if r.order != nil {
		r.answer(c, r.order, gone)
	}
	r.stash.Each(func(_ any, sender *actor.PID) { r.tell(c, sender, gone) })
	r.awaiting, r.asked, r.stash = nil, nil, act.Stash{}
}

func (r *PipelineRun) forget() {
	if r.journal != nil {
		r.journal.Release()
	}
	r.journal, r.state, r.working, r.ended = nil, nil, nil, nil
}
