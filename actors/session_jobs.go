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

// jobNoted is the end of the append of who ends a job.
type jobNoted struct {
	asker   *actor.PID
	fact    *messages.JobEnded
	journal *persistence.Journal
	record  *messages.Record
	receipt persistence.Receipt
	fail    *messages.Failure
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
	n := &jobNoted{asker: c.Sender(), fact: &messages.JobEnded{
		JobId: left.GetJobId(), WorkerId: left.GetWorkerId(), Workspace: left.GetWorkspace(), Command: left.GetCommand(),
		By: cmp.Or(oneLine(m.GetBy()), "user"), Reason: oneLine(s.svc.Redact.String(m.GetReason())),
	}}
	s.building = true
	svc, journal, seq := s.svc, s.journal, s.facts.seq
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		n.fail = messages.Fail(messages.CodeInternal, p.Error(), "")
		return n
	}, func() any {
		if err := n.write(svc, journal, seq); err != nil {
			n.fail = messages.Fail(messages.CodeUnavailable, fmt.Sprintf("write down who ends job %s: %v", n.fact.GetJobId(), err), "it runs still: try again")
		}
		return n
	})
}

func (n *jobNoted) write(svc *Services, journal *persistence.Journal, seq uint64) error {
	var err error
	if n.journal, n.record, err = oneRecord(svc, journal, seq, n.fact); err != nil {
		return err
	}
	n.receipt, err = appendAndWait(svc, persistence.Part{Journal: n.journal, Draft: persistence.Draft{Records: []*messages.Record{n.record}}})
	return err
}

// jobNoted ends the job.
func (s *Session) jobNoted(c actor.Context, m *jobNoted) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	defer s.goOn(c)
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
		return
	}
	s.written(c, []proto.Message{m.fact}, []*messages.Record{m.record}, m.receipt)
	why := "ended by " + m.fact.GetBy()
	if m.fact.GetReason() != "" {
		why += ": " + m.fact.GetReason()
	}
	gone := s.svc.folders.endOne(m.fact.GetJobId(), why)
	if gone == nil { // it has ended meanwhile
		s.tell(c, m.asker, &messages.Ack{})
		return
	}
	svc, away := s.svc, &s.rest.away
	away.Add(1)
	svc.spawn(c.ActorSystem(), m.asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		select {
		case <-gone:
			return &messages.Ack{}
		case <-ctx.Done():
			return messages.Fail(messages.CodeTimeout, "job "+m.fact.GetJobId()+" was asked to end, and has not yet", "its machine may be away: look again in a moment")
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
