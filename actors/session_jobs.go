package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Commands that agents left running, as people see them and end them, one by one.

// shownCommand are the bytes of a command that are shown.
const shownCommand = 200

// commandLeft is the command that a call leaves running, as it is shown.
func (r *run) commandLeft() string {
	var a struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal([]byte(r.m.GetArguments()), &a) // that of another tool is none
	return oneLine(r.svc.Redact.String(a.Command))
}

// oneLine is the beginning of a text, on one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= shownCommand {
		return text
	}
	end := shownCommand
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// listOf are the jobs that some workers have running, the oldest first.
func (f *Folders) listOf(workers []string) (all []*messages.BackgroundJob) {
	f.mu.Lock()
	for id, left := range f.jobs {
		if slices.Contains(workers, left.worker) {
			all = append(all, &messages.BackgroundJob{JobId: id, WorkerId: left.worker, Workspace: left.workspace, Command: left.command, SinceUnixMs: left.since.UnixMilli()})
		}
	}
	f.mu.Unlock()
	slices.SortFunc(all, func(a, b *messages.BackgroundJob) int {
		return cmp.Or(cmp.Compare(a.GetSinceUnixMs(), b.GetSinceUnixMs()), strings.Compare(a.GetJobId(), b.GetJobId()))
	})
	return all
}

// oneOf is a job of some workers; nil: they have no such job.
func (f *Folders) oneOf(workers []string, job string) *messages.BackgroundJob {
	all := f.listOf(workers)
	if i := slices.IndexFunc(all, func(j *messages.BackgroundJob) bool { return j.GetJobId() == job }); i >= 0 {
		return all[i]
	}
	return nil
}

// endOne asks for the end of a job, and returns what is closed when it is gone; nil: it is gone.
func (f *Folders) endOne(job, why string) <-chan struct{} {
	f.mu.Lock()
	left := f.jobs[job]
	f.mu.Unlock()
	if left == nil {
		return nil
	}
	left.end(why)
	return left.gone
}

// Messages of a session to itself about the ends of jobs.
type (
	// endJobs is the rest of a CancelSession. Reply: jobsEnd, or a Failure, and all run on.
	endJobs struct{ worker, by, reason string } // worker "": of all
	// jobsEnd are closed when each of the jobs is gone that were asked to end.
	jobsEnd struct{ gone []<-chan struct{} }
	// jobsNoted is the end of the append of who ends jobs.
	jobsNoted struct {
		asker   *actor.PID
		facts   []proto.Message // JobEnded, of each
		why     string          // for who reads what is left of a job
		all     bool            // who asks waits until they are gone
		journal *persistence.Journal
		records []*messages.Record
		receipt persistence.Receipt
		fail    *messages.Failure
	}
)

func (s *Session) aboutJobs(c actor.Context) {
	switch m := c.Message().(type) {
	case *endJobs:
		s.endJobs(c, m)
	case *jobsNoted:
		s.jobsNoted(c, m)
	}
}

// endJob ends one command that an agent left running, once it is written down who wants that, and answers when nothing of it is left.
func (s *Session) endJob(c actor.Context, m *messages.EndJob) {
	if s.building {
		s.builds.Put(c)
		return
	}
	left := s.svc.folders.oneOf(s.order, m.GetJobId())
	if left == nil {
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("no command of session %s runs as job %q", s.id, oneLine(m.GetJobId())), "what runs is listed by: troupe ls jobs "+s.id))
		return
	}
	n := s.ends([]*messages.BackgroundJob{left}, m.GetBy(), m.GetReason())
	first := n.facts[0].(*messages.JobEnded) //nolint:forcetypeassert // ends makes no others
	if n.why = "ended by " + first.GetBy(); first.GetReason() != "" {
		n.why += ": " + first.GetReason()
	}
	s.noteEnds(c, n)
}

// endJobs ends what agents of this session have left running, as endJob does.
func (s *Session) endJobs(c actor.Context, m *endJobs) {
	switch {
	case s.doomed:
		s.answer(c, sessionClosed(s.id))
		return
	case s.building:
		s.builds.Put(c)
		return
	}
	workers := slices.DeleteFunc(slices.Clone(s.order), func(id string) bool { return m.worker != "" && m.worker != id }) // of no other session
	left := s.svc.folders.listOf(workers)
	if len(left) == 0 {
		c.Respond(&jobsEnd{})
		return
	}
	n := s.ends(left, m.by, m.reason)
	n.why, n.all = "the session's work was cancelled", true
	s.noteEnds(c, n)
}

// ends is what is written down of jobs that somebody ends.
func (s *Session) ends(jobs []*messages.BackgroundJob, by, reason string) *jobsNoted {
	n := &jobsNoted{}
	by, reason = author(oneLine(by)), oneLine(s.svc.Redact.String(reason))
	for _, j := range jobs {
		n.facts = append(n.facts, &messages.JobEnded{JobId: j.GetJobId(), WorkerId: j.GetWorkerId(), Workspace: j.GetWorkspace(), Command: j.GetCommand(), By: by, Reason: reason})
	}
	return n
}

func (s *Session) noteEnds(c actor.Context, n *jobsNoted) {
	n.asker, s.building = c.Sender(), true
	svc, journal, seq := s.svc, s.journal, s.facts.seq
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		n.fail = messages.Fail(messages.CodeInternal, p.Error(), "")
		return n
	}, func() any {
		if err := n.write(svc, journal, seq); err != nil {
			n.fail = messages.Fail(messages.CodeUnavailable, fmt.Sprintf("write down who ends commands in the background: %v", err), "they run still: try again")
		}
		return n
	})
}

func (n *jobsNoted) write(svc *Services, journal *persistence.Journal, seq uint64) error {
	var err error
	if n.journal, err = writable(svc, journal, seq); err != nil {
		return err
	}
	if n.records, err = records(n.facts); err != nil {
		return err
	}
	for _, r := range n.records {
		r.AtUnixMs = svc.Now().UnixMilli()
		r.Ignorable = true // for releases that do not know it: nothing but an audit reads it
	}
	n.receipt, err = appendAndWait(svc, persistence.Part{Journal: n.journal, Draft: persistence.Draft{Records: n.records}})
	return err
}

// jobsNoted ends the jobs.
func (s *Session) jobsNoted(c actor.Context, m *jobsNoted) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	defer s.goOn(c)
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
		return
	}
	s.written(c, m.facts, m.records, m.receipt)
	var gone []<-chan struct{}
	for _, f := range m.facts {
		if end := s.svc.folders.endOne(f.(*messages.JobEnded).GetJobId(), m.why); end != nil { //nolint:forcetypeassert // there are no others
			gone = append(gone, end)
		}
	}
	switch {
	case m.all:
		s.tell(c, m.asker, &jobsEnd{gone})
	case len(gone) == 0: // it has ended meanwhile
		s.tell(c, m.asker, &messages.Ack{})
	default:
		s.awaitEnd(c, m.asker, m.facts[0].(*messages.JobEnded).GetJobId(), gone[0]) //nolint:forcetypeassert // as above
	}
}

// awaitEnd answers when a job is gone.
func (s *Session) awaitEnd(c actor.Context, asker *actor.PID, job string, gone <-chan struct{}) {
	svc, away := s.svc, &s.rest.away
	away.Add(1)
	svc.spawn(c.ActorSystem(), asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		select {
		case <-gone:
			return &messages.Ack{}
		case <-ctx.Done():
			return messages.Fail(messages.CodeTimeout, "job "+job+" was asked to end, and has not yet", "its machine may be away: look again in a moment")
		}
	})
}

// countLeft says which commands agents have left running.
func countLeft(svc *Services, n *messages.JobCount, workers []string) {
	n.Jobs = svc.folders.listOf(workers)
	n.Background = int32(len(n.GetJobs()))
	if len(n.GetJobs()) > 0 {
		n.BackgroundSinceUnixMs = n.GetJobs()[0].GetSinceUnixMs()
	}
}
