package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// maxName is how long the name of a workspace may be, in characters.
const maxName = 64

// maxWorkspaces is how many workspaces a session may have: each turn takes the leases of all of them.
const maxWorkspaces = 32

// grantOf makes what the workers get: the standing rules, and those of the session itself; the project's variables, and over them the session's. Its revision is
// the record that changed it last. The session's own workspace is primary when no other is.
func (f *sessionFacts) grantOf(standing []string, project []*messages.EnvVar) (*messages.Grant, error) {
	g := &messages.Grant{
		Revision: f.changed, ProjectId: f.created.GetProjectId(), Rules: slices.Concat(standing, f.created.GetRules()), Env: slices.Concat(project, plainVariables(f.created.GetEnv())),
		Remembered: f.remembered(), Budget: f.budget, Tenant: f.created.GetTenant(),
	}
	first := firstOf(f.attached)
	for _, a := range homeLast(f.attached) {
		addr, err := workspace.Parse(a.GetUri(), a.GetOwner())
		if err != nil {
			return nil, fmt.Errorf("workspace %s: %w", a.GetUri(), err)
		}
		g.Workspaces = append(g.Workspaces, &messages.WorkspaceGrant{
			Id: idIn(f.created.GetTenant(), addr, elsewhere(a) != ""), Name: a.GetName(), Uri: addr.Canonical, Kind: a.GetKind(), Mode: modeOf(a, first), Trust: a.GetTrust(),
			Path: a.GetPath(), Order: a.GetOrder(), Primary: a == first, Tools: a.GetTools(),
			Owner: elsewhere(a), Source: a.GetSource(), Commit: a.GetCommit(), ClonePath: a.GetClonePath(), ProjectDir: a.GetProjectDir(), Worker: a.GetWorker(),
		})
	}
	return g, nil
}

// plainVariables are those that a session was made with: commands that give values are a project's alone.
func plainVariables(all []*messages.EnvVar) []*messages.EnvVar {
	return slices.DeleteFunc(slices.Clone(all), func(v *messages.EnvVar) bool { return v.GetCommand() != "" })
}

// firstOf is the workspace that calls go to unless they say otherwise: the one that was made so, else the session's own.
func firstOf(all []*messages.WorkspaceAttached) *messages.WorkspaceAttached {
	for _, first := range []func(*messages.WorkspaceAttached) bool{(*messages.WorkspaceAttached).GetPrimary, IsHome} {
		if i := slices.IndexFunc(all, first); i >= 0 {
			return all[i]
		}
	}
	return nil
}

// homeLast puts the session's own workspace behind those that were attached, also after it was made: no call falls to it that
// one of them takes.
func homeLast(all []*messages.WorkspaceAttached) []*messages.WorkspaceAttached {
	if i := slices.IndexFunc(all, IsHome); i < 0 || i == len(all)-1 { // it is as a rule
		return all
	}
	out := slices.DeleteFunc(slices.Clone(all), IsHome)
	return append(out, slices.DeleteFunc(slices.Clone(all), func(a *messages.WorkspaceAttached) bool { return !IsHome(a) })...)
}

func without(all []*messages.WorkspaceAttached, uri string) []*messages.WorkspaceAttached {
	return slices.DeleteFunc(slices.Clone(all), func(a *messages.WorkspaceAttached) bool { return a.GetUri() == uri })
}

// granted makes the grant of a session that exists already.
func granted(svc *Services, f *sessionFacts) (*messages.Grant, *messages.Failure) {
	standing, fail := svc.standing(f.created.GetFolder())
	if fail != nil {
		return nil, fail
	}
	env, err := svc.projectEnv(f.created.GetProjectId())
	if err != nil {
		return nil, messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	}
	g, err := f.grantOf(standing, env)
	if err != nil {
		return nil, messages.Fail(messages.CodeCorrupt, err.Error(), "")
	}
	return g, nil
}

// openWorkspaces makes sure that the workspaces of a grant are there, as long as the session is, and notes which leases each
// needs besides its own. Nobody else has the grant yet.
func openWorkspaces(svc *Services, sys *actor.ActorSystem, session string, g *messages.Grant) *messages.Failure {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	opened, err := act.Ask[*workspacesOpened](ctx, sys, svc.supervisor(sys), &openingWorkspaces{session, g.GetWorkspaces()})
	if err != nil {
		return messages.Fail(messages.CodeUnavailable, fmt.Sprintf("open the workspaces of the session: %v", err), "")
	}
	g.Overlaps = append(g.GetOverlaps(), opened.overlaps...)
	return nil
}

// attached lists the workspaces of a new session: those that were asked for, in their order, and its own. The first is primary
// unless another one is said to be.
func (b *sessionBuilder) attached() ([]*messages.WorkspaceAttached, *messages.Failure) {
	home := &messages.WorkspaceAttached{
		Uri: b.svc.ServerName + ":/sessions/" + b.m.GetSessionId(), Kind: string(workspace.KindServer), Owner: b.svc.ServerName,
		Trust: messages.Trust_FULL, Name: HomeName, Path: homePath(b.svc, b.m.GetSessionId()),
	}
	specs := b.m.GetWorkspaces()
	first := max(slices.IndexFunc(specs, (*messages.WorkspaceSpec).GetPrimary), 0)
	all := []*messages.WorkspaceAttached{home}
	for i, spec := range specs {
		if spec.GetPrimary() && i != first {
			return nil, messages.Fail(messages.CodeBadRequest, "two workspaces are said to be the primary one", "one can be")
		}
		if profile, ok := b.svc.agent(b.m.GetAgent()); ok && profile.Isolate && i == first && !spec.GetIsolate() && isFolder(spec) {
			spec = proto.CloneOf(spec)
			spec.Isolate = true
		}
		a, fail := b.svc.place(spec, all)
		if fail == nil {
			fail = b.make(a)
		}
		if fail != nil {
			return nil, fail
		}
		a.Primary = i == first
		all = append(all, a)
	}
	home.Primary = len(specs) == 0
	if fail := b.svc.homeMode(home); fail != nil {
		return nil, fail
	}
	home.Tools = ConfiguredTools(b.svc.Offers, home.GetUri())
	return append(all[1:], home), nil
}

// copies says whether some workspaces of a new session may be copies: anything but folders that are worked in as they are.
func (b *sessionBuilder) copies() bool {
	profile, _ := b.svc.agent(b.m.GetAgent())
	return profile.Isolate || slices.ContainsFunc(b.m.GetWorkspaces(), func(w *messages.WorkspaceSpec) bool { return w.GetIsolate() || !isFolder(w) })
}

// isFolder says whether a folder of this machine is asked for.
func isFolder(spec *messages.WorkspaceSpec) bool {
	return strings.HasPrefix(spec.GetUri(), workspace.LocalHost+":") || filepath.IsAbs(spec.GetUri())
}

// make makes the copy that a workspace is to be; those before it go when that fails.
func (b *sessionBuilder) make(a *messages.WorkspaceAttached) *messages.Failure {
	if !isCopy(a) {
		return nil
	}
	ctx, cancel := b.svc.whileRunning(b.ctx)
	defer cancel()
	fail := b.svc.make(ctx, b.m.GetSessionId(), a, nil)
	if fail == nil {
		b.made = append(b.made, a)
	}
	return fail
}

// place checks a wish for a workspace against those that the session has, and makes the fact of it. It looks at the disk: not
// for a mailbox.
func (s *Services) place(spec *messages.WorkspaceSpec, have []*messages.WorkspaceAttached) (*messages.WorkspaceAttached, *messages.Failure) {
	addr, err := workspace.Parse(spec.GetUri(), s.ServerName)
	if err != nil {
		return nil, messages.Fail(messages.CodeInvalidURI, err.Error(), "")
	}
	a := &messages.WorkspaceAttached{
		Kind: string(addr.Kind), Owner: s.ServerName, Trust: spec.GetTrust(), Tools: spec.GetTools(), By: spec.GetBy(),
	}
	if a.GetTrust() == messages.Trust_UNSPECIFIED {
		a.Trust = messages.Trust_RESTRICTED
	}
	var fail *messages.Failure
	switch {
	case spec.GetIsolate() && (addr.Kind != workspace.KindClient || addr.Host != workspace.LocalHost || s.Copies == nil):
		fail = messages.Fail(messages.CodeBadRequest, "no copy is made of "+addr.Canonical, "folders of this machine can be worked on in a copy")
	case everybodys(have) >= maxWorkspaces:
		return nil, tooManyWorkspaces(0)
	case addr.Kind == workspace.KindServer:
		fail = s.placeServer(a, addr, spec.GetBounds())
	case addr.Kind == workspace.KindClient && addr.Host == workspace.LocalHost:
		if fail = s.placeLocal(a, addr, spec.GetBounds()); fail == nil && spec.GetIsolate() {
			a.Source, a.ProjectDir = a.GetUri(), a.GetPath() // until it is made
		}
	case addr.Kind == workspace.KindGit && s.Cloner == nil:
		fail = messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s cannot be attached: this runtime makes no clones", addr.Canonical), "clone it yourself, and attach the folder")
	case addr.Kind == workspace.KindGit:
		a.Source, a.Path = addr.Canonical, path.Join(addr.Path, addr.Subdir) // until it is made
	default: // of another machine: what is there, its owner says
		a.Uri, a.Owner = addr.Canonical, addr.Host
	}
	if fail == nil {
		fail = collides(a, have)
	}
	if fail == nil {
		fail = s.settleTools(a)
	}
	if fail == nil {
		fail = s.settleMode(a, spec.GetMode(), spec.GetBounds())
	}
	if fail == nil {
		a.Name, fail = nameFor(spec.GetName(), a, have)
	}
	for _, other := range have {
		a.Order = max(a.GetOrder(), other.GetOrder()+1)
	}
	return a, fail
}

// placeLocal finds a folder of this machine. Links are followed once, here: two names of one folder are one workspace.
func (s *Services) placeLocal(a *messages.WorkspaceAttached, addr *workspace.Address, bounds *messages.PathBounds) *messages.Failure {
	real, path, err := workspace.Local(filepath.FromSlash(addr.Path))
	if bounds != nil && (err != nil || !bounded(bounds, filepath.ToSlash(path))) {
		return outside(addr.Path)
	}
	var bad *workspace.AddressError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return messages.Fail(messages.CodeNoWorkspace, fmt.Sprintf("folder %s does not exist", addr.Path), "make it, or name another one")
	case errors.As(err, &bad):
		return messages.Fail(messages.CodeInvalidURI, err.Error(), "")
	case err != nil:
		return messages.Fail(messages.CodeBadRequest, err.Error(), "name a folder")
	}
	if within(filepath.ToSlash(path), filepath.ToSlash(s.realData())) {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("folder %s belongs to the data directory of the runtime", path), "work elsewhere")
	}
	a.Uri, a.Path = real.Canonical, path
	return nil
}

// realData is the data directory with its links resolved: once, as a process holds the one that it began with.
func (s *Services) realData() string {
	s.dataOnce.Do(func() {
		if s.dataReal, _ = filepath.EvalSymlinks(s.DataDir); s.dataReal == "" {
			s.dataReal = s.DataDir
		}
	})
	return s.dataReal
}

// placeServer finds another session's own workspace.
func (s *Services) placeServer(a *messages.WorkspaceAttached, addr *workspace.Address, bounds *messages.PathBounds) *messages.Failure {
	id, ok := strings.CutPrefix(addr.Path, "/sessions/")
	if !ok || !messages.ValidID(messages.SessionPrefix, id) {
		return messages.Fail(messages.CodeNoWorkspace, fmt.Sprintf("the server keeps no workspace %s", addr.Canonical), "that of a session is "+s.ServerName+":/sessions/ID")
	}
	found, err := Listed(context.Background(), s.Store, id)
	if err != nil {
		return messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	}
	if found && bounds != nil {
		tenant, _, err := TenantOf(context.Background(), s.Store, id)
		if err != nil {
			return messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
		}
		found = tenant == bounds.GetTenant()
	}
	if !found {
		return messages.Fail(messages.CodeNoWorkspace, fmt.Sprintf("there is no session %s whose workspace it could be", id), "`troupe ls sessions` lists them")
	}
	a.Uri, a.Path = addr.Canonical, homePath(s, id)
	return nil
}

// collides refuses what the session has already, also in part: through two names for one file, one would be trusted as the other
// is not, read by one and changed by the other.
func collides(a *messages.WorkspaceAttached, have []*messages.WorkspaceAttached) *messages.Failure {
	for _, other := range have {
		switch {
		case other.GetWorker() != "": // which nobody else sees
		case isCopy(a) || isCopy(other):
			if called := cmp.Or(a.GetSource(), a.GetUri()); called == cmp.Or(other.GetSource(), other.GetUri()) {
				return messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("%s is attached already, as %s", called, other.GetName()), "")
			}
		case other.GetUri() == a.GetUri():
			return messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("%s is attached already, as %s", a.GetUri(), other.GetName()), "")
		case a.GetPath() == "" || other.GetPath() == "": // not on this machine
		case within(filepath.ToSlash(a.GetPath()), filepath.ToSlash(other.GetPath())):
			return messages.Fail(messages.CodeConflict, fmt.Sprintf("%s lies in the workspace %s (%s)", a.GetPath(), other.GetName(), other.GetPath()), "it can be worked on from there")
		case within(filepath.ToSlash(other.GetPath()), filepath.ToSlash(a.GetPath())) && !IsHome(other):
			return messages.Fail(messages.CodeConflict, fmt.Sprintf("the workspace %s lies in %s", other.GetName(), a.GetPath()), "detach it first")
		case sameFolder(a.GetPath(), other.GetPath()):
			return messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("%s is the same folder as the workspace %s (%s)", a.GetPath(), other.GetName(), other.GetPath()), "")
		}
	}
	return nil
}

// sameFolder knows one folder under two paths: mounted twice, or spelt in another case.
func sameFolder(a, b string) bool {
	other, err := os.Stat(b) // which often is not there yet: a session's own
	if err != nil {
		return false
	}
	one, err := os.Stat(a)
	return err == nil && os.SameFile(one, other)
}

// nameFor is what the session calls a workspace: as it was told to, if that can be a name and is free; else like the folder.
func nameFor(wanted string, a *messages.WorkspaceAttached, have []*messages.WorkspaceAttached) (string, *messages.Failure) {
	taken := func(name string) bool {
		return slices.ContainsFunc(have, func(o *messages.WorkspaceAttached) bool { return strings.EqualFold(o.GetName(), name) })
	}
	if wanted != "" {
		switch {
		case !validName(wanted):
			return "", messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no name for a workspace", wanted),
				fmt.Sprintf("up to %d letters, digits, dots, dashes and underscores, a letter or digit first", maxName))
		case taken(wanted):
			return "", messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("the session has a workspace %s already", wanted), "give it another name")
		}
		return wanted, nil
	}
	base := []rune(strings.Map(func(r rune) rune {
		if nameRune(r) {
			return r
		}
		return '-'
	}, filepath.Base(cmp.Or(a.GetPath(), a.GetOwner()))))
	name := strings.TrimLeft(string(base[:min(len(base), maxName-4)]), ".-_")
	if !validName(name) {
		name = "folder"
	}
	for i, stem := 2, name; taken(name); i++ {
		name = fmt.Sprintf("%s-%d", stem, i)
	}
	return name, nil
}

// validName keeps names apart from ids and addresses, beside which they stand in `workspace_id`, and out of the way of the
// prompt's own lines.
func validName(name string) bool {
	runes := []rune(name)
	if len(runes) == 0 || len(runes) > maxName || !unicode.IsLetter(runes[0]) && !unicode.IsDigit(runes[0]) {
		return false
	}
	return !slices.ContainsFunc(runes, func(r rune) bool { return !nameRune(r) }) && !isID(name)
}

func nameRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)
}

// isID says whether a name looks like the id of a workspace.
func isID(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// named finds a workspace by its id, name or address.
func named(all []*messages.WorkspaceGrant, word string) *messages.WorkspaceGrant {
	if word == "" { // which most have no source by
		return nil
	}
	for _, by := range []func(*messages.WorkspaceGrant) string{(*messages.WorkspaceGrant).GetName, (*messages.WorkspaceGrant).GetId, (*messages.WorkspaceGrant).GetUri, (*messages.WorkspaceGrant).GetSource} {
		for _, g := range all {
			if by(g) == word {
				return g
			}
		}
	}
	return nil
}

// noWorkspaceNamed is the refusal of an unknown workspace.
func noWorkspaceNamed(all []*messages.WorkspaceGrant, word string) *tools.Error {
	return tools.Errorf(tools.CodeWorkspaceNotFound, "Workspace '%s' not found; there are: %s", word, names(all))
}

// elsewhere is the machine that owns a workspace, when that is another one.
func elsewhere(a *messages.WorkspaceAttached) string {
	if a.GetKind() == string(workspace.KindClient) && a.GetPath() == "" && !isCopy(a) {
		return a.GetOwner()
	}
	return ""
}

// idIn is the id of a workspace among those of a tenant. Machines belong to tenants: what one calls laptop:/src is another folder than what another one calls so, and
// neither waits for a lease of the other, reads its fields, or can tell that it is there. Folders of this machine are the same for all.
func idIn(tenant string, addr *workspace.Address, elsewhere bool) string {
	if tenant == "" || !elsewhere {
		return addr.ID()
	}
	return (&workspace.Address{Canonical: tenant + "\x00" + addr.Canonical}).ID() // no address has a zero in it
}

// folderOf is what a session is found by, and whose project it belongs to: of a copy, what that was made of.
func folderOf(first *messages.WorkspaceAttached) (address, path string) {
	switch {
	case first.GetKind() == string(workspace.KindServer):
		return "", ""
	case isCopy(first):
		return first.GetSource(), first.GetProjectDir()
	}
	return first.GetUri(), first.GetPath()
}
