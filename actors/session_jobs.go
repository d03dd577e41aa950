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

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
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

// endOne asks for the end of a job of some workers, and returns what is closed when it is gone; nil: they have no such job.
func (f *Folders) endOne(workers []string, job, why string) <-chan struct{} {
	f.mu.Lock()
	left := f.jobs[job]
	f.mu.Unlock()
	if left == nil || !slices.Contains(workers, left.worker) {
		return nil
	}
	left.end(why)
	return left.gone
}

// endJob ends one command that an agent left running, and answers when nothing of it is left.
func (s *Session) endJob(c actor.Context, m *messages.EndJob) {
	why := "ended by " + cmp.Or(oneLine(m.GetBy()), "a person")
	if m.GetReason() != "" {
		why += ": " + oneLine(s.svc.Redact.String(m.GetReason()))
	}
	gone := s.svc.folders.endOne(s.order, m.GetJobId(), why)
	if gone == nil {
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("no command of session %s runs as job %q", s.id, oneLine(m.GetJobId())), "what runs is listed by: troupe ls jobs "+s.id))
		return
	}
	svc, asker, away := s.svc, c.Sender(), &s.rest.away
	away.Add(1)
	svc.spawn(c.ActorSystem(), asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), svc.Limits.Grace+cancelWait)
		defer cancel()
		select {
		case <-gone:
			return &messages.Ack{}
		case <-ctx.Done():
			return messages.Fail(messages.CodeTimeout, "job "+m.GetJobId()+" was asked to end, and has not yet", "its machine may be away: look again in a moment")
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
