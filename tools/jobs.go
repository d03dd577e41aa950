package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
)

// Bounds of jobs.
const (
	maxJobOutput = 64 << 20 // bytes after which a job is killed
	keptOutput   = 1 << 20  // bytes of its newest output that are kept
	maxJobLine   = 64 << 10 // bytes of a line that is still to end
	endedJobs    = 32       // that are remembered
)

// Jobs are the commands that one agent left running. They belong to whoever made them and end with its Close. It is safe for
// concurrent use.
type Jobs struct {
	most  int
	spawn func(func())
	also  func() *Jobs // beside these; nil: there are none

	mu     sync.Mutex
	jobs   []*job // in the order of their start
	closed bool
}

// NewJobs makes an empty set of at most so many running jobs (0: any number). spawn runs a function beside the caller; it
// is told of each job, and the function returns when nothing of the job is left.
func NewJobs(most int, spawn func(func())) *Jobs { return &Jobs{most: most, spawn: spawn} }

// Close ends all jobs and lets none begin. It does not wait.
func (s *Jobs) Close() { s.CloseFor("it ended with its session") }

// Running counts the jobs that run.
func (s *Jobs) Running() int {
	n := 0
	for _, j := range s.all() {
		if !j.ended() {
			n++
		}
	}
	return n
}

// job is one command that runs beside its agent.
type job struct {
	id, command string
	start       time.Time
	cancel      context.CancelCauseFunc
	ctx         context.Context //nolint:containedctx // the job's own life
	clean       func(string) string
	done        chan struct{} // closed when nothing of it is left

	mu      sync.Mutex
	half    []byte // a line that is still to end: a secret in it could be recognised by its end only
	kept    []byte
	dropped int64         // bytes before kept
	more    chan struct{} // closed when there is more to see
	exit    Exit
	err     error
	over    bool
	endedAt time.Time
	away    *away // nil: it runs here
}

// jobEnd is why a job was ended by us.
type jobEnd struct{ why string }

func (e *jobEnd) Error() string { return e.why }

// jobID names the job that a call starts, after the call: it is known again after a crash.
func jobID(execID string) string {
	if rest, ok := strings.CutPrefix(execID, messages.ExecPrefix); ok {
		return messages.JobPrefix + rest
	}
	return messages.NewID(messages.JobPrefix)
}

// add makes a job that is not running yet.
func (s *Jobs) add(id, command string, clean func(string) string) (*job, error) {
	if err := s.Room(); err != nil {
		return nil, err
	}
	j := &job{id: id, command: command, start: time.Now(), clean: clean, done: make(chan struct{}), more: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, Errorf(CodeCancelled, "the session is ending")
	}
	s.jobs = append(s.jobs, j)
	s.keepSome()
	return j, nil
}

// keepSome forgets the oldest of those that have ended. The lock is held.
func (s *Jobs) keepSome() {
	for over := len(s.jobs) - s.most - endedJobs; over > 0; over-- { // their output stays in home
		if i := slices.IndexFunc(s.jobs, (*job).ended); i >= 0 {
			s.jobs = slices.Delete(s.jobs, i, i+1)
		}
	}
}

// EndedJob is a job that has ended and is remembered, with the bytes of its output that are.
type EndedJob struct {
	ID    string
	At    time.Time
	Bytes int
}

// Ended are the jobs that have ended here and are remembered.
func (s *Jobs) Ended() []EndedJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []EndedJob
	for _, j := range s.jobs {
		j.mu.Lock()
		if j.over && j.away == nil {
			all = append(all, EndedJob{j.id, j.endedAt, len(j.kept)})
		}
		j.mu.Unlock()
	}
	return all
}

// Forget lets go of a job that has ended.
func (s *Jobs) Forget(id string) {
	if j := s.find(id); j != nil && j.ended() {
		s.forget(j)
	}
}

func (s *Jobs) forget(j *job) {
	j.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = slices.DeleteFunc(s.jobs, func(o *job) bool { return o == j })
}

func (s *Jobs) find(id string) *job {
	for _, j := range s.all() {
		if j.id == id {
			return j
		}
	}
	return nil
}

// startJob leaves a command running. It keeps the workspace until it ends: see Context.Hold.
func startJob(c *fileCall, command string, timeout time.Duration, cmd Command) (*Result, error) {
	if c.Jobs == nil || c.Hold == nil { // nobody looks after it
		return nil, refuse("argument \"background\": a command cannot be left running here, where no session is that it could belong to, as in a folder of another machine; run it without background")
	}
	j, err := c.Jobs.add(jobID(c.ExecID), command, c.clean)
	if err != nil {
		return nil, err
	}
	release, err := c.Hold(j.id, j.end)
	if err != nil {
		c.Jobs.forget(j)
		return nil, err
	}
	box, home := c.Sandbox, c.Home
	cmd.Output, cmd.MaxOutput, cmd.Temp = j, maxJobOutput, ""
	c.Jobs.spawn(func() {
		defer close(j.done)
		defer release()
		ctx, cancel := j.ctx, context.CancelFunc(func() {})
		if timeout > 0 {
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, &jobEnd{fmt.Sprintf("it took longer than %d ms", timeout.Milliseconds())})
		}
		defer cancel()
		exit, err := box.Run(ctx, cmd)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		j.finish(exit, err)
		spill(home, j.id, j.left())
	})
	return &Result{
		Content: fmt.Sprintf("Started the job %s. See what it prints with job_output, end it with job_kill. It ends with the session, and when another agent waits for the workspace after this turn.", j.id),
		Meta:    map[string]any{"job_id": j.id, "sandbox": box.Name()},
	}, nil
}

// end kills the job; only the first reason counts. One that runs elsewhere is asked to end: that it has ended is told.
func (j *job) end(why string) {
	first := j.ctx.Err() == nil
	j.cancel(&jobEnd{why})
	if first && j.away != nil && !j.ended() {
		j.away.end(why)
	}
}

func (j *job) ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.over
}

// Write implements io.Writer for the sandbox. Text is kept by whole lines, clean.
func (j *job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.half = append(j.half, p...)
	if i := bytes.LastIndexByte(j.half, '\n'); i >= 0 {
		j.keep(j.half[:i+1])
		j.half = append([]byte(nil), j.half[i+1:]...)
	}
	if len(j.half) > maxJobLine {
		j.keep(j.half)
		j.half = nil
	}
	return len(p), nil
}

func (j *job) keep(raw []byte) {
	j.kept = append(j.kept, j.clean(printable(raw))...)
	if over := len(j.kept) - keptOutput; over > keptOutput/4 { // not with every line
		for over < len(j.kept) && !utf8.RuneStart(j.kept[over]) {
			over++
		}
		j.kept, j.dropped = append([]byte(nil), j.kept[over:]...), j.dropped+int64(over)
	}
	j.tell()
}

func (j *job) tell() {
	close(j.more)
	j.more = make(chan struct{})
}

func (j *job) finish(exit Exit, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.half) > 0 {
		j.keep(j.half)
		j.half = nil
	}
	j.exit, j.err, j.over, j.endedAt = exit, err, true, time.Now()
	j.tell()
}

// left is what stays in home when the job is no more: what it has printed, and before it how much is missing.
func (j *job) left() string {
	word, note := j.state()
	j.mu.Lock()
	defer j.mu.Unlock()
	text := string(j.kept) + fmt.Sprintf(endLine, word, strings.ReplaceAll(note, "\n", " "))
	if j.dropped == 0 {
		return text
	}
	return fmt.Sprintf(notKept, j.dropped) + text
}

// state says how the job is, in a word and in a sentence.
func (j *job) state() (word, note string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ended *jobEnd
	switch {
	case j.away != nil:
		return j.away.how(j)
	case !j.over:
		return JobRunning, fmt.Sprintf("running for %d s", int(time.Since(j.start).Seconds())) // who waits for it sees that something changes
	case errors.As(j.err, &ended):
		return JobKilled, "killed: " + ended.why
	case j.err != nil:
		return JobFailed, "the sandbox could not run it: " + cleanName(j.err.Error())
	case j.exit.Limit == "output":
		return JobKilled, fmt.Sprintf("killed: it printed more than %d MiB", maxJobOutput>>20)
	case j.exit.Limit != "":
		return JobKilled, "killed: it used too much " + j.exit.Limit
	case j.exit.Signal != "":
		return JobExited, fmt.Sprintf("exit code %d: ended by %s", j.exit.Code, j.exit.Signal)
	}
	return JobExited, fmt.Sprintf("exit code %d", j.exit.Code)
}

// meta is what programs get of a job.
func (j *job) meta() map[string]any {
	word, _ := j.state()
	j.mu.Lock()
	defer j.mu.Unlock()
	m := map[string]any{"job_id": j.id, "state": word, "output_bytes": j.dropped + int64(len(j.kept))}
	if j.away != nil && j.over {
		m["output_bytes"] = j.dropped + j.away.bytes
	}
	if j.over {
		m["exit_code"], m["signal"], m["duration_ms"] = j.exit.Code, j.exit.Signal, j.exit.Duration.Milliseconds()
		m["bounds"] = j.exit.Bounds
	}
	return m
}

// noJob is the refusal of a job that is not here.
func noJob(id string) *Error {
	if rest, ok := strings.CutPrefix(id, messages.JobPrefix); !ok || !plainID(rest) {
		return Errorf(CodeFileNotFound, "There is no job %s; job_list names them", cleanName(id)).With("job_id", cleanName(id))
	}
	return Errorf(CodeFileNotFound, "The job %s is no more: jobs end with their session and with the process, and nothing of it runs", id).With("job_id", id)
}
