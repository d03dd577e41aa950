package main

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newTree(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "tree",
		Short: "Show the live supervision tree",
		Long: `Show the live supervision tree of the server, or of the process that works on the data directory: every actor with its state, how
often it was restarted, how many messages, inputs or requests wait in it, and its last error.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withHolder(cmd.Context(), func(ctx context.Context, n node) error {
				t, err := ask[*messages.Tree](ctx, n, &messages.DescribeTree{Deep: true})
				if err != nil {
					return err
				}
				j := t.GetRoot().JSON()
				return a.emit(j, func(w io.Writer) error {
					return table(w, []string{"ACTOR", "STATE", "RESTARTS", "PENDING", "LAST ERROR"}, treeRows(nil, &j, 0))
				})
			})
		},
	}, "table", "json", "yaml")
}

// treeRows lists an actor and what is below it, indented.
func treeRows(rows [][]string, j *messages.ActorJSON, depth int) [][]string {
	name := j.Kind + " " + j.ID
	if j.Agent != "" && j.Agent != "default" {
		name += " (agent " + j.Agent + ")"
	}
	switch {
	case j.Parent != "" && j.Background:
		name += " (delegated by " + j.Parent + ", in the background)"
	case j.Parent != "":
		name += " (delegated by " + j.Parent + ")"
	}
	rows = append(rows, []string{
		strings.Repeat("  ", depth) + name, j.State, strconv.Itoa(int(j.Restarts)), strconv.Itoa(int(j.Pending)), oneLine(j.LastError, 80),
	})
	for i := range j.Children {
		rows = treeRows(rows, &j.Children[i], depth+1)
	}
	return rows
}
