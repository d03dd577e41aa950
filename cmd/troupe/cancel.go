package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

// cancelFlags are the flags of the commands that cancel.
type cancelFlags struct {
	keep   bool
	jobs   bool
	job    string // the only one to end, and nothing else, if the flag is given
	reason string
}

func (f *cancelFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.keep, "keep-inputs", false, "let the inputs of people that wait have their turns: the next one begins at once")
	cmd.Flags().BoolVar(&f.jobs, "jobs", false, "end the commands that agents left running, too (exec with background)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "`WHY`, for the record")
}

func newCancel(a *app) *cobra.Command {
	f := &cancelFlags{}
	cmd := formats(&cobra.Command{
		Use:   "cancel SESSION",
		Short: "Cancel everything that is under way in a session",
		Long: `Cancel everything that is under way in a session.

The turns of all its workers end, and the inputs that wait for theirs are taken back. When the command is done, nothing
of it runs and nothing more starts. What was said and done so far stays in the conversations, and an answer
that was cut off is marked as such; messages between agents that have not arrived are dropped; the session takes new inputs as before. Commands that an agent left running
(exec with background) go on, unless --jobs says so. With --job one of them is ended, and nothing else: troupe ls jobs SESSION lists them.`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("job") {
				return a.endJob(cmd, args[0], f)
			}
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error { return a.cancel(ctx, n, args[0], "", f) })
		},
	}, "text", "json", "yaml")
	f.add(cmd)
	cmd.Flags().StringVar(&f.job, "job", "", "end the command `JOB` that an agent left running, and nothing else")
	return cmd
}

// endJob ends one command that an agent left running.
func (a *app) endJob(cmd *cobra.Command, session string, f *cancelFlags) error {
	if f.jobs || f.keep {
		e := usage("troupe cancel: --job ends one command, and nothing else")
		e.hint = "leave out --jobs and --keep-inputs, or --job"
		return e
	}
	if f.job == "" { // a variable of a script is unset, say
		return usage("troupe cancel: --job names none: troupe ls jobs %s lists them", visible(session))
	}
	return a.onSession(cmd.Context(), session, func(ctx context.Context, n node) error {
		m := &messages.EndJob{JobId: f.job, By: "user", Reason: f.reason}
		if _, err := ask[*messages.Ack](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_EndJob{EndJob: m}})); err != nil {
			return err
		}
		return a.emit(messages.CancelledJSON{Ended: 1}, func(w io.Writer) error {
			_, err := io.WriteString(w, "1 command ended\n")
			return err
		})
	})
}

// cancel cancels one worker, or all of a session, and says what there was to cancel.
func (a *app) cancel(ctx context.Context, n node, session, worker string, f *cancelFlags) error {
	m := &messages.CancelSession{WorkerId: worker, By: "user", Reason: f.reason, Inputs: !f.keep, Jobs: f.jobs}
	c, err := ask[*messages.Cancelled](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: m}}))
	if err != nil {
		return err
	}
	j := messages.CancelledJSON{Turns: c.GetTurns(), Inputs: c.GetInputs(), Messages: c.GetMessages(), Jobs: c.GetJobs(), Ended: c.GetEnded()}
	switch {
	case j.Jobs > 0 && f.jobs:
		a.note("troupe: what still runs is listed by: troupe ls jobs %s", visible(session))
	case j.Jobs > 0:
		a.note("troupe: %s that agents left running go on: --jobs ends them", count(int(j.Jobs), "command"))
	}
	return a.emit(j, func(w io.Writer) error {
		_, err := io.WriteString(w, cancelledText(j, f.jobs)+"\n")
		return err
	})
}

// cancelledText says what there was to cancel. A message is no input before it has arrived. ended says that commands were to end, too.
func cancelledText(j messages.CancelledJSON, ended bool) string {
	late := ended && j.Jobs > 0
	if j.Turns == 0 && j.Inputs == 0 && j.Messages == 0 && j.Ended == 0 && !late {
		return "nothing was under way"
	}
	text := fmt.Sprintf("%s cancelled, %s taken back", count(int(j.Turns), "turn"), count(int(j.Inputs), "input"))
	if j.Messages > 0 {
		text += fmt.Sprintf(", %s dropped that had not arrived", count(int(j.Messages), "message"))
	}
	if j.Ended > 0 {
		text += fmt.Sprintf(", %s ended", count(int(j.Ended), "command"))
	}
	if late {
		text += fmt.Sprintf(", %s asked to end that may run still", count(int(j.Jobs), "command"))
	}
	return text
}

func newRemove(a *app) *cobra.Command {
	reason, keep, force := "", false, false
	cmd := &cobra.Command{
		Use:   "rm SESSION[:PATH]",
		Short: "Delete a session for good: its turns are cancelled, and everything that was kept of it goes",
		Long: `Delete a session for good.

Its turns are cancelled, and its conversations, listings, timers and its home folder are deleted. Files in the folders that it
worked in stay; its copy of a folder goes (run --isolate), and when it holds changes that were not applied, the session stays unless --force
is given. Nothing brings it back but a backup. With --keep it is closed only: it takes nothing any more and is
listed no longer, and its conversations stay in the data directory until they are deleted for their age
(data.retention) or by troupe rm.

With a path it deletes that file of the session's home folder, and nothing else.`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if session, name, ok := keptFile(args[0]); ok {
				return a.removeFile(cmd.Context(), session, name)
			}
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				if err := a.unapplied(ctx, n, args[0], "", force); err != nil {
					return err
				}
				_, err := ask[*messages.Ack](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_Close{Close: &messages.CloseSession{Reason: reason, Forget: !keep, By: "user"}}}))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the record")
	cmd.Flags().BoolVar(&keep, "keep", false, "close it only, and keep its conversations")
	cmd.Flags().BoolVar(&force, "force", false, "also when changes of its copy of a folder (run --isolate) were not applied")
	return cmd
}
