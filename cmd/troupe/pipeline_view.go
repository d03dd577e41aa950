package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

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

	scripted bool // it is said that no language model is running

	mu sync.Mutex // who watches the budgets of the run says something, too
}

func (a *app) newRunView() *runView {
	return &runView{a: a, was: make(map[string]string), asked: make(map[string]bool)}
}

// note says something besides, and has the tree drawn below it.
func (w *runView) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.a.note(format, args...)
	w.lines = 0
}

func (w *runView) show(v *messages.RunView) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.GetScripted() && !w.scripted { // by the model that a server has, or that a run goes on with
		w.scripted, w.lines = true, 0
		w.a.note("%s", answersOf(""))
	}
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
		if s.GetState() != pipeline.Running {
			said += spent(s.GetUsage())
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

// spent are the tokens and dollars of a step or run; nothing when there are none.
func spent(u *messages.Usage) string {
	out := ""
	if n := u.GetInputTokens() + u.GetOutputTokens(); n > 0 {
		out = fmt.Sprintf(", %d tokens", n)
	}
	if usd := u.GetCostMicroUsd(); usd > 0 {
		out += fmt.Sprintf(", $%.4f", float64(usd)/1e6)
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
	width, height := w.size()
	_, _ = fmt.Fprint(w.a.err, w.drawn(v, width, height)) // nobody is left to be told
}

// drawn is the tree as it is written over the one before, on a terminal of a size.
func (w *runView) drawn(v *messages.RunView, width, height int) string {
	lines := w.branches(v)
	over := v.GetState() != pipeline.Running && v.GetState() != pipeline.Waiting
	if room := height - 2; !over && len(lines) > room { // what has left the screen cannot be drawn anew: the end is drawn whole
		lines = fitting(lines, max(1, room-2))
	}
	lines = append([]string{fmt.Sprintf("%s  %s%s", visible(v.GetName()), v.GetRunId(), spent(v.GetUsage()))}, lines...)
	var b strings.Builder
	if w.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", w.lines)
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + oneLine(line, width-1) + "\n")
	}
	for range w.lines - len(lines) { // the tree was longer
		b.WriteString("\x1b[2K\n")
	}
	w.lines = max(w.lines, len(lines))
	return b.String()
}

// branches are the lines of the tree, one for each step.
func (w *runView) branches(v *messages.RunView) (lines []string) {
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
		line += spent(s.GetUsage())
		if s.GetBudget() != nil {
			line += ", " + budgetText(s.GetBudget().JSON())
		}
		line += waitsFor(s)
		if s.GetError() != "" {
			line += ": " + oneLine(s.GetError(), 60)
		}
		lines = append(lines, line)
	}
	return lines
}

// waitsFor is what the items of a step wait for besides the questions of the run.
func waitsFor(s *messages.RunStepView) string {
	switch n := s.GetWaits(); {
	case n == 0:
		return ""
	case n == 1:
		return ", waits for " + oneLine(s.GetWaiting().Text(), 100)
	default:
		return fmt.Sprintf(", %d wait, one for %s", n, oneLine(s.GetWaiting().Text(), 100))
	}
}

// fitting are those of the lines of a tree that fit: first what works, waits or has failed, in the order of the tree, and how many are left out.
func fitting(lines []string, room int) []string {
	keep := make([]bool, len(lines))
	kept := 0
	for _, marks := range []string{">?x", "·+-"} {
		for i, line := range lines {
			mark := strings.SplitN(line, " ", 3)[1]
			if kept < room && !keep[i] && strings.Contains(marks, mark) {
				keep[i] = true
				kept++
			}
		}
	}
	var out []string
	for i, line := range lines {
		if keep[i] {
			out = append(out, line)
		}
	}
	return append(out, fmt.Sprintf("   and %d more", len(lines)-kept))
}

// size is how much fits on the terminal.
func (w *runView) size() (width, height int) {
	if f, ok := w.a.err.(interface{ Fd() uintptr }); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 20 && height > 4 {
			return width, height
		}
	}
	return 100, 1 << 16
}

// questions says once what waits for a person, and what that may type.
func (w *runView) questions(v *messages.RunView) {
	for _, s := range v.GetStepViews() {
		for _, i := range s.GetItemViews() {
			name, on := s.GetStep(), i.GetWaiting()
			if s.GetItems() > 1 {
				name += "[" + oneLine(i.GetKey(), 60) + "]"
			}
			switch id := i.GetApprovalId() + on.GetExecId(); {
			case id == "" || w.asked[id]:
			case on != nil:
				w.asked[id] = true
				w.a.note("  %s waits for %s: %s", visible(name), visible(on.Text()), on.Command(v.GetSessionId()))
				w.lines = 0
			default:
				w.asked[id] = true
				w.a.note("  %s waits for a person: troupe approve %s (or deny; --reason CHOICE)", visible(name), id)
				w.lines = 0
			}
		}
	}
}
