package actors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// How workers write to each other (ADR 74). A message stands in its sender's journal, in the append that decides on it. From there it is sent,
// again and again, until its receiver's acceptance is durable, and then that is written down. The receiver knows it by its id.

// mailing is what is on its way: to each receiver one message, so that they arrive in order.
type mailing struct {
	flying map[string]*flight // by receiver
	tries  int                // that failed, since one did not
	retry  act.Timer
}

type flight struct {
	message string // its id
	cancel  context.CancelFunc
	failed  bool // it is tried again after a pause
	barred  bool // its receiver is quarantined
	freed   bool // and was released after it was sent: it is tried again, whatever comes back
}

// mailCount is what an answer asks for, of what is bounded.
type mailCount struct{ sends, children int }

// Results of the goroutine that delivers a message, the end of the pause after one that failed, and the Session's word that a receiver is no longer
// quarantined.
type (
	posted struct {
		flight *flight
		mail   *messages.OutboxEnqueued
		err    error
	}
	postDue struct{ gen uint64 }
	wayFree struct{ to string } // a worker was released
)

// Bounds of messages between workers.
const (
	maxAnswered = 32 << 10 // bytes of a child's answer that go into the message
	postPause   = 100 * time.Millisecond
	postWait    = time.Minute
)

// idsOf are the ids of the message that a call brings with it, and of the input that it becomes.
func idsOf(exec string) (message, input string) {
	id := strings.TrimPrefix(exec, messages.ExecPrefix)
	return "msg_" + id, messages.InputPrefix + id
}

func (w *Worker) aboutMail(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.DeliverMail:
		w.takeMail(c, m)
	case *posted:
		w.posted(c, m)
	case *postDue:
		w.postDue(c, m)
	case *wayFree:
		w.wayFree(c, m)
	}
}

// post sends what is in the outbox and not on its way.
func (w *Worker) post(c actor.Context) {
	if w.state.Closed() || w.svc.Still && w.closing.asked == nil {
		return
	}
	for _, m := range w.state.Outbox() {
		to := m.GetTo()
		if _, flies := w.mail.flying[to]; flies {
			continue
		}
		if w.mail.flying == nil {
			w.mail.flying = make(map[string]*flight)
		}
		w.deliver(c, m)
	}
}

func (w *Worker) deliver(c actor.Context, m *messages.OutboxEnqueued) {
	sys, session := c.ActorSystem(), c.Parent()
	ctx, cancel := context.WithTimeout(context.Background(), postWait)
	f := &flight{message: m.GetMessageId(), cancel: cancel}
	w.mail.flying[m.GetTo()] = f
	// It is in the Session's mailbox before the worker hears of a cancel: whoever cancels them all finds it there, or at its receiver's.
	arrived := act.Asked[*messages.InputReply](sys, session, &messages.DeliverMail{WorkerId: m.GetTo(), Mail: m})
	w.svc.spawn(sys, c.Self(), func(p *act.Panic) any { return &posted{f, m, p} }, func() any {
		defer cancel()
		_, err := arrived(ctx)
		return &posted{f, m, err}
	})
}

// stopPost lets go of what is on its way: the next incarnation sends it again.
func (w *Worker) stopPost() {
	w.mail.retry.Stop()
	for _, f := range w.mail.flying {
		f.cancel()
	}
}

// posted writes down that a message has arrived, or never will; else it is sent again after a pause.
func (w *Worker) posted(c actor.Context, m *posted) {
	to := m.mail.GetTo()
	flown := w.mail.flying[to]
	if flown != m.flight || w.state.Closed() { // of one that was given up: the same message may be on its way again, as something else
		return
	}
	var f *messages.Failure
	ack := &messages.OutboxAcked{MessageId: m.mail.GetMessageId()}
	switch {
	case m.err == nil:
	case errors.As(m.err, &f) && final(f.GetCode()):
		ack.Refused = f.GetMessage()
	default:
		flown.failed, flown.barred = true, f.GetCode() == messages.CodeQuarantined && !flown.freed
		w.mail.tries++
		pause := min(postPause<<min(w.mail.tries, 10), time.Minute)
		w.mail.retry.SetBy(w.svc.Clock, c, pause, func(gen uint64) any { return &postDue{gen} })
		if w.closing.asked != nil || flown.barred {
			w.mailed(c)
		}
		return
	}
	delete(w.mail.flying, to)
	w.mail.tries = 0
	w.append(c, nil, w.mailed, ack)
}

// final says whether it will be so the next time, too.
func final(code string) bool {
	switch code {
	case messages.CodeNotFound, messages.CodeClosed, messages.CodeBadRequest, messages.CodeConflict:
		return true
	}
	return false
}

// postDue tries again what did not arrive.
func (w *Worker) postDue(c actor.Context, m *postDue) {
	if !w.mail.retry.Fresh(m.gen) {
		return
	}
	w.mail.retry.Stop()
	for to, f := range w.mail.flying {
		if f.failed {
			delete(w.mail.flying, to)
		}
	}
	w.post(c)
}

// wayFree sends again what a quarantine has held up. A sender whose message is barred counts as one that rests, so its session could leave memory, for
// good, before the pause is over.
func (w *Worker) wayFree(c actor.Context, m *wayFree) {
	f := w.mail.flying[m.to]
	if f == nil || w.state.Closed() {
		return
	}
	f.freed, f.barred = true, false
	if f.failed {
		delete(w.mail.flying, m.to)
		w.post(c)
	}
}

// mailed goes on with what waited for the outbox. A worker that is to end goes on with that though inputs wait: they are taken back.
func (w *Worker) mailed(c actor.Context) {
	w.post(c)
	switch {
	case w.state.Turn() != nil || w.compacting != nil:
	case w.closing.asked != nil:
		w.advance(c)
	case !w.leases.busy() && len(w.state.Staged()) == 0 && w.mailRests():
		w.rested(c)
	}
}

// mailRests says whether nothing that is on its way is waited for: it has arrived, or nobody sends it any more, or its receivers are
// quarantined. Who releases those brings the session back to memory, and what stands in the outbox is sent again, or at once by those who are there (wayFree).
func (w *Worker) mailRests() bool {
	if w.svc.Still || w.state.Closed() {
		return true
	}
	for _, m := range w.state.Outbox() {
		if f := w.mail.flying[m.GetTo()]; f == nil || !f.barred {
			return false
		}
	}
	return true
}

// undelivered says whether a worker that is about to end has messages that may arrive still.
func (w *Worker) undelivered() bool {
	for _, m := range w.state.Outbox() {
		if f := w.mail.flying[m.GetTo()]; f == nil || !f.failed {
			return true
		}
	}
	return false
}

// takeMail takes a message of another worker as an input. The same one again is the same input.
func (w *Worker) takeMail(c actor.Context, m *messages.DeliverMail) {
	mail := m.GetMail().GetMail()
	_, input := idsOf(strings.Replace(m.GetMail().GetMessageId(), "msg_", messages.ExecPrefix, 1))
	if mail.GetKind() == messages.Mail_ENDED {
		w.childEnded(c, mail, input)
		return
	}
	if _, _, known := w.state.TurnOf(input); !known && m.GetMail().GetTo() == "" && !w.awaits(mail.GetExecId()) { // it has noted the child's end
		if c.Sender() != nil {
			c.Respond(&messages.InputReply{InputId: input, SessionId: w.session, WorkerId: w.id, Duplicate: true})
		}
		return
	}
	w.accept(c, &messages.InputAccepted{
		InputId: input, Origin: messages.InputAccepted_WORKER, From: mail.GetWorkerId(), Parts: m.GetMail().GetParts(), Mail: mail,
	}, false)
}

// awaits says whether a call's child in the background has told nothing yet, as far as the worker knows.
func (w *Worker) awaits(exec string) bool {
	if t := w.state.Turn(); t != nil {
		if call := t.Call(exec); call != nil && call.Finished == nil {
			return true
		}
	}
	return slices.ContainsFunc(w.state.Children(), func(f *messages.ChildSpawned) bool { return f.GetExecId() == exec })
}

// childEnded takes note of a child that was ended along with what its parent did: nobody need read that.
func (w *Worker) childEnded(c actor.Context, mail *messages.Mail, input string) {
	reply, asker := &messages.InputReply{InputId: input, SessionId: w.session, WorkerId: w.id}, c.Sender()
	for _, child := range w.state.Children() {
		if child.GetWorkerId() == mail.GetWorkerId() && !w.state.Closed() {
			w.append(c, asker, func(c actor.Context) {
				if asker != nil {
					c.Send(asker, reply)
				}
			}, &messages.ChildEnded{WorkerId: mail.GetWorkerId(), Outcome: mail.GetOutcome(), Usage: mail.GetUsage()})
			return
		}
	}
	if asker != nil {
		c.Respond(reply)
	}
}

// sent is the message that a call of send brings with it.
func (w *Worker) sent(f *messages.ToolFinished) *messages.OutboxEnqueued {
	var a sendArgs
	if call := w.state.Turn().Call(f.GetExecId()); call != nil {
		_ = json.Unmarshal([]byte(call.Arguments), &a) // checked by the call
	}
	var meta struct {
		To string `json:"to"`
	}
	_ = json.Unmarshal([]byte(f.GetMetaJson()), &meta) // the call's own
	id, _ := idsOf(f.GetExecId())
	mail := &messages.Mail{MessageId: id, Kind: messages.Mail_MESSAGE, WorkerId: w.id, Agent: w.agent()}
	text := w.svc.Redact.String(a.Text)
	return &messages.OutboxEnqueued{MessageId: id, To: cmp.Or(meta.To, a.To), Mail: mail, Parts: textParts(conversation.MailText(mail, text))}
}

func textParts(text string) []*messages.Part {
	return []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}
}

// result is the message to the parent with which a child in the background ends its task: by the end of its turn, or because it was taken back.
func (w *Worker) result(facts []proto.Message) *messages.OutboxEnqueued {
	if !w.state.Background() {
		return nil
	}
	task, text := w.state.Task(), ""
	if t := w.state.Turn(); t != nil {
		text = t.Text
	}
	for _, fact := range facts {
		switch f := fact.(type) {
		case *messages.GenerationCompleted:
			text = f.GetContent()
		case *messages.TurnCompleted:
			if turn, _, _ := w.state.TurnOf(task); turn == f.GetTurnId() {
				ended := f.GetOutcome() == messages.TurnCompleted_ABORTED && w.state.Turn().Cancelled.GetBy() == byParent
				return w.resultOf(f, text, ended)
			}
		case *messages.InputWithdrawn:
			if f.GetInputId() == task {
				return w.resultOf(&messages.TurnCompleted{Outcome: messages.TurnCompleted_ABORTED, Reason: "the task was taken back before it began"}, "", f.GetBy() == byParent)
			}
		}
	}
	return nil
}

func (w *Worker) resultOf(f *messages.TurnCompleted, text string, ended bool) *messages.OutboxEnqueued {
	text = cutText(strings.TrimSpace(text), maxAnswered)
	switch {
	case f.GetOutcome() == messages.TurnCompleted_DONE && text == "":
		text = "(it ended without a word)"
	case f.GetOutcome() != messages.TurnCompleted_DONE:
		words := text
		if text = strings.TrimSuffix(f.GetReason(), ".") + ". What it did until then stays."; words != "" {
			text += "\nIts last words:\n" + words
		}
	}
	id, _ := idsOf(w.state.ExecID())
	mail := &messages.Mail{
		MessageId: id, Kind: messages.Mail_RESULT, WorkerId: w.id, Agent: w.agent(), ExecId: w.state.ExecID(), Outcome: f.GetOutcome(), Usage: f.GetUsage(),
	}
	if ended {
		mail.Kind = messages.Mail_ENDED
	}
	return &messages.OutboxEnqueued{MessageId: id, To: w.state.Parent(), Mail: mail, Parts: textParts(conversation.MailText(mail, text))}
}

// endChildren ends those who work in the background for the worker: what it was cancelled for is not theirs to finish.
func (w *Worker) endChildren(c actor.Context) {
	for _, child := range w.state.Children() {
		_, task := idsOf(child.GetExecId())
		c.Send(c.Parent(), &messages.RecallInput{WorkerId: child.GetWorkerId(), InputId: task, By: byParent, Reason: "the agent that delegated was cancelled"})
	}
}

// noMail says why a call that writes to others is refused; nil when it is not.
func (w *Worker) noMail(call *messages.ToolCall, p *messages.ToolPlanned, more *mailCount) *messages.ToolFinished {
	background := w.delegates(p.GetTool()) && inBackground(call.GetArguments())
	switch {
	case background:
		more.children++
	case w.isSend(p.GetTool()):
		more.sends++
	default:
		return nil
	}
	if e := w.tooMuchMail(background, *more); e != nil {
		return refusal(p, messages.ToolFinished_DENIED, e)
	}
	return nil
}

func (w *Worker) tooMuchMail(background bool, more mailCount) *tools.Error {
	sends := more.sends
	for _, made := range w.state.Turn().AllCalls {
		if w.isSend(made.Name) {
			sends++
		}
	}
	switch {
	case w.state.Unasked() >= w.svc.Limits.Unasked:
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: %d messages and tasks went to and fro between agents without a person's word; answer with what there is", w.state.Unasked())
	case background && len(w.state.Children())+more.children > w.childLimit():
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: no more than %d agents may work for you in the background; their answers come as messages", w.childLimit())
	case !background && sends > w.svc.Limits.Sends:
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: one turn sends %d messages at most", max(w.svc.Limits.Sends, 0))
	case !background && w.svc.Limits.Outbox <= 0:
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: agents do not write to each other here")
	case !background && len(w.state.Outbox())+more.sends > w.svc.Limits.Outbox:
		return tools.Errorf(tools.CodePermissionDenied, "Access denied: no more than %d messages of yours may be on their way at a time; go on without this one", w.svc.Limits.Outbox)
	}
	return nil
}

// lostResult is what a parent is told of a child in the background that cannot tell it itself.
func lostResult(f *messages.WorkerSpawned, why string) *messages.DeliverMail {
	id, _ := idsOf(f.GetExecId())
	mail := &messages.Mail{MessageId: id, Kind: messages.Mail_RESULT, WorkerId: f.GetWorkerId(), Agent: f.GetAgent(), ExecId: f.GetExecId(), Outcome: messages.TurnCompleted_ERROR}
	return &messages.DeliverMail{WorkerId: f.GetParent(), Mail: &messages.OutboxEnqueued{
		MessageId: id, Mail: mail, // To is empty: it stands in nobody's outbox
		Parts: textParts(conversation.MailText(mail, fmt.Sprintf("It did not finish: %s. What it did until then stays.", why))),
	}}
}
