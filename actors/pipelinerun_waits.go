package actors

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// What those wait for who work on the items of a run: the calls that ask, more budget, a workspace, a permit. Workers tell it their Session whenever it changes, and that
// tells the run. It stands in no journal, and is no decision of the run; it is shown, and stands in the run's listing.

// lasting is how long something that ends by itself has to be waited for before it is shown: every call of a model waits for its permit, if only for a moment.
const lasting = 2 * time.Second

// runWaits are those who wait.
type runWaits struct {
	by     map[string]map[string]waitsFor // by the worker of an item ("": of tool steps), and by who waits
	timer  act.Timer
	listed uint32 // of what stands in the listing
	known  bool   // that is so: what an earlier incarnation wrote there is not
}

// Messages of a run to itself.
type (
	waitTick  struct{ gen uint64 }
	runListed struct{ err error }
)

func (w *runWaits) note(m *workerWaits) {
	if delete(w.by[m.item], m.worker); len(w.by[m.item]) == 0 {
		delete(w.by, m.item)
	}
	if m.waits == (waitsFor{}) {
		return
	}
	if w.by == nil {
		w.by = make(map[string]map[string]waitsFor)
	}
	if w.by[m.item] == nil {
		w.by[m.item] = make(map[string]waitsFor, 1)
	}
	w.by[m.item][m.worker] = m.waits
}

// noteWait takes note of what a worker waits for by now.
func (r *PipelineRun) noteWait(c actor.Context, m *workerWaits) {
	was := r.waits.by[m.item][m.worker]
	r.waits.note(m)
	switch {
	case r.state == nil || r.stopped:
	case was.view("").ForPeople() || m.waits.view("").ForPeople():
		r.waitsChanged(c)
	case len(r.waits.by) == 0:
		r.waitsChanged(c)
	default:
		r.lookLater(c)
	}
}

// waitsChanged tells those who wait for changes, and looks again when something may have lasted.
func (r *PipelineRun) waitsChanged(c actor.Context) {
	r.announce(c)
	r.relist(c)
	r.lookLater(c)
}

// lookLater looks again when what is waited for will have lasted, and now and then whether a machine is there: nobody says that it has gone.
func (r *PipelineRun) lookLater(c actor.Context) {
	if r.state.Finished != nil || r.waits.timer.Armed() {
		return
	}
	now, due := r.svc.Now().UnixMilli(), int64(0)
	for _, of := range r.waits.by {
		for _, f := range of {
			on := f.view("")
			in := f.sinceMs + lasting.Milliseconds() - now
			if f.kind == messages.WaitOwner {
				in = lasting.Milliseconds()
			}
			if (f.kind == messages.WaitOwner || !on.ForPeople() && in > 0) && (due == 0 || in < due) {
				due = in
			}
		}
	}
	if due > 0 {
		r.waits.timer.SetBy(r.svc.Clock, c, time.Duration(due)*time.Millisecond, func(gen uint64) any { return &waitTick{gen} })
	}
}

// waitOf is what whoever works on an item waits for; nil: nothing that is worth a word.
func (r *PipelineRun) waitOf(it *pipeline.ItemState) *messages.Waiting {
	kind := it.Step().Step.Kind
	if len(r.waits.by) == 0 || it.Status != pipeline.Running || it.Start == nil || kind == pipeline.NestedStep || kind == pipeline.HumanStep {
		return nil
	}
	worker := ""
	if kind != pipeline.ToolStep {
		worker = childOf(it.Start.GetExecId())
	}
	var best *messages.Waiting
	for who, f := range r.waits.by[worker] {
		if kind == pipeline.ToolStep && f.call != "" && f.call != stepCall(it.Start) {
			f = waitsFor{kind: messages.WaitTurn, sinceMs: f.sinceMs}
		}
		on := f.view(who)
		if !r.lasts(on) {
			continue
		}
		if best == nil || rank(on) < rank(best) || rank(on) == rank(best) && cmp.Less(on.GetWorkerId(), best.GetWorkerId()) {
			best = on
		}
	}
	return best
}

// orQuestion is what an item waits for, or the question of the run itself.
func orQuestion(it *pipeline.ItemState, on *messages.Waiting) *messages.Waiting {
	if on != nil || !it.Asks() {
		return on
	}
	return &messages.Waiting{Kind: messages.WaitQuestion, Subject: it.Step().Path, ApprovalId: it.Asked.GetApprovalId()}
}

// rank says of which of several things an item waits for is told: of those about which somebody can do something.
func rank(x *messages.Waiting) int {
	switch {
	case x.GetKind() == messages.WaitApproval || x.GetKind() == messages.WaitQuestion:
		return 0
	case x.ForPeople():
		return 1
	}
	return 2
}

// lasts says whether something is worth to be shown.
func (r *PipelineRun) lasts(x *messages.Waiting) bool {
	switch x.GetKind() {
	case messages.WaitOwner:
		return !r.svc.Owners.Connected(Place{Session: r.session, URI: x.GetSubject()})
	case messages.WaitTurn:
		return true
	}
	return x.ForPeople() || r.svc.Now().UnixMilli()-x.GetSinceUnixMs() >= lasting.Milliseconds()
}

// waiting tells what items wait for from what they waited for at another time.
func (r *PipelineRun) waiting() uint32 {
	if r.state == nil || r.state.Finished != nil {
		return 0
	}
	h, some := fnv.New32a(), false
	for _, ss := range r.state.Live() {
		for _, it := range ss.Under() {
			if on := orQuestion(it, r.waitOf(it)); on != nil {
				some = true
				_, _ = fmt.Fprintln(h, ss.Path, it.Index, on.GetKind(), on.GetSubject(), on.GetStep(), on.GetApprovalId(), on.GetExecId(), on.GetWorkerId())
			}
		}
	}
	if !some {
		return 0
	}
	return max(h.Sum32(), 1)
}

// relist writes the run's listing anew when something else is waited for than that says: it is read without the run.
func (r *PipelineRun) relist(c actor.Context) {
	if r.under || r.stopped || r.svc.Still || r.state.Finished != nil || r.waits.known && r.waits.listed == r.waiting() {
		return
	}
	v := r.view(listedRun)
	r.waits.listed, r.waits.known, r.under = v.GetWaits(), true, true
	sys, self := c.ActorSystem(), c.Self()
	r.journal.Append(func(_ persistence.Receipt, err error) { sys.Root.Send(self, &runListed{err}) }, persistence.Draft{Index: r.listing(v)})
}

func (r *PipelineRun) relisted(c actor.Context, m *runListed) {
	if m.err != nil {
		r.log.Error("run cannot be listed", "err", m.err)
		c.Stop(c.Self()) // the journal takes nothing more; the next incarnation lists it
		return
	}
	r.under = false
	r.next(c)
}
