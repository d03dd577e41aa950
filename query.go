package troupe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Ask answers any command or question of package messages that a surface may put: CreateSession,
// ToSession, ResolveCall, ResolveApproval, ShowApproval, ListApprovals, ListAudit, ListRules, RevokeRule, DescribeTree, ListSessions, ListWorkers, ListWorkspaces, ListConversations, ListCalls, ListProjects, SaveProject, RemoveProject, SetVariables, Show, Verify, ListDamage, ForkSession, WhoseIs, CreateToken, ListTokens, RevokeToken, FindToken, Hello. A refusal
// is a *Failure. Questions are answered from the store: they wake no session.
func (rt *Runtime) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	switch x := m.(type) {
	case *messages.ToSession:
		if r := x.GetResolveCall(); r != nil && r.GetWorkerId() == "" {
			return rt.resolveCall(ctx, r)
		}
		if r := x.GetResolveApproval(); r != nil && r.GetWorkerId() == "" {
			return rt.resolveApproval(ctx, r)
		}
		if x.GetClose().GetForget() {
			return rt.closeAndForget(ctx, x)
		}
		return send[proto.Message](ctx, rt, m)
	case *messages.CreateSession, *messages.DescribeTree:
		return send[proto.Message](ctx, rt, m)
	case *messages.ResolveCall:
		return rt.resolveCall(ctx, x)
	case *messages.ResolveApproval:
		return rt.resolveApproval(ctx, x)
	case *messages.ListApprovals:
		return rt.listApprovals(ctx, x)
	case *messages.ShowApproval:
		return rt.showApproval(ctx, x)
	case *messages.ListRuns:
		return rt.listRuns(ctx, x)
	case *messages.ShowRun, *messages.ResumeRun, *messages.CancelRun, *messages.AwaitRun:
		return rt.onRun(ctx, m)
	case *messages.ListAudit:
		return rt.listAudit(ctx, x)
	case *messages.ListRules:
		return rt.listRules(ctx, x)
	case *messages.RevokeRule:
		return rt.revokeRule(ctx, x)
	case *messages.ListSessions:
		return rt.listSessions(ctx, x)
	case *messages.ListWorkers:
		return rt.listWorkers(ctx, x)
	case *messages.ListCalls:
		return rt.listCalls(ctx, x)
	case *messages.ListProjects:
		return rt.listProjects(ctx)
	case *messages.SaveProject:
		return rt.saveProject(ctx, x)
	case *messages.RemoveProject:
		return rt.removeProject(ctx, x)
	case *messages.SetVariables:
		return rt.setVariables(ctx, x)
	case *messages.ListWorkspaces:
		return rt.listWorkspaces(ctx, x)
	case *messages.ListConversations:
		return rt.listConversations(ctx, x)
	case *messages.Show:
		return rt.show(ctx, x)
	case *messages.Verify:
		return rt.verify(ctx, x)
	case *messages.ForkSession:
		return actors.Fork(ctx, rt.svc, x)
	case *messages.Hello:
		return &messages.Holder{Pid: int32(os.Getpid()), Data: rt.svc.DataDir, StartedAtUnixMs: rt.began.UnixMilli()}, nil
	}
	return rt.askAccess(ctx, m)
}

// askAccess answers who asks about tokens, whose things are, and what is lost.
func (rt *Runtime) askAccess(ctx context.Context, m proto.Message) (proto.Message, error) {
	switch x := m.(type) {
	case *messages.ListDamage:
		return rt.listDamage(ctx)
	case *messages.WhoseIs:
		return rt.svc.WhoseIs(ctx, x)
	case *messages.CreateToken:
		return rt.createToken(ctx, x)
	case *messages.ListTokens:
		if fail := rt.tokensLost(); fail != nil { // a list without those would pass for all of them
			return nil, fail
		}
		return rt.listTokens(), nil
	case *messages.RevokeToken:
		return rt.revokeToken(ctx, x)
	case *messages.FindToken:
		return rt.findToken(x)
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%T is not a question for a runtime", m), "")
}

// live returns the sessions that are in memory, by id: listing them takes their word for it.
func (rt *Runtime) live(ctx context.Context) (map[string]bool, error) {
	tree, err := act.Ask[*messages.Tree](ctx, rt.sys, rt.root, &messages.DescribeTree{})
	if err != nil {
		return nil, fmt.Errorf("look at the live tree: %w", err)
	}
	out := make(map[string]bool)
	for _, c := range tree.GetRoot().GetChildren() {
		if c.GetKind() == "session" && c.GetState() == "running" {
			out[c.GetId()] = true
		}
	}
	return out, nil
}

func (rt *Runtime) listSessions(ctx context.Context, m *messages.ListSessions) (*messages.Sessions, error) {
	live, err := rt.live(ctx)
	if err != nil {
		return nil, err
	}
	out := &messages.Sessions{}
	err = rt.svc.Store.Index(ctx, "ses/", func(key string, value []byte) error {
		v := &messages.SessionView{}
		if err := proto.Unmarshal(value, v); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		if m.GetFolder() == "" || v.GetFolder() == m.GetFolder() {
			out.Sessions = append(out.Sessions, v)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	for i, v := range out.GetSessions() {
		if out.Sessions[i], err = rt.complete(ctx, v, live[v.GetId()]); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(out.Sessions, func(i, j int) bool {
		return out.Sessions[i].GetUpdatedAtUnixMs() > out.Sessions[j].GetUpdatedAtUnixMs()
	})
	if n := int(m.GetLimit()); n > 0 && len(out.Sessions) > n {
		out.Sessions = out.Sessions[:n]
	}
	return out, nil
}

// complete adds a session's workers: as they say themselves when they are in memory, else as their
// listing entries have it.
func (rt *Runtime) complete(ctx context.Context, v *messages.SessionView, live bool) (*messages.SessionView, error) {
	if live {
		l, err := ask[*messages.SessionView](ctx, rt, v.GetId(), &messages.DescribeSession{})
		if err == nil {
			l.Title = v.GetTitle()
			return l, nil
		}
	}
	err := rt.svc.Store.Index(ctx, actors.WorkerKey(v.GetId(), ""), func(key string, value []byte) error {
		w := &messages.WorkerView{}
		if err := proto.Unmarshal(value, w); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		if w.GetState() != "inactive" && !w.GetQuarantined() { // nobody works on it: the turn waits for its session to be opened
			w.State = "waiting"
		}
		v.Workers = append(v.Workers, w)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list workers of %s: %w", v.GetId(), err)
	}
	actors.SumUp(v)
	return v, nil
}

func (rt *Runtime) session(ctx context.Context, id string) (*messages.SessionView, error) {
	var found *messages.SessionView
	err := rt.svc.Store.Index(ctx, actors.SessionKey(id), func(key string, value []byte) error {
		if key != actors.SessionKey(id) {
			return nil
		}
		found = &messages.SessionView{}
		return proto.Unmarshal(value, found)
	})
	if err != nil {
		return nil, fmt.Errorf("find session %s: %w", id, err)
	}
	if found == nil || id == "" {
		return nil, actors.NoSession(id)
	}
	live, err := rt.live(ctx)
	if err != nil {
		return nil, err
	}
	found, err = rt.complete(ctx, found, live[id])
	if err == nil {
		found.Conversations, err = actors.SharedConversations(ctx, rt.svc.Store, id)
	}
	return found, err
}

func (rt *Runtime) listWorkers(ctx context.Context, m *messages.ListWorkers) (*messages.Workers, error) {
	out := &messages.Workers{}
	if m.GetSessionId() != "" {
		v, err := rt.session(ctx, m.GetSessionId())
		if err != nil {
			return nil, err
		}
		out.Workers = v.GetWorkers()
		return out, nil
	}
	all, err := rt.listSessions(ctx, &messages.ListSessions{})
	if err != nil {
		return nil, err
	}
	for _, v := range all.GetSessions() {
		out.Workers = append(out.Workers, v.GetWorkers()...)
	}
	return out, nil
}

// turns reads the turns of every worker of a session, in order of their beginning. trimmed says that the oldest of some
// worker are gone for good.
func (rt *Runtime) turns(ctx context.Context, v *messages.SessionView) (out []ownTurn, trimmed bool, err error) {
	for _, w := range v.GetWorkers() {
		some, old, err := rt.turnsOf(ctx, w.GetId())
		if err != nil {
			return nil, false, messages.Fail(messages.CodeCorrupt, err.Error(), "run `troupe verify`")
		}
		out, trimmed = append(out, some...), trimmed || old
	}
	inOrder(out)
	return out, trimmed, nil
}

// turnsOf reads the turns of one worker.
func (rt *Runtime) turnsOf(ctx context.Context, worker string) (out []ownTurn, trimmed bool, err error) {
	read, err := actors.ReadTurns(ctx, rt.svc.Store, worker)
	if err != nil {
		return nil, false, err
	}
	for _, t := range read.Turns {
		out = append(out, ownTurn{t, worker, t.Completed != nil && t.DoneSeq <= read.Compacted})
	}
	return out, read.Trimmed, nil
}

// inOrder sorts turns by their beginning.
func inOrder(turns []ownTurn) {
	sort.SliceStable(turns, func(i, j int) bool { return turns[i].StartedMs < turns[j].StartedMs })
}

type ownTurn struct {
	*conversation.Turn
	worker    string
	compacted bool
}

func (rt *Runtime) show(ctx context.Context, m *messages.Show) (*messages.Shown, error) {
	v, err := rt.session(ctx, m.GetId())
	if err != nil {
		return nil, err
	}
	turns, trimmed, err := rt.turns(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, x := range v.GetConversations() {
		talk, err := actors.ReadShared(ctx, rt.svc.Store, x.GetConversationId())
		if err != nil {
			return nil, err
		}
		whole := talk.View(0, 0)
		x.Turns, x.Queue = whole.GetTurns(), whole.GetQueue()
	}
	out := &messages.Shown{Session: v, Trimmed: trimmed}
	for _, t := range turns {
		out.Turns = append(out.Turns, turnView(t))
	}
	return out, nil
}

func turnView(t ownTurn) *messages.TurnView {
	tv := &messages.TurnView{
		TurnId: t.ID, WorkerId: t.worker, Text: t.Text, Usage: t.Usage, StartedAtUnixMs: t.StartedMs, CompletedAtUnixMs: t.DoneMs,
		Compacted: t.compacted, Partial: t.Suspended.GetText(),
	}
	for i, in := range t.Inputs {
		if i > 0 {
			tv.Input += "\n\n"
		}
		tv.Input += conversation.InputText(in.GetParts())
	}
	if t.Completed != nil {
		tv.Outcome, tv.Reason = conversation.OutcomeName(t.Completed.GetOutcome()), t.Completed.GetReason()
	}
	for _, c := range t.AllCalls {
		tv.ToolCalls = append(tv.ToolCalls, c.View())
	}
	for _, g := range t.Gens {
		tv.Generations = append(tv.Generations, &messages.GenerationView{
			GenId: g.GetGenId(), Model: g.GetModel(), ProviderRequestId: g.GetProviderRequestId(), Attempts: g.GetTiming().GetProviderAttempts(),
			Timing: g.GetTiming(), Usage: g.GetUsage(), FinishReason: g.GetFinishReason(), InsteadOf: g.GetInsteadOf(),
			Calls: int32(len(g.GetToolCalls())), //nolint:gosec // a count
		})
		if len(g.GetToolCalls()) > 0 {
			tv.Generations[len(tv.Generations)-1].Text = g.GetContent()
		}
	}
	return tv
}

// verify checks the store's own invariants, and that every worker's journal folds.
func (rt *Runtime) verify(ctx context.Context, m *messages.Verify) (*messages.Verified, error) {
	streams, err := rt.streamsOf(ctx, m.GetSessionIds())
	if err != nil {
		return nil, err
	}
	out := &messages.Verified{}
	sum, err := rt.svc.Store.Verify(ctx, streams, func(f persistence.Finding) {
		out.Findings = append(out.Findings, &messages.Finding{Stream: f.Stream, Seq: f.Seq, Problem: f.Problem})
	})
	if err != nil {
		return nil, fmt.Errorf("verify the store: %w", err)
	}
	out.Streams, out.Records = sum.Streams, sum.Records
	if streams == nil {
		if err := rt.verifyIndex(ctx, out); err != nil {
			return nil, err
		}
		for _, kind := range []string{messages.WorkerStream(""), messages.ConversationStream("")} {
			err = rt.svc.Store.Streams(ctx, kind, func(s string) error { streams = append(streams, s); return nil })
			if errors.Is(err, persistence.ErrCorrupt) { // those that are there are looked at
				out.Findings = append(out.Findings, &messages.Finding{Problem: err.Error()})
				err = nil
			}
			if err != nil {
				return nil, fmt.Errorf("list streams: %w", err)
			}
		}
	}
	for _, s := range streams {
		var err error
		switch kind, id, _ := strings.Cut(s, "/"); kind {
		case "wrk":
			_, err = actors.ReadTurns(ctx, rt.svc.Store, id)
		case "cnv":
			_, err = actors.ReadShared(ctx, rt.svc.Store, id)
		}
		if err != nil {
			out.Findings = append(out.Findings, &messages.Finding{Stream: s, Problem: err.Error()})
		}
	}
	return out, nil
}

func (rt *Runtime) streamsOf(ctx context.Context, sessions []string) ([]string, error) {
	var streams []string
	for _, id := range sessions {
		v, err := rt.session(ctx, id)
		if err != nil {
			return nil, err
		}
		streams = append(streams, messages.SessionStream(id))
		for _, w := range v.GetWorkers() {
			streams = append(streams, messages.WorkerStream(w.GetId()))
		}
		for _, x := range v.GetConversations() {
			streams = append(streams, messages.ConversationStream(x.GetConversationId()))
		}
	}
	return streams, nil
}
