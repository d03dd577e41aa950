package pipeline

import (
	"fmt"
	"strings"
)

// Waves are the steps in the order in which they can run at the earliest: those of one wave wait for none of the same.
func (f *File) Waves() [][]*Step {
	level := make(map[string]int)
	var depth func(st *Step) int
	depth = func(st *Step) int {
		if n, ok := level[st.ID]; ok {
			return n
		}
		n := 0
		for _, need := range st.Needs {
			n = max(n, depth(f.step(need))+1)
		}
		level[st.ID] = n
		return n
	}
	var out [][]*Step
	for _, st := range f.Steps {
		n := depth(st)
		for len(out) <= n {
			out = append(out, nil)
		}
		out[n] = append(out[n], st)
	}
	return out
}

// Does says in a few words what a step does.
func (st *Step) Does() string {
	var b strings.Builder
	switch st.Kind {
	case AgentStep:
		b.WriteString("agent " + st.Agent)
	case ParallelStep:
		b.WriteString("agents " + strings.Join(st.Parallel, ", "))
	case GroupStep:
		fmt.Fprintf(&b, "group %s, rounds %d", strings.Join(st.Group, ", "), st.most())
		if st.Until != nil {
			b.WriteString(", until " + strings.TrimSpace(st.Until.Src))
		}
	case ToolStep:
		b.WriteString("tool " + st.Tool)
	case HumanStep:
		b.WriteString("asks a person: " + strings.Join(st.Human.Choices, " or "))
	case NestedStep:
		b.WriteString("pipeline " + st.Nested)
	}
	if st.ForEach != nil {
		b.WriteString(", for each of " + strings.TrimSpace(st.ForEach.Src))
	}
	if st.Repeat != nil {
		fmt.Fprintf(&b, ", until %s, at most %d times", strings.TrimSpace(st.Repeat.Until.Src), st.Repeat.Max)
	}
	if st.When != nil {
		b.WriteString(", when " + strings.TrimSpace(st.When.Src))
	}
	if st.Quorum > 0 {
		fmt.Fprintf(&b, ", quorum %d", st.Quorum)
	}
	if st.Approve != nil {
		b.WriteString(", asks before " + strings.Join(st.Approve.Before, ", "))
		if len(st.Approve.Before) == 0 {
			b.WriteString("it begins")
		}
	}
	return b.String()
}

// Mermaid draws the graph.
func (f *File) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for _, st := range f.Steps {
		open, end := "[", "]"
		switch {
		case st.Kind == HumanStep:
			open, end = "{{", "}}"
		case st.Kind == NestedStep:
			open, end = "[[", "]]"
		case st.Fan():
			open, end = "[/", "/]"
		}
		label := st.ID + "<br/>" + strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace(st.Does())
		fmt.Fprintf(&b, "  %s%s\"%s\"%s\n", st.ID, open, label, end)
	}
	for _, st := range f.Steps {
		for _, need := range st.Needs {
			if st.When != nil {
				fmt.Fprintf(&b, "  %s -.->|when| %s\n", need, st.ID)
			} else {
				fmt.Fprintf(&b, "  %s --> %s\n", need, st.ID)
			}
		}
	}
	return b.String()
}
