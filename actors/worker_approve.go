package actors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// Messages of a worker to itself.
type (
	holdOver    struct{ gen uint64 } // the workspaces were kept long enough for a person
	approvalDue struct{ gen uint64 } // an approval expires
)

// preview has made what a person is to be shown of a call, off the mailbox. A call that works on a file of an earlier
// one waits for that: it is to be shown what it will find there.
func (w *Worker) preview(c actor.Context, open []*conversation.Call, call *conversation.Call) {
	mine := w.paths(call)
	for _, earlier := range open {
		if earlier == call {
			break
		}
		if pure(earlier) || earlier.Plan.GetWorkspace() != call.Plan.GetWorkspace() {
			continue
		}
		if slices.ContainsFunc(w.paths(earlier), func(p string) bool { return slices.Contains(mine, p) }) {
			return
		}
	}
	w.execute(c, call, &messages.Execute{Preview: true})
}

// paths are the files that a call that changes something names.
func (w *Worker) paths(call *conversation.Call) []string {
	t, err := w.svc.Tools.Lookup(call.Name)
	if err != nil || pure(call) {
		return nil
	}
	args, _, err := tools.Check(t.Spec(), json.RawMessage(call.Arguments))
	if err != nil {
		return nil
	}
	q := Question(t.Spec(), args)
	if q.Kind != policy.Edit {
		return nil
	}
	return q.Paths
}

// previewed keeps a preview until those that are made beside it are there, too.
func (w *Worker) previewed(c actor.Context, m *messages.ToolReply) {
	if w.previews == nil {
		w.previews = make(map[string]*messages.ToolReply)
	}
	w.previews[m.GetExecId()] = m
	w.advance(c)
}

// questions writes down what is to be asked, in call order and in one append, once every preview under way is there: from then on
// somebody may answer, and it survives whatever happens here. It is true when it did.
func (w *Worker) questions(c actor.Context) bool {
	if len(w.previews) == 0 {
		return false
	}
	var facts []proto.Message
	for _, call := range w.state.Turn().OpenCalls() {
		exec := call.Plan.GetExecId()
		switch {
		case call.Unasked() && w.running[exec]:
			return false
		case call.Unasked() && w.previews[exec] != nil:
			facts = append(facts, w.requested(call, w.previews[exec]))
		}
	}
	w.previews = nil
	if len(facts) > 0 {
		w.append(c, nil, w.advance, facts...)
	}
	return len(facts) > 0
}

// requested is the question about a call. It waits as long as the worker, the rule that asks, or else the configuration says.
func (w *Worker) requested(call *conversation.Call, m *messages.ToolReply) *messages.ApprovalRequested {
	f := &messages.ApprovalRequested{
		ApprovalId: messages.NewID(messages.ApprovalPrefix), CallId: call.Plan.GetCallId(), ExecId: call.Plan.GetExecId(),
		ArgsHash: tools.ApprovalHash(call.Name, call.Plan.GetArgsHash(), call.Plan.GetWorkspace()),
		Preview:  m.GetDiff(), Kind: m.GetPreviewKind(), Files: m.GetFiles(), Tool: call.Name, AskedAtUnixMs: w.svc.Now().UnixMilli(),
	}
	_, wait, reason := w.state.Rules()
	most := w.svc.Limits.Approval
	if j, err := w.judge(call.Name, call.Arguments); err == nil {
		f.Reason = cmp.Or(reason, j.verdict.Reason)
		f.Rules, f.Unremembered = rememberable(j.question, policy.Allow)
		if r := j.verdict.Rule; r != nil && r.Timeout > 0 {
			most = r.Timeout
		}
	}
	if asked := w.program().GetApprovalMs(); asked > 0 { // who calls a tool may have said so
		most = tighter(most, time.Duration(asked)*time.Millisecond)
	}
	if most = cmp.Or(time.Duration(wait)*time.Millisecond, most); most > 0 {
		f.ExpiresAtUnixMs = f.GetAskedAtUnixMs() + most.Milliseconds()
	}
	return f
}

// program is the input of a turn that is a program's call.
func (w *Worker) program() *messages.InputAccepted {
	if t := w.state.Turn(); t != nil && t.Program() {
		return t.Inputs[0].InputAccepted
	}
	return nil
}

// awaitAnswers waits for people, once nothing else of the turn can go on; while something does, it only watches the
// deadlines. The workspaces are kept for a while: most answers come soon. The time does not count as the turn's.
func (w *Worker) awaitAnswers(c actor.Context) {
	w.tellApprover()
	w.armExpiry(c)
	if len(w.running) > 0 {
		return
	}
	w.wall.Stop()
	w.become((*Worker).asking, stateWaiting)
	if w.svc.Limits.Hold < 0 {
		w.giveBackAll(c)
		return
	}
	w.hold.SetBy(w.svc.Clock, c, w.svc.Limits.Hold, func(gen uint64) any { return &holdOver{gen} })
}

// tellApprover tells the program of each approval once in an activation.
func (w *Worker) tellApprover() {
	if w.svc.Asked == nil {
		return
	}
	t := w.state.Turn()
	for _, call := range t.OpenCalls() {
		if id := call.Requested.GetApprovalId(); call.Pending() && !w.told[id] {
			if w.told == nil {
				w.told = make(map[string]bool)
			}
			w.told[id] = true
			v := call.ApprovalView(w.session, w.id, t.ID, w.state.Agent(), call.Requested)
			v.Parent = w.state.Parent()
			w.svc.aside(func() { w.svc.Asked(v) })
		}
	}
}

// asking waits for the answers to approvals.
func (w *Worker) asking(c actor.Context) {
	if m, ok := c.Message().(*messages.Configure); ok {
		w.regranted(c, m)
		return
	}
	if m, ok := c.Message().(*holdOver); ok {
		if w.hold.Fresh(m.gen) {
			w.hold.Stop()
			w.giveBackAll(c)
		}
		return
	}
	w.common(c)
}

// asksPeople says whether the worker waits for the answers to approvals, and for nothing else.
func (w *Worker) asksPeople() bool {
	return w.state != nil && w.state.Turn() != nil && w.state.Turn().Asking() && len(w.leases.want) == 0
}

// canGoOn says whether anything of the turn can go on without another answer.
func (w *Worker) canGoOn() bool {
	t := w.state.Turn()
	if t == nil || t.Cancelled != nil {
		return true
	}
	open := t.OpenCalls()
	return len(open) == 0 || slices.ContainsFunc(open, func(call *conversation.Call) bool { return !call.Pending() && !call.InDoubt() })
}

// answer writes down what a person says of a call that asks, and goes on by it. The first answer counts. A rule that
// it leaves behind is written first: with the answer in the journal, it is remembered.
func (w *Worker) answer(c actor.Context, m *messages.ResolveApproval) {
	m = w.svc.cleanApproval(m)
	hash, rules, fail := w.edited(m)
	facts, refused := approval(w.state, m, hash, w.svc.Now().UnixMilli())
	if fail == nil && len(facts) > 0 && refused == nil && remembers(m) {
		if fail = w.remember(c, m, rules); fail == nil {
			return
		}
	}
	if fail != nil {
		w.tell(c, c.Sender(), fail)
		return
	}
	w.writeAnswer(c, c.Sender(), m, facts, refused)
}

func (w *Worker) tell(c actor.Context, who *actor.PID, msg any) {
	if who != nil {
		c.Send(who, msg)
	}
}

// writeAnswer writes the facts of an answer down.
func (w *Worker) writeAnswer(c actor.Context, asker *actor.PID, m *messages.ResolveApproval, facts []proto.Message, fail *messages.Failure) {
	switch {
	case len(facts) == 0:
		w.tell(c, asker, fail)
		return
	case fail != nil: // it has expired meanwhile
		w.append(c, asker, func(c actor.Context) {
			w.tell(c, asker, fail)
			w.resolved(c)
		}, facts...)
		return
	case m.GetDecision() == messages.Decision_CANCELLED:
		w.interrupt(c)
		w.append(c, asker, func(c actor.Context) {
			w.tell(c, asker, &messages.Ack{})
			w.settled(c)
		}, w.cancelFacts(author(m.GetBy()), cmp.Or(m.GetMessage(), "cancelled instead of approved"))...)
		return
	}
	w.append(c, asker, func(c actor.Context) {
		w.tell(c, asker, &messages.Ack{})
		w.resolved(c)
	}, facts...)
}

// edited checks arguments that the approver has made, from scratch, and gives the hash that the approval is bound to, and
// what of such a call can be remembered.
func (w *Worker) edited(m *messages.ResolveApproval) ([]byte, []string, *messages.Failure) {
	call := asked(w.state, m.GetApprovalId())
	if call == nil || !call.Pending() {
		return nil, nil, nil // it is refused in any case
	}
	if m.GetArguments() == "" || m.GetDecision() != messages.Decision_APPROVED {
		return nil, call.Requested.GetRules(), nil
	}
	j, err := w.judge(call.Name, m.GetArguments())
	if err != nil {
		return nil, nil, messages.Fail(messages.CodeBadRequest, "the arguments cannot be taken: "+err.Error(), "")
	}
	if j.grant.GetUri() != call.Plan.GetWorkspace() {
		return nil, nil, messages.Fail(messages.CodeBadRequest, "the arguments lead into another workspace than the one that was asked for", "reject the call and say what to do instead")
	}
	if j.verdict.Action == policy.Deny {
		return nil, nil, messages.Fail(messages.CodeBadRequest, "the policy denies the call with these arguments: "+j.verdict.Reason, "")
	}
	rules, _ := rememberable(j.question, policy.Allow)
	return tools.ApprovalHash(call.Name, j.hash, call.Plan.GetWorkspace()), rules, nil
}

// judged is a call as the policy sees it.
type judged struct {
	grant    *messages.WorkspaceGrant
	question policy.Question
	verdict  policy.Verdict
	hash     []byte // of the arguments in their canonical form
}

// judge reads a call's arguments, finds its workspace, and puts the question to the policy.
func (w *Worker) judge(name, arguments string) (*judged, error) {
	tool, err := w.svc.Tools.Lookup(name)
	if err != nil {
		return nil, err
	}
	args, hash, err := tools.Check(tool.Spec(), json.RawMessage(arguments))
	if err != nil {
		return nil, err
	}
	g, unrouted := route(w.grant.GetWorkspaces(), w.lost, tool.Spec(), text(args, "workspace_id"))
	if unrouted != nil {
		return nil, unrouted
	}
	if w.delegates(name) {
		g = nil
	}
	q, v := w.verdict(tool.Spec(), g, args)
	return &judged{grant: g, question: q, verdict: v, hash: hash[:]}, nil
}

// approval checks an answer against the facts, and says what is to be written. edited is the hash of the approver's own
// arguments, nil when there are none. With facts and a failure both, the approval has expired.
func approval(s *conversation.State, m *messages.ResolveApproval, edited []byte, nowMs int64) ([]proto.Message, *messages.Failure) {
	call := asked(s, m.GetApprovalId())
	switch {
	case call == nil:
		return nil, NotAsked(m.GetApprovalId())
	case !call.Pending():
		return nil, AlreadyAnswered(m.GetApprovalId(), conversation.DecisionName(call.Resolved.GetDecision()))
	case expired(call, nowMs):
		return expiredFacts(call), AlreadyAnswered(m.GetApprovalId(), conversation.DecisionName(messages.Decision_EXPIRED))
	case len(m.GetArgsHash()) > 0 && !bytes.Equal(m.GetArgsHash(), call.Requested.GetArgsHash()):
		return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("approval %s is about another call than the one that was shown", m.GetApprovalId()), "look at it again")
	}
	if fail := badScope(m); fail != nil {
		return nil, fail
	}
	f := &messages.ApprovalResolved{
		ApprovalId: m.GetApprovalId(), ExecId: call.Plan.GetExecId(), Decision: m.GetDecision(), By: cmp.Or(m.GetBy(), "user"),
		Message: m.GetMessage(), Scope: cmp.Or(m.GetScope(), scopeOnce), Rule: m.GetRule(), RuleId: m.GetRuleId(),
	}
	switch f.GetDecision() {
	case messages.Decision_APPROVED:
		f.ArgsHash = call.Requested.GetArgsHash()
		if edited != nil {
			f.ArgsHash, f.ModifiedArgs = edited, m.GetArguments()
		}
		return []proto.Message{f}, nil
	case messages.Decision_REJECTED:
		f.ArgsHash = call.Requested.GetArgsHash()
		return []proto.Message{f, conversation.RefusalOf(call, f)}, nil
	case messages.Decision_CANCELLED:
		facts := []proto.Message{&messages.CancelRequested{By: author(m.GetBy()), Reason: cmp.Or(m.GetMessage(), "cancelled instead of approved")}}
		for _, other := range s.Turn().OpenCalls() {
			facts = append(facts, unanswered(other, author(m.GetBy()))...)
		}
		return facts, nil
	case messages.Decision_UNSPECIFIED, messages.Decision_EXPIRED, messages.Decision_NOT_ASKED:
	}
	return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("there is no such answer: %v", m.GetDecision()), "one of approved, rejected, cancelled")
}

// unanswered closes a call whose approval nobody will answer any more, or whose answer was no; nil for any other call.
func unanswered(call *conversation.Call, by string) []proto.Message {
	switch {
	case call.Refused():
		return []proto.Message{conversation.RefusalOf(call, call.Resolved)}
	case call.Pending():
		f := &messages.ApprovalResolved{
			ApprovalId: call.Requested.GetApprovalId(), ExecId: call.Plan.GetExecId(), Decision: messages.Decision_CANCELLED, By: by,
			ArgsHash: call.Requested.GetArgsHash(),
		}
		return []proto.Message{f, conversation.RefusalOf(call, f)}
	}
	return nil
}

// asked finds the call of an approval, in the open turn or in the newest completed one.
func asked(s *conversation.State, approvalID string) *conversation.Call {
	for _, t := range []*conversation.Turn{s.Turn(), s.Last()} {
		if t != nil {
			if call := t.Asked(approvalID); call != nil {
				return call
			}
		}
	}
	return nil
}

func expired(call *conversation.Call, nowMs int64) bool {
	at := call.Requested.GetExpiresAtUnixMs()
	return at > 0 && nowMs >= at
}

// byClock is who answers an approval that has expired.
const byClock = "clock"

func expiredFacts(call *conversation.Call) []proto.Message {
	f := &messages.ApprovalResolved{
		ApprovalId: call.Requested.GetApprovalId(), ExecId: call.Plan.GetExecId(), Decision: messages.Decision_EXPIRED, By: byClock,
		ArgsHash: call.Requested.GetArgsHash(),
	}
	return []proto.Message{f, conversation.RefusalOf(call, f)}
}

// armExpiry sets when the next approval expires.
func (w *Worker) armExpiry(c actor.Context) {
	var first int64
	if t := w.state.Turn(); t != nil {
		for _, call := range t.OpenCalls() {
			if at := call.Requested.GetExpiresAtUnixMs(); call.Pending() && at > 0 && (first == 0 || at < first) {
				first = at
			}
		}
	}
	w.expiry.Stop()
	if first > 0 {
		left := time.UnixMilli(first).Sub(w.svc.Now())
		w.expiry.SetBy(w.svc.Clock, c, max(left, 0), func(gen uint64) any { return &approvalDue{gen} })
	}
}

// approvalDue ends the approvals whose time is up.
func (w *Worker) approvalDue(c actor.Context, m *approvalDue) {
	t := w.state.Turn()
	if !w.expiry.Fresh(m.gen) || t == nil || t.Cancelled != nil || w.failing {
		return
	}
	var facts []proto.Message
	for _, call := range t.OpenCalls() {
		if call.Pending() && expired(call, w.svc.Now().UnixMilli()) {
			facts = append(facts, expiredFacts(call)...)
		}
	}
	if len(facts) == 0 {
		w.armExpiry(c)
		return
	}
	w.append(c, nil, w.resolved, facts...)
}

// pendingApprovals counts the calls that wait for an approval.
func pendingApprovals(s *conversation.State) (n int32) {
	if t := s.Turn(); t != nil {
		for _, call := range t.Calls {
			if call.Pending() {
				n++
			}
		}
	}
	return n
}

// NotAsked is the refusal of an answer to what nobody has asked.
func NotAsked(approvalID string) *messages.Failure {
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no approval %s", approvalID), "`troupe ls approvals` lists those that wait for an answer")
}

// AlreadyAnswered is the refusal of a second answer.
func AlreadyAnswered(approvalID, decision string) *messages.Failure {
	return messages.Fail(messages.CodeResolved, fmt.Sprintf("approval %s was answered already: %s", approvalID, decision), "")
}
