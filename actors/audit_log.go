package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// auditBlock is a part of a session's records: from when to when there are entries of an audit in it.
type auditBlock struct {
	of       *auditLog
	after    uint64 // its records have cursors behind this one
	upto     uint64 // and up to this one
	min, max int64  // times of its entries
	any      bool   // it has some
}

// auditLog is what is known of the records of one session without holding them, so that a page of an audit is read where it stands.
type auditLog struct {
	session string
	cursor  uint64 // the last record that was read
	at      int64  // its time
	trimmed bool
	damage  *messages.AuditView   // what cannot be read any further; nil: nothing is damaged
	runs    *audited              // reads the run that the session was made for; nil: it was made for none
	run     []*messages.AuditView // of that
	blocks  []*auditBlock
	fold    *audited                       // what the next record goes to; nil: it was forgotten, and blocks is one
	late    map[string]*messages.AuditView // calls, by exec id, that records of a later block say something of
	ended   []string                       // exec ids of calls that ended in the newest block
	tenant  *auditTenant
	used    uint64
}

// auditTenant is whose a session is.
type auditTenant struct {
	name  string
	known bool // it could be read
}

// begin reads from the first record on again.
func (l *auditLog) begin() {
	*l = auditLog{session: l.session, tenant: l.tenant, used: l.used, fold: newAudited(l.session), late: make(map[string]*messages.AuditView)}
	l.fold.touched = func(v *messages.AuditView) {
		if v.GetCursor() <= l.blocks[len(l.blocks)-1].after {
			l.late[v.GetExecId()] = v
		}
	}
}

// forget keeps the place of the session's entries in time, and nothing else.
func (l *auditLog) forget() {
	all := &auditBlock{of: l, upto: l.cursor}
	for _, b := range l.blocks {
		if b.any {
			all.include(b.min)
			all.include(b.max)
		}
	}
	l.fold, l.late, l.ended, l.blocks = nil, nil, nil, []*auditBlock{all}
}

// renew reads the records that are not known yet.
func (l *auditLog) renew(ctx context.Context, store persistence.Store, block uint64) error {
	last, err := store.Cursor(ctx, l.session)
	switch {
	case damaged(err): // how far it can be read is found by reading
	case err != nil:
		return fmt.Errorf("look for records of %s: %w", l.session, err)
	case l.cursor > 0 && last == l.cursor && l.damage == nil:
		return l.ofRun(ctx, store)
	}
	if l.fold == nil || last < l.cursor && err == nil || l.gone(ctx, store) {
		l.begin()
	}
	return l.read(ctx, store, block)
}

// gone says whether records that were read have been trimmed away since.
func (l *auditLog) gone(ctx context.Context, store persistence.Store) bool {
	if len(l.blocks) == 0 {
		return false
	}
	err := store.ReadSession(ctx, l.session, l.blocks[0].after, func(persistence.Entry) error { return errEnough })
	return errors.Is(err, persistence.ErrTrimmed)
}

func (l *auditLog) read(ctx context.Context, store persistence.Store, block uint64) error {
	take := func(e persistence.Entry) error { return l.take(e, block) }
	err := store.ReadSession(ctx, l.session, l.cursor, take)
	var left *persistence.TrimmedError
	if errors.As(err, &left) && left.First > 0 {
		l.begin()
		l.trimmed, l.cursor = true, left.First-1
		err = store.ReadSession(ctx, l.session, l.cursor, take)
	}
	l.damage = nil
	if err != nil {
		return l.damagedBy(fmt.Errorf("read the records of %s: %w", l.session, err))
	}
	return l.ofRun(ctx, store)
}

// damagedBy notes what cannot be read; other errors are returned.
func (l *auditLog) damagedBy(err error) error {
	if !damaged(err) {
		return err
	}
	l.damage = (&audited{session: l.session, at: l.at, cursor: l.cursor}).damage(err)
	return nil
}

func (l *auditLog) take(e persistence.Entry, block uint64) error {
	if n := len(l.blocks); n == 0 || e.Cursor > l.blocks[n-1].after+block {
		l.close()
		l.blocks = append(l.blocks, &auditBlock{of: l, after: e.Cursor - 1})
	}
	if err := l.fold.take(e); err != nil {
		return err
	}
	b := l.blocks[len(l.blocks)-1]
	l.cursor, b.upto, l.at = e.Cursor, e.Cursor, e.Record.GetAtUnixMs()
	for _, v := range l.fold.entries {
		b.include(v.GetAtUnixMs())
	}
	clear(l.fold.entries)
	l.fold.entries = l.fold.entries[:0]
	return nil
}

// close ends a block. A call that ended in it is forgotten with the next one: what else is said of it stands beside its end.
func (l *auditLog) close() {
	for _, exec := range l.ended {
		delete(l.fold.calls, exec)
		delete(l.fold.asked, exec)
	}
	l.ended = l.ended[:0]
	for exec, v := range l.fold.calls {
		if v.GetOutcome() != "" {
			l.ended = append(l.ended, exec)
		}
	}
}

// ofRun reads what people did with the run that the session was made for.
func (l *auditLog) ofRun(ctx context.Context, store persistence.Store) error {
	if l.runs == nil && l.fold != nil && (l.fold.ran || l.trimmed) { // also when what was read before was broken off behind the last record
		l.runs = &audited{session: l.session}
	}
	if l.runs == nil {
		return nil
	}
	head, err := store.Head(ctx, messages.RunStream(messages.RunOf(l.session)))
	if err == nil && head == l.runs.runSeq {
		return nil
	}
	err = l.runs.ofRun(ctx, store)
	l.run, l.runs.entries = append(l.run, l.runs.entries...), nil
	if err != nil {
		return l.damagedBy(err)
	}
	return nil
}

// entries are those of a block, read again from its records.
func (b *auditBlock) entries(ctx context.Context, store persistence.Store) ([]*messages.AuditView, error) {
	f, l := newAudited(b.of.session), b.of
	f.agents, f.own, f.trust = l.fold.agents, l.fold.own, l.fold.trust
	err := store.ReadSession(ctx, l.session, b.after, func(e persistence.Entry) error {
		if e.Cursor > b.upto {
			return errEnough
		}
		return f.take(e)
	})
	if err != nil && !errors.Is(err, errEnough) && !(damaged(err) && f.cursor == b.upto) { // what is damaged comes behind it
		return nil, fmt.Errorf("read the records of %s from %d to %d: %w", l.session, b.after+1, b.upto, err)
	}
	out := f.entries[:0]
	for _, v := range f.entries {
		switch late := l.late[v.GetExecId()]; {
		case v.GetExecId() == "" || late == nil:
			out = append(out, v)
		case late.GetCursor() == v.GetCursor():
			out = append(out, copyOf(late))
		}
	}
	return out, nil
}

func (b *auditBlock) include(at int64) {
	if !b.any {
		b.min, b.max, b.any = at, at, true
	}
	b.min, b.max = min(b.min, at), max(b.max, at)
}
