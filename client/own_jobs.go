package client

import (
	"github.com/troupe-dev/troupe/messages"
)

// jobOwner is an Owner that may leave commands running.
type jobOwner interface {
	TakesJobs() bool
	// Jobs are those that run, and those whose end the server has not said that it keeps.
	Jobs() []*messages.OwnedJob
	// WatchJobs has a function told of each that begins or ends, until stop.
	WatchJobs(fn func(*messages.OwnedJob)) (stop func())
	EndJob(id, why string)
}

// jobs is the owner, if it may leave commands running; else nil.
func (x *owning) jobs() jobOwner {
	if o, ok := x.o.Owner.(jobOwner); ok && o.TakesJobs() {
		return o
	}
	return nil
}

// announced are the jobs of the owner, as they are told with the wish to be it.
func (x *owning) announced() (all []messages.JobJSON) {
	if o := x.jobs(); o != nil {
		for _, j := range o.Jobs() {
			j.Output = ""
			all = append(all, messages.JobOf(j))
		}
	}
	return all
}

// tellJobs tells, from the moment on in which the connection is the owner's, of each job that ends, and of those that have ended before.
func (x *owning) tellJobs() {
	o := x.jobs()
	if o == nil || !x.keeps || x.unwatch != nil {
		return
	}
	x.unwatch = o.WatchJobs(x.jobMoved)
	x.tasks.Go(func() { // what it comes to is read from the disk
		for _, j := range o.Jobs() {
			if j.GetState() != messages.JobRunning {
				x.tellJob(j)
			}
		}
	})
}

// jobMoved tells of one that has begun or ended just now.
func (x *owning) jobMoved(j *messages.OwnedJob) {
	x.telling.Lock()
	defer x.telling.Unlock()
	if x.ended != nil && j.GetState() != messages.JobRunning {
		x.ended[j.GetJobId()] = true
	}
	x.tellJob(j)
}

// tellJob tells how one is. What does not fit into a frame is left out: the newest stays.
func (x *owning) tellJob(j *messages.OwnedJob) {
	f := &messages.JobFrame{JobJSON: messages.JobOf(j)}
	for {
		b, err := messages.EncodeFrame(f)
		if err != nil || len(b) <= messages.MaxFrame || f.Output == "" {
			break
		}
		half := len(f.Output) / 2
		f.Output, f.Dropped = string([]rune(f.Output[half:])), f.Dropped+int64(half)
	}
	x.send(f)
}
