package client

import (
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// sayAgain says once more, after a pause, what the server had no room for just now: how a job is, or an answer to an approval. False: it is none of these, or the server
// means it.
func (x *owning) sayAgain(f *messages.ErrorFrame) bool {
	passing := f.Code == messages.CodeBusy || f.Code == messages.CodeUnavailable
	switch {
	case f.About == messages.FrameJob && f.CallID != "" && passing:
		x.mu.Lock()
		first := len(x.untold) == 0
		x.untold[f.CallID] = true
		x.mu.Unlock()
		if pause := x.pauseFor(f.CallID); first {
			x.later(pause, x.jobsAgain)
		}
	case f.About == messages.FrameApprovalResponse && f.ApprovalID != "" && passing:
		x.later(x.pauseFor(f.ApprovalID), func() {
			x.mu.Lock()
			answer := x.answers[f.ApprovalID]
			x.mu.Unlock()
			if answer != nil {
				x.send(answer)
			}
		})
	default:
		if f.About == messages.FrameApprovalResponse {
			x.answered(f.ApprovalID)
		}
		return false
	}
	return true
}

// pauseFor is how long one waits that was refused just now: longer each time in a row.
func (x *owning) pauseFor(id string) time.Duration {
	n := x.refused[id]
	x.refused[id]++
	return min(firstPause<<min(n, 10), longestRest)
}

// answered forgets an answer: another one counted, or this one never will.
func (x *owning) answered(id string) {
	x.mu.Lock()
	delete(x.answers, id)
	x.mu.Unlock()
	delete(x.refused, id)
}

// later does something after a pause, if the connection is there still.
func (x *owning) later(pause time.Duration, do func()) {
	x.tasks.Go(func() {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
			do()
		case <-x.ctx.Done():
		}
	})
}

// jobsAgain tells how the jobs are by now that the server had no room for, unless it has kept their end meanwhile. All at once: what they have printed is read from the disk.
func (x *owning) jobsAgain() {
	x.again.Lock()
	defer x.again.Unlock()
	x.mu.Lock()
	untold := x.untold
	x.untold = make(map[string]bool)
	x.mu.Unlock()
	o := x.jobs()
	if o == nil {
		return
	}
	x.endedSince(make(map[string]bool))
	defer x.endedSince(nil)
	for _, j := range o.Jobs() {
		if untold[j.GetJobId()] {
			x.jobAgain(j)
		}
	}
}

func (x *owning) endedSince(now map[string]bool) {
	x.telling.Lock()
	defer x.telling.Unlock()
	x.ended = now
}

// jobAgain tells how one was when it was read. That it runs is not said of one whose end was told of since: the server would take it on anew.
func (x *owning) jobAgain(j *messages.OwnedJob) {
	x.telling.Lock()
	defer x.telling.Unlock()
	if j.GetState() != messages.JobRunning || !x.ended[j.GetJobId()] {
		x.tellJob(j)
	}
}
