package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newInputs(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inputs",
		Short: "Inputs of a session that wait for their turns: list them, take them back",
	}
	cmd.AddCommand(newInputsList(a), newInputsRemove(a))
	return cmd
}

func newInputsList(a *app) *cobra.Command {
	worker := ""
	cmd := formats(&cobra.Command{
		Use:   "ls SESSION",
		Short: "List the inputs of a session that are not part of its conversation for good yet",
		Long: `List the inputs of a session that are not part of its conversation for good yet, in the order of their turns.

staged waits for its turn; running has begun its turn, and the model has not answered yet: both can be taken back (troupe inputs rm).
committed is answered, and stays.`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := &listing{
				session: args[0], head: []string{"INPUT_ID", "STATE", "SINCE", "TEXT"},
				empty: "no input waits in " + visible(args[0]) + `; give it one with: troupe run -s ` + visible(args[0]) + ` "..."`,
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Inputs](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_ListInputs{
					ListInputs: &messages.ListInputs{WorkerId: worker},
				}}))
				if err != nil {
					return nil, nil, err
				}
				list, rows := found.JSON(), [][]string{}
				for _, in := range list {
					rows = append(rows, []string{in.ID, in.State, in.At, oneLine(in.Text, 80)})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	ofWorker(cmd, &worker)
	return cmd
}

func ofWorker(cmd *cobra.Command, worker *string) {
	cmd.Flags().StringVar(worker, "worker", "", "those of the worker `ID`; default: the session's first")
}

// withdrawnInput is what `inputs rm -o json` prints of one input.
type withdrawnInput struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

func newInputsRemove(a *app) *cobra.Command {
	worker := ""
	cmd := formats(&cobra.Command{
		Use:     "rm SESSION INPUT_ID...",
		Aliases: []string{"remove"},
		Short:   "Take inputs back that no model has answered yet",
		Long: `Take inputs back that no model has answered yet: the conversation never knows of them, and a turn that has begun is aborted.

One that is committed is refused; troupe cancel SESSION ends its turn.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				e := usage("troupe inputs rm: a SESSION and an INPUT_ID are needed")
				e.hint = "troupe inputs ls SESSION lists them"
				return e
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				return a.withdraw(ctx, n, args[0], worker, args[1:])
			})
		},
	}, "text", "json", "yaml")
	ofWorker(cmd, &worker)
	return cmd
}

// withdraw takes inputs back one by one; those before one that is refused are back.
func (a *app) withdraw(ctx context.Context, n node, session, worker string, ids []string) error {
	done := []withdrawnInput{}
	for _, id := range ids {
		_, err := ask[*messages.Ack](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_WithdrawInput{
			WithdrawInput: &messages.WithdrawInput{WorkerId: worker, InputId: id, By: "user"},
		}}))
		if err != nil {
			for _, one := range done {
				a.note("troupe: %s was taken back", one.ID)
			}
			return err
		}
		done = append(done, withdrawnInput{id, "withdrawn"})
	}
	return a.emit(done, func(w io.Writer) error {
		for _, one := range done {
			if _, err := fmt.Fprintf(w, "%s: taken back\n", visible(one.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}
