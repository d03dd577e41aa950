package actors

import (
	"cmp"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// HomeName is the name of a session's own server workspace.
const HomeName = "home"

// planFacts decides about the calls of one answer: what each is, where it goes and whether it
// may run. Refused ones are finished in the same append. Of those with effects, the first of
// each workspace that needs no preparation is dispatched along (S2).
func (w *Worker) planFacts(calls []*messages.ToolCall, from int) []proto.Message {
	var plans, refused, starts []proto.Message
	busy := make(map[string]bool)
	children, left := 0, w.callsLeft()
	more := mailCount{}
	for i, call := range calls {
		p, refusal := w.planCall(call)
		if refusal == nil {
			refusal = w.noHandoff(p, from+len(calls))
		}
		if refusal == nil {
			refusal = w.noMail(call, p, &more)
		}
		if left == 0 {
			refusal = tooManyCalls(p)
		} else if left > 0 {
			left--
		}
		p.Ordinal = uint32(from + i)
		plans = append(plans, p)
		switch {
		case refusal != nil:
			refused = append(refused, refusal)
		case p.GetNeedsApproval():
		case w.delegates(p.GetTool()):
			if children++; from == 0 && children <= w.foreground() {
				starts = append(starts, w.dispatched(p, 1, nil))
			}
		case p.GetEffect() == messages.Effect_PURE || busy[p.GetWorkspace()] || from > 0:
		default:
			busy[p.GetWorkspace()] = true
			if t, err := w.svc.Tools.Lookup(p.GetTool()); err == nil {
				if _, prepares := t.(tools.Preparer); !prepares {
					starts = append(starts, w.dispatched(p, 1, nil))
				}
			}
		}
	}
	return append(append(plans, refused...), starts...)
}

// abandoned plans and closes the calls of an answer that came after its turn was cancelled: none starts.
func (w *Worker) abandoned(calls []*messages.ToolCall) []proto.Message {
	var plans, closed []proto.Message
	for i, call := range calls {
		p, f := w.planCall(call)
		p.Ordinal = uint32(i)
		if f == nil {
			f = refusal(p, messages.ToolFinished_CANCELLED, tools.Errorf(tools.CodeCancelled, neverStarted))
		}
		plans, closed = append(plans, p), append(closed, f)
	}
	return append(plans, closed...)
}

// planCall makes the plan of one call, and its result when it is refused.
func (w *Worker) planCall(call *messages.ToolCall) (*messages.ToolPlanned, *messages.ToolFinished) {
	p := &messages.ToolPlanned{
		CallId: call.GetId(), ExecId: messages.NewID(messages.ExecPrefix), Tool: call.GetName(),
		Effect: messages.Effect_AT_MOST_ONCE, GrantRevision: w.grant.GetRevision(),
	}
	tool, err := w.svc.Tools.Lookup(call.GetName())
	if err != nil {
		return p, refusal(p, messages.ToolFinished_ERROR, asToolError(err))
	}
	spec := tool.Spec()
	p.Unknown = w.unknownOutcome(spec, policy.Question{})
	if spec.Effect != messages.Effect_UNSPECIFIED {
		p.Effect = spec.Effect
	}
	p.TimeoutMs = tools.DefaultTimeout.Milliseconds()
	if spec.Timeout > 0 {
		p.TimeoutMs = spec.Timeout.Milliseconds()
	}
	if most := w.svc.ToolTimes[call.GetName()]; most > 0 {
		p.TimeoutMs = most.Milliseconds()
	}
	raw := json.RawMessage(call.GetArguments())
	args, hash, err := tools.Check(spec, raw)
	if err != nil {
		return p, refusal(p, messages.ToolFinished_BAD_ARGS, asToolError(err))
	}
	p.ArgsHash = hash[:]
	g, unrouted := route(w.grant.GetWorkspaces(), w.lost, spec, text(args, "workspace_id"))
	if unrouted != nil {
		return p, refusal(p, messages.ToolFinished_ERROR, unrouted)
	}
	if w.delegates(spec.Name) { // its child takes its time, and works in the workspaces itself
		p.TimeoutMs, g = 0, nil
		if why := w.noDelegation(); why != "" {
			return p, refusal(p, messages.ToolFinished_DENIED, tools.Errorf(tools.CodePermissionDenied, "%s", why))
		}
	}
	p.Workspace = g.GetUri()
	q, v := w.verdict(spec, g, args)
	p.Unknown = w.unknownOutcome(spec, q)
	p.DecidedBy = v.Reason
	if v.Action == policy.Deny {
		return p, refusal(p, messages.ToolFinished_DENIED, denied(v))
	}
	p.NeedsApproval = v.Action == policy.Ask
	return p, nil
}

// unknownOutcome is what becomes of the call if a crash leaves unknown whether it ran: as the rules say, else the
// configuration of the tool, else the agent, else the tool itself. It is journaled with the plan, so that what is
// configured later changes no call that was planned.
func (w *Worker) unknownOutcome(spec *tools.Spec, q policy.Question) messages.UnknownOutcome_Policy {
	said := [...]policy.Unknown{policy.UnknownFor(q), w.svc.Unknown[spec.Name], ""}
	if a, ok := w.svc.agent(w.state.Agent()); ok {
		said[2] = a.Unknown
	}
	for _, u := range said {
		if o, ok := u.Outcome(); ok {
			return o
		}
	}
	return spec.Unknown
}

func refusal(p *messages.ToolPlanned, status messages.ToolFinished_Status, e *tools.Error) *messages.ToolFinished {
	return &messages.ToolFinished{
		ExecId: p.GetExecId(), CallId: p.GetCallId(), Tool: p.GetTool(), Status: status, Content: e.Message,
		ErrorCode: e.Code, DetailsJson: asJSON(e.Details),
	}
}

func asToolError(err error) *tools.Error {
	if te, ok := err.(*tools.Error); ok { //nolint:errorlint // Decode returns it bare, or a defect
		return te
	}
	return tools.Errorf(tools.CodeInternalError, "Unexpected error: %v", err)
}

func text(args map[string]any, name string) string {
	s, _ := args[name].(string)
	return s
}

// question is what the policy is asked about a call of who acts in a role.
func (w *Worker) question(r role, spec *tools.Spec, g *messages.WorkspaceGrant, args map[string]any) policy.Question {
	q := Question(spec, args)
	q.Trust = g.GetTrust()
	if g == nil { // a plain tool goes by the primary's trust
		q.Trust = w.primary().GetTrust()
	}
	q.InToolset = w.inToolset(r, spec.Name, q.Trust)
	remembered, sure := w.remembered(r, w.countsIn(g))
	q.Rules, q.CanAsk = append(w.rules(r), remembered...), w.mayAsk()
	if g != nil && (q.Trust != messages.Trust_FULL || len(q.Rules) > 0) {
		if ws, err := w.svc.folders.handle(g); err == nil {
			ResolvePaths(ws, q.Paths)
		}
	}
	if spec.Name == tools.WriteAccessName && q.Trust != messages.Trust_FULL {
		q.Flag = true // no rule gives away what only a person does
	}
	if network, _ := args["network"].(bool); network && q.Trust != messages.Trust_FULL {
		q.Flag = true // a rule about a command says nothing about the network
	}
	if q.Unseen && (q.Kind == policy.Command || q.Kind == policy.Network) && q.Trust != messages.Trust_FULL {
		q.Flag = true // nor about what else a program's own tool of that name is called with
	}
	if w.program().GetRequiresApproval() {
		q.Flag = true
	}
	if !sure && !q.NeverAsks {
		q.Flag = true // a rule that cannot be read may be one that denies
	}
	return q
}

// mayAsk says whether anybody can be asked: as who sent the turn's newest input says, else as the session was made.
func (w *Worker) mayAsk() bool {
	can := w.canAsk
	if t := w.state.Turn(); t != nil {
		for _, in := range t.Inputs {
			switch in.GetPeople() {
			case messages.InputAccepted_ASKED:
				can = true
			case messages.InputAccepted_NOBODY:
				can = false
			case messages.InputAccepted_AS_SESSION:
			}
		}
	}
	return can
}

// denied is the refusal of a call by the policy.
func denied(v policy.Verdict) *tools.Error {
	e := tools.Errorf(tools.CodePermissionDenied, "Access denied: %s", v.Reason)
	if v.Decision != "" {
		e = e.With("decision", v.Decision)
	}
	return e
}

// Question describes a call to the policy by its decoded arguments; trust, toolset and rules are the
// asker's to add. A lone call (`troupe tool run`) is put to the policy in the same words.
func Question(spec *tools.Spec, args map[string]any) policy.Question {
	q := policy.Question{Tool: spec.Name, Effect: spec.Effect, Kind: policy.Plain}
	for _, name := range []string{"path", "source", "destination", "cwd"} {
		if p, ok := args[name].(string); ok {
			if !climbs(p) { // what holds `..` stays as it is: cleaned as text, it would skip a link
				p = path.Clean(p)
			}
			q.Paths = append(q.Paths, p)
		}
	}
	recursive, _ := args["recursive"].(bool)
	background, _ := args["background"].(bool)
	if spec.Server != "" { // what it touches is the server's affair, and its word that it only reads allows nothing
		q.Paths, q.Unseen = nil, len(args) > 0
		return q
	}
	if spec.Description == handoffDoc || spec.Description == sendDoc { // a program may have others of these names. The agent's profile says to whom
		q.NeverAsks, q.Unseen = true, len(args) > 0
		return q
	}
	name := spec.Name
	if !spec.Builtin() { // what is known of a built-in tool is not known of another one of its name
		switch name {
		case "exec", "fetch": // rules about them are about a command and a host: they say nothing of what else there is
			known := map[string]bool{"command": name == "exec", "url": name == "fetch", "workspace_id": true}
			for arg := range args {
				q.Unseen = q.Unseen || !known[arg]
			}
		default:
			name = ""
		}
	}
	switch name {
	case "exec":
		q.Kind, q.Command, q.Background = policy.Command, text(args, "command"), background
	case "fetch":
		q.Kind = policy.Network
		if u, err := url.Parse(text(args, "url")); err == nil {
			q.Host = u.Hostname()
		}
	case "todo", "update_workspace", "job_output", "job_list", "job_kill": // the last three are about what was decided on before
		q.NeverAsks = true
	case "git_commit":
		q.Kind, q.Deep, q.Paths = policy.Edit, true, []string{"."}
	case "grep", "glob", "list_files", "git_status", "git_diff", "git_log":
		q.Kind, q.Deep = policy.Read, true
		if len(q.Paths) == 0 {
			q.Paths = []string{"."}
		}
	case "move_file":
		q.Kind, q.Deep = policy.Edit, true
	default:
		q.Deep = recursive
		switch {
		case spec.Effect == messages.Effect_PURE:
			q.Kind = policy.Read
		case len(q.Paths) > 0:
			q.Kind = policy.Edit
		}
	}
	for name := range args {
		q.Unseen = q.Unseen || q.Kind == policy.Plain && name != "workspace_id"
	}
	return q
}

// ResolvePaths replaces paths by what they lead to, links followed: a rule about docs/** must not
// let a link there lead elsewhere. What cannot be resolved stays, for the tool to refuse.
func ResolvePaths(ws *workspace.Workspace, paths []string) {
	for i, p := range paths {
		if climbs(p) {
			if info, err := ws.Stat(p); err == nil {
				paths[i] = info.Path
			}
			continue
		}
		rest := ""
		for at := p; ; at = path.Dir(at) {
			if info, err := ws.Stat(at); err == nil {
				paths[i] = path.Join(info.Path, rest)
				break
			}
			if at == "." || at == "/" {
				break
			}
			rest = path.Join(path.Base(at), rest)
		}
	}
}

// climbs says whether a path goes up somewhere.
func climbs(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

func (w *Worker) rules(r role) []policy.Rule {
	var out []policy.Rule
	agent, _ := w.svc.agent(r.agent)
	own, _, _ := w.state.Rules()
	for _, text := range slices.Concat(own, w.grant.GetRules(), agent.Rules) {
		if r, err := policy.ParseRule(text); err == nil { // refused where the session was made
			out = append(out, r)
		}
	}
	return out
}

// countsIn is the workspace whose remembered rules count for a call: the one that it goes to, or for a plain tool, which
// goes to none, the primary.
func (w *Worker) countsIn(g *messages.WorkspaceGrant) string {
	if g == nil {
		g = w.primary()
	}
	return g.GetUri()
}

// remembered are the rules that answers left behind and that count for a role in a workspace. It is not sure of
// them when one of them, or all that outlast a session, cannot be read.
func (w *Worker) remembered(who role, workspace string) (out []policy.Rule, sure bool) {
	sure = !w.svc.rules.unread.Load()
	take := func(m *messages.RememberedRule) {
		if m.GetWorkspace() != workspace || m.GetAgent() != "" && m.GetAgent() != cmp.Or(who.agent, DefaultAgent) {
			return
		}
		r, err := policy.ParseRule(m.GetRule())
		if err != nil { // it was checked before it was written: by another release
			sure = false
			return
		}
		r.Remembered = true
		out = append(out, r)
	}
	for _, m := range w.grant.GetRemembered() {
		take(m)
	}
	for _, m := range w.svc.rules.now() {
		if m.view.GetTenant() == w.grant.GetTenant() {
			take(m.rule)
		}
	}
	return out, sure
}

// agent is the name of the worker's profile.
func (w *Worker) agent() string { return cmp.Or(w.state.Agent(), DefaultAgent) }

func (w *Worker) primary() *messages.WorkspaceGrant {
	for _, g := range w.grant.GetWorkspaces() {
		if g.GetPrimary() {
			return g
		}
	}
	if all := w.grant.GetWorkspaces(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// inToolset says whether a role has a tool in a workspace of that trust.
func (w *Worker) inToolset(r role, name string, trust messages.Trust_Level) bool {
	own := r.tools
	agent, _ := w.svc.agent(r.agent)
	if t, err := w.svc.Tools.Lookup(name); err == nil && t.Spec().Server != "" {
		return !r.noMCP && slices.Contains(agent.MCP, t.Spec().Server) && (own == nil || slices.Contains(own, name))
	}
	if w.isHandoff(name) { // by its own list alone, whatever else it has
		return len(agent.Handoff) > 0 && (own == nil || slices.Contains(own, name))
	}
	if own == nil {
		own = agent.Tools
	}
	if own != nil {
		return slices.Contains(own, name)
	}
	return trust == messages.Trust_FULL || slices.Contains(tools.Restricted(), name)
}

// toolDefs are the tools offered to the model: those that the primary or an attached workspace has at its trust, and those
// that a rule adds. The list is sorted, so that a provider's prompt cache holds.
func (w *Worker) toolDefs() []model.ToolDef {
	if w.tools != nil {
		return w.tools
	}
	names := w.svc.Tools.Names()
	for _, r := range w.roles() {
		rules := w.rules(r)
		names = slices.DeleteFunc(names, func(name string) bool {
			added := slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Tool == name && r.Action == policy.Allow })
			return !added && !w.usable(r, name) || w.delegates(name) && w.noDelegation() != "" || w.isSend(name) && !w.hasPeers()
		})
	}
	w.tools = w.svc.offer(names)
	if w.isHandoff(HandoffName) {
		agent, _ := w.svc.agent(w.state.Agent())
		w.tools = w.svc.withTargets(agent, w.tools)
	}
	return w.tools
}

// usable says whether a call of a tool could run somewhere. The session's own workspace adds none to those of a folder.
func (w *Worker) usable(r role, name string) bool {
	t, err := w.svc.Tools.Lookup(name)
	if err != nil {
		return false
	}
	if t.Spec().NoWorkspace {
		return w.inToolset(r, name, w.primary().GetTrust())
	}
	return slices.ContainsFunc(w.grant.GetWorkspaces(), func(g *messages.WorkspaceGrant) bool {
		home := g.GetName() == HomeName && !g.GetPrimary()
		moot := name == tools.WriteAccessName && g.GetTrust() == messages.Trust_FULL
		return !home && !moot && offers(g, name) && w.inToolset(r, name, g.GetTrust())
	})
}

// readsOnly says whether the whole toolset is PURE: such a worker shares its lease.
func (w *Worker) readsOnly() bool {
	for _, d := range w.toolDefs() {
		if t, err := w.svc.Tools.Lookup(d.Name); err == nil && t.Spec().Effect != messages.Effect_PURE && !w.isSend(d.Name) {
			return false
		}
	}
	return true
}

// systemPrompt is the agent's own prompt and the list of workspaces (row 72). It is rendered
// again with every grant.
func (w *Worker) systemPrompt() string {
	if w.system != "" {
		return w.system
	}
	var b strings.Builder
	b.Grow(len(w.state.System()) + 512) // of which two workspaces take half
	b.WriteString(w.state.System())
	b.WriteString("\n\n# Workspaces\n")
	for _, g := range w.grant.GetWorkspaces() {
		for _, s := range [...]string{"- ", g.GetName(), ": ", known(g), " (", g.GetKind(), ", ", strings.ToLower(g.GetTrust().String())} {
			b.WriteString(s)
		}
		if g.GetPrimary() {
			b.WriteString(", primary")
		}
		b.WriteString(")")
		switch {
		case g.GetCommit() != "":
			b.WriteString(", a clone at commit " + g.GetCommit())
		case g.GetSource() != "":
			b.WriteString(", a copy of your own")
		}
		if there := w.toolsIn(g); there != "" {
			b.WriteString(", tools: " + there)
		}
		b.WriteString("\n")
	}
	b.WriteString("Calls go to the primary workspace unless `workspace_id` names another. Paths are relative to its root.\n")
	switch {
	case w.state.Background():
		b.WriteString(backgroundPrompt)
	case w.state.Parent() != "":
		b.WriteString(childPrompt)
	}
	w.system = b.String()
	return w.system
}
