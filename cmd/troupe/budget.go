package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newBudget(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "budget", Short: "Give sessions more to spend"}
	cmd.AddCommand(newBudgetAdd(a))
	return cmd
}

func newBudgetAdd(a *app) *cobra.Command {
	var step string
	cmd := formats(&cobra.Command{
		Use:   "add SESSION AMOUNT...",
		Short: "Give a session more to spend",
		Long: `Give a session more to spend.

AMOUNT is one of usd=N, tokens=N, tool_calls=N, wall=DURATION, of what the session's budget bounds. A turn that waits for more goes on, at
once when its session is at work, else with: troupe run -s ID. A turn that the budget has ended stays ended: give it another prompt.

With --step it is the budget of a step of the session's run, as troupe show lists it, that gets more. A run that failed for want of it tries that step again
with: troupe pipeline run --resume RUN.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("troupe budget add: say which session, and how much")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			add, err := parseAmounts("troupe budget add", strings.Join(args[1:], ","))
			if err != nil {
				return err
			}
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			none := func() error { return noSession(args[0]) }
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				m := &messages.AddBudget{Add: add, By: "user", ChangeId: messages.NewID("bgt_"), Step: step}
				v, err := ask[*messages.BudgetView](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_AddBudget{AddBudget: m}}))
				if err != nil {
					return err
				}
				j := v.JSON()
				return a.emit(j, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, budgetText(j))
					return err
				})
			})
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&step, "step", "", "`STEP` of the session's run whose budget it is")
	return cmd
}

// parseAmounts reads what flags and arguments say of a budget: usd=1,tokens=50000.
func parseAmounts(who, text string) (*messages.Amounts, error) {
	out := &messages.Amounts{}
	names, said := []string{"usd", "tokens", "tool_calls", "wall"}, []string(nil)
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if slices.Contains(said, name) {
			return nil, usage("%s: %s is said twice", who, name)
		}
		said = append(said, name)
		var err error
		switch name {
		case "usd":
			var usd config.USD
			usd, err = config.ParseUSD(value)
			out.MicroUsd = int64(usd)
		case "tokens":
			out.Tokens, err = config.ParseCount(value)
		case "tool_calls":
			out.ToolCalls, err = config.ParseCount(value)
		case "wall":
			var d time.Duration
			d, err = config.ParseDuration(value)
			out.WallMs = messages.WallMs(d)
		default:
			e := usage("%s: %q is no part of a budget", who, part)
			e.hint = "write for example usd=1,tokens=50000; there are " + strings.Join(names, ", ")
			if near := config.Near(name, names); len(near) > 0 {
				e.hint = "did you mean " + strings.Join(near, " or ") + "?"
			}
			return nil, e
		}
		if err != nil {
			return nil, usage("%s: %s: %v", who, name, err)
		}
	}
	if fail := out.Refuse(); fail != nil {
		return nil, usage("%s: %s: %s", who, text, fail.GetMessage())
	}
	return out, nil
}

// budgetOption is the section budgets as the runtime takes it.
func budgetOption(b config.Budget) troupe.Budget {
	return troupe.Budget{
		USD: float64(b.USD) / 1e6, Tokens: b.Tokens, ToolCalls: b.Calls, Wall: b.Wall, Pause: b.OnExceed == "pause", Answer: b.Answer,
	}
}

// addBudgetCommand is what a person may type to give a session more of what it has used up, or will first.
func addBudgetCommand(session, step string, j *messages.BudgetViewJSON) string {
	most, what := 0.0, "tokens=N"
	if step != "" {
		session += " --step " + shellWord(step)
	}
	if j == nil {
		return "troupe budget add " + session + " " + what
	}
	used := func(limit, spent float64, amount string) {
		if limit > 0 && spent/limit >= most {
			most, what = spent/limit, amount
		}
	}
	used(float64(j.Limits.WallMs), float64(j.Spent.WallMs), "wall=TIME")
	used(float64(j.Limits.ToolCalls), float64(j.Spent.ToolCalls), "tool_calls=N")
	used(j.Limits.USD, j.Spent.USD, "usd=N")
	used(float64(j.Limits.Tokens), float64(j.Spent.Tokens), "tokens=N")
	return "troupe budget add " + session + " " + what
}

// shellWord is a word as one types it: the items of a step may have any names.
func shellWord(s string) string {
	return visible(messages.ShellWord(s))
}

// budgetText is a budget on one line: what is spent of what.
func budgetText(j *messages.BudgetViewJSON) string {
	var parts []string
	say := func(limit bool, format string, args ...any) {
		if limit {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	say(j.Limits.Tokens > 0, "%d of %d tokens", j.Spent.Tokens, j.Limits.Tokens)
	say(j.Limits.USD > 0, "$%.4f of $%.4f", j.Spent.USD, j.Limits.USD)
	say(j.Limits.ToolCalls > 0, "%d of %d tool calls", j.Spent.ToolCalls, j.Limits.ToolCalls)
	say(j.Limits.WallMs > 0, "%s of %s", time.Duration(j.Spent.WallMs)*time.Millisecond, time.Duration(j.Limits.WallMs)*time.Millisecond)
	text := strings.Join(parts, ", ") + " spent"
	if j.Waiting > 0 {
		text += fmt.Sprintf("; %d wait for more", j.Waiting)
	}
	return text
}
