package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// checked is the backend as a principal may use it: every question of this package goes this way, by whichever route it came. What it
// does not know it refuses. What is another tenant's does not exist.
type checked struct {
	all   Backend
	roots []string
}

// Ask asks for the principal of ctx.
func (b *checked) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	who := PrincipalOf(ctx)
	if who.Owner {
		return b.all.Ask(ctx, m)
	}
	as, err := b.permit(ctx, who, proto.Clone(m))
	if err != nil {
		return nil, err
	}
	reply, err := b.all.Ask(ctx, as)
	if err != nil {
		return nil, err
	}
	return b.narrow(ctx, who, m, reply)
}

// Events streams a session of the principal's tenant.
func (b *checked) Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error] {
	if err := b.owns(ctx, PrincipalOf(ctx), session); err != nil {
		return func(yield func(*messages.Event, error) bool) { yield(nil, err) }
	}
	return b.all.Events(ctx, session, after)
}

// Backup is the whole store's.
func (b *checked) Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) error {
	if err := wholeStore(PrincipalOf(ctx)); err != nil {
		return err
	}
	all, can := b.all.(backuper)
	if !can {
		return refusal(messages.CodeBadRequest, "this store cannot be backed up")
	}
	return all.Backup(ctx, w, since)
}

// Export writes a session of the principal's tenant.
func (b *checked) Export(ctx context.Context, session string, w io.Writer) error {
	if err := b.owns(ctx, PrincipalOf(ctx), session); err != nil {
		return err
	}
	all, can := b.all.(Porter)
	if !can {
		return refusal(messages.CodeNotFound, "sessions are not exported here")
	}
	return all.Export(ctx, session, w)
}

// ImportSession takes what a file says, also about whose it is: that is for who looks after the whole store.
func (b *checked) ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error) {
	if err := wholeStore(PrincipalOf(ctx)); err != nil {
		return nil, err
	}
	all, can := b.all.(Porter)
	if !can {
		return nil, refusal(messages.CodeNotFound, "sessions are not imported here")
	}
	return all.ImportSession(ctx, in, m)
}

// ConnectOwner makes a connection the owner of a workspace in a session of the principal's tenant.
func (b *checked) ConnectOwner(ctx context.Context, m *messages.ConnectOwner, owner WorkspaceOwner) (epoch uint64, leave func(forGood bool), err error) {
	who := PrincipalOf(ctx)
	if err := b.owns(ctx, who, m.GetSessionId()); err != nil {
		return 0, nil, err
	}
	all, can := b.all.(Owners)
	if !can {
		return 0, nil, refusal(messages.CodeBadRequest, "this server takes no owners of workspaces")
	}
	m.TokenId = who.Name
	return all.ConnectOwner(ctx, m, owner)
}

// forbidden refuses what a principal may not do.
func forbidden(format string, args ...any) error {
	return messages.Fail(messages.CodeForbidden, fmt.Sprintf(format, args...), "use a token that may")
}

// wholeStore refuses everybody but who looks after the whole store: the owner, and scope admin of the default tenant.
func wholeStore(who Principal) error {
	if who.Owner || who.May(ScopeAdmin) && who.Tenant == "" {
		return nil
	}
	return forbidden("this is about the whole server: it needs scope admin of the default tenant")
}

// owns refuses what is not of the principal's tenant as if it did not exist.
func (b *checked) owns(ctx context.Context, who Principal, id string) error {
	if who.Owner {
		return nil
	}
	if len(who.Scopes) == 0 {
		return forbidden("nobody in particular may not ask about sessions")
	}
	reply, err := b.all.Ask(ctx, &messages.WhoseIs{Id: id, Tenant: who.Tenant})
	if f, refused := reply.(*messages.Failure); err == nil && refused {
		err = f
	}
	return err
}

// permit gives the question as it may be asked, in the principal's name.
func (b *checked) permit(ctx context.Context, who Principal, m proto.Message) (proto.Message, error) {
	if len(who.Scopes) == 0 {
		return nil, forbidden("nobody in particular may not ask anything")
	}
	switch x := m.(type) {
	case *messages.ToSession:
		if err := b.owns(ctx, who, x.GetSessionId()); err != nil {
			return nil, err
		}
		return m, b.command(ctx, who, x)
	case *messages.CreateSession:
		return m, b.create(ctx, who, x)
	case *messages.ForkSession:
		x.By = who.Name
		if err := modelOf(who, x.GetModel()); err != nil {
			return nil, err
		}
		return m, b.owns(ctx, who, x.GetSessionId())
	case *messages.WhoseIs:
		x.Tenant, x.Any = who.Tenant, false
		return m, nil
	case *messages.Show:
		return m, b.owns(ctx, who, x.GetId())
	case *messages.ResolveCall:
		x.By = who.Name
		return m, b.owns(ctx, who, x.GetExecId())
	case *messages.ResolveApproval:
		x.By = who.Name
		return m, b.answers(ctx, who, x)
	case *messages.ShowApproval:
		x.By = who.Name
		return m, b.owns(ctx, who, x.GetApprovalId())
	case *messages.RevokeRule:
		x.By = who.Name
		return m, b.owns(ctx, who, x.GetRuleId())
	case *messages.ListSessions:
		x.Limit = 0 // it counts what is left: see narrow
		return m, nil
	case *messages.ListAudit:
		x.Tenant = &who.Tenant // a page is one of what is theirs
		return m, b.ofSession(ctx, who, x.GetSessionId())
	case *messages.ListWorkers, *messages.ListCalls, *messages.ListApprovals, *messages.ListRules, *messages.ListConversations, *messages.ListWorkspaces:
		return m, b.ofSession(ctx, who, m.(interface{ GetSessionId() string }).GetSessionId()) //nolint:forcetypeassert // each of them has it
	case *messages.Hello, *messages.ListProjects, *messages.ListDamage:
		return m, nil
	case *messages.ListRuns, *messages.ShowRun, *messages.AwaitRun, *messages.ResumeRun, *messages.CancelRun:
		return m, b.run(ctx, who, m)
	case *messages.SaveProject, *messages.RemoveProject, *messages.SetVariables, *messages.Verify, *messages.DescribeTree,
		*messages.CreateToken, *messages.ListTokens, *messages.RevokeToken:
		return named(m, who.Name), wholeStore(who)
	}
	return nil, forbidden("%T may not be asked by a token", m)
}

// named puts a token's name to what is done with it.
func named(m proto.Message, name string) proto.Message {
	switch x := m.(type) {
	case *messages.CreateToken:
		if x.GetToken() != nil {
			x.Token.By = name
		}
	case *messages.RevokeToken:
		x.By = name
	}
	return m
}

// ofSession is about one session, or, with "", about those that narrow leaves.
func (b *checked) ofSession(ctx context.Context, who Principal, session string) error {
	if session == "" {
		return nil
	}
	return b.owns(ctx, who, session)
}

// command looks at what is asked of a session that the principal may ask, and puts the token's name to it.
func (b *checked) command(ctx context.Context, who Principal, m *messages.ToSession) error {
	switch x := m.GetCommand().(type) {
	case *messages.ToSession_Submit:
		x.Submit.From = from(who, x.Submit.GetFrom())
	case *messages.ToSession_AttachWorkspace:
		x.AttachWorkspace.By = who.Name
		return b.place(who, x.AttachWorkspace.GetWorkspace())
	case *messages.ToSession_DetachWorkspace:
		x.DetachWorkspace.By = who.Name
	case *messages.ToSession_Configure:
		x.Configure.By = who.Name
		return modelOf(who, x.Configure.GetModel())
	case *messages.ToSession_SpawnWorker:
		return modelOf(who, x.SpawnWorker.GetModel())
	case *messages.ToSession_ResolveCall:
		x.ResolveCall.By = who.Name
		return b.owns(ctx, who, x.ResolveCall.GetExecId()) // without a worker it is found by its id alone
	case *messages.ToSession_ResolveApproval:
		x.ResolveApproval.By = who.Name
		return b.answers(ctx, who, x.ResolveApproval)
	case *messages.ToSession_Cancel:
		x.Cancel.By = who.Name
	case *messages.ToSession_WithdrawInput:
		x.WithdrawInput.By = who.Name
	case *messages.ToSession_CancelTimer:
		x.CancelTimer.By = who.Name
	case *messages.ToSession_Close:
		x.Close.By = who.Name
	case *messages.ToSession_DeleteWorker:
		x.DeleteWorker.By = who.Name
	case *messages.ToSession_ReleaseWorker:
		x.ReleaseWorker.By = who.Name
	case *messages.ToSession_ApplyCopy:
		x.ApplyCopy.By = who.Name
	case *messages.ToSession_DeclareFields:
		x.DeclareFields.By = who.Name
	case *messages.ToSession_AddBudget:
		x.AddBudget.By = who.Name
	case *messages.ToSession_Compact:
		x.Compact.By = who.Name
	case *messages.ToSession_EndJob:
		x.EndJob.By = who.Name
	case *messages.ToSession_SetTimer:
		x.SetTimer.By = who.Name
	case *messages.ToSession_SetField:
		x.SetField.By = who.Name
	case *messages.ToSession_SubmitTurn:
		x.SubmitTurn.By = from(who, x.SubmitTurn.GetBy())
	case *messages.ToSession_TakeTurn:
		x.TakeTurn.By = from(who, x.TakeTurn.GetBy())
	case *messages.ToSession_WithdrawTurn:
		x.WithdrawTurn.By = who.Name
	case *messages.ToSession_Describe, *messages.ToSession_CountJobs, *messages.ToSession_WaitIdle, *messages.ToSession_ListInputs, *messages.ToSession_AwaitTurn,
		*messages.ToSession_CallTool, *messages.ToSession_History, *messages.ToSession_Save,
		*messages.ToSession_ListTimers, *messages.ToSession_ReadFields, *messages.ToSession_UseFile, *messages.ToSession_DiffCopy,
		*messages.ToSession_ShareConversation, *messages.ToSession_ReadConversation, *messages.ToSession_AwaitSharedTurn:
	default:
		return forbidden("%T may not be asked by a token", x)
	}
	return nil
}

// from names the token that an input came by, and who its client says that it is.
func from(who Principal, said string) string {
	if said == "" || said == who.Name {
		return who.Name
	}
	return who.Name + "/" + said
}

// create looks at a wish for a session.
func (b *checked) create(ctx context.Context, who Principal, m *messages.CreateSession) error {
	m.Tenant, m.By = who.Tenant, who.Name
	if id := m.GetSessionId(); id != "" {
		// A session that is there is told to its own tenant; to another one its id is one that cannot be used.
		if err := b.free(ctx, who, id); err != nil {
			return err
		}
	}
	if len(m.GetRules()) > 0 && !who.May(ScopeApprove) {
		return forbidden("rules answer what would be asked: they need scope %s", ScopeApprove)
	}
	if err := modelOf(who, m.GetModel()); err != nil {
		return err
	}
	if r := m.GetRun(); r != nil {
		if err := modelOf(who, r.GetModel()); err != nil {
			return err
		}
		r.By, r.Bounded = who.Name, wholeStore(who) != nil
	}
	if f := m.GetFirst(); f != nil {
		f.From = from(who, f.GetFrom())
	}
	for _, w := range m.GetWorkspaces() {
		if err := b.place(who, w); err != nil {
			return err
		}
	}
	return nil
}

// free refuses the id of another tenant's session.
func (b *checked) free(ctx context.Context, who Principal, id string) error {
	if b.owns(ctx, who, id) == nil {
		return nil
	}
	_, err := ask[*messages.Belongs](ctx, &api{backend: b.all}, &messages.WhoseIs{Id: id, Any: true})
	var none *messages.Failure
	switch {
	case err == nil:
		return refusal(messages.CodeBadRequest, "the session id %s cannot be used", id)
	case errors.As(err, &none) && none.GetCode() == messages.CodeNotFound:
		return nil
	}
	return err
}

// place bounds a workspace to what the principal may attach.
func (b *checked) place(who Principal, w *messages.WorkspaceSpec) error {
	if w.GetTrust() == messages.Trust_FULL && !who.May(ScopeAdmin) {
		return forbidden("trust full needs scope %s", ScopeAdmin)
	}
	w.By = who.Name
	w.Bounds = &messages.PathBounds{Roots: b.roots, Tenant: who.Tenant}
	if who.May(ScopeAdmin) {
		w.Bounds.Roots, w.Bounds.AnyMode = []string{"/"}, true
	}
	return nil
}

// modelOf refuses models that are files of the server's machine.
func modelOf(who Principal, name string) error {
	if messages.ModelInFile(name) && wholeStore(who) != nil {
		return forbidden("model %s is a file of the server: it needs scope %s of the default tenant", name, ScopeAdmin)
	}
	return nil
}

// run looks at what is asked about runs of pipelines, and puts the token's name to it. A run is its session's, and so is whose it is; what its
// files may name stands in it (ADR 98).
func (b *checked) run(ctx context.Context, who Principal, m proto.Message) error {
	switch x := m.(type) {
	case *messages.ResumeRun:
		x.By, x.Bounded = who.Name, wholeStore(who) != nil
	case *messages.CancelRun:
		x.By = who.Name
	case *messages.ListRuns: // narrow leaves what is of the tenant
		return nil
	}
	about, one := m.(interface{ GetRunId() string })
	if !one {
		return forbidden("%T may not be asked by a token", m)
	}
	return b.owns(ctx, who, about.GetRunId())
}

// trustTool is the call by which an agent asks for full trust.
const trustTool = "request_write_access"

// answers looks at what an answer would give. Full trust is for who may give it.
func (b *checked) answers(ctx context.Context, who Principal, m *messages.ResolveApproval) error {
	if err := b.owns(ctx, who, m.GetApprovalId()); err != nil || who.May(ScopeAdmin) || m.GetDecision() != messages.Decision_APPROVED {
		return err
	}
	reply, err := b.all.Ask(ctx, &messages.ListApprovals{})
	if err != nil {
		return err
	}
	waiting, ok := reply.(*messages.Approvals)
	if !ok {
		return fmt.Errorf("ask for the approvals: answered %T", reply)
	}
	for _, v := range waiting.GetApprovals() {
		if v.GetApprovalId() == m.GetApprovalId() && v.GetTool() == trustTool {
			return forbidden("trust full needs scope %s", ScopeAdmin)
		}
	}
	return nil
}
