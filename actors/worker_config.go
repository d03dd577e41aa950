package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// reconfigure changes what later generations use.
func (w *Worker) reconfigure(c actor.Context, m *messages.ConfigureWorker) {
	if m.GetAgent() != "" {
		if _, ok := w.svc.agent(m.GetAgent()); !ok {
			c.Respond(messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured", m.GetAgent()), "see `agents:` in the configuration"))
			return
		}
	}
	if m.GetModel() != "" {
		if _, err := w.svc.Models.Resolve(m.GetModel()); err != nil {
			c.Respond(messages.Fail(messages.CodeModel, err.Error(), ""))
			return
		}
	}
	if mcp := m.GetMcp(); mcp != "" && mcp != "on" && mcp != "off" {
		c.Respond(messages.Fail(messages.CodeBadRequest, fmt.Sprintf("mcp: %q is neither on nor off", mcp), ""))
		return
	}
	if fail := w.svc.checkToolset(m.GetTools()); fail != nil {
		c.Respond(fail)
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		w.system, w.tools = "", nil
		if len(m.GetTools()) > 0 || m.GetMcp() != "" || m.GetAgent() != "" {
			w.narrowChildren(c, asker)
		} else {
			c.Send(asker, w.view())
		}
		w.reequipped(c)
	}, &messages.ConfigChanged{
		Agent: m.GetAgent(), Model: m.GetModel(), Tools: slices.Compact(slices.Sorted(slices.Values(m.GetTools()))), Mcp: m.GetMcp(),
		System: w.svc.Redact.String(m.GetSystem()), By: m.GetBy(),
	})
}

// narrowChildren tells those that the worker has delegated to, by way of its session, what it may do from now on. Whoever changed that is answered
// when they have written it down: no call of theirs is planned or begun after that with what was taken (ADR 81).
func (w *Worker) narrowChildren(c actor.Context, asker *actor.PID) {
	if w.state.Parent() != "" || w.svc.Limits.Children < 1 {
		if asker != nil {
			c.Send(asker, w.view())
		}
		return
	}
	change := &equips{w.id, w.equipped()}
	if asker == nil {
		c.Send(c.Parent(), change)
		return
	}
	view := w.view()
	told := act.Asked[*messages.Ack](c.ActorSystem(), c.Parent(), change)
	w.svc.spawn(c.ActorSystem(), asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		ctx, cancel := context.WithTimeout(context.Background(), 2*toldWait)
		defer cancel()
		if _, err := told(ctx); err != nil && !errors.Is(err, act.ErrGone) { // a session that ends tells them when it is back
			return asFailure(err)
		}
		return view
	})
}

// narrowSleepers tells them again when the worker comes into memory: those that were out of it, or cut off, when a tool was taken have not written that down.
func (w *Worker) narrowSleepers(c actor.Context) {
	agent, _ := w.svc.agent(w.state.Agent())
	if w.state.Tools() != nil || w.state.NoMCP() || agent.Tools != nil || w.state.Agent() != w.state.FirstAgent() {
		w.narrowChildren(c, nil)
	}
}

// equipment is what a worker leaves those that it delegates to at most. It is never changed, and shared.
type equipment struct {
	tools []string
	agent string
}

// equips is a worker's word to its session of what it has.
type equips struct {
	worker string
	with   *equipment
}

// equipped is the worker's equipment. Without rules or a toolset of its own it is that of all workers of its agent.
func (w *Worker) equipped() *equipment {
	own := w.role()
	common := own.tools == nil && !own.noMCP && !w.ruled(own)
	if common {
		if e, ok := w.svc.equipments.Load(own.agent); ok {
			return e.(*equipment) //nolint:forcetypeassert // only this function stores
		}
	}
	e := &equipment{w.equipment(), w.agent()}
	if common {
		w.svc.equipments.Store(own.agent, e)
	}
	return e
}

// ruled says whether rules count for a role that were written down, of the worker, its session or the agent.
func (w *Worker) ruled(r role) bool {
	agent, _ := w.svc.agent(r.agent)
	own, _, _ := w.state.Rules()
	return len(own)+len(w.grant.GetRules())+len(agent.Rules) > 0
}

// equipment names the tools that the worker's toolset has, wherever it works, and those that a rule adds.
func (w *Worker) equipment() []string {
	own := w.role()
	rules := w.rules(own)
	return slices.DeleteFunc(w.svc.Tools.Names(), func(name string) bool {
		return !w.inToolset(own, name, messages.Trust_FULL) && !slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Tool == name && r.Action == policy.Allow })
	})
}

// narrow leaves a child those of its tools that its parent has still, and holds it to the rules of what that has become. It is written down,
// so that it holds for good; a tool of the parent's may have gone since, and is not looked for. Where trust alone says what it has, it is left what
// that gives it now: a list holds in every workspace.
func (w *Worker) narrow(c actor.Context, m *messages.NarrowChild) {
	change := &messages.ConfigChanged{Tools: w.leftOf(m.GetTools()), By: w.state.Parent()}
	if b := m.GetBounds(); b != nil && !slices.ContainsFunc(w.state.Bounds(), func(o *messages.Bounds) bool {
		return cmp.Or(o.GetAgent(), DefaultAgent) == cmp.Or(b.GetAgent(), DefaultAgent)
	}) {
		change.Bounds = b
	}
	if len(change.GetTools()) == 0 && change.GetBounds() == nil {
		w.acknowledge(c)
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		w.system, w.tools = "", nil
		if asker != nil {
			c.Send(asker, &messages.Ack{})
		}
		w.reequipped(c)
	}, change)
}

// leftOf are the tools that a child is left when its parent has some; nil: those that it has.
func (w *Worker) leftOf(parents []string) []string {
	has := w.equipment()
	left := slices.DeleteFunc(slices.Clone(has), func(name string) bool { return name != DelegateName && !slices.Contains(parents, name) })
	if len(left) == len(has) {
		return nil
	}
	if agent, _ := w.svc.agent(w.state.Agent()); w.state.Tools() == nil && agent.Tools == nil {
		offered := w.toolDefs()
		left = slices.DeleteFunc(left, func(name string) bool {
			return !slices.ContainsFunc(offered, func(d model.ToolDef) bool { return d.Name == name })
		})
	}
	if len(left) == 0 { // which a child cannot use
		left = []string{DelegateName}
	}
	slices.Sort(left)
	return left
}

// checkToolset refuses names of tools that there are not.
func (s *Services) checkToolset(names []string) *messages.Failure {
	if len(names) == 1 && names[0] == conversation.AgentsTools {
		return nil
	}
	for _, name := range names {
		if _, err := s.Tools.Lookup(name); err != nil {
			return messages.Fail(messages.CodeBadRequest, asToolError(err).Message, "`troupe tool ls` lists them; "+conversation.AgentsTools+" alone stands for the agent's own")
		}
	}
	return nil
}

// reequipped answers what was planned and may not run with what the worker is now.
func (w *Worker) reequipped(c actor.Context) {
	w.anew = true
	t := w.state.Turn()
	if t != nil && t.Cancelled != nil || w.failing {
		return
	}
	if t != nil {
		if facts := w.deprived(t.OpenCalls()); len(facts) > 0 {
			w.append(c, nil, w.resolved, facts...)
			return
		}
	}
	w.askAnew(c)
}

// askAnew asks once more for what the next call may cost, when that was asked for with another model, or other tools, than it is made with (I15): what
// was granted may be too little, and what is waited for too much.
func (w *Worker) askAnew(c actor.Context) {
	p := &w.purse
	if !p.asking && p.granted == nil {
		return
	}
	away := p.pause.away
	w.unpause(c)
	w.returnBudget(c)
	switch {
	case away: // its workspaces were given back
		w.lease(c, w.goOn)
	case w.compacting != nil:
		w.summarise(c)
	default:
		w.advance(c)
	}
}

// toolsetChange is who answers an approval of a call that may not run any more.
const toolsetChange = "toolset"

// deprived answers the calls that wait and may not run any more. What was dispatched has perhaps begun: it goes on.
func (w *Worker) deprived(open []*conversation.Call) []proto.Message {
	var facts []proto.Message
	anew := w.anew
	w.anew = false
	for _, call := range open {
		if w.running[call.Plan.GetExecId()] || call.Dispatched != nil || call.InDoubt() || call.Settled() || call.Refused() {
			continue
		}
		why := ""
		switch {
		case w.isDeprived(call):
			why = "the tool " + call.Name + " was taken from the toolset while the call waited"
		case anew:
			why = w.barredSince(call)
		}
		if why == "" {
			continue
		}
		if call.Pending() {
			facts = append(facts, &messages.ApprovalResolved{
				ApprovalId: call.Requested.GetApprovalId(), ExecId: call.Plan.GetExecId(), Decision: messages.Decision_CANCELLED, By: toolsetChange,
				ArgsHash: call.Requested.GetArgsHash(),
			})
		}
		facts = append(facts, refusal(call.Plan, messages.ToolFinished_DENIED, tools.Errorf(tools.CodePermissionDenied, "Not run: %s", why)))
	}
	return facts
}

// isDeprived says whether a call is one of a tool that the worker has no longer. Without a toolset of its
// own it has what it was planned with.
func (w *Worker) isDeprived(call *conversation.Call) bool {
	if w.state.Tools() == nil {
		return false
	}
	own := w.role()
	added := slices.ContainsFunc(w.rules(own), func(r policy.Rule) bool { return r.Tool == call.Name && r.Action == policy.Allow })
	return !added && !w.inToolset(own, call.Name, messages.Trust_FULL)
}

// barredSince says why a call that was planned may not run, as things stand now; "" when it may. What was allowed and would be asked about
// now is for the model to call again; what a person was or is asked about may be denied since. A workspace that it has lost is seen to elsewhere.
func (w *Worker) barredSince(call *conversation.Call) string {
	tool, err := w.svc.Tools.Lookup(call.Name)
	if err != nil {
		return ""
	}
	args, _, err := tools.Check(tool.Spec(), json.RawMessage(call.Arguments))
	if err != nil {
		return ""
	}
	var g *messages.WorkspaceGrant
	if uri := call.Plan.GetWorkspace(); uri != "" {
		if g = named(w.grant.GetWorkspaces(), uri); g == nil {
			return ""
		}
	}
	_, v := w.verdict(tool.Spec(), g, args)
	asked := call.Plan.GetNeedsApproval() || call.Requested != nil || call.Resolved != nil
	switch {
	case v.Action == policy.Allow:
	case v.Action == policy.Deny && v.Decision == "":
		return v.Reason + ", since the call was planned"
	case !asked:
		return v.Reason + ", since the call was planned; call it again"
	}
	return ""
}
