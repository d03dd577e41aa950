package client

import (
	"slices"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// sayAgain says once more, after a pause, what the server had no room for just now: how a job is, or an answer to an approval. False: it is none of these, or the server
// means it.
func (x *owning) sayAgain(f *messages.ErrorFrame) bool {
	id := f.ApprovalID
	if f.About == messages.FrameJob {
		id = f.CallID
	}
	if f.Code != messages.CodeBusy && f.Code != messages.CodeUnavailable || f.About != messages.FrameJob && f.About != messages.FrameApprovalResponse || id == "" {
		return false
	}
	pause := min(firstPause<<min(x.refused[id], 10), longestRest)
	x.refused[id]++
	x.tasks.Go(func() {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.ctx.Done():
			return
		}
		if f.About == messages.FrameJob {
			x.jobAgain(id)
			return
		}
		x.mu.Lock()
		answer := x.answers[id]
		x.mu.Unlock()
		if answer != nil {
			x.send(answer)
		}
	})
	return true
}

// jobAgain tells how a job is by now, unless the server has kept that meanwhile.
func (x *owning) jobAgain(id string) {
	o := x.jobs()
	if o == nil {
		return
	}
	all := o.Jobs()
	if i := slices.IndexFunc(all, func(j *messages.OwnedJob) bool { return j.GetJobId() == id }); i >= 0 {
		x.tellJob(all[i])
	}
}
