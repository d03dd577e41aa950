package chaos

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// effectsOnce is R3. A tool that is IDEMPOTENT or RECONCILABLE may be started again, and must find that
// it has happened.
func effectsOnce(v *view, r *report) {
	counted := make(map[string]bool)
	for _, e := range v.Effects {
		if counted[e.Exec] || e.Phase != Happened {
			continue
		}
		counted[e.Exec] = true
		c := v.byExec[e.Exec]
		if n := v.happens[e.Exec]; n > 1 && e.Class != messages.Effect_PURE.String() && (c == nil || !c.pure()) {
			r.add(Duplicated, streamOf(c), seqOf(c), "%s (%s) happened %d times as %s", e.Tool, e.Class, n, e.Exec)
		}
	}
	for _, c := range v.calls {
		for _, mark := range c.marks {
			if n := v.stands[mark]; n > 1 {
				r.add(Duplicated, streamOf(c), seqOf(c), "%s %s stands %d times in the files (%s)", c.planned.GetTool(), mark, n, c.planned.GetExecId())
			}
		}
	}
}

func streamOf(c *call) string {
	if c == nil {
		return ""
	}
	return c.plan.stream
}

func seqOf(c *call) uint64 {
	if c == nil {
		return 0
	}
	return c.plan.seq()
}

// marksIn finds what calls of file tools leave in files and nothing else does: the runner gives every call its own.
func marksIn(text string) []string {
	return regexp.MustCompile(`mark-[a-z0-9-]+\.`).FindAllString(text, -1)
}

// marksOf are the marks that a call puts into a file.
func marksOf(c *call) []string {
	if tool := c.planned.GetTool(); tool != "write_file" && tool != "edit_file" {
		return nil
	}
	var args struct {
		Content string `json:"content"`
		Edits   []struct {
			New string `json:"new_string"`
		} `json:"edits"`
	}
	if err := json.Unmarshal([]byte(c.arguments), &args); err != nil {
		return nil // refused as such
	}
	found := marksIn(args.Content)
	for _, e := range args.Edits {
		found = append(found, marksIn(e.New)...)
	}
	return found
}

// effectsDispatched is R4.
func effectsDispatched(v *view, r *report) {
	for _, e := range v.Effects {
		c := v.byExec[e.Exec]
		switch {
		case c == nil:
			if e.Phase == Begun {
				r.add(Broken, "", 0, "%s ran as %s, which no journal knows", e.Tool, e.Exec)
			}
		case c.pure() || e.Phase != Begun:
		case c.dispatchedIn(e.Boot) == nil:
			r.add(Broken, streamOf(c), seqOf(c), "%s began as %s in boot %d, which never dispatched it", e.Tool, e.Exec, e.Boot)
		case e.Dispatch == 0:
			r.add(Broken, streamOf(c), seqOf(c), "%s began as %s before its dispatch was durable", e.Tool, e.Exec)
		}
	}
	for _, c := range v.calls {
		for _, mark := range c.marks {
			if len(c.dispatched) == 0 && v.stands[mark] > 0 {
				r.add(Broken, streamOf(c), seqOf(c), "%s left %s in a file and was never dispatched", c.planned.GetTool(), mark)
			}
		}
	}
}

// resultsTrue is R5.
func resultsTrue(v *view, r *report) {
	logged := make(map[string]bool) // tools that write to the effect log
	for _, e := range v.Effects {
		logged[e.Tool] = true
	}
	for _, c := range v.calls {
		f := c.result()
		if f == nil {
			if v.Whole {
				r.add(Lost, streamOf(c), seqOf(c), "%s %s has no result", c.planned.GetTool(), c.planned.GetExecId())
			}
			continue
		}
		if len(c.finished) > 1 {
			r.add(Duplicated, streamOf(c), c.finished[1].seq(), "%s %s has %d results", c.planned.GetTool(), c.planned.GetExecId(), len(c.finished))
		}
		v.trueResult(c, f, logged[c.planned.GetTool()], r)
	}
}

func (v *view) trueResult(c *call, f *messages.ToolFinished, logged bool, r *report) {
	exec, at := c.planned.GetExecId(), c.finished[0].seq()
	told := strings.Contains(f.GetContent(), conversation.InterruptedText)
	switch {
	case f.GetStatus() == messages.ToolFinished_OK && told:
		r.add(Broken, streamOf(c), at, "%s %s was interrupted and is reported as OK", c.planned.GetTool(), exec)
	case f.GetStatus() == messages.ToolFinished_INTERRUPTED_UNKNOWN && f.GetContent() != conversation.InterruptedText:
		r.add(Broken, streamOf(c), at, "%s %s was interrupted and the model reads %.120q", c.planned.GetTool(), exec, f.GetContent())
	case f.GetStatus() != messages.ToolFinished_OK:
	case logged && v.happens[exec] == 0:
		r.add(Lost, streamOf(c), at, "%s %s is OK and never happened", c.planned.GetTool(), exec)
	case logged && strings.Contains(f.GetContent(), messages.ExecPrefix) && !strings.Contains(f.GetContent(), exec):
		r.add(Broken, streamOf(c), at, "%s %s is OK with the result of another call: %.120q", c.planned.GetTool(), exec, f.GetContent())
	case !c.pure() && len(c.dispatched) == 0:
		r.add(Broken, streamOf(c), at, "%s %s is OK and was never dispatched", c.planned.GetTool(), exec)
	case logged && v.guessed(c):
		r.add(Broken, streamOf(c), at, "%s %s did not end before its process died, and is OK in a later epoch", c.planned.GetTool(), exec)
	}
	for _, mark := range c.marks {
		if f.GetStatus() == messages.ToolFinished_OK && v.Files != nil && v.stands[mark] == 0 {
			r.add(Lost, streamOf(c), at, "%s %s is OK and %s is in no file", c.planned.GetTool(), exec, mark)
		}
	}
}

// guessed tells whether the outcome of a call was lost with its process, and a later one reports a success that
// it cannot know of: the call may run only once, and it never came to its end. One that did may have its result
// from the executor's ledger.
func (v *view) guessed(c *call) bool {
	if c.planned.GetEffect() != messages.Effect_AT_MOST_ONCE || len(c.dispatched) == 0 {
		return false
	}
	last := c.dispatched[len(c.dispatched)-1].epoch()
	return last != c.finished[0].epoch() && !v.ends[c.planned.GetExecId()]
}
