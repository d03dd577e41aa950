package actors

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// role is in whose name something is decided: with the rules, the tools and the limits of which agent.
type role struct {
	agent string
	tools []string // nil: the agent's own
	noMCP bool
}

// roles are the worker's own and those that it is held to: of a child its parent's, and what it was reduced to before it was handed over.
// What it may do, all of them may.
func (w *Worker) roles() iter.Seq2[int, role] {
	return func(yield func(int, role) bool) {
		if !yield(0, w.role()) {
			return
		}
		for i, b := range w.state.Bounds() {
			if !yield(1+i, role{b.GetAgent(), b.GetTools(), b.GetNoMcp()}) {
				return
			}
		}
	}
}

// role is the worker's own.
func (w *Worker) role() role { return role{w.state.Agent(), w.state.Tools(), w.state.NoMCP()} }

// verdict decides on a call: a child is allowed what it may itself and its parent might, and asks where one of them would.
func (w *Worker) verdict(spec *tools.Spec, g *messages.WorkspaceGrant, args map[string]any) (policy.Question, policy.Verdict) {
	var question policy.Question
	var verdict policy.Verdict
	rank := map[policy.Action]int{policy.Allow: 0, policy.Ask: 1, policy.Deny: 2}
	for i, r := range w.roles() {
		q := w.question(r, spec, g, args)
		switch v := policy.Decide(q); {
		case i == 0:
			question, verdict = q, v
		case rank[v.Action] > rank[verdict.Action]:
			v.Reason += ", for " + w.whose(i)
			question, verdict = q, v
		}
	}
	return question, verdict
}

// whose says, for people, in whose name a role is that is not the worker's own.
func (w *Worker) whose(role int) string {
	if role == 1 && w.state.Parent() != "" {
		return "the agent that delegated"
	}
	if w.state.Parent() != "" {
		return "what the agent that delegated has become, or the worker was reduced to before it was handed over"
	}
	return "what the worker was reduced to before it was handed over"
}

// delegates says whether a tool is the one by which agents delegate.
func (w *Worker) delegates(tool string) bool {
	t, err := w.svc.Tools.Lookup(tool)
	if err != nil {
		return false
	}
	_, ok := t.(*Delegate)
	return ok
}

// noDelegation says why the worker cannot delegate; "" when it can.
func (w *Worker) noDelegation() string {
	switch {
	case w.state.Parent() != "":
		return onlyOneLevel
	case w.svc.Limits.Children < 1:
		return "Access denied: agents do not delegate here (limits.children is 0); do it with your own tools"
	}
	return ""
}

// isSend says whether a tool is the one by which agents write to each other: a program may have another one of that name.
func (w *Worker) isSend(tool string) bool {
	t, err := w.svc.Tools.Lookup(tool)
	if err != nil {
		return false
	}
	_, ok := t.(*Send)
	return ok
}

// hasPeers says whether there is anybody whom the worker could write to: who delegated to it, its own children in the background, who wrote to
// it. An agent whose toolset names send may always.
func (w *Worker) hasPeers() bool {
	agent, _ := w.svc.agent(w.state.Agent())
	return w.state.Background() || len(w.state.Children()) > 0 || w.state.Unasked() > 0 ||
		slices.Contains(w.state.Tools(), SendName) || slices.Contains(agent.Tools, SendName)
}

// foreground is how many agents may work for the worker while it waits: those in the background are of the same number.
func (w *Worker) foreground() int {
	return max(w.childLimit()-len(w.state.Children()), min(w.childLimit(), 1))
}

// inBackground says whether a call that delegates waits for nobody.
func inBackground(arguments string) bool {
	var a delegateArgs
	return json.Unmarshal([]byte(arguments), &a) == nil && a.Background
}

// heard says whether a call's child has told already what became of its task: faster than the call could end.
func (w *Worker) heard(exec string) bool {
	_, input := idsOf(exec)
	_, _, known := w.state.TurnOf(input)
	return known
}

// spawnedBy is the child in the background that a call has begun.
func spawnedBy(f *messages.ToolFinished) *messages.ChildSpawned {
	var meta struct {
		Worker string `json:"worker"`
	}
	_ = json.Unmarshal([]byte(f.GetMetaJson()), &meta) // the call's own
	return &messages.ChildSpawned{WorkerId: cmp.Or(meta.Worker, childOf(f.GetExecId())), ExecId: f.GetExecId(), Background: true}
}

// delegation is what the Session is to make of a call that delegates. The child gets what this turn works in, or the one of it
// that was named.
func (w *Worker) delegation(call *conversation.Call) *messages.SpawnChild {
	var a delegateArgs
	_ = json.Unmarshal([]byte(call.Arguments), &a) // checked when it was planned, and again before it is run
	m := &messages.SpawnChild{
		Agent: a.Agent, Background: a.Background, Bounds: &messages.Bounds{Agent: w.agent(), Tools: w.state.Tools(), NoMcp: w.state.NoMCP(), Also: w.state.Bounds()},
	}
	if m.People = messages.InputAccepted_NOBODY; w.mayAsk() {
		m.People = messages.InputAccepted_ASKED
	}
	profile, _ := w.svc.agent(a.Agent)
	m.Model = cmp.Or(profile.Model, w.state.Model())
	if a.Agent == "" {
		m.Agent, m.Model, m.System = w.agent(), w.state.Model(), w.state.System()
	}
	only := named(w.grant.GetWorkspaces(), a.Workspace).GetUri()
	for _, g := range w.grant.GetWorkspaces() {
		if a.Workspace == "" || g.GetUri() == only { // one that was detached since leaves none
			m.Places = append(m.Places, &messages.Place{Workspace: g.GetUri(), Primary: g.GetPrimary() || a.Workspace != ""})
		}
	}
	return m
}

// mustEnd says whether a call may have begun a child that has to be ended before the call is (I13).
func (w *Worker) mustEnd(call *conversation.Call) bool {
	return call.Open() && call.Dispatched != nil && !call.Settled() && !w.running[call.Plan.GetExecId()] && w.delegates(call.Name)
}

// abandon ends the child of a call that goes no further. It is true when something is to be waited for.
func (w *Worker) abandon(c actor.Context, calls []*conversation.Call) bool {
	any := false
	for _, call := range calls {
		if w.mustEnd(call) {
			delete(w.decided, call.Plan.GetExecId())
			w.become((*Worker).usingTools, stateUsingTool)
			w.execute(c, call, &messages.Execute{Abandon: true})
			any = true
		}
	}
	return any
}

// endJobs ends what a child has left running: nobody would look at it any more.
func (w *Worker) endJobs() {
	for _, g := range w.grant.GetWorkspaces() {
		w.svc.folders.endIn(w.id, g.GetUri(), "the agent that it was delegated to was done")
	}
}
