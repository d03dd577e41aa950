package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newListJobs(a *app) *cobra.Command {
	l := &listing{
		head:  []string{"JOB", "COMMAND", "SINCE", "WORKER"},
		empty: "no command runs in the background there",
	}
	return formats(&cobra.Command{
		Use:   "jobs SESSION",
		Short: "List the commands that the agents of a session left running",
		Long: `List the commands that the agents of a session left running (exec with background).

troupe cancel SESSION --job JOB ends one of them, and --jobs all.`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.session = args[0]
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.JobCount](ctx, n, inSession(l.session, &messages.ToSession{Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}))
				if err != nil {
					return nil, nil, err
				}
				list, rows := found.JSON().Jobs, [][]string{}
				for _, j := range list {
					rows = append(rows, []string{j.ID, oneLine(j.Command, 60), j.Since, j.Worker})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
}
