package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// runView shows a run as it goes on: a tree on a terminal, a line for each change elsewhere, objects as NDJSON.
type runView struct {
	a      *app
	was    map[string]string // step -> what was said of it last
	asked  map[string]bool
	headed bool
	lines  int // of the tree that stands there
	told   time.Time
}

func (a *app) newRunView() *runView {
	return &runView{a: a, was: make(map[string]string), asked: make(map[string]bool)}
}

func (w *runView) show(v *messages.RunView) error {
	switch {
	case w.a.flags.format == "ndjson":
		b, err := json.Marshal(v.JSON())
		if err != nil {
			return err
		}
		return w.a.say(string(b))
	case w.a.flags.quiet:
		return nil
	case w.a.errTerm:
		w.tree(v)
	default:
		w.plain(v)
	}
	w.questions(v)
	return nil
}

// plain says in a line each what has changed.
func (w *runView) plain(v *messages.RunView) {
	if !w.headed {
		w.headed = true
		w.a.note("run %s: %s, %d steps", v.GetRunId(), visible(v.GetName()), v.GetSteps())
	}
	often := time.Since(w.told) < 2*time.Second
	for _, s := range v.GetStepViews() {
		said := s.GetState()
		if s.GetState() == pipeline.Running && s.GetItems() > 1 && !often {
			said += w.count(s)
			w.told = time.Now()
		}
		if s.GetBudget() != nil && s.GetState() != pipeline.Running {
			said += ", " + budgetText(s.GetBudget().JSON())
		}
		old := w.was[s.GetStep()]
		if old == said || s.GetState() == pipeline.Pending || often && strings.HasPrefix(old, said) {
			continue
		}
		w.was[s.GetStep()] = said
		if s.GetState() != pipeline.Running && s.GetItems() > 1 {
			said += w.count(s)
		}
		if s.GetError() != "" {
			said += ": " + oneLine(s.GetError(), 200)
		}
		w.a.note("  %s: %s", visible(s.GetStep()), visible(said))
	}
}

// count is how far a step is, how fast, and how long it may still take.
func (w *runView) count(s *messages.RunStepView) string {
	out := fmt.Sprintf(", %d of %d done", s.GetDone(), s.GetItems())
	if s.GetFailed() > 0 {
		out += fmt.Sprintf(", %d failed", s.GetFailed())
	}
	if s.GetLeftMs() > 0 {
		out += fmt.Sprintf(", %.1f/s, %s left", s.GetPerSecond(), (time.Duration(s.GetLeftMs()) * time.Millisecond).Round(time.Second))
	}
	return out
}

// tree draws the steps anew where they stood.
func (w *runView) tree(v *messages.RunView) {
	over := v.GetState() != pipeline.Running && v.GetState() != pipeline.Waiting
	if time.Since(w.told) < 100*time.Millisecond && !over && w.lines > 0 {
		return
	}
	w.told = time.Now()
	var b strings.Builder
	if w.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", w.lines)
	}
	lines := []string{fmt.Sprintf("%s  %s", visible(v.GetName()), v.GetRunId())}
	marks := map[string]string{pipeline.Pending: "·", pipeline.Running: ">", pipeline.Waiting: "?", pipeline.Succeeded: "+", pipeline.Failed: "x", pipeline.Skipped: "-"}
	for i, s := range v.GetStepViews() {
		branch := "├─"
		if i == len(v.GetStepViews())-1 {
			branch = "└─"
		}
		line := fmt.Sprintf("%s %s %s %s", branch, marks[s.GetState()], visible(s.GetStep()), s.GetState())
		if s.GetItems() > 1 {
			line += w.count(s)
		}
		if s.GetBudget() != nil {
			line += ", " + budgetText(s.GetBudget().JSON())
		}
		if s.GetError() != "" {
			line += ": " + oneLine(s.GetError(), 60)
		}
		lines = append(lines, oneLine(line, 100))
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + line + "\n")
	}
	w.lines = len(lines)
	_, _ = fmt.Fprint(w.a.err, b.String()) // nobody is left to be told
}

// questions says what waits for a person.
func (w *runView) questions(v *messages.RunView) {
	for _, s := range v.GetStepViews() {
		for _, i := range s.GetItemViews() {
			if id := i.GetApprovalId(); id != "" && !w.asked[id] {
				w.asked[id] = true
				w.a.note("  %s waits for a person: troupe approve %s (or deny; --reason CHOICE)", visible(s.GetStep()), id)
				w.lines = 0
			}
		}
	}
}
