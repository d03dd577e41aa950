package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// How far a session trusts a workspace may change while it is there: an agent asks for it (request_write_access), a person agrees,
// and the call tells the Session, which writes it down and tells every worker before the call's result is there. So whatever is
// planned after that result is planned with the new trust.

// applyTrust is the fold of a change of trust. The session's own workspace has no other than its own.
func (f *sessionFacts) applyTrust(x *messages.TrustChanged) {
	f.changed = f.seq
	f.judged = append(slices.DeleteFunc(slices.Clone(f.judged), func(uri string) bool { return uri == x.GetUri() }), x.GetUri())
	f.attached = slices.Clone(f.attached)
	for i, a := range f.attached {
		if a.GetUri() == x.GetUri() && !IsHome(a) {
			f.attached[i] = proto.CloneOf(a)
			f.attached[i].Trust = messages.Trust_RESTRICTED
			if x.GetTrust() == messages.Trust_FULL {
				f.attached[i].Trust = messages.Trust_FULL
			}
		}
	}
}

// forgetTrust drops what was known of the trust in a workspace that was detached.
func (f *sessionFacts) forgetTrust(uri string) {
	f.judged = slices.DeleteFunc(slices.Clone(f.judged), func(other string) bool { return other == uri })
}

// narrowed lists the workspaces of a copy whose trust was given to its original alone. What an import has by its attachment, restrict takes back.
func (p *Copying) narrowed() []string {
	var out []string
	for _, a := range p.facts.attached {
		given := (p.Fork || p.Restrict) && slices.Contains(p.facts.judged, a.GetUri())
		if given && !IsHome(a) && a.GetTrust() == messages.Trust_FULL {
			out = append(out, a.GetUri())
		}
	}
	return out
}

// changeTrust raises a workspace, as a person has allowed.
func (s *Session) changeTrust(c actor.Context, m *messages.ChangeTrust) {
	if s.building {
		s.builds.Put(c)
		return
	}
	g := named(s.grant.GetWorkspaces(), m.GetWorkspace())
	switch {
	case g == nil:
		s.answer(c, messages.Fail(messages.CodeNoWorkspace, noWorkspaceNamed(s.grant.GetWorkspaces(), m.GetWorkspace()).Message, ""))
	case g.GetTrust() == m.GetTrust():
		s.answer(c, g)
	case m.GetTrust() != messages.Trust_FULL || m.GetApprovalId() == "":
		s.answer(c, messages.Fail(messages.CodeBadRequest, "a workspace is raised to full trust by the answer to an approval", "attach it anew to trust it less"))
	case !s.mayRaise(g):
		s.answer(c, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("how far %s is trusted is its owner's to say", g.GetUri()), "ask them to trust it"))
	default:
		f := &messages.TrustChanged{Uri: g.GetUri(), Trust: m.GetTrust(), By: m.GetBy(), ApprovalId: m.GetApprovalId()}
		s.change(c, c.Sender(), func() (proto.Message, string, *messages.Failure) { return f, g.GetUri(), nil })
	}
}

// mayRaise says whether the workspace is of those that people of this machine decide about.
func (s *Session) mayRaise(g *messages.WorkspaceGrant) bool {
	return slices.ContainsFunc(s.facts.attached, func(a *messages.WorkspaceAttached) bool {
		return a.GetUri() == g.GetUri() && a.GetOwner() == s.svc.ServerName
	})
}

// raise is what the tool request_write_access does: it runs when a person has approved of just this call.
func (r *run) raise(ctx context.Context) error {
	if r.m.GetApprovalId() == "" {
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: nobody has agreed to it")
	}
	m := &messages.ToSession{SessionId: r.m.GetSessionId(), Command: &messages.ToSession_ChangeTrust{ChangeTrust: &messages.ChangeTrust{
		Workspace: r.m.GetWorkspace().GetUri(), Trust: messages.Trust_FULL, By: r.m.GetApprovedBy(), ApprovalId: r.m.GetApprovalId(),
	}}}
	root := r.sys.NewLocalPID(root)
	_, err := act.Ask[*messages.WorkspaceGrant](ctx, r.sys, root, m)
	var refused *messages.Failure
	if errors.As(err, &refused) && refused.GetCode() == messages.CodeUnavailable { // a worker was late, or the session starts anew
		_, err = act.Ask[*messages.WorkspaceGrant](ctx, r.sys, root, m)
	}
	if errors.As(err, &refused) {
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: %s", refused.GetMessage())
	}
	return err
}
