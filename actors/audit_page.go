package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Audits reads audits page by page. It remembers of each session, once it has read it, at which cursors which times stand, and so reads of a later page the
// records that it holds, and what was written since. One page is read at a time.
type Audits struct {
	store  persistence.Store
	turn   chan struct{} // holds one while nobody reads
	block  uint64        // cursors of one block
	folds  int           // sessions of which more than the times is remembered
	logs   map[string]*auditLog
	rules  auditRules
	rounds uint64
}

// NewAudits reads the audits of a store.
func NewAudits(store persistence.Store) *Audits {
	a := &Audits{store: store, turn: make(chan struct{}, 1), block: 256, folds: 1024, logs: make(map[string]*auditLog)}
	a.turn <- struct{}{}
	return a
}

// Page tells the newest entries, or those before a place, as ListAudit asks for them. It says the same as Audit, of which it is a part.
func (a *Audits) Page(ctx context.Context, m *messages.ListAudit) (*messages.Audit, error) {
	p, err := pageOf(m)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another page of an audit: %w", ctx.Err())
	}
	defer func() { a.tidy(); a.turn <- struct{}{} }()
	a.rounds++
	for tries := 0; ; tries++ {
		p.got = nil
		out, err := a.page(ctx, m, p)
		if !errors.Is(err, persistence.ErrTrimmed) || tries > 2 { // what was trimmed away meanwhile is left out
			return out, err
		}
	}
}

func (a *Audits) page(ctx context.Context, m *messages.ListAudit, p *auditPart) (*messages.Audit, error) {
	logs, damage, err := a.look(ctx, m)
	if err != nil {
		return nil, err
	}
	out, blocks := &messages.Audit{}, []*auditBlock(nil)
	for _, l := range logs {
		out.Trimmed = out.GetTrimmed() || l.trimmed
		blocks, p.got = append(blocks, l.blocks...), append(p.got, l.run...)
		if l.damage != nil {
			damage = append(damage, l.damage)
		}
	}
	if err := a.remembered(ctx, m, p); err != nil {
		return nil, err
	}
	for i, v := range p.got {
		p.got[i] = copyOf(v)
	}
	if err := a.load(ctx, blocks, p); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.got, auditOrder)
	for _, v := range damage {
		p.got = append(p.got, copyOf(v))
	}
	out.Entries, out.Next = p.cut()
	return out, nil
}

// look finds the logs of the sessions that are asked about, and brings them up to date.
func (a *Audits) look(ctx context.Context, m *messages.ListAudit) (logs []*auditLog, damage []*messages.AuditView, err error) {
	ids := []string{m.GetSessionId()}
	if m.GetSessionId() == "" {
		ids = nil
		err := a.store.Streams(ctx, messages.SessionStream(""), func(s string) error {
			ids = append(ids, strings.TrimPrefix(s, messages.SessionStream("")))
			return nil
		})
		if damaged(err) && m.Tenant == nil {
			damage = append(damage, &messages.AuditView{Kind: auditDamage, What: "sessions may be lost", Decision: auditUnknown, Why: err.Error()})
		}
		if err != nil && !damaged(err) {
			return nil, nil, fmt.Errorf("list the sessions: %w", err)
		}
		a.drop(ids)
	}
	folds := 0
	for _, id := range ids {
		l := a.log(id)
		if is, err := a.of(ctx, l, m); err != nil || !is {
			if err != nil {
				return nil, nil, err
			}
			continue
		}
		if err := l.renew(ctx, a.store, a.block); err != nil {
			return nil, nil, err
		}
		if m.GetSessionId() != "" && l.cursor == 0 && !l.trimmed && l.damage == nil {
			return nil, nil, NoSession(id)
		}
		a.logs[id] = l
		logs = append(logs, l)
		if l.fold != nil {
			folds++
		}
		if folds > a.folds && l.used+1 < a.rounds {
			l.forget()
		}
	}
	return logs, damage, nil
}

func (a *Audits) log(session string) *auditLog {
	if l := a.logs[session]; l != nil {
		return l
	}
	return &auditLog{session: session}
}

// drop forgets the sessions that are there no more.
func (a *Audits) drop(ids []string) {
	if len(a.logs) == 0 {
		return
	}
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id := range a.logs {
		if !there[id] {
			delete(a.logs, id)
		}
	}
}

// of says whether a session is one that is asked about.
func (a *Audits) of(ctx context.Context, l *auditLog, m *messages.ListAudit) (bool, error) {
	if m.Tenant == nil {
		return true, nil
	}
	if l.tenant == nil {
		name, found, err := TenantOf(ctx, a.store, l.session)
		if err != nil && !damaged(err) { // whose it is cannot be read: nobody's
			return false, err
		}
		l.tenant = &auditTenant{name: name, known: found && err == nil}
		if l.tenant.known {
			a.logs[l.session] = l
		}
	}
	return l.tenant.known && l.tenant.name == m.GetTenant(), nil
}

// remembered adds the rules that outlast a session.
func (a *Audits) remembered(ctx context.Context, m *messages.ListAudit, p *auditPart) error {
	head, err := a.store.Head(ctx, messages.SystemStream)
	if err != nil || head != a.rules.seq {
		if err := a.rules.read(ctx, a.store); err != nil {
			return err
		}
	}
	for _, v := range a.rules.entries {
		id := v.GetSessionId()
		if m.GetSessionId() != "" && m.GetSessionId() != id {
			continue
		}
		is, err := a.of(ctx, a.log(id), m)
		if err != nil {
			return err
		}
		if is {
			p.got = append(p.got, v)
		}
	}
	return nil
}

// load reads blocks, those with the newest entries first, until the page is full.
func (a *Audits) load(ctx context.Context, blocks []*auditBlock, p *auditPart) error {
	byTime := func(x, y *auditBlock) int { return cmp.Compare(y.max, x.max) }
	slices.SortStableFunc(blocks, byTime)
	for len(blocks) > 0 && !p.full(blocks[0].max) {
		b := blocks[0]
		blocks = blocks[1:]
		if !b.any || p.set && b.min > p.at {
			continue
		}
		b.of.used = a.rounds
		if b.of.fold == nil { // only its times were remembered
			b.of.begin()
			if err := b.of.read(ctx, a.store, a.block); err != nil {
				return err
			}
			blocks = append(slices.Clone(b.of.blocks), blocks...)
			slices.SortStableFunc(blocks, byTime)
			continue
		}
		all, err := b.entries(ctx, a.store)
		if err != nil {
			if errors.Is(err, persistence.ErrTrimmed) { // since it was read
				b.of.begin()
			}
			return err
		}
		for _, v := range all {
			if !p.set || v.GetAtUnixMs() <= p.at {
				p.got = append(p.got, v)
			}
		}
	}
	return nil
}

// tidy forgets all but the times of the sessions that were asked about the longest time ago.
func (a *Audits) tidy() {
	var full []*auditLog
	for _, l := range a.logs {
		if l.fold != nil {
			full = append(full, l)
		}
	}
	if len(full) <= a.folds {
		return
	}
	slices.SortFunc(full, func(x, y *auditLog) int { return cmp.Compare(x.used, y.used) })
	for _, l := range full[:len(full)-a.folds] {
		l.forget()
	}
}

// auditPart is a part of an audit: the newest entries, or those before a place in its order.
type auditPart struct {
	limit   int   // 0: all that there are
	at      int64 // of the place
	seq     uint64
	session string
	behind  int  // entries of the same time, cursor and session that stand before it; of damage, all that stands before it
	set     bool // there is a place
	got     []*messages.AuditView
}

func pageOf(m *messages.ListAudit) (*auditPart, error) {
	p := &auditPart{limit: int(m.GetLimit())}
	if m.GetBefore() == "" {
		return p, nil
	}
	parts := strings.SplitN(m.GetBefore(), ".", 4)
	p.set = len(parts) == 4
	if p.set {
		var errs [3]error
		p.at, errs[0] = strconv.ParseInt(parts[0], 10, 64)
		p.seq, errs[1] = strconv.ParseUint(parts[1], 10, 64)
		p.behind, errs[2] = strconv.Atoi(parts[2])
		p.session = parts[3]
		p.set = cmp.Or(errs[:]...) == nil
	}
	if !p.set {
		return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("before %q is no place in an audit", oneLine(m.GetBefore())), "take it from the header Link of the page before")
	}
	return p, nil
}

// full says whether enough was found that comes behind all that is of a time or before it.
func (p *auditPart) full(at int64) bool {
	if p.limit <= 0 {
		return false
	}
	n := 0
	for _, v := range p.got {
		if v.GetAtUnixMs() > at && (!p.set || v.GetAtUnixMs() < p.at) {
			n++
		}
	}
	return n > p.limit // one more says that there are more
}

// cut leaves the page of what was found, and names the place where it begins, if something comes before.
func (p *auditPart) cut() (all []*messages.AuditView, next string) {
	all = p.got
	if p.set {
		same, damaged := 0, 0
		all = slices.DeleteFunc(all, func(v *messages.AuditView) bool {
			if v.GetKind() == auditDamage { // pages before those that tell what is damaged do not say it again
				damaged++
				return p.at != math.MaxInt64 || damaged > p.behind
			}
			order := auditOrder(v, &messages.AuditView{AtUnixMs: p.at, SessionId: p.session, Cursor: p.seq})
			if order == 0 {
				same++
			}
			return order > 0 || order == 0 && same > p.behind
		})
	}
	if p.limit <= 0 || len(all) <= p.limit {
		return all, ""
	}
	from := len(all) - p.limit
	first, at, behind := all[from], all[from].GetAtUnixMs(), 0
	if first.GetKind() == auditDamage {
		at = math.MaxInt64 // it stands behind all that has a time
	}
	for _, v := range all[:from] {
		if besides(v, first) {
			behind++
		}
	}
	return all[from:], fmt.Sprintf("%d.%d.%d.%s", at, first.GetCursor(), behind, first.GetSessionId())
}

// besides says whether two entries have one place: they are of the same record, or both are damage.
func besides(v, w *messages.AuditView) bool {
	if v.GetKind() == auditDamage || w.GetKind() == auditDamage {
		return v.GetKind() == w.GetKind()
	}
	return auditOrder(v, w) == 0
}

func copyOf(v *messages.AuditView) *messages.AuditView {
	return proto.Clone(v).(*messages.AuditView) //nolint:forcetypeassert // of what was cloned
}
