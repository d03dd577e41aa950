package actors

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// Commands that calls left running on the machines of workspaces' owners (ADR 100). The owner runs them; here it is known whose they are, they
// keep their workspace like jobs of this machine (I6), and are asked to end. They outlive connections, executors, and this process: an owner that connects
// says which it has, and what is not known here is taken on.

// JobOwner is an Owner that may leave commands running.
type JobOwner = interface {
	TakesJobs() bool
	// EndJob asks for the end of a job. That it has ended is told by OwnedJob.
	EndJob(id, why string)
}

// awayJobs are the jobs on other machines.
type awayJobs struct {
	mu    sync.Mutex
	sets  map[string]*tools.Jobs // worker -> its
	run   map[string]*awayJob    // that have not ended
	ends  map[string]string      // job -> why it was to end, of those whose end nobody confirmed
	asked []string               // the keys of ends, the oldest first
	found map[Place]*finds       // of connections
}

// finds counts the jobs that one connection told of and nobody knew here.
type finds struct {
	epoch uint64
	n     int
}

// awayJob is one of them.
type awayJob struct {
	id, worker, host string
	command          string
	place            Place
	known            *tools.AwayJob
	home             func() *workspace.Workspace // where its output goes; nil: nowhere
	release          func()                      // gives up the workspace; nil: not held yet
	starting         bool                        // the call that starts it has no result yet
	told             bool                        // it is known by its owner's word that it runs
}

const (
	maxJobsTold = 64   // that one connection may tell of and nobody knows here
	maxEnds     = 1024 // that are remembered
	lostJobText = "workspace owner disconnected: its outcome is not known"
)

// set is where a worker's jobs on other machines are.
func (a *awayJobs) set(svc *Services, worker string) *tools.Jobs {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sets == nil {
		a.sets, a.run, a.ends = make(map[string]*tools.Jobs), make(map[string]*awayJob), make(map[string]string)
	}
	if a.sets[worker] == nil {
		a.sets[worker] = tools.NewJobs(svc.Limits.Jobs, svc.job)
	}
	return a.sets[worker]
}

// peek is what set is, if there is one; else nil.
func (a *awayJobs) peek(worker string) *tools.Jobs {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sets[worker]
}

// forget lets go of what is known of workers that are no more.
func (a *awayJobs) forget(workers []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range workers {
		delete(a.sets, w)
	}
}

// find gives a job that has not ended; nil: there is none.
func (a *awayJobs) find(id string) *awayJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run[id]
}

// of are the jobs of a place that have not ended.
func (a *awayJobs) of(p Place) (all []*awayJob) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.run {
		if j.place == p {
			all = append(all, j)
		}
	}
	return all
}

// hasEnded says whether an owner has told how a job ended: no word that comes later undoes it. One that was given up may run still.
func hasEnded(set *tools.Jobs, id string) bool {
	switch set.Owned(id).GetState() {
	case tools.JobExited, tools.JobKilled, tools.JobFailed:
		return true
	}
	return false
}

// addAway makes a job known; nil: it is already, or has ended.
func (s *Services) addAway(j *awayJob, start time.Time) *awayJob {
	set := s.away.set(s, j.worker)
	s.away.mu.Lock()
	defer s.away.mu.Unlock()
	if s.away.run[j.id] != nil || j.told && hasEnded(set, j.id) {
		return nil
	}
	j.known = set.Away(tools.Away{ID: j.id, Command: j.command, Host: j.host, Start: start, Clean: s.Redact.String, End: func(why string) { s.endAway(j, why) }})
	s.away.run[j.id] = j
	return j
}

// endAway asks the owner for the end of a job. One that is there and does not say that it ended is given up after a while, as a call is that does not end; of one that
// is not there the end of its grace decides.
func (s *Services) endAway(j *awayJob, why string) {
	s.away.mu.Lock()
	if _, again := s.away.ends[j.id]; !again {
		s.away.asked = append(s.away.asked, j.id)
	}
	s.away.ends[j.id] = why
	for len(s.away.asked) > maxEnds {
		delete(s.away.ends, s.away.asked[0])
		s.away.asked = s.away.asked[1:]
	}
	s.away.mu.Unlock()
	o, ok := s.Owners.at(j.place).owner.(JobOwner)
	if !ok {
		return
	}
	o.EndJob(j.id, why)
	s.aside(func() {
		if s.pause(s.Limits.Grace) && s.Owners.Connected(j.place) {
			s.endedAway(j, &messages.OwnedJob{State: tools.JobUnknown, Note: "asked to end: " + why + "; its machine did not say that it has, and its outcome is not known"})
		}
	})
}

// endedAway notes how a job ended, gives up its workspace, and says whether what it printed is kept.
func (s *Services) endedAway(j *awayJob, told *messages.OwnedJob) bool {
	var home *workspace.Workspace
	if j.home != nil {
		home = j.home()
	}
	kept := j.known.Finish(told, home)
	s.away.mu.Lock()
	release := j.release
	j.release = nil
	if s.away.run[j.id] == j {
		delete(s.away.run, j.id)
	}
	if told.GetState() != tools.JobUnknown {
		delete(s.away.ends, j.id)
	}
	s.away.mu.Unlock()
	if release != nil {
		release()
	}
	j.known.Done()
	return kept
}

// dropAway forgets a job that has not begun, as far as anybody knows.
func (s *Services) dropAway(j *awayJob) {
	s.away.mu.Lock()
	release := j.release
	j.release = nil
	if s.away.run[j.id] == j {
		delete(s.away.run, j.id)
	}
	s.away.mu.Unlock()
	j.known.Forget()
	if release != nil {
		release()
	}
	j.known.Done()
}

// endAwayIn ends the jobs of a place, also of agents that are not in memory.
func (s *Services) endAwayIn(p Place, why string) {
	for _, j := range s.away.of(p) {
		j.known.End(why)
	}
}

// heldBy gives a job what gives up its workspace; at once, when it has ended already.
func (s *Services) heldBy(j *awayJob, release func()) {
	s.away.mu.Lock()
	over := s.away.run[j.id] != j
	if !over {
		j.release = release
	}
	s.away.mu.Unlock()
	if over {
		release()
	}
}

// OwnersJob takes what an owner says of a job: that it has begun, or how it ended. It is heard from the connection that has the place.
func (s *Services) OwnersJob(sys *actor.ActorSystem, m *messages.OwnedJob, v *messages.SessionView) *messages.Failure {
	p := Place{m.GetSessionId(), m.GetUri()}
	seat := s.Owners.at(p)
	switch {
	case seat.owner == nil || seat.epoch != m.GetEpoch():
		return messages.Fail(messages.CodeConflict, "another connection owns the workspace", "")
	case !tools.IsJobID(m.GetJobId()):
		return messages.Fail(messages.CodeInvalidMessage, "job has no job_id of a job", "")
	case !told(m):
		return messages.Fail(messages.CodeInvalidMessage, "job has no state of a job", "one of running, exited, killed, failed, unknown")
	}
	return s.takeJob(sys, seat, p, m, v)
}

// told makes what an owner says of a job fit to be shown, and says whether its state is one.
func told(m *messages.OwnedJob) bool {
	for _, text := range []*string{&m.Note, &m.Command, &m.Signal} {
		*text, _ = cut(mended(*text), 4096)
	}
	if m.GetNote() == "" {
		m.Note = m.GetState()
	}
	return slices.Contains([]string{tools.JobRunning, tools.JobExited, tools.JobKilled, tools.JobFailed, tools.JobUnknown}, m.GetState())
}

// OwnersJobs takes what an owner has, right after it has connected: what is not known here is taken on, what it does not know is of unknown outcome.
func (s *Services) OwnersJobs(sys *actor.ActorSystem, p Place, epoch uint64, all []*messages.OwnedJob, v *messages.SessionView) {
	seat := s.Owners.at(p)
	if seat.owner == nil || seat.epoch != epoch {
		return
	}
	has := make(map[string]bool)
	for _, m := range all { // a frame bounds them, and maxJobsTold those that are new here: what is known is not lost behind others
		has[m.GetJobId()] = true
		if told(m) && m.GetState() == messages.JobRunning && tools.IsJobID(m.GetJobId()) { // how others ended is told apart
			_ = s.takeJob(sys, seat, p, m, v) // its owner is asked for its end
		}
	}
	for _, j := range s.away.of(p) {
		s.away.mu.Lock()
		starting := j.starting
		s.away.mu.Unlock()
		if !has[j.id] && !starting {
			s.endedAway(j, &messages.OwnedJob{State: tools.JobUnknown, Note: "interrupted: its machine knows nothing of it any more, and its outcome is not known"})
		}
	}
}

// takeJob brings what is known of a job up to what its owner says. A word of an older connection may come after one of the newer; that a job runs whose end
// was told is refused.
func (s *Services) takeJob(sys *actor.ActorSystem, seat *seat, p Place, m *messages.OwnedJob, v *messages.SessionView) *messages.Failure {
	running, owner := m.GetState() == messages.JobRunning, seat.owner
	j := s.away.find(m.GetJobId())
	switch {
	case j != nil && j.place != p:
		return nil // the job of another place: not this owner's to speak of
	case j == nil:
		if !slices.ContainsFunc(v.GetWorkers(), func(w *messages.WorkerView) bool { return w.GetId() == m.GetWorkerId() }) {
			s.refuseJob(owner, m, running, "its agent is no more")
			return nil
		}
		if running && hasEnded(s.away.peek(m.GetWorkerId()), m.GetJobId()) {
			return s.overAlready(owner, m)
		}
		if running && s.fullOf(m.GetWorkerId()) || !s.away.mayFind(p, seat.epoch) {
			s.refuseJob(owner, m, running, "more jobs than may run, or than one connection may tell of")
			return nil
		}
		if j = s.adopt(sys, p, m, v); j == nil && running && hasEnded(s.away.peek(m.GetWorkerId()), m.GetJobId()) {
			return s.overAlready(owner, m)
		}
		if j == nil {
			return nil
		}
	}
	if running {
		s.away.mu.Lock()
		why, ends := s.away.ends[j.id]
		s.away.mu.Unlock()
		if o, ok := owner.(JobOwner); ends && ok {
			o.EndJob(j.id, why)
		}
		return nil
	}
	if s.endedAway(j, m) {
		owner.Settle(m.GetJobId(), 1)
	}
	return nil
}

// fullOf says whether as many commands of a worker run as may.
func (s *Services) fullOf(worker string) bool { return s.away.set(s, worker).Room() != nil }

// overAlready refuses that a job runs which has ended. Should it run all the same, nobody here looks after it.
func (s *Services) overAlready(owner Owner, m *messages.OwnedJob) *messages.Failure {
	s.refuseJob(owner, m, true, "it has ended: that was told before")
	return messages.Fail(messages.CodeConflict, "job "+m.GetJobId()+" has ended: that was told before, and it is not taken on again", "")
}

// mayFind counts a job that nobody knows here.
func (a *awayJobs) mayFind(p Place, epoch uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found == nil {
		a.found = make(map[Place]*finds)
	}
	if f := a.found[p]; f == nil || f.epoch != epoch {
		a.found[p] = &finds{epoch: epoch}
	}
	a.found[p].n++
	return a.found[p].n <= maxJobsTold
}

// refuseJob has a job end that nobody here looks after.
func (s *Services) refuseJob(owner Owner, m *messages.OwnedJob, running bool, why string) {
	if o, ok := owner.(JobOwner); running && ok {
		o.EndJob(m.GetJobId(), why)
		return
	}
	owner.Settle(m.GetJobId(), 1)
}

// adopt takes on a job that nobody here knows: this process has begun after it, or had given it up. Its workspace is kept for it from now on.
func (s *Services) adopt(sys *actor.ActorSystem, p Place, m *messages.OwnedJob, v *messages.SessionView) *awayJob {
	g := grantOf(v, p.URI)
	start := time.UnixMilli(m.GetStartedUnixMs())
	if now := s.Now(); start.After(now) || m.GetStartedUnixMs() <= 0 {
		start = now
	}
	j := s.addAway(&awayJob{id: m.GetJobId(), worker: m.GetWorkerId(), host: g.GetOwner(), place: p, home: s.homeOf(v), command: s.Redact.String(m.GetCommand()), told: m.GetState() == messages.JobRunning}, start)
	if j == nil || m.GetState() != messages.JobRunning {
		return j
	}
	l := &messages.LeaseToken{Workspace: p.URI}
	s.folders.keep(j.id, &leftRunning{worker: j.worker, since: start, session: p.Session, workspace: p.URI, command: oneLine(j.command), end: j.known.End})
	s.folders.began(l, j.id)
	pid := workspacePID(sys, g.GetId())
	if _, there := sys.ProcessRegistry.GetLocal(pid.GetId()); there { // else it looks when it starts
		sys.Root.Send(pid, &messages.KeepJob{Workspace: p.URI, JobId: j.id, WorkerId: j.worker, SessionId: p.Session})
	}
	s.heldBy(j, func() {
		s.folders.keep(j.id, nil)
		s.folders.ended(l, j.id)
		if _, there := sys.ProcessRegistry.GetLocal(pid.GetId()); there {
			sys.Root.Send(pid, &messages.EffectEnded{Workspace: p.URI, ExecId: j.id})
		}
	})
	return j
}

func grantOf(v *messages.SessionView, uri string) *messages.WorkspaceGrant {
	for _, g := range v.GetWorkspaces() {
		if g.GetUri() == uri {
			return g
		}
	}
	return nil
}

// homeOf is how a session's own workspace is reached, as long as it is in memory.
func (s *Services) homeOf(v *messages.SessionView) func() *workspace.Workspace {
	for _, g := range v.GetWorkspaces() {
		if g.GetName() == HomeName && g.GetKind() == string(workspace.KindServer) {
			return func() *workspace.Workspace {
				ws, err := s.folders.handle(g)
				if err != nil {
					return nil
				}
				return ws
			}
		}
	}
	return nil
}

// OwnerLeft waits for an owner to come back that has jobs: as long as calls do. What it has left behind then, or when it has left for good, is of unknown outcome.
func (s *Services) OwnerLeft(p Place, forGood bool) {
	if len(s.away.of(p)) == 0 {
		return
	}
	lost := func() {
		if s.Owners.Connected(p) {
			return
		}
		for _, j := range s.away.of(p) {
			s.endedAway(j, &messages.OwnedJob{State: tools.JobUnknown, Note: lostJobText})
		}
	}
	if forGood {
		lost()
		return
	}
	changed := s.Owners.at(p).changed
	s.aside(func() {
		t := time.NewTimer(cmp.Or(s.Limits.Owner, ownerGrace))
		defer t.Stop()
		select {
		case <-changed:
		case <-s.stopped:
		case <-t.C:
			lost()
		}
	})
}
