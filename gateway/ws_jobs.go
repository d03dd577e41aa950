package gateway

import (
	"context"

	"github.com/troupe-dev/troupe/messages"
)

// Commands that calls left running on the machine of an owner (ADR 100).

// keepsJobs says whether the backend looks after jobs of owners.
func (a *api) keepsJobs() bool {
	_, keeps := a.raw.(OwnedJobs)
	return keeps
}

// TakesJobs says whether the owner may leave commands running.
func (c *conn) TakesJobs() bool { return c.has(messages.FeatureJobs) }

// EndJob asks the owner for the end of a job.
func (c *conn) EndJob(id, why string) {
	c.send(&messages.RequestResolvedFrame{CallID: id, State: messages.CallCancelled, Reason: why})
}

// job takes what the owner says of one, of a place that it has: the reader does not wait for it.
func (c *conn) job(f *messages.JobFrame) {
	m := f.Proto()
	c.mu.Lock()
	epoch, owns := c.epochs[place{m.GetSessionId(), m.GetUri()}]
	c.mu.Unlock()
	switch {
	case !c.TakesJobs():
		c.refuseJob(m, messages.Fail(messages.CodeInvalidMessage, "the connection has not announced the feature jobs", ""))
		return
	case !owns:
		c.refuseJob(m, messages.Fail(messages.CodeDenied, "job "+visible(m.GetJobId())+" is of a workspace that the connection does not own", ""))
		return
	}
	m.Epoch = epoch
	keeper, ok := c.a.backend.(OwnedJobs)
	heard := ok && c.later(func() {
		if err := keeper.OwnedJob(c.asking(), m); err != nil {
			c.refuseJob(m, err)
		}
	})
	if !heard {
		c.refuseJob(m, messages.Fail(messages.CodeBusy, "too many jobs are told of at once", "tell of it again in a moment"))
	}
}

func (c *conn) refuseJob(m *messages.OwnedJob, err error) {
	c.refuse(&messages.ErrorFrame{About: messages.FrameJob, CallID: clip(m.GetJobId(), 100), Session: clip(m.GetSessionId(), 100)}, err)
}

// later has something done after what the owner has said before; false: too much waits.
func (c *conn) later(fn func()) bool {
	select {
	case c.words <- fn:
		return true
	default:
		return false
	}
}

// hearOwner does what later was given.
func (c *conn) hearOwner() {
	for {
		select {
		case fn := <-c.words:
			fn()
		case <-c.ctx.Done():
			return
		}
	}
}

// OwnedJob takes what an owner says of a job, in a session of the principal's tenant.
func (b *checked) OwnedJob(ctx context.Context, m *messages.OwnedJob) error {
	if err := b.owns(ctx, PrincipalOf(ctx), m.GetSessionId()); err != nil {
		return err
	}
	all, can := b.all.(OwnedJobs)
	if !can {
		return refusal(messages.CodeBadRequest, "this server looks after no jobs of owners")
	}
	return all.OwnedJob(ctx, m)
}
