package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// The states of a job, in a word.
const (
	JobRunning = messages.JobRunning
	JobExited  = "exited"
	JobKilled  = "killed"
	JobFailed  = "failed"
	JobUnknown = "unknown" // nobody knows what became of it
)

// Away describes a job that runs on another machine (ADR 100).
type Away struct {
	ID, Command string
	Host        string    // where it runs
	Start       time.Time // as this machine's clock has it
	Clean       func(string) string
	End         func(why string) // asks for its end there, once
}

// AwayJob is what is known here of a job that runs on another machine.
type AwayJob struct {
	set *Jobs
	j   *job
}

// away is what a job is besides, when it does not run here.
type away struct {
	host        string
	end         func(why string)
	state, note string    // how it ended; "": it has not
	bytes       int64     // that it had kept
	left        bool      // its output is in home, and no longer here
	once        sync.Once // closes done
}

// JobID is the id of the job that a call starts, here and elsewhere.
func JobID(execID string) string { return jobID(execID) }

// IsJobID says whether an id can be that of a job: it is safe as a file name.
func IsJobID(id string) bool {
	rest, ok := strings.CutPrefix(id, messages.JobPrefix)
	return ok && plainID(rest) && len(id) <= 100
}

// Beside makes the jobs of another set, nil while there is none, seen, counted and ended through this one. They do not end with it. It comes before all else.
func (s *Jobs) Beside(other func() *Jobs) { s.also = other }

// Room refuses when as many jobs run as may.
func (s *Jobs) Room() error {
	if n := s.Running(); s.most > 0 && n >= s.most {
		return Errorf(CodeValidationFailed, "%d jobs are running already, which is all that may; end one with job_kill", n)
	}
	return nil
}

// all are the jobs of the set and of the one beside it.
func (s *Jobs) all() []*job {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	list := append([]*job(nil), s.jobs...)
	s.mu.Unlock()
	if s.also == nil {
		return list
	}
	return append(list, s.also().all()...)
}

// Away adds a job that runs elsewhere.
func (s *Jobs) Away(o Away) *AwayJob {
	if o.Clean == nil {
		o.Clean = func(text string) string { return text }
	}
	j := &job{id: o.ID, command: o.Command, start: o.Start, clean: o.Clean, done: make(chan struct{}), more: make(chan struct{}), away: &away{host: o.Host, end: o.End}}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(slices.DeleteFunc(s.jobs, func(old *job) bool { return old.id == o.ID }), j) // one that was given up too early
	s.keepSome()
	return &AwayJob{s, j}
}

// End asks for the end of the job; only the first reason counts.
func (a *AwayJob) End(why string) { a.j.end(why) }

// Forget takes the job out of its set: it never began.
func (a *AwayJob) Forget() { a.set.forget(a.j) }

// Finish says how the job ended; only the first word counts. What it has printed is put into home, where there is one, and true says that it is there.
func (a *AwayJob) Finish(told *messages.OwnedJob, home *workspace.Workspace) bool {
	j := a.j
	j.mu.Lock()
	if !j.over {
		j.kept, j.dropped = []byte(j.clean(printable([]byte(lastBytes(told.GetOutput(), keptOutput+keptOutput/4))))), max(told.GetDropped(), 0)
		j.away.state, j.away.note, j.away.bytes, j.over = told.GetState(), told.GetNote(), int64(len(j.kept)), true
		j.exit = Exit{Code: int(told.GetExitCode()), Signal: told.GetSignal(), Duration: time.Duration(told.GetDurationMs()) * time.Millisecond}
		j.tell()
	}
	left := j.away.left
	j.mu.Unlock()
	if !left && home != nil && IsJobID(j.id) && putSpill(home, j.id, j.left()) == nil {
		j.mu.Lock()
		j.away.left, j.kept, left = true, nil, true
		j.mu.Unlock()
	}
	return left
}

// Done says that nothing of the job is left here either: who waits for its end goes on. It follows Finish.
func (a *AwayJob) Done() {
	a.j.cancel(nil)
	a.j.away.once.Do(func() { close(a.j.done) })
}

// Owned is how a job is, for whoever owns it to tell of; nil when it is not known. What it has printed is there when it has ended.
func (s *Jobs) Owned(id string) *messages.OwnedJob {
	j := s.find(id)
	if j == nil {
		return nil
	}
	word, note := j.state()
	m := &messages.OwnedJob{JobId: id, Command: j.command, State: word, Note: note, StartedUnixMs: j.start.UnixMilli()}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		m.ExitCode, m.Signal, m.DurationMs = int32(j.exit.Code), j.exit.Signal, j.exit.Duration.Milliseconds()
		m.Output, m.Dropped = string(j.kept), j.dropped
	}
	return m
}

// End asks for the end of a job; one that is not known is none.
func (s *Jobs) End(id, why string) {
	if j := s.find(id); j != nil {
		j.end(why)
	}
}

// CloseFor is Close with a reason.
func (s *Jobs) CloseFor(why string) {
	s.mu.Lock()
	all := append([]*job(nil), s.jobs...)
	s.closed = true
	s.mu.Unlock()
	for _, j := range all {
		j.end(why)
	}
}

// how says how a job elsewhere is, as far as that is known here. The lock of the job is held.
func (a *away) how(j *job) (word, note string) {
	if a.state != "" {
		return a.state, a.note
	}
	var asked *jobEnd
	if errors.As(context.Cause(j.ctx), &asked) {
		return JobRunning, fmt.Sprintf("running on %s, and asked to end: %s", a.host, asked.why)
	}
	return JobRunning, fmt.Sprintf("running for %d s on %s", int(time.Since(j.start).Seconds()), a.host)
}

// lastBytes is the end of a text, from the beginning of a letter on.
func lastBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	for text != "" && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}
