package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// whyJSON is what something waits for, and what `why -o json` prints.
type whyJSON struct {
	ID    string  `json:"id"`
	State string  `json:"state"`
	Since string  `json:"since,omitempty"`
	For   whyWait `json:"waiting_for"`
	Text  string  `json:"text"` // one sentence
}

// whyWait is the thing itself. Kind: nothing, turn, quarantine, approval, doubt, lease, budget, permit, model, retry, tool, owner, worker, input,
// word, process, job or timer.
type whyWait struct {
	Kind     string   `json:"kind"`
	Subject  string   `json:"subject,omitempty"`  // the model, provider, address, tool, worker or timer
	Session  string   `json:"session,omitempty"`  // that works in the workspace
	Worker   string   `json:"worker,omitempty"`   // that waits
	Call     string   `json:"call,omitempty"`     // exec id
	Approval string   `json:"approval,omitempty"` // id
	Shown    []string `json:"shown,omitempty"`    // who sees the approval
	Position int      `json:"position,omitempty"` // in the queue for a permit, from 1
	Of       int      `json:"of,omitempty"`       // how long that queue is
	Until    string   `json:"until,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Step     string   `json:"step,omitempty"` // whose budget does not suffice; absent: the session's

	InsteadOf string `json:"instead_of,omitempty"` // the model that the one which is asked stands in for

	Command string `json:"command,omitempty"` // what a person may type
}

// whyFacts are what the house says of one session at one moment.
type whyFacts struct {
	now       time.Time
	live      bool                                // the session is in the memory of a process that works
	workers   []messages.WorkerJSON               // of the session, the first one first
	approvals []messages.ApprovalJSON             // of the session
	calls     []messages.CallJSON                 // of the session, those that have not ended
	queues    map[string][]string                 // by provider: who waits for a permit, the next one first
	timers    []messages.TimerJSON                // of the session
	offline   map[string]string                   // by address: the machine of a workspace that is not connected
	talks     []messages.ConversationJSON         // of the session, in which somebody waits for the word
	jobs      messages.JobsJSON                   // of the session, when it is live
	heldSince string                              // since when somebody works in the workspace that is waited for
	budget    *messages.BudgetViewJSON            // of the session, when a worker waits for more
	steps     map[string]*messages.BudgetViewJSON // of steps of its run, then, too
	goOn      string                              // the command that brings it into memory to work; "": the usual one
}

// first is a conversation in which somebody waits for the word, and the place of the one who is next: 1; 0: there is none.
func (f *whyFacts) first() (in *messages.ConversationJSON, place int) {
	for i := range f.talks {
		if len(f.talks[i].Queue) > 0 {
			return &f.talks[i], 1
		}
	}
	return nil, 0
}

// maxDelegation is how far delegation is followed: no chain is longer (ADR 46).
const maxDelegation = 16

// whySession is why of what a run asks of people, else of the first worker that does something, or else of the first one.
func whySession(f *whyFacts, id string) whyJSON {
	for i := range f.approvals { // what a run of a pipeline asks is no worker's
		if strings.HasPrefix(f.approvals[i].Worker, messages.RunPrefix) {
			j := whyJSON{ID: id, State: "waiting"}
			return j.approval(f, &f.approvals[i])
		}
	}
	at := 0
	for i := len(f.workers) - 1; i >= 0; i-- {
		if f.workers[i].State != "inactive" && f.workers[i].Parent == "" {
			at = i
		}
	}
	for i := len(f.workers) - 1; i >= 0; i-- { // of several, as items of a run are, one about which somebody can do something
		if asked, doubted, _ := f.of(f.workers[i].ID); f.workers[i].Parent == "" && (asked != nil || doubted != nil) {
			at = i
		}
	}
	if in, place := f.first(); place > 0 && f.workers[at].State == "inactive" { // it is between two turns, or nobody works on it
		j := whyJSON{ID: id, State: "waiting"}
		return j.word(f, in, place)
	}
	j := whyWorker(f, &f.workers[at], 0)
	j.ID = id
	if n := f.workers[at].Staged; n > 0 && f.workers[at].State != "inactive" {
		j.Text += "; " + count(int(n), "input waits behind it", "inputs wait behind it")
	}
	return j
}

// whyWorker decides what a worker waits for. What people can do something about comes first: a turn may wait for several things.
func whyWorker(f *whyFacts, w *messages.WorkerJSON, depth int) whyJSON {
	j := whyJSON{ID: w.ID, State: w.State, Since: w.UpdatedAt, For: whyWait{Worker: w.ID}}
	asked, doubted, running := f.of(w.ID)
	switch {
	case w.Quarantined:
		j.For.Kind, j.For.Reason, j.For.Command = "quarantine", w.LastError, "troupe workers release "+w.ID
		return j.say(f, "it is quarantined%s: %s; let it try again with: %s", oneLine(w.LastError, 200), j.For.Command)
	case asked != nil:
		return j.approval(f, asked)
	case doubted != nil:
		return j.doubt(f, doubted)
	case w.Waiting != nil && w.Waiting.Kind != "call":
		return j.waiting(f, w.Waiting)
	case running != nil && f.live:
		return j.running(f, w, running, depth)
	case w.State != "inactive" && !f.live:
		j.For.Kind, j.For.Command = "process", cmp.Or(f.goOn, "troupe run -s "+w.Session)
		return j.say(f, "its turn is open%s, and no process works on it; go on with: %s", j.For.Command)
	case w.State != "inactive":
		j.For.Kind, j.For.Subject = "turn", w.Turn
		return j.say(f, "it is at work (%[2]s)%[1]s", w.State)
	}
	if in, place := f.wants(w.ID, ""); place > 0 {
		return j.word(f, in, place)
	}
	switch {
	case w.Staged > 0:
		j.For.Kind, j.For.Command = "input", "troupe run -s "+w.Session
		return j.say(f, "%[2]d inputs wait%[1]s, and no turn is open; begin with: %[3]s", w.Staged, j.For.Command)
	}
	return j.idle(f, w)
}

// of finds the first thing of each kind that a worker's calls wait for.
func (f *whyFacts) of(worker string) (asked *messages.ApprovalJSON, doubted, running *messages.CallJSON) {
	for i := len(f.approvals) - 1; i >= 0; i-- {
		if f.approvals[i].Worker == worker {
			asked = &f.approvals[i]
		}
	}
	for i := len(f.calls) - 1; i >= 0; i-- {
		c := &f.calls[i]
		switch {
		case c.Worker != worker:
		case c.State == "in_doubt":
			doubted = c
		case c.State == "executing":
			running = c
		}
	}
	return asked, doubted, running
}

// whyCall is why of one call.
func whyCall(f *whyFacts, c *messages.CallJSON) whyJSON {
	j := whyJSON{ID: c.ID, State: c.State, Since: c.At, For: whyWait{Worker: c.Worker, Call: c.ExecID}}
	for i := range f.approvals {
		if f.approvals[i].ExecID == c.ExecID && c.ExecID != "" {
			return j.approval(f, &f.approvals[i])
		}
	}
	var w *messages.WorkerJSON
	for i := range f.workers {
		if f.workers[i].ID == c.Worker {
			w = &f.workers[i]
		}
	}
	switch c.State {
	case "in_doubt":
		return j.doubt(f, c)
	case "succeeded", "failed":
		j.For.Kind = "nothing"
		return j.say(f, "nothing: %[2]s ended (%[3]s); it was planned%[1]s", called(c), c.Status)
	case "executing":
		if w != nil && f.live {
			return j.running(f, w, c, 0)
		}
	}
	if w == nil {
		j.For.Kind = "nothing"
		return j.say(f, "nothing is known of its worker%s")
	}
	of := whyWorker(f, w, 0)
	of.ID, of.State, of.For.Call = c.ID, c.State, cmp.Or(of.For.Call, c.ExecID)
	return of
}

func (j whyJSON) approval(f *whyFacts, v *messages.ApprovalJSON) whyJSON {
	j.Since = v.At
	j.For.Kind, j.For.Approval, j.For.Call, j.For.Subject, j.For.Until = "approval", v.ID, v.ExecID, v.Tool, v.ExpiresAt
	j.For.Command = "troupe approve " + v.ID
	seen := "nobody sees it"
	for _, s := range v.Shown {
		j.For.Shown = append(j.For.Shown, s.By)
	}
	if len(j.For.Shown) > 0 {
		seen = "it is shown to " + strings.Join(j.For.Shown, ", ")
	}
	if v.ExpiresAt != "" {
		seen += fmt.Sprintf(", and expires %s (%s)", v.ExpiresAt, expiresIn(v.ExpiresAt, f.now))
	}
	if strings.HasPrefix(v.Worker, messages.RunPrefix) {
		return j.say(f, "step %[2]s of the pipeline asks a person%[1]s: %[3]s; %[4]s; answer with: %[5]s --reason CHOICE (or deny)", v.ExecID, oneLine(v.Preview, 200), seen, j.For.Command)
	}
	return j.say(f, "%[2]s(%[3]s) waits for an approval%[1]s; %[4]s; answer with: %[5]s (or deny)", v.Tool, summary(v.Arguments), seen, j.For.Command)
}

func (j whyJSON) doubt(f *whyFacts, c *messages.CallJSON) whyJSON {
	j.Since = c.At
	j.For.Kind, j.For.Call, j.For.Subject = "doubt", c.ExecID, c.Tool
	j.For.Command = "troupe calls resolve " + c.ExecID + " retry|done|fail"
	return j.say(f, "nobody knows whether %[2]s, planned%[1]s, ran: a person is to say it with: %[3]s", called(c), j.For.Command)
}

// waiting is about what only the worker itself knows.
func (j whyJSON) waiting(f *whyFacts, on *messages.WaitingJSON) whyJSON {
	j.Since = cmp.Or(on.Since, j.Since)
	j.For.Kind, j.For.Subject, j.For.Session, j.For.Until, j.For.Reason = on.Kind, on.Subject, on.Session, on.Until, on.Reason
	switch on.Kind {
	case "permit":
		queue := f.queues[on.Subject]
		for i, id := range queue {
			if id == j.For.Worker {
				j.For.Position, j.For.Of = i+1, len(queue)
				return j.say(f, "it waits for a permit of model provider %[2]s%[1]s, as number %[3]d of %[4]d", on.Subject, i+1, len(queue))
			}
		}
		return j.say(f, "it waits for a permit of model provider %[2]s%[1]s", on.Subject)
	case "budget":
		j.For.Step = on.Step
		if on.Reason == "" {
			return j.say(f, "it waits for its part of the session's budget%[1]s: other calls have theirs set aside")
		}
		j.For.Command = addBudgetCommand(on.Subject, on.Step, cmp.Or(f.steps[on.Step], f.budget))
		return j.say(f, "it waits for more budget%[1]s: %[2]s; add some with: %[3]s", oneLine(on.Reason, 200), j.For.Command)
	case "retry":
		return j.say(f, "the model is asked again at %[2]s: its last call failed at %[4]s: %[3]s", on.Until, oneLine(on.Reason, 200), on.Since)
	case "lease":
		who := "somebody else works there"
		if on.Session != "" {
			who = "session " + on.Session + " works there"
		}
		if f.heldSince != "" {
			who += " since " + f.heldSince
		}
		return j.say(f, "it waits for the workspace %[2]s%[1]s: %[3]s", on.Subject, who)
	case "model":
		if on.InsteadOf != "" {
			j.For.InsteadOf = on.InsteadOf
			return j.say(f, "a call of model %[2]s, which stands in for %[3]s, is under way%[1]s", on.Subject, on.InsteadOf)
		}
		return j.say(f, "a call of model %[2]s is under way%[1]s", on.Subject)
	}
	return j.say(f, "it waits for %[2]s %[3]s%[1]s", on.Kind, on.Subject)
}

// running is about a call that runs: of one that delegates, what the worker waits for to which it delegated.
func (j whyJSON) running(f *whyFacts, w *messages.WorkerJSON, c *messages.CallJSON, depth int) whyJSON {
	j.Since = c.At
	if w.Waiting != nil {
		j.Since = w.Waiting.Since
	}
	j.For.Kind, j.For.Call, j.For.Subject = "tool", c.ExecID, c.Tool
	for i := range f.workers {
		child := &f.workers[i]
		if child.Parent != w.ID || child.State == "inactive" || c.Tool != "delegate" || depth >= maxDelegation {
			continue
		}
		of := whyWorker(f, child, depth+1)
		j.For.Kind, j.For.Subject, j.For.Command = "worker", child.ID, of.For.Command
		return j.say(f, "it waits for worker %[2]s, to which it delegated%[1]s: %[3]s", child.ID, of.Text)
	}
	if owner := f.offline[c.Workspace]; owner != "" && c.Workspace != "" {
		j.For.Kind, j.For.Subject = "owner", owner
		return j.say(f, "%[2]s is with machine %[3]s%[1]s, which is not connected: what came of it is known when that is back, or else it fails", called(c), owner)
	}
	return j.say(f, "%[2]s runs%[1]s", called(c))
}

func (j whyJSON) idle(f *whyFacts, w *messages.WorkerJSON) whyJSON {
	last := "it has had no turn yet"
	if w.LastOutcome != "" {
		last = "its last turn ended with outcome " + w.LastOutcome
	}
	for i := range f.timers {
		t := &f.timers[i]
		if t.Worker != w.ID && t.Worker != "" || t.State != "set" {
			continue
		}
		j.For.Kind, j.For.Subject, j.For.Until = "timer", t.ID, t.At
		return j.say(f, "it waits for timer %[2]s, due %[3]s; %[4]s%[1]s", t.ID, t.At, last)
	}
	if f.jobs.Background > 0 {
		j.Since = f.jobs.BackgroundSince
		j.For.Kind, j.For.Command = "job", "troupe cancel "+w.Session+" --jobs"
		return j.say(f, "no turn is open, and %[2]s in the background%[1]s; %[3]s; end what runs with: %[4]s", count(int(f.jobs.Background), "command goes on", "commands go on"), last, j.For.Command)
	}
	j.For.Kind = "nothing"
	return j.say(f, "nothing: it is idle%s; %s", last)
}

// say makes the sentence. Its first operand is since when, in words.
func (j whyJSON) say(f *whyFacts, format string, args ...any) whyJSON {
	since := ""
	if t, err := time.Parse(time.RFC3339Nano, j.Since); err == nil {
		since = fmt.Sprintf(" since %s (%s)", j.Since, ago(f.now.Sub(t)))
	}
	j.Text = visible(fmt.Sprintf(format, append([]any{since}, args...)...))
	return j
}

// ago is how long something lasts, as exactly as people care.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func called(c *messages.CallJSON) string { return fmt.Sprintf("%s(%s)", c.Tool, summary(c.Arguments)) }
