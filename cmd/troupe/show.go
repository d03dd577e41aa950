package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newShow(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "show ID",
		Short: "Show one session, turn by turn, with the conversations that its workers share, or one run of a pipeline, step by step",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			none := func() error { return noSession(args[0]) }
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				if strings.HasPrefix(args[0], messages.RunPrefix) {
					return a.showRun(ctx, n, args[0])
				}
				shown, err := ask[*messages.Shown](ctx, n, &messages.Show{Id: args[0]})
				if err != nil {
					return err
				}
				j := shown.JSON()
				return a.emit(j, func(w io.Writer) error { return printShown(w, &j) })
			})
		},
	}, "text", "json", "yaml")
}

func printShown(w io.Writer, j *messages.ShownJSON) error {
	s := &j.Session
	rows := [][]string{
		{"session", s.ID},
		{"state", s.State},
		{"folder", s.Folder},
		{"agent", s.Agent},
		{"model", s.Model},
		{"created", s.CreatedAt},
		{"updated", s.UpdatedAt},
		{"usage", usageText(s.Usage)},
	}
	if s.Budget != nil {
		rows = append(rows, []string{"budget", budgetText(s.Budget)})
	}
	for _, b := range s.Steps {
		rows = append(rows, []string{"budget of step " + b.Step, budgetText(&b.Budget)})
	}
	for _, ws := range s.Workspaces {
		rows = append(rows, []string{"workspace", ws.Name + "  " + ws.URI + "  " + ws.Trust})
	}
	if err := table(w, rows[0], rows[1:]); err != nil {
		return err
	}
	if j.Trimmed {
		if _, err := io.WriteString(w, "\nolder turns are gone: they were compacted, and removed for their age (data.trim)\n"); err != nil {
			return err
		}
	}
	for i := range j.Turns {
		if _, err := io.WriteString(w, turnText(&j.Turns[i])); err != nil {
			return err
		}
	}
	if len(j.Turns) == 0 {
		if _, err := io.WriteString(w, "\nno turns yet\n"); err != nil {
			return err
		}
	}
	for i := range s.Conversations {
		if _, err := io.WriteString(w, sharedText(&s.Conversations[i])); err != nil {
			return err
		}
	}
	return nil
}

func usageText(u messages.UsageJSON) string {
	return fmt.Sprintf("%d tokens in, %d out, $%.4f", u.InputTokens, u.OutputTokens, u.CostUSD)
}

// callLines are calls, one on each line.
func callLines(calls []messages.ToolCallJSON) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, "  %s(%s): %s\n", c.Name, summary(c.Arguments), c.Status)
	}
	return b.String()
}

func turnText(t *messages.TurnJSON) string {
	var b strings.Builder
	outcome := t.Outcome
	if outcome == "" {
		outcome = "open"
	}
	if t.Compacted {
		outcome += "  compacted"
	}
	if t.ID == "" { // of before what is left of the journal
		fmt.Fprintf(&b, "\nturn  %s\n", outcome)
	} else {
		fmt.Fprintf(&b, "\nturn %s  %s  %s  %s\n", t.ID, outcome, t.StartedAt, usageText(t.Usage))
	}
	if t.Reason != "" {
		fmt.Fprintf(&b, "  reason: %s\n", oneLine(t.Reason, 500))
	}
	if t.Input != "" {
		fmt.Fprintf(&b, "> %s\n", strings.ReplaceAll(harmless(strings.TrimRight(t.Input, "\n")), "\n", "\n> "))
	}
	calls := t.ToolCalls
	for _, g := range t.Generations {
		fmt.Fprintf(&b, "  answer %s  %s  %s", g.Model, g.FinishReason, usageText(g.Usage))
		if g.InsteadOf != "" {
			fmt.Fprintf(&b, "  instead of %s", g.InsteadOf)
		}
		if g.Attempts > 1 {
			fmt.Fprintf(&b, "  %d requests", g.Attempts)
		}
		if g.FinishReason == "cancelled" {
			b.WriteString("  cut off")
		}
		if g.ProviderRequestID != "" {
			fmt.Fprintf(&b, "  request %s", oneLine(g.ProviderRequestID, 80))
		}
		b.WriteByte('\n')
		if g.Text != "" {
			b.WriteString(harmless(strings.TrimRight(g.Text, "\n")) + "\n")
		}
		own := min(int(g.Calls), len(calls)) // a server of an earlier release does not say whose they are: they stand behind
		b.WriteString(callLines(calls[:own]))
		calls = calls[own:]
	}
	b.WriteString(callLines(calls))
	if t.Text != "" {
		b.WriteString(harmless(strings.TrimRight(t.Text, "\n")) + "\n")
	}
	if t.Partial != "" {
		b.WriteString("  answer  cut off, as its runtime was stopped; it is asked for again\n")
		b.WriteString(harmless(strings.TrimRight(t.Partial, "\n")) + "\n")
	}
	return b.String()
}
