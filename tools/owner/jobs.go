package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// What calls left running belongs to this program, and ends with it. Each job has a note on the disk from before it begins until the server says
// that its end is kept there, so that the next program can tell what became of the jobs of one that was killed (ADR 100).

const (
	// CutText is what is said of a job whose program was killed: what guards it ends it, and nobody saw how.
	CutText = "interrupted: the program that ran it on its machine was cut off, and its outcome is not known"
	// endedText is why a job ends with its program.
	endedText = "its machine does not share the folder any more"
)

// jobs are what calls left running here.
type jobs struct {
	sets map[string]*tools.Jobs        // worker -> its
	runs map[string]*messages.OwnedJob // job -> whose it is
	tell map[int]func(*messages.OwnedJob)
	next int
	over bool
}

// TakesJobs says whether commands may be left running here.
func (x *Owner) TakesJobs() bool { return x.o.Jobs != "" }

// leaves readies a call for what it may leave running, if the server looks after that.
func (x *Owner) leaves(m *messages.Execute, tc *tools.Context) {
	if !m.GetKeepsJobs() || !x.TakesJobs() {
		return
	}
	set := x.jobsOf(m.GetWorkerId())
	tc.Jobs = set
	tc.Hold = func(id string, _ func(string)) (func(), error) {
		j := &messages.OwnedJob{JobId: id, SessionId: m.GetSessionId(), WorkerId: m.GetWorkerId(), Uri: m.GetWorkspace().GetUri()}
		if now := set.Owned(id); now != nil {
			j.Command, j.StartedUnixMs = x.redacted(now.GetCommand()), now.GetStartedUnixMs()
		}
		j.State = tools.JobRunning
		x.mu.Lock()
		x.jobs.runs[id] = j // before it is noted: who reads a note of what does not run takes it for cut off
		x.mu.Unlock()
		if err := x.note(j); err != nil {
			x.mu.Lock()
			delete(x.jobs.runs, id)
			x.mu.Unlock()
			return nil, tools.Errorf(tools.CodeInternalError, "Unexpected error: the job cannot be noted on its machine")
		}
		x.tellOf(j) // a server that asks after a crash what became of the call does not know of it
		return func() { x.jobEnded(set, j) }, nil
	}
}

func (x *Owner) redacted(text string) string {
	if x.o.Redact == nil {
		return text
	}
	return x.o.Redact(text)
}

func (x *Owner) jobsOf(worker string) *tools.Jobs {
	x.mu.Lock()
	defer x.mu.Unlock()
	set := x.jobs.sets[worker]
	if set == nil {
		set = tools.NewJobs(x.o.MostJobs, func(fn func()) { x.calls.Go(func() { x.guarded(worker, fn) }) })
		if x.jobs.over {
			set.CloseFor(endedText)
		}
		x.jobs.sets[worker] = set
	}
	return set
}

// guarded runs a job. One that panics is none any more.
func (x *Owner) guarded(worker string, fn func()) {
	defer func() {
		if p := recover(); p != nil {
			x.o.Logger.Error("a job crashed", "worker", worker, "err", p, "stack", string(debug.Stack()))
		}
	}()
	fn()
}

// jobEnded tells of the end of a job, once it is noted.
func (x *Owner) jobEnded(set *tools.Jobs, was *messages.OwnedJob) {
	end := proto.CloneOf(was)
	if now := set.Owned(was.GetJobId()); now != nil {
		now.SessionId, now.WorkerId, now.Uri, now.Command, now.Output = was.GetSessionId(), was.GetWorkerId(), was.GetUri(), was.GetCommand(), x.redacted(now.GetOutput())
		end = now
	}
	if err := x.note(end); err != nil {
		x.o.Logger.Warn("the end of a job is not noted", "call", end.GetJobId(), "err", err)
	}
	if x.o.JobEnded != nil {
		x.o.JobEnded(end)
	}
	x.mu.Lock()
	delete(x.jobs.runs, end.GetJobId())
	x.mu.Unlock()
	x.tellOf(end)
	x.forgetEnded()
}

// keptEnded are the bytes of output that are kept in memory of all jobs that have ended: the server has been told of it, and the disk has it.
const keptEnded = 16 << 20

// forgetEnded forgets those that ended the longest ago, where all of them have printed too much.
func (x *Owner) forgetEnded() {
	type ended struct {
		tools.EndedJob
		of *tools.Jobs
	}
	var all []ended
	sum := 0
	x.mu.Lock()
	for _, s := range x.jobs.sets {
		for _, j := range s.Ended() {
			all = append(all, ended{j, s})
			sum += j.Bytes
		}
	}
	x.mu.Unlock()
	slices.SortFunc(all, func(a, b ended) int { return a.At.Compare(b.At) })
	for _, j := range all {
		if sum <= keptEnded {
			return
		}
		j.of.Forget(j.ID)
		sum -= j.Bytes
	}
}

// tellOf tells of a job to whoever watches.
func (x *Owner) tellOf(j *messages.OwnedJob) {
	x.mu.Lock()
	var tell []func(*messages.OwnedJob)
	for _, fn := range x.jobs.tell {
		tell = append(tell, fn)
	}
	x.mu.Unlock()
	for _, fn := range tell {
		fn(proto.CloneOf(j))
	}
}

// WatchJobs has a function told of each job that begins or ends, until stop.
func (x *Owner) WatchJobs(fn func(*messages.OwnedJob)) (stop func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.jobs.next
	x.jobs.next++
	x.jobs.tell[n] = fn
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.jobs.tell, n)
	}
}

// EndJob asks for the end of a job.
func (x *Owner) EndJob(id, why string) {
	x.mu.Lock()
	var sets []*tools.Jobs
	for _, s := range x.jobs.sets {
		sets = append(sets, s)
	}
	x.mu.Unlock()
	for _, s := range sets {
		s.End(id, why)
	}
}

// Jobs are those that run, and those that have ended and whose end the server has not said that it keeps: the oldest first. What a program left that was
// killed is of unknown outcome.
func (x *Owner) Jobs() []*messages.OwnedJob {
	if !x.TakesJobs() {
		return nil
	}
	entries, err := os.ReadDir(x.o.Jobs)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			x.o.Logger.Warn("the jobs of this machine cannot be listed", "err", err)
		}
		return nil
	}
	var all []*messages.OwnedJob
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(x.o.Jobs, e.Name()))
		j := &messages.OwnedJob{}
		if err != nil || !tools.IsJobID(e.Name()) || proto.Unmarshal(b, j) != nil || j.GetJobId() != e.Name() { // gone meanwhile, or none of ours
			continue
		}
		x.mu.Lock()
		_, runs := x.jobs.runs[j.GetJobId()]
		x.mu.Unlock()
		if j.GetState() == tools.JobRunning && !runs {
			if j = x.ofKilled(j); j == nil {
				continue
			}
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *messages.OwnedJob) int { return int(a.GetStartedUnixMs() - b.GetStartedUnixMs()) })
	return all
}

// ofKilled is a job that does not run, as far as this program knows: it has ended just now, or ran in one that was killed. nil: its end is kept by the server.
func (x *Owner) ofKilled(was *messages.OwnedJob) *messages.OwnedJob {
	b, err := os.ReadFile(filepath.Join(x.o.Jobs, was.GetJobId()))
	now := &messages.OwnedJob{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && proto.Unmarshal(b, now) == nil && now.GetState() != tools.JobRunning:
		return now
	}
	was.State, was.Note = tools.JobUnknown, CutText
	return was
}

// note writes down how a job is.
func (x *Owner) note(j *messages.OwnedJob) error {
	b, err := proto.Marshal(j)
	if err == nil {
		err = os.MkdirAll(x.o.Jobs, 0o700)
	}
	if err != nil {
		return fmt.Errorf("note job %s: %w", j.GetJobId(), err)
	}
	name := filepath.Join(x.o.Jobs, j.GetJobId())
	if err = writeSynced(name+".new", b); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		_ = os.Remove(name + ".new") // of a disk that is full, say
		return fmt.Errorf("note job %s: %w", j.GetJobId(), err)
	}
	if err := syncDir(x.o.Jobs); err != nil {
		if j.GetState() == tools.JobRunning {
			_ = os.Remove(name) // it does not begin, and is not to be taken for one that was cut off
		}
		return fmt.Errorf("note job %s: %w", j.GetJobId(), err)
	}
	return nil
}

// writeSynced writes a file whose name may then be changed to one that counts: a power cut must not leave that one empty.
func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = synced(f)
	}
	return errors.Join(err, f.Close())
}

// synced is Sync where there is such a thing: not every file system, nor every file, has it.
func synced(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// syncDir makes the names in a folder durable, where the system can.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(synced(f), f.Close())
}

// settleJob forgets a job whose end the server keeps.
func (x *Owner) settleJob(id string) {
	if !x.TakesJobs() {
		return
	}
	x.mu.Lock()
	_, runs := x.jobs.runs[id]
	x.mu.Unlock()
	if runs {
		return // a server that forgets what runs would leave it without anybody
	}
	if err := os.Remove(filepath.Join(x.o.Jobs, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.o.Logger.Warn("a job stays noted", "call", id, "err", err)
	}
}

// endJobs ends what runs, and lets nothing begin.
func (x *Owner) endJobs() {
	x.mu.Lock()
	x.jobs.over = true
	var sets []*tools.Jobs
	for _, s := range x.jobs.sets {
		sets = append(sets, s)
	}
	x.mu.Unlock()
	for _, s := range sets {
		s.CloseFor(endedText)
	}
}
