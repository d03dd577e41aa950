package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// narrow leaves of a listing what is of the principal's tenant. Replies are copies of this request's own.
func (b *checked) narrow(ctx context.Context, who Principal, asked, reply proto.Message) (proto.Message, error) {
	mine := &mine{b: b, ctx: ctx, who: who, known: make(map[string]bool)}
	switch x := reply.(type) {
	case *messages.Sessions:
		x.Sessions = keep(x.GetSessions(), func(v *messages.SessionView) bool { return v.GetTenant() == who.Tenant })
		if n := int(limitOf(asked)); n > 0 && len(x.Sessions) > n {
			x.Sessions = x.Sessions[:n]
		}
		for _, v := range x.GetSessions() {
			mine.unnamed(v.GetWorkers())
		}
	case *messages.SessionView:
		mine.unnamed(x.GetWorkers())
	case *messages.Shown:
		mine.unnamed(x.GetSession().GetWorkers())
	case *messages.Forked:
		mine.unnamed(x.GetSession().GetWorkers())
	case *messages.WorkerView:
		mine.unnamed([]*messages.WorkerView{x})
	case *messages.Workers:
		x.Workers = keep(x.GetWorkers(), func(v *messages.WorkerView) bool { return mine.has(v.GetSessionId()) })
		mine.unnamed(x.GetWorkers())
	case *messages.Calls:
		x.Calls = keep(x.GetCalls(), func(v *messages.CallView) bool { return mine.has(v.GetSessionId()) })
		x.Unread = keep(x.GetUnread(), func(v *messages.Unread) bool { return mine.has(v.GetSessionId()) })
	case *messages.Approvals:
		x.Approvals = keep(x.GetApprovals(), func(v *messages.ApprovalView) bool { return mine.has(v.GetSessionId()) })
	case *messages.Conversations:
		x.Conversations = keep(x.GetConversations(), func(v *messages.SharedConversation) bool { return mine.has(v.GetSessionId()) })
	case *messages.Workspaces:
		x.Workspaces = keep(x.GetWorkspaces(), func(v *messages.SessionWorkspace) bool { return mine.has(v.GetSessionId()) })
	case *messages.Runs:
		x.Runs = keep(x.GetRuns(), func(v *messages.RunView) bool { return mine.has(v.GetSessionId()) })
	case *messages.Rules:
		x.Rules = keep(x.GetRules(), func(v *messages.RuleView) bool { return v.GetTenant() == who.Tenant })
	case *messages.Audit:
		x.Entries = keep(x.GetEntries(), func(v *messages.AuditView) bool { return mine.has(v.GetSessionId()) })
	case *messages.Projects:
		if who.Tenant != "" {
			x.Projects = nil
		}
	case *messages.Damage:
		if len(x.GetFindings()) > 0 && wholeStore(who) != nil { // it names streams and files of all
			x.Findings = []*messages.Finding{{Problem: "a part of the store is damaged; who looks after the server may see which"}}
		}
	case *messages.Holder:
		x.Data = ""
	}
	return reply, mine.err
}

// limitOf is how many entries were asked for; 0: all.
func limitOf(asked proto.Message) int32 {
	l, ok := asked.(interface{ GetLimit() int32 })
	if !ok {
		return 0
	}
	return l.GetLimit()
}

func keep[T any](all []T, is func(T) bool) []T {
	return slices.DeleteFunc(all, func(v T) bool { return !is(v) })
}

// mine remembers, for one reply, which sessions are the principal's.
type mine struct {
	b     *checked
	ctx   context.Context //nolint:containedctx // of one request, for as long as its reply is narrowed
	who   Principal
	known map[string]bool
	err   error
}

func (m *mine) has(session string) bool {
	if session == "" || m.err != nil {
		return false
	}
	if is, known := m.known[session]; known {
		return is
	}
	err := m.b.owns(m.ctx, m.who, session)
	var none *messages.Failure
	if err != nil && !(errors.As(err, &none) && none.GetCode() == messages.CodeNotFound) {
		m.err = err
	}
	m.known[session] = err == nil
	return err == nil
}

// unnamed leaves out which session workers wait behind, where that is another tenant's: two tenants may work in one folder.
func (m *mine) unnamed(workers []*messages.WorkerView) {
	for _, v := range workers {
		w := v.GetWaiting()
		if w.GetSession() == "" || m.has(w.GetSession()) {
			continue
		}
		if strings.Contains(v.GetWaitsFor(), w.GetSession()) {
			v.WaitsFor = "the workspace " + w.GetSubject()
		}
		w.Session = ""
	}
}
