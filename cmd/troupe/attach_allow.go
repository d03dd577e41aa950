package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// allow has the last word on a call: by this machine's rules and the trust in the folder, and by who sits at the terminal.
func (s *sharing) allow(ctx context.Context, m *messages.Execute, ws *workspace.Workspace) error {
	registry, err := tools.NewRegistry(tools.Builtin()...)
	if err != nil {
		return err
	}
	tool, err := registry.Lookup(m.GetTool())
	if err != nil {
		return err
	}
	spec := tool.Spec()
	var args map[string]any
	if err := tools.Decode(spec, json.RawMessage(m.GetArguments()), &args); err != nil {
		return err
	}
	denied := func(why string) *tools.Error {
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: %s", why)
	}
	if s.loaded.Config.Tools[spec.Name].Disabled {
		return denied("the tool is disabled on this machine")
	}
	if spec.Name == "job_output" { // of a command that was allowed here
		return nil
	}
	if spec.NoWorkspace {
		return denied("the tool has nothing to do with the folder that is shared")
	}
	if err := actors.Offered(s.offers, spec, ""); err != nil {
		return err
	}
	if s.f.readOnly && spec.Effect != messages.Effect_PURE {
		return denied("the folder is shared for reading alone")
	}
	v, err := judged(policy.Question{Trust: s.trust, CanAsk: true, Flag: m.GetRequiresApproval()}, spec, ws, args, s.rules, nil)
	switch {
	case err != nil:
		return err
	case v.Action == policy.Allow:
		return nil
	case v.Action == policy.Deny:
		return denied(v.Reason)
	case s.person.was(m):
		return nil
	case !s.a.canAsk():
		return denied(v.Reason+", and nobody can be asked on this machine").With("decision", policy.NotAsked)
	}
	return s.person.ask(ctx, m, v.Reason)
}

// shows says whether the server may be shown what a call would change here: not where the call is refused anyway, nor of files that may not be read,
// or only when somebody is asked: unless it has read them.
func (s *sharing) shows(_ context.Context, m *messages.Execute, ws *workspace.Workspace) error {
	refused := tools.Errorf(tools.CodePermissionDenied, "Access denied: it is not shown")
	registry, err := tools.NewRegistry(tools.Builtin()...)
	if err != nil {
		return err
	}
	tool, err := registry.Lookup(m.GetTool())
	if err != nil {
		return err
	}
	var args map[string]any
	if err := tools.Decode(tool.Spec(), json.RawMessage(m.GetArguments()), &args); err != nil {
		return err
	}
	if s.f.readOnly || s.loaded.Config.Tools[tool.Spec().Name].Disabled || s.loaded.Config.Tools["read_file"].Disabled {
		return refused
	}
	if actors.Offered(s.offers, tool.Spec(), "") != nil {
		return refused
	}
	question := policy.Question{Trust: s.trust, CanAsk: true}
	if v, err := judged(question, tool.Spec(), ws, args, s.rules, nil); err != nil || v.Action == policy.Deny {
		return refused
	}
	reader, err := registry.Lookup("read_file")
	if err != nil {
		return err
	}
	if actors.Offered(s.offers, reader.Spec(), "") != nil {
		return refused
	}
	for _, path := range actors.Question(tool.Spec(), args).Paths {
		v, err := judged(question, reader.Spec(), ws, map[string]any{"path": path}, s.rules, nil)
		if err != nil || v.Action == policy.Deny || v.Action == policy.Ask && !knows(tool.Spec().Name) {
			return refused
		}
	}
	return nil
}

// knows says whether a tool works only on files whose content the caller proves to know, by its hash.
func knows(tool string) bool { return tool == "write_file" || tool == "edit_file" }

// person is who sits at the terminal: is asked one question at a time.
type person struct {
	a     *app
	lines lines
	place string // that is shared
	turn  sync.Mutex

	mu       sync.Mutex
	approved map[string]*approvedHere // by approval
}

// approvedHere is a call that was approved here: the first that comes with the approval, in each of its attempts.
type approvedHere struct{ call, exec string }

// was says whether a call was approved here, as it is.
func (p *person) was(m *messages.Execute) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.approved[m.GetApprovalId()]
	if was == nil || m.GetApprovalId() == "" || m.GetExecId() == "" || was.call != m.GetTool()+" "+m.GetArguments() || was.exec != "" && was.exec != m.GetExecId() {
		return false
	}
	was.exec = m.GetExecId()
	return true
}

// approve answers an approval of the session.
func (p *person) approve(ctx context.Context, v *messages.ApprovalView) *messages.ResolveApproval {
	p.turn.Lock()
	defer p.turn.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	p.a.note("%s", approvalText(v))
	here := v.GetWorkspace() == p.place
	if here { // what runs here is told by what it is, not by what the server says of it
		p.a.note("  on this machine: %s %s", visible(v.GetTool()), visible(v.GetArguments()))
	}
	m := &messages.ResolveApproval{ApprovalId: v.GetApprovalId(), ArgsHash: v.GetArgsHash(), By: "user"}
	m.Decision, m.Message = p.answer(ctx, "Run it? [y: approve; n: reject; c: cancel the turn] ")
	if m.GetDecision() == messages.Decision_UNSPECIFIED {
		return nil
	}
	if m.GetDecision() == messages.Decision_APPROVED && here {
		p.mu.Lock()
		p.approved[v.GetApprovalId()] = &approvedHere{call: v.GetTool() + " " + v.GetArguments()}
		p.mu.Unlock()
	}
	return m
}

// ask is about a call that this machine's policy does not allow by itself.
func (p *person) ask(ctx context.Context, m *messages.Execute, why string) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.a.note("troupe: %s wants to run here (%s):\n  %s", visible(m.GetTool()), visible(why), visible(m.GetArguments()))
	d, message := p.answer(ctx, "Run it on this machine? [y: yes; n: no] ")
	switch {
	case d == messages.Decision_APPROVED:
		return nil
	case ctx.Err() != nil:
		return tools.Errorf(tools.CodeCancelled, "Cancelled before it began")
	}
	text := "Operation rejected by user"
	if message != "" {
		text += ": " + message
	}
	return tools.Errorf(tools.CodeUserRejected, "%s", text).With("decision", "rejected")
}

// answer reads one; unspecified when there is none.
func (p *person) answer(ctx context.Context, prompt string) (messages.Decision_Value, string) {
	for empty := 0; empty < emptyAnswers; {
		line, err := p.lines.next(ctx, p.a, prompt)
		if err != nil {
			p.a.note("\ntroupe: it waits no longer")
			return messages.Decision_UNSPECIFIED, ""
		}
		word, message, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(word) {
		case "y", "yes", "approve":
			return messages.Decision_APPROVED, ""
		case "n", "no", "reject":
			return messages.Decision_REJECTED, strings.TrimSpace(message)
		case "c", "cancel":
			return messages.Decision_CANCELLED, ""
		case "":
			empty++
		}
	}
	return messages.Decision_UNSPECIFIED, ""
}
