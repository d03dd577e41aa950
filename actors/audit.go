package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/policy"
)

// What decided about a call stands in the journals already: an audit reads them, and adds nothing of its own.

// Audit tells who let what run, of one session or of all (""). It wakes nobody, and reads sessions that were closed, too.
func Audit(ctx context.Context, store persistence.Store, session string) (*messages.Audit, error) {
	out := &messages.Audit{}
	var broken []*messages.AuditView
	sessions := []string{session}
	if session == "" {
		sessions = nil
		err := store.Streams(ctx, messages.SessionStream(""), func(s string) error {
			sessions = append(sessions, strings.TrimPrefix(s, messages.SessionStream("")))
			return nil
		})
		if damaged(err) {
			broken = append(broken, &messages.AuditView{Kind: auditDamage, What: "sessions may be lost", Decision: auditUnknown, Why: err.Error()})
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
	}
	for _, id := range sessions {
		a, trimmed, err := auditOf(ctx, store, id)
		switch {
		case damaged(err): // the others are told, and how far this one can be read
			broken = append(broken, a.damage(err))
		case err != nil:
			return nil, err
		case session != "" && a.seen == 0 && !trimmed:
			return nil, NoSession(session)
		}
		out.Entries, out.Trimmed = append(out.Entries, a.entries...), out.GetTrimmed() || trimmed
	}
	rules := auditRules{}
	if err := rules.read(ctx, store); err != nil {
		return nil, err
	}
	for _, v := range rules.entries {
		if session == "" || session == v.GetSessionId() {
			out.Entries = append(out.Entries, v)
		}
	}
	slices.SortStableFunc(out.Entries, auditOrder)
	out.Entries = append(out.Entries, broken...) // last, where no limit leaves them out
	return out, nil
}

// auditOrder is that of time; entries of the same time stand in that of their sessions, and of the records in each.
func auditOrder(a, b *messages.AuditView) int {
	return cmp.Or(cmp.Compare(a.GetAtUnixMs(), b.GetAtUnixMs()), cmp.Compare(a.GetSessionId(), b.GetSessionId()), cmp.Compare(a.GetCursor(), b.GetCursor()))
}

func auditOf(ctx context.Context, store persistence.Store, session string) (a *audited, trimmed bool, err error) {
	a = newAudited(session)
	err = store.ReadSession(ctx, session, 0, a.take)
	var left *persistence.TrimmedError
	if errors.As(err, &left) && left.First > 0 {
		trimmed, err = true, store.ReadSession(ctx, session, left.First-1, a.take)
	}
	if err != nil {
		return a, trimmed, fmt.Errorf("read the records of %s: %w", session, err)
	}
	if a.ran || trimmed {
		err = a.ofRun(ctx, store)
	}
	return a, trimmed, err
}

func newAudited(session string) *audited {
	return &audited{session: session, agents: make(toldAt), calls: make(map[string]*messages.AuditView), asked: make(map[string]int64), trust: make(toldAt), own: make(toldAt)}
}

// damage says that what came after the last record that was read is not told.
func (a *audited) damage(err error) *messages.AuditView {
	return &messages.AuditView{AtUnixMs: a.at, Cursor: a.cursor, Kind: auditDamage, SessionId: a.session, What: "its records cannot be read any further", Decision: auditUnknown, Why: err.Error()}
}

// auditRules are the rules that outlast a session, as far as they were read.
type auditRules struct {
	seq     uint64            // the last record that was read
	of      map[string]string // rules, with the session that each is of
	entries []*messages.AuditView
}

func (a *auditRules) read(ctx context.Context, store persistence.Store) error {
	if a.of == nil {
		a.of = make(map[string]string)
	}
	if err := store.Read(ctx, messages.SystemStream, a.seq+1, a.take); err != nil {
		return fmt.Errorf("read the rules: %w", err)
	}
	return nil
}

func (a *auditRules) take(e persistence.Entry) error {
	f, err := messages.SystemFactIn(e.Record)
	if err != nil {
		return err
	}
	a.seq = e.Record.GetSeq()
	v := &messages.AuditView{AtUnixMs: e.Record.GetAtUnixMs(), Kind: auditRule}
	switch x := f.(type) {
	case *messages.RuleRemembered:
		a.of[x.GetRuleId()] = x.GetSessionId()
		v.SessionId, v.Agent, v.What, v.Workspace, v.Decision, v.By = x.GetSessionId(), x.GetAgent(), x.GetRule(), x.GetWorkspace(), auditSet, x.GetBy()
		v.ApprovalId, v.Scope, v.RuleId = x.GetApprovalId(), x.GetScope(), x.GetRuleId()
	case *messages.RuleRevoked:
		of, is := a.of[x.GetRuleId()]
		if !is {
			return nil
		}
		v.SessionId, v.What, v.RuleId, v.Decision, v.By = of, x.GetRule(), x.GetRuleId(), auditRevoked, x.GetBy()
	default:
		return nil
	}
	a.entries = append(a.entries, v)
	return nil
}

// Words of an audit that stand nowhere else.
const (
	auditCall    = "call"
	auditTrust   = "trust"
	auditRule    = "rule"
	auditToolset = "toolset"
	auditSession = "session"
	auditTurn    = "turn"
	auditTimer   = "timer"
	auditRun     = "run"
	auditJob     = "job"
	auditDamage  = messages.AuditDamage

	auditAllowed = "allowed"
	auditDenied  = "denied"
	auditRefused = "refused" // there is no such tool, or no such workspace, or its arguments cannot be read
	auditPending = "pending"
	auditSet     = "set"
	auditRevoked = "revoked"
	auditCreated = "created"
	auditClosed  = "closed"
	auditEnded   = "ended"
	auditStarted = "started"
	auditResumed = "resumed"
	auditChanged = "changed"
	auditUnknown = "unknown"
)

// audited is the audit of one session while it is read.
type audited struct {
	session string
	seen    int
	ran     bool  // it was made for a run of a pipeline
	at      int64 // time and cursor of the last record that was read
	cursor  uint64
	agents  toldAt // by worker
	entries []*messages.AuditView
	calls   map[string]*messages.AuditView // by exec id
	asked   map[string]int64               // when, by exec id
	own     toldAt                         // addresses of copies, by the worker that each is of
	trust   toldAt                         // how far each workspace is trusted, by address; missing: not said in what was not trimmed away
	touched func(*messages.AuditView)      // is called with a call that an earlier record began; may be nil
	runName string                         // of its run's pipeline
	runSeq  uint64                         // the last record of its run that was read
}

// toldAt is what records said of something, and from which cursor on: a part of a session that is read again finds what was known there.
type toldAt map[string][]toldOnce

type toldOnce struct {
	cursor uint64
	value  string
}

// set notes what the record of a cursor says; once.
func (t toldAt) set(key string, cursor uint64, value string) {
	all := t[key]
	if n := len(all); n == 0 || all[n-1].cursor < cursor {
		t[key] = append(all, toldOnce{cursor, value})
	}
}

// at is what was said up to a cursor.
func (t toldAt) at(key string, cursor uint64) string {
	all := t[key]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].cursor <= cursor {
			return all[i].value
		}
	}
	return ""
}

func (a *audited) take(e persistence.Entry) error {
	f, err := factIn(e.Stream, e.Record)
	if err != nil {
		return fmt.Errorf("record %d: %w: %w", e.Cursor, persistence.ErrCorrupt, err)
	}
	a.seen, a.at, a.cursor = a.seen+1, e.Record.GetAtUnixMs(), e.Cursor
	switch {
	case strings.HasPrefix(e.Stream, messages.SessionStream("")):
		a.about(e, f)
		return nil
	case strings.HasPrefix(e.Stream, messages.ConversationStream("")): // its members' turns are in their own journals
		return nil
	}
	a.worker(e, strings.TrimPrefix(e.Stream, messages.WorkerStream("")), f)
	return nil
}

// add begins an entry.
func (a *audited) add(e persistence.Entry, kind, worker string) *messages.AuditView {
	v := &messages.AuditView{
		AtUnixMs: e.Record.GetAtUnixMs(), Cursor: e.Cursor, Kind: kind, SessionId: a.session, WorkerId: worker, Agent: a.agents.at(worker, e.Cursor), TurnId: e.Record.GetTurnId(),
	}
	a.entries = append(a.entries, v)
	return v
}

// about takes what is about the session as a whole.
func (a *audited) about(e persistence.Entry, f proto.Message) {
	switch x := f.(type) {
	case *messages.SessionCreated:
		a.ran = x.GetRunId() != ""
		v := a.add(e, auditSession, "")
		v.What, v.Agent, v.Decision, v.By = "agent "+x.GetAgent(), x.GetAgent(), auditCreated, x.GetBy()
	case *messages.WorkspaceAttached:
		v := a.add(e, auditTrust, "")
		v.What, v.Workspace, v.Decision, v.Why = messages.TrustName(x.GetTrust()), x.GetUri(), auditSet, "attached"
		v.By = x.GetBy()
		a.trust.set(x.GetUri(), e.Cursor, v.GetWhat())
		if x.GetWorker() != "" {
			v.WorkerId = x.GetWorker()
			a.own.set(x.GetWorker(), e.Cursor, x.GetUri())
		}
	case *messages.WorkspaceDetached:
		a.detached(e, x.GetUri(), "detached").By = x.GetBy()
	case *messages.WorkerEnded:
		if uri := a.own.at(x.GetWorkerId(), e.Cursor); uri != "" {
			a.detached(e, uri, "its worker ended").WorkerId = x.GetWorkerId()
		}
	case *messages.TrustChanged:
		v := a.add(e, auditTrust, "")
		v.What, v.Workspace, v.Decision, v.By, v.ApprovalId = messages.TrustName(x.GetTrust()), x.GetUri(), auditSet, x.GetBy(), x.GetApprovalId()
		a.trust.set(x.GetUri(), e.Cursor, v.GetWhat())
	case *messages.ModeChanged:
		v := a.add(e, auditTrust, "")
		v.What, v.Workspace, v.Decision, v.By = "mode "+x.GetMode(), x.GetUri(), auditSet, x.GetBy()
	case *messages.RuleAdded:
		v := a.add(e, auditRule, "")
		v.What, v.Workspace, v.Decision, v.By = x.GetRule(), x.GetWorkspace(), auditSet, x.GetBy()
		v.ApprovalId, v.Scope, v.RuleId = x.GetApprovalId(), x.GetScope(), x.GetRuleId()
	case *messages.SessionClosed:
		v := a.add(e, auditSession, "")
		v.What, v.Decision, v.By = x.GetReason(), auditClosed, x.GetBy()
	case *messages.JobEnded:
		v := a.add(e, auditJob, x.GetWorkerId())
		v.What, v.Workspace, v.JobId, v.Decision, v.By, v.Why = cmp.Or(x.GetCommand(), x.GetJobId()), x.GetWorkspace(), x.GetJobId(), auditEnded, x.GetBy(), x.GetReason()
	case *messages.RuleRevoked:
		v := a.add(e, auditRule, "")
		v.What, v.RuleId, v.Decision, v.By = x.GetRule(), x.GetRuleId(), auditRevoked, x.GetBy()
	}
}

// detached says that a workspace is trusted no more, as it is gone.
func (a *audited) detached(e persistence.Entry, uri, why string) *messages.AuditView {
	v := a.add(e, auditTrust, "")
	v.What, v.Workspace, v.Decision, v.Why = cmp.Or(a.trust.at(uri, e.Cursor-1), auditUnknown), uri, auditRevoked, why
	a.trust.set(uri, e.Cursor, "")
	return v
}

func (a *audited) worker(e persistence.Entry, worker string, f proto.Message) {
	switch x := f.(type) {
	case *messages.WorkerCreated:
		a.agents.set(worker, e.Cursor, x.GetAgent())
	case *messages.ConfigChanged:
		if x.GetAgent() != "" {
			a.agents.set(worker, e.Cursor, x.GetAgent())
		}
		if len(x.GetTools()) > 0 {
			v := a.add(e, auditToolset, worker)
			v.What, v.Decision, v.By = strings.Join(x.GetTools(), " "), auditSet, x.GetBy()
		}
	case *messages.TimerSet:
		v := a.add(e, auditTimer, worker)
		v.What, v.Decision, v.By = x.GetTimerId(), auditSet, x.GetBy()
	case *messages.TimerCancelled:
		v := a.add(e, auditTimer, worker)
		v.What, v.Decision, v.By = x.GetTimerId(), conversation.DecisionName(messages.Decision_CANCELLED), x.GetBy()
	case *messages.CancelRequested:
		v := a.add(e, auditTurn, worker)
		v.What, v.Decision, v.By = x.GetReason(), conversation.DecisionName(messages.Decision_CANCELLED), x.GetBy()
	case *messages.ToolPlanned:
		v := a.add(e, auditCall, worker)
		v.ExecId, v.What, v.Workspace, v.ArgsHash, v.Why = x.GetExecId(), x.GetTool(), x.GetWorkspace(), x.GetArgsHash(), x.GetDecidedBy()
		v.Decision = auditAllowed
		if x.GetNeedsApproval() {
			v.Decision = auditPending
		}
		a.calls[x.GetExecId()] = v
	case *messages.ApprovalRequested:
		v := a.call(e, worker, x.GetExecId(), x.GetTool())
		v.ApprovalId = x.GetApprovalId()
		a.asked[x.GetExecId()] = cmp.Or(x.GetAskedAtUnixMs(), e.Record.GetAtUnixMs())
	case *messages.ApprovalResolved:
		a.resolved(e, worker, x)
	case *messages.ToolFinished:
		a.finished(a.call(e, worker, x.GetExecId(), x.GetTool()), x)
	}
}

// call is the entry of a call; a new one, when its plan was trimmed away.
func (a *audited) call(e persistence.Entry, worker, exec, tool string) *messages.AuditView {
	v := a.calls[exec]
	if v == nil {
		v = a.add(e, auditCall, worker)
		v.ExecId, v.What = exec, tool
		a.calls[exec] = v
	} else if a.touched != nil {
		a.touched(v)
	}
	return v
}

func (a *audited) resolved(e persistence.Entry, worker string, x *messages.ApprovalResolved) {
	v := a.call(e, worker, x.GetExecId(), "")
	v.Decision, v.By, v.Message = conversation.DecisionName(x.GetDecision()), x.GetBy(), x.GetMessage()
	v.ApprovalId, v.Scope, v.Rule, v.RuleId = x.GetApprovalId(), x.GetScope(), x.GetRule(), x.GetRuleId()
	v.Edited = x.GetModifiedArgs() != ""
	if v.GetEdited() {
		v.ArgsHash = x.GetArgsHash()
	}
	if at := a.asked[x.GetExecId()]; at > 0 {
		v.WaitedMs = max(e.Record.GetAtUnixMs()-at, 0)
	}
}

func (a *audited) finished(v *messages.AuditView, x *messages.ToolFinished) {
	v.Outcome, v.ErrorCode, v.DurationUs = conversation.StatusName(x.GetStatus()), x.GetErrorCode(), x.GetDurationUs()
	switch {
	case v.GetDecision() == auditPending:
		v.Decision = conversation.DecisionName(messages.Decision_CANCELLED) // it ended before anybody was asked
	case x.GetStatus() == messages.ToolFinished_DENIED && refusedBy(x) == Hook: // after a rule, trust or a person had allowed it
		v.Decision, v.Why = auditDenied, "a hook refused it"
	case v.GetDecision() == auditAllowed && x.GetStatus() == messages.ToolFinished_DENIED:
		v.Decision = auditDenied
		var details struct{ Decision string }
		if json.Unmarshal([]byte(x.GetDetailsJson()), &details) == nil && details.Decision == policy.NotAsked {
			v.Decision = policy.NotAsked
		}
	case v.GetDecision() == auditAllowed && v.GetWhy() == "":
		v.Decision = auditRefused
	}
}

// refusedBy says who refused a call that was allowed before.
func refusedBy(x *messages.ToolFinished) string {
	var details struct {
		By string `json:"refused_by"`
	}
	_ = json.Unmarshal([]byte(x.GetDetailsJson()), &details) // of most there are none
	return details.By
}
