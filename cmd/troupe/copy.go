package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newDiff(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "diff SESSION [WORKER]",
		Short: "What a session has changed in its copy of the folder (run --isolate)",
		Long: `What a session has changed in its copy of the folder (troupe run --isolate), since it was made or last applied;
or what one of its workers has in a copy of its own (troupe workers new --isolate).

What cannot be applied, as the folder was changed in the same places, is said on stderr.`,
		Args: sessionAndWorker,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				x, err := ask[*messages.Changes](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_DiffCopy{DiffCopy: &messages.DiffCopy{Worker: second(args)}}}))
				if err != nil {
					return err
				}
				if len(x.GetFiles()) == 0 {
					a.note("troupe: nothing was changed in %s", visible(x.GetCopy()))
				}
				for _, f := range x.GetFiles() {
					if f.GetConflict() != "" {
						a.note("troupe: %s cannot be applied: %s", visible(f.GetPath()), visible(f.GetConflict()))
					}
				}
				return a.emit(x.JSON(), func(w io.Writer) error { return printChanges(w, x) })
			})
		},
	}, "text", "json", "yaml")
}

// printChanges prints diffs as git does, and a line for what has none.
func printChanges(w io.Writer, x *messages.Changes) error {
	for _, f := range x.GetFiles() {
		text := f.GetDiff()
		if text == "" {
			text = fmt.Sprintf("%s: %s\n", f.GetState(), visible(f.GetPath()))
		} else {
			var lines []string
			for line := range strings.Lines(text) {
				lines = append(lines, visible(strings.TrimSuffix(line, "\n")))
			}
			text = strings.Join(lines, "\n") + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func newApply(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "apply SESSION [WORKER]",
		Short: "Bring what a session has changed in its copy back to the folder: all of it, or nothing",
		Long: `Bring what a session has changed in its copy of the folder (troupe run --isolate) back: all of it, or nothing;
or what one of its workers has in a copy of its own (troupe workers new --isolate).

What was changed in the folder meanwhile stays. Where both have changed the same lines of a file nothing is applied, and the
files are named. Commits that were made in the copy do not come along, their files do; .git is not touched.`,
		Args: sessionAndWorker,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				x, err := ask[*messages.Changes](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_ApplyCopy{ApplyCopy: &messages.ApplyCopy{By: "user", Worker: second(args)}}}))
				if err != nil {
					return err
				}
				a.note("troupe: %d files were applied to %s", len(x.GetFiles()), visible(x.GetFolder()))
				return a.emit(x.JSON(), func(w io.Writer) error {
					for _, f := range x.GetFiles() {
						if _, err := fmt.Fprintf(w, "%s: %s\n", f.GetState(), visible(f.GetPath())); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}, "text", "json", "yaml")
}

// sessionAndWorker takes a session and, where it is about the copy of one worker, that.
func sessionAndWorker(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return exactly("SESSION")(cmd, args)
}

func second(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

// unapplied refuses to delete a worker, or with none named a session, whose copies hold work that nobody has yet.
func (a *app) unapplied(ctx context.Context, n node, session, worker string, force bool) error {
	if force {
		return nil
	}
	var refused *messages.Failure
	all, err := ask[*messages.Workspaces](ctx, n, &messages.ListWorkspaces{SessionId: session})
	switch {
	case errors.As(err, &refused) && refused.GetCode() == messages.CodeNotFound: // it is closed, and its copies are gone; or there is none, as its removal will say
		return nil
	case err != nil:
		return err
	}
	for _, w := range all.GetWorkspaces() {
		whose := w.GetWorkspace().GetWorker()
		if w.GetWorkspace().GetProjectDir() == "" || worker != "" && whose != worker {
			continue
		}
		x, err := ask[*messages.Changes](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_DiffCopy{DiffCopy: &messages.DiffCopy{Worker: whose}}}))
		switch {
		case errors.As(err, &refused) && ctx.Err() == nil: // one that cannot be looked at
			continue
		case err != nil:
			return err
		case len(x.GetFiles()) > 0:
			return keepsChanges(session, whose, worker != "", x)
		}
	}
	return nil
}

func keepsChanges(session, whose string, ofWorker bool, x *messages.Changes) error {
	who, name, rm := "session "+session, session, "troupe rm --force deletes them with the session"
	if whose != "" {
		who, name = "worker "+whose, session+" "+whose
	}
	if ofWorker {
		rm = "troupe workers rm --force deletes them with the worker"
	}
	return &exitError{
		code: exitInput, what: fmt.Sprintf("%s has changed %d files in its copy of %s, and they were not applied", who, len(x.GetFiles()), visible(x.GetFolder())),
		hint: "troupe diff " + name + " shows them, troupe apply " + name + " brings them back, " + rm,
	}
}
