package main

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// sharedText is a conversation that workers share, turn by turn. Every line that somebody said begins with >: nobody passes for another one.
func sharedText(x *messages.ConversationJSON) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nconversation %s  %s\n", x.ID, oneLine(x.Name, 200))
	for _, m := range x.Members {
		fmt.Fprintf(&b, "  member %s  %s", oneLine(m.Name, 200), m.Worker)
		if m.Worker == x.Speaking {
			b.WriteString("  has the word")
		}
		if m.Left != "" {
			b.WriteString("  left: " + oneLine(m.Left, 200))
		}
		b.WriteByte('\n')
	}
	for _, t := range x.Queue {
		fmt.Fprintf(&b, "  waits for the word: %s, with turn %s\n", t.Worker, t.Turn)
	}
	for _, t := range x.Turns {
		b.WriteString(sharedTurnText(&t))
	}
	return b.String()
}

func sharedTurnText(t *messages.SharedTurnJSON) string {
	who := oneLine(t.Member, 200)
	switch {
	case t.Cut != nil:
		why := t.Cut.Outcome
		if why == "" {
			why = t.Cut.Code
		}
		if t.Cut.Reason != "" {
			why += ": " + oneLine(t.Cut.Reason, 500)
		}
		return fmt.Sprintf("[%d] %s  %s  cut off  %s\n", t.Number, who, t.At, why)
	case t.Said == nil:
		return ""
	case who == "":
		who = "from outside (" + oneLine(t.Said.By, 200) + ")"
	}
	text := harmless(strings.TrimRight(t.Said.Text, "\n"))
	return fmt.Sprintf("[%d] %s  %s\n> %s\n", t.Number, who, t.At, strings.ReplaceAll(text, "\n", "\n> "))
}
