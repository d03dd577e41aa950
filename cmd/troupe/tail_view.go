package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

func (a *app) newTailView() tailView {
	if a.flags.format == "ndjson" {
		return &tailEvents{eventView{out: a.out}}
	}
	return &tailText{out: a.out, style: a.styleFor(a.outTerm), inputs: map[string]string{}, workers: map[string]*tailWorker{}}
}

// tailEvents prints every event as one line of JSON.
type tailEvents struct{ eventView }

func (v *tailEvents) show(e *messages.Event) error { return v.eventView.show(e, nil) }

// tailText prints a transcript. The text of one worker at a time is shown as it arrives; that of the others, when it is whole.
type tailText struct {
	out     io.Writer
	style   style
	inputs  map[string]string // accepted, by id
	workers map[string]*tailWorker
	live    string // the worker whose text stands at the end
}

// tailWorker is what is known of one worker.
type tailWorker struct {
	log    *turnLog
	view   *textView
	parent string
}

func (v *tailText) worker(id string) *tailWorker {
	w := v.workers[id]
	if w == nil {
		w = &tailWorker{log: &turnLog{}}
		w.view = &textView{out: v.out, style: v.style, both: true, note: func(format string, args ...any) {
			_, _ = fmt.Fprintf(v.out, format+"\n", args...) // the next write of text says that it failed
		}}
		v.workers[id] = w
	}
	return w
}

func (v *tailText) show(e *messages.Event) error {
	w := v.worker(e.GetWorker())
	switch e.GetType() {
	case messages.EventTextDelta:
		if v.live != "" && v.live != e.GetWorker() && v.workers[v.live].view.open {
			return nil // it comes whole
		}
	case messages.EventReasoningDelta, messages.EventToolProgress, messages.EventWorkspaceProgress:
		return nil
	default:
		if err := v.turnTo(e.GetWorker()); err != nil {
			return err
		}
	}
	v.live = e.GetWorker()
	if e.GetType() == messages.EventTurnStarted {
		*w.log = turnLog{}
	}
	w.log.take(e)
	if line := v.line(e, w); line != "" {
		if err := w.view.endLine(); err != nil {
			return err
		}
		return written(io.WriteString(v.out, line+"\n"))
	}
	return w.view.show(e, w.log)
}

// turnTo ends the line of another worker.
func (v *tailText) turnTo(worker string) error {
	if v.live == "" || v.live == worker {
		return nil
	}
	return v.workers[v.live].view.endLine()
}

// line is an event that is told in a line of its own; "" when it is shown as in `run`, or not at all.
func (v *tailText) line(e *messages.Event, w *tailWorker) string {
	at := messages.FormatTime(e.GetAtUnixMs())
	switch e.GetType() {
	case messages.EventSessionCreated:
		return visible(fmt.Sprintf("session %s  %s  %s  %s", e.GetSession(), at, e.GetModel(), e.GetWorkspace()))
	case messages.EventWorkerSpawned:
		w.parent = e.GetParent()
		if w.parent != "" {
			return visible(fmt.Sprintf("worker %s  %s  delegated by %s", e.GetWorker(), at, w.parent))
		}
	case messages.EventWorkerEnded:
		return visible(fmt.Sprintf("worker %s  %s  ended %s %s", e.GetWorker(), at, e.GetStatus(), oneLine(e.GetReason(), 200)))
	case messages.EventInputAccepted:
		v.inputs[e.GetInputId()] = e.GetText()
	case messages.EventTurnStarted:
		text := v.inputs[e.GetInputId()]
		delete(v.inputs, e.GetInputId())
		line := fmt.Sprintf("\nturn %s  %s", e.GetTurn(), at)
		if w.parent != "" {
			line += "  of worker " + e.GetWorker()
		}
		return line + "\n> " + strings.ReplaceAll(harmless(strings.TrimRight(text, "\n")), "\n", "\n> ")
	case messages.EventInputJoined:
		text := v.inputs[e.GetInputId()]
		delete(v.inputs, e.GetInputId())
		return "> " + strings.ReplaceAll(harmless(strings.TrimRight(text, "\n")), "\n", "\n> ")
	case messages.EventGenerationSuspended:
		note := v.style.warn("[the answer was cut off here by a stop; it is asked for again when the session goes on]")
		if w.view.printed.Len() > 0 {
			return note // who has followed it has the text
		}
		return harmless(strings.TrimRight(e.GetText(), "\n")) + "\n" + note
	case messages.EventApprovalRequested:
		return v.style.warn(fmt.Sprintf("%s waits for an approval: troupe approve %s (or deny)", e.GetTool(), e.GetApprovalId()))
	case messages.EventApprovalResolved:
		return fmt.Sprintf("%s: %s", e.GetApprovalId(), e.GetDecision())
	case messages.EventToolInDoubt:
		return v.style.warn(fmt.Sprintf("nobody knows whether %s ran: troupe calls resolve %s retry|done|fail", e.GetTool(), e.GetExecId()))
	case messages.EventWorkerHandedOver:
		return visible(fmt.Sprintf("handed over by agent %s to agent %s  %s", e.GetFrom(), e.GetAgent(), oneLine(e.GetReason(), 200)))
	case messages.EventMessageSent:
		return visible(fmt.Sprintf("message to %s: %s", e.GetTo(), oneLine(e.GetText(), 200)))
	case messages.EventMessageRefused:
		return visible("a message was not taken: " + oneLine(e.GetReason(), 200))
	case messages.EventHistoryCompacted:
		return compactedNote(e.GetStatus() == "dropped", e.GetTotal(), e.GetDone(), e.GetReason())
	case messages.EventTurnCompleted:
		line := fmt.Sprintf("%s, %s", e.GetOutcome(), usageText(e.GetUsage().JSON()))
		if e.GetReason() != "" {
			line += ": " + oneLine(e.GetReason(), 500)
		}
		return line
	case messages.EventSessionClosed:
		return visible("session closed " + e.GetReason())
	}
	return sharedLine(e)
}

// sharedLine tells of a conversation that workers share. What a member says is shown with its own turn, so that here stands that it was said.
func sharedLine(e *messages.Event) string {
	who := e.GetMember()
	if who == "" {
		who = "worker " + e.GetWorker()
	}
	where := "conversation " + e.GetConversation() + ": "
	switch e.GetType() {
	case messages.EventConversationShared:
		return visible(where + "shared as " + oneLine(e.GetName(), 200))
	case messages.EventConversationJoined:
		return visible(where + oneLine(who, 200) + " joins, worker " + e.GetWorker())
	case messages.EventConversationLeft:
		return visible(where + oneLine(who, 200) + " leaves: " + oneLine(e.GetReason(), 200))
	case messages.EventConversationAsked:
		return visible(where + who + " waits for the word")
	case messages.EventConversationWithdrawn:
		return visible(where + "a turn of " + who + " was taken back " + oneLine(e.GetReason(), 200))
	case messages.EventConversationGiven:
		return visible(where + oneLine(who, 200) + " has the word")
	case messages.EventConversationCut:
		return visible(where + oneLine(who, 200) + " was cut off " + e.GetOutcome() + " " + oneLine(e.GetReason(), 200))
	case messages.EventConversationSaid:
		if e.GetWorker() == "" {
			return where + "from outside (" + visible(oneLine(e.GetBy(), 200)) + ")\n> " + strings.ReplaceAll(harmless(strings.TrimRight(e.GetText(), "\n")), "\n", "\n> ")
		}
		return visible(where + oneLine(who, 200) + " has spoken")
	}
	return ""
}
