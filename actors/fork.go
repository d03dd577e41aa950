package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// Fork makes a session that goes on from a record of another one. The other one is read from the store: it
// stays as it is, it is not woken, and it may be at work, asleep or quarantined. In the copy nothing is open: calls without a result are
// closed as interrupted, and an open turn is aborted.
func Fork(ctx context.Context, svc *Services, m *messages.ForkSession) (*messages.Forked, error) {
	head, err := forkable(ctx, svc, m)
	if err != nil {
		return nil, err
	}
	src := Stored(svc.Store, m.GetSessionId())
	upto := m.GetAt()
	if upto == 0 {
		upto = head
	}
	v, err := NewSurvey(ctx, src, upto)
	if err != nil {
		return nil, err
	}
	if fail := v.reaches(m); fail != nil {
		return nil, fail
	}
	p := &Copying{
		Source: src, Survey: v, ID: messages.NewID(messages.SessionPrefix), Model: m.GetModel(), By: m.GetBy(), Fork: true,
		Reason: fmt.Sprintf("open when %s was forked at %d", v.Session, v.Cursor),
	}
	if p.Restrict, err = isRestricted(ctx, svc, v.Session); err != nil {
		return nil, err
	}
	if err := copyHome(homePath(svc, v.Session), homePath(svc, p.ID)); err != nil {
		return nil, err
	}
	if err := p.Write(ctx, svc); err != nil {
		return nil, err
	}
	out := &messages.Forked{
		Session: p.View, Origin: v.Session, At: v.Cursor, ClosedCalls: p.ClosedCalls, ClosedTurns: p.ClosedTurns, Staged: p.Staged,
	}
	if v.Damage != nil {
		out.Damage = v.Damage.Error()
	}
	return out, nil
}

// forkable refuses what cannot be forked, and returns the session's last cursor.
func forkable(ctx context.Context, svc *Services, m *messages.ForkSession) (uint64, error) {
	id := m.GetSessionId()
	if !messages.ValidID(messages.SessionPrefix, id) {
		return 0, NoSession(id)
	}
	if m.GetModel() != "" {
		if _, err := svc.Models.Resolve(m.GetModel()); err != nil {
			return 0, messages.Fail(messages.CodeModel, err.Error(), "")
		}
	}
	head, err := svc.Store.Cursor(ctx, id)
	if err != nil && !damaged(err) {
		return 0, fmt.Errorf("find the newest record of %s: %w", id, err)
	}
	listed, err := Listed(ctx, svc.Store, id)
	switch {
	case err != nil:
		return 0, err
	case head == 0 || !listed:
		return 0, NoSession(id)
	case m.GetAt() > head:
		return 0, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("session %s has no record %d", id, m.GetAt()), fmt.Sprintf("give one from 1 to %d", head))
	}
	return head, Whole(ctx, svc.Store, id, "forked")
}

// reaches refuses a fork at a record that cannot be copied, or before which there is nothing.
func (v *Survey) reaches(m *messages.ForkSession) *messages.Failure {
	switch {
	case v.Damage == nil:
		return nil
	case !v.begun():
		return messages.Fail(messages.CodeCorrupt, fmt.Sprintf("session %s cannot be read: %v", m.GetSessionId(), v.Damage), "see `troupe verify`")
	case m.GetAt() > v.Cursor:
		code, hint := messages.CodeCorrupt, "see `troupe verify`"
		if errors.Is(v.Damage, errClosed) {
			code, hint = messages.CodeBadRequest, ""
		}
		if hint != "" {
			hint = "; " + hint
		}
		return messages.Fail(code, fmt.Sprintf("session %s cannot be forked at record %d: %v", m.GetSessionId(), m.GetAt(), v.Damage),
			fmt.Sprintf("give a record from 1 to %d%s", v.Cursor, hint))
	}
	return nil
}

func isRestricted(ctx context.Context, svc *Services, session string) (bool, error) {
	mark, err := marked(ctx, svc.Store, session)
	return mark == markRestricted, err
}
