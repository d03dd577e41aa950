package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/tools"
)

func newTool(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "tool", Short: "The tools that agents have; run one alone"}
	cmd.AddCommand(newToolList(a), newToolRun(a))
	return cmd
}

// builtin are the tools that every agent could have: those of package tools, and the one of the actors.
func builtin() []tools.Tool {
	return append(tools.Builtin(), actors.NewDelegate(nil), actors.NewHandoff(nil), actors.NewSend())
}

// listedTool is one element of `tool ls -o json`.
type listedTool struct {
	ID          string `json:"id"`
	State       string `json:"state"`  // full: offered in trusted folders only; restricted: everywhere
	Effect      string `json:"effect"` // how it can be recovered after a crash
	Description string `json:"description"`
}

func newToolList(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "ls",
		Short: "List the built-in tools",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			registry, err := tools.NewRegistry(builtin()...)
			if err != nil {
				return err
			}
			list, rows := []listedTool{}, [][]string{}
			for _, spec := range registry.Defs(nil) {
				t := listedTool{ID: spec.Name, State: "full", Effect: strings.ToLower(spec.Effect.String()), Description: spec.Description}
				if slices.Contains(tools.Restricted(), spec.Name) {
					t.State = "restricted"
				}
				list = append(list, t)
				first, _, _ := strings.Cut(strings.TrimSpace(spec.Description), "\n")
				rows = append(rows, []string{t.ID, t.State, t.Effect, oneLine(first, 90)})
			}
			return a.emit(list, func(w io.Writer) error { return table(w, []string{"TOOL", "OFFERED FROM", "EFFECT", "DOES"}, rows) })
		},
	}, "table", "json", "yaml")
}
