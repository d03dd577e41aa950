package troupetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// unanswered is what is said to a question for which a transcript has no line.
const unanswered = "the transcript has no answer"

// answers are the lines of an exchange that answer questions. Each is used once.
type answers struct {
	left []string
}

// question is one that was asked, with its answer and the line that stands for both.
type question struct {
	approval, line string
	answer         troupe.Answer
	from           int      // where the line stood in what was left; -1: it did not
	about          *planned // of an agent's call
}

// ask gives the answer. It says whether that counted: a turn that was cancelled meanwhile has no questions any more.
func (a *answers) ask(ctx context.Context, rt *troupe.Runtime, q *question) (counted bool, err error) {
	err = rt.ResolveApproval(ctx, q.approval, q.answer)
	var f *troupe.Failure
	if errors.As(err, &f) && f.GetCode() == messages.CodeResolved {
		if q.from >= 0 {
			a.left = slices.Insert(a.left, q.from, q.line)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("answer %s: %w", q.line, err)
	}
	return true, nil
}

// answering are the lines of an exchange that answer, whoever's they are.
func answering(want []string) (out []string) {
	for _, l := range want {
		word, _, _ := strings.Cut(unprefixed(l), " ")
		if slices.Contains([]string{"approve", "deny", "cancel", "answer"}, word) {
			out = append(out, l)
		}
	}
	return out
}

// asks says whether questions are answered in a transcript: else nobody is asked.
func (t *Transcript) asks() bool {
	return slices.ContainsFunc(t.Exchanges, func(x Exchange) bool { return len(answering(x.Want)) > 0 })
}

// tool is the answer to a call: the first line that is left for the tool. A call for which there is none is denied.
func (a *answers) tool(lead, tool string) *question {
	for i, l := range a.left {
		rest, ok := strings.CutPrefix(l, lead)
		if !ok {
			continue
		}
		word, rest, _ := strings.Cut(rest, " ")
		name, reason, _ := strings.Cut(rest, " ")
		if name != tool || word == "answer" || word == "by" {
			continue
		}
		a.left = slices.Delete(a.left, i, i+1)
		d := map[string]troupe.Decision{"approve": troupe.Approved, "deny": troupe.Rejected, "cancel": troupe.Cancelled}[word]
		return &question{line: l, from: i, answer: troupe.Answer{Decision: d, Message: reason}}
	}
	return &question{line: lead + "deny " + tool + " " + unanswered, from: -1, answer: troupe.Answer{Decision: troupe.Rejected, Message: unanswered}}
}

// step is the answer to the question of a step: the first line that is left for it, else its last choice.
func (a *answers) step(step string, choices []string) *question {
	for i, l := range a.left {
		name, choice, _ := strings.Cut(strings.TrimPrefix(l, "answer "), " ")
		if !strings.HasPrefix(l, "answer ") || name != step {
			continue
		}
		a.left = slices.Delete(a.left, i, i+1)
		if !slices.Contains(choices, choice) {
			choice = choices[len(choices)-1] // the difference shows that
		}
		return &question{line: "answer " + step + " " + choice, from: i, answer: troupe.Answer{Decision: troupe.Approved, Message: choice}}
	}
	last := choices[len(choices)-1]
	return &question{line: "answer " + step + " " + last, from: -1, answer: troupe.Answer{Decision: troupe.Approved, Message: last}}
}

// desk answers the questions of a run.
type desk struct {
	answers *answers
	rec     *recorder
	seen    map[string]bool
	tools   []string            // lines about calls
	steps   map[string][]string // lines about steps, by path
}

// ask answers what waits now.
func (d *desk) ask(ctx context.Context, rt *troupe.Runtime, session string) error {
	all, err := rt.Approvals(ctx)
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.GetSessionId() != session || d.seen[v.GetApprovalId()] {
			continue
		}
		d.seen[v.GetApprovalId()] = true
		q, note := d.question(v)
		q.approval = v.GetApprovalId()
		counted, err := d.answers.ask(ctx, rt, q)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if counted {
			note(q.line)
		}
	}
	return nil
}

// question is the answer to what is asked, and where it is written down.
func (d *desk) question(v *troupe.Approval) (q *question, note func(line string)) {
	var about struct {
		Step    string   `json:"step"`
		Choices []string `json:"choices"`
	}
	if v.GetTurnId() != v.GetWorkerId() || json.Unmarshal([]byte(v.GetArguments()), &about) != nil || len(about.Choices) == 0 { // a call's
		return d.answers.tool("", d.rec.word(v.GetTool())), func(l string) { d.tools = append(d.tools, l) }
	}
	return d.answers.step(about.Step, about.Choices), func(l string) { d.steps[about.Step] = append(d.steps[about.Step], l) }
}
