package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// tourView tells each step as it happens, and prints what commands said at the beginning of lines.
type tourView struct{ out io.Writer }

func (v *tourView) show(e *messages.Event, t *turnLog) error {
	switch e.GetType() {
	case messages.EventGenerationCompleted:
		return v.line("\n%s", strings.TrimSpace(harmless(e.GetText())))
	case messages.EventToolDispatched:
		if c := t.call(e.GetExecId()); c != nil && c.name == "exec" {
			return v.line("  $ %s", summary(c.arguments))
		}
	case messages.EventToolFinished:
		return v.tool(e, t.call(e.GetExecId()))
	}
	return nil
}

func (v *tourView) tool(e *messages.Event, c *turnCall) error {
	arguments := ""
	if c != nil {
		arguments = summary(c.arguments)
	}
	if e.GetTool() == "exec" {
		return v.line("%s", strings.TrimRight(harmless(e.GetText()), "\n"))
	}
	if e.GetStatus() != "ok" {
		return v.line("  %s(%s): %s: %s", e.GetTool(), arguments, e.GetStatus(), oneLine(e.GetText(), 160))
	}
	return v.line("  %s(%s): ok", e.GetTool(), arguments)
}

func (v *tourView) done(*turnLog) error { return nil }

func (v *tourView) line(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return written(io.WriteString(v.out, text+"\n"))
}
