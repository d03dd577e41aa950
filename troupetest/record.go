package troupetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/messages"
)

// recorder writes down what happens in an exchange. Results of calls that ran side by side are written in the order of the calls, and what an agent
// did that was delegated to stands above the result of that call: what the order of events does not tell is the same each time.
type recorder struct {
	dir     string
	prompt  string
	answers *answers

	input  string          // id of the prompt, once it was accepted
	main   *log            // of the agent that is asked; nil: the turn has not begun
	logs   map[string]*log // by worker
	execs  map[string]*planned
	away   map[string]bool // workers in the background, whose word has not yet been heard
	woken  map[string]bool // inputs that others than the prompt are, and whose turn has not ended
	out    []string
	real   bool   // a language model answered
	cursor uint64 // of the last event that counts
}

// log is what one agent says and does in a turn.
type log struct {
	out     []string
	turn    string
	calls   []string // ids, of the newest answer
	results map[string][]string
	ended   bool
}

// planned is a call that was planned.
type planned struct {
	by   *log
	id   string
	tool string
	sub  []*child
}

// child is an agent that a call delegated to.
type child struct {
	agent string
	log   *log
}

func newRecorder(dir, prompt string, a *answers) *recorder {
	return &recorder{dir: dir, prompt: prompt, answers: a, logs: map[string]*log{}, execs: map[string]*planned{}, away: map[string]bool{}, woken: map[string]bool{}}
}

// over says whether all has come that this exchange waits for: the end of its turn, and the words of those who work in the background.
func (r *recorder) over() bool {
	return r.main != nil && r.main.ended && len(r.away) == 0 && len(r.woken) == 0
}

// note takes an event. What it says to do is to be done: answering a question.
func (r *recorder) note(e *troupe.Event) *question {
	r.cursor = max(r.cursor, e.GetSeq())
	switch e.GetType() {
	case messages.EventInputAccepted:
		r.accepted(e)
		return nil
	case messages.EventTurnStarted:
		r.started(e)
		return nil
	case messages.EventInputJoined, messages.EventInputWithdrawn: // it gets no turn of its own
		delete(r.woken, e.GetInputId())
		return nil
	case messages.EventWorkerSpawned:
		r.spawned(e)
		return nil
	}
	l := r.logs[e.GetWorker()]
	if l == nil || e.GetTurn() != l.turn {
		return nil
	}
	switch e.GetType() {
	case messages.EventToolPlanned:
		r.execs[e.GetExecId()] = &planned{by: l, id: e.GetCallId(), tool: e.GetTool()}
	case messages.EventApprovalRequested:
		return r.asked(e)
	case messages.EventToolFinished:
		r.finished(l, e)
	case messages.EventTurnCompleted:
		r.completed(l, e)
	case messages.EventGenerationCompleted:
		r.said(l, e)
	case messages.EventGenerationDiscarded:
		l.out = append(l.out, "again "+e.GetErrorCode())
	}
	return nil
}

func (r *recorder) accepted(e *troupe.Event) {
	switch {
	case r.input == "" && e.GetFrom() == "" && e.GetText() == r.prompt:
		r.input = e.GetInputId()
	case r.main != nil && r.logs[e.GetWorker()] == r.main: // the agent is told something by others
		delete(r.away, e.GetFrom())
		r.woken[e.GetInputId()] = true
	}
}

func (r *recorder) started(e *troupe.Event) {
	l := r.logs[e.GetWorker()]
	switch {
	case r.main == nil && r.input != "" && e.GetInputId() == r.input:
		r.main = &log{}
		l = r.main
		r.logs[e.GetWorker()] = l
	case l == nil:
		return
	case l == r.main && r.woken[e.GetInputId()]:
		delete(r.woken, e.GetInputId())
		l.ended = false
		l.out = append(l.out, "woken")
	}
	l.turn = e.GetTurn()
}

func (r *recorder) spawned(e *troupe.Event) {
	if p := r.execs[e.GetExecId()]; p != nil && e.GetExecId() != "" {
		c := &child{e.GetAgent(), &log{}}
		p.sub, r.logs[e.GetWorker()] = append(p.sub, c), c.log
	}
}

// said writes down an answer of the model.
func (r *recorder) said(l *log, e *troupe.Event) {
	l.settle()
	r.real = r.real || !e.GetScripted()
	if e.GetText() != "" {
		l.out = append(l.out, r.text("<", e.GetText())...)
	}
	for _, c := range e.GetToolCalls() {
		args, err := compact(c.GetArguments())
		if err != nil {
			args = r.clean(c.GetArguments())
		}
		l.out, l.calls = append(l.out, "call "+r.word(c.GetName())+" "+r.placed(args)), append(l.calls, c.GetId())
	}
}

// asked finds the answer to a question.
func (r *recorder) asked(e *troupe.Event) *question {
	p := r.execs[e.GetExecId()]
	if p == nil {
		return nil
	}
	q := r.answers.tool(r.behind(p.by), r.word(p.tool))
	q.approval, q.about = e.GetApprovalId(), p
	return q
}

// finished writes down a result, below what was done for it.
func (r *recorder) finished(l *log, e *troupe.Event) {
	if p := r.execs[e.GetExecId()]; p != nil {
		for _, c := range p.sub {
			if !c.log.ended { // it works in the background, and tells when it has ended
				r.leave(c)
				continue
			}
			for _, line := range c.log.out {
				l.come(e.GetCallId(), "by "+r.word(c.agent)+" "+line)
			}
		}
	}
	l.come(e.GetCallId(), strings.TrimSpace("result "+r.word(e.GetTool())+" "+e.GetStatus()+" "+e.GetErrorCode()))
	if e.GetText() != "" {
		l.come(e.GetCallId(), r.text("|", e.GetText())...)
	}
}

// leave has a child go on by itself: what it does is its own, and what it says comes as a message.
func (r *recorder) leave(c *child) {
	for worker, l := range r.logs {
		if l == c.log {
			delete(r.logs, worker)
			r.away[worker] = true
		}
	}
}

func (r *recorder) completed(l *log, e *troupe.Event) {
	l.settle()
	reason, _, _ := strings.Cut(e.GetReason(), "\n")
	l.out = append(l.out, strings.TrimSpace("end "+e.GetOutcome()+" "+r.clean(reason)))
	l.ended = true
	if l == r.main && e.GetOutcome() == "aborted" { // with all that it has begun
		clear(r.away)
	}
}

// behind is what stands before the lines of an agent that was delegated to.
func (r *recorder) behind(l *log) string {
	for _, p := range r.execs {
		for _, c := range p.sub {
			if c.log == l {
				return r.behind(p.by) + "by " + r.word(c.agent) + " "
			}
		}
	}
	return ""
}

// come keeps lines until the results of the calls are written.
func (l *log) come(call string, lines ...string) {
	if l.results == nil {
		l.results = make(map[string][]string)
	}
	l.results[call] = append(l.results[call], lines...)
}

// settle writes the results of the calls that were made.
func (l *log) settle() {
	for _, id := range l.calls {
		l.out = append(l.out, l.results[id]...)
	}
	l.calls, l.results = nil, nil
}

// text is a text, each line behind its sign.
func (r *recorder) text(sign, text string) (out []string) {
	for _, l := range lines(text) {
		out = append(out, strings.TrimRight(sign+" "+r.clean(l), " \t"))
	}
	return out
}

// clean takes out of a line what differs from one run to the next, and what a terminal could obey.
func (r *recorder) clean(l string) string {
	return yamldoc.Printable(r.placed(l))
}

// placed has a name in place of the folder, which is another one each time.
func (r *recorder) placed(l string) string {
	if r.dir == "" {
		return l
	}
	return strings.ReplaceAll(l, r.dir, "FOLDER")
}

// word is a name that a model has made up, as one word of a line.
func (r *recorder) word(name string) string {
	return strings.Join(strings.Fields(r.clean(name)), "_")
}

// number has the ids that troupe made up counted from 1 each, in the order in which they are written: they are others each time.
func number(all [][]string) [][]string {
	made := messages.MadeIDs()
	known, next := make(map[string]string), make(map[string]int)
	for i, out := range all {
		all[i] = slices.Clone(out)
		for k, l := range out {
			all[i][k] = made.ReplaceAllStringFunc(l, func(id string) string {
				if known[id] == "" {
					kind := id[:3]
					next[kind]++
					known[id] = fmt.Sprintf("%s_%d", kind, next[kind])
				}
				return known[id]
			})
		}
	}
	return all
}
