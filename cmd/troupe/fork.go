package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newFork(a *app) *cobra.Command {
	var at, model string
	cmd := formats(&cobra.Command{
		Use:   "fork SESSION",
		Short: "Go on from any record of a session, in a new one",
		Long: `Go on from any record of a session, in a new one.

The new session has the same agent, folders, trust and rules, and the same conversation up to the
record; the old one stays as it is, also while it works. --at takes the seq of an event, as
troupe run -o ndjson shows it; without it everything is copied. What was open at the record is
closed in the fork: calls without a result as interrupted, and an open turn as aborted.`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m := &messages.ForkSession{SessionId: args[0]}
			if cmd.Flags().Changed("at") {
				var err error
				if m.At, err = recordNumber(at); err != nil {
					return err
				}
			}
			return a.fork(cmd.Context(), m, model)
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&at, "at", "", "copy up to the record `SEQ`")
	cmd.Flags().StringVarP(&model, "model", "m", "", "`MODEL` of later turns: PROVIDER/NAME or an alias")
	return cmd
}

// recordNumber reads what names a record.
func recordNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, &exitError{code: exitInput, what: fmt.Sprintf("--at %s: no session has that many records", text), hint: "give the seq of an event, from 1 on"}
	case err != nil:
		e := usage("--at %q is no number", text)
		e.hint = "give the seq of an event, from 1 on; troupe run -o ndjson shows them"
		return 0, e
	case n == 0:
		return 0, &exitError{code: exitInput, what: "--at 0: records are counted from 1", hint: "leave --at out to copy all of them"}
	}
	return n, nil
}

func (a *app) fork(ctx context.Context, m *messages.ForkSession, model string) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	if model != "" {
		if m.Model, err = a.namedModel(ctx, loaded, newModels(loaded, a.secrets), model, ""); err != nil {
			return err
		}
	}
	none := func() error { return noSession(m.GetSessionId()) }
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		f, err := ask[*messages.Forked](ctx, n, m)
		if err != nil {
			return err
		}
		j := f.JSON()
		a.tellForked(&j)
		return a.emit(j, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, j.ID)
			return err
		})
	})
}

// tellForked says what was closed, and how to go on.
func (a *app) tellForked(j *messages.ForkedJSON) {
	a.note("forked %s at record %d", visible(j.Origin.Session), j.Origin.Seq)
	a.tellClosed(j.ClosedCalls, j.ClosedTurns, j.Staged)
	if j.Damage != "" {
		a.note("later records could not be copied: %s", oneLine(j.Damage, 500))
	}
	a.tellLeft(j.Session.Workspaces)
	a.note(`go on with: troupe run -s %s "..."`, visible(j.ID))
}

// tellLeft says which copies of folders do not come along.
func (a *app) tellLeft(all []messages.WorkspaceJSON) {
	for _, w := range all {
		whose := "the session"
		if w.Worker != "" {
			whose = "worker " + w.Worker
		}
		if w.ProjectDir != "" {
			a.note("left behind: the copy of %s that %s works in; calls there find no workspace (troupe apply brings changes back, in the original)", visible(w.Source), whose)
		}
	}
}

// tellClosed says what is different in a copy.
func (a *app) tellClosed(calls, turns, staged int32) {
	if turns > 0 {
		a.note("open there and closed here: %s, %s", count(int(turns), "turn"), count(int(calls), "call"))
	}
	if staged > 0 {
		a.note("%s for a turn: it begins when the session is opened", count(int(staged), "input waits", "inputs wait"))
	}
}

// count is a number of things in words.
func count(n int, one string, many ...string) string {
	if n == 1 {
		return "1 " + one
	}
	if len(many) > 0 {
		return fmt.Sprintf("%d %s", n, many[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}
