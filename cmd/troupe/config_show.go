package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

// shownSetting is one line of `config show --origin -o json`.
type shownSetting struct {
	Path   string `json:"path"`
	Value  any    `json:"value"`
	Source string `json:"source"`
	Origin string `json:"origin"`
}

func newConfigShow(a *app) *cobra.Command {
	var dir string
	var origin bool
	cmd := formats(&cobra.Command{
		Use:   "show",
		Short: "Print the settings in force; secrets are never shown",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			loaded, err := a.load(dir)
			if err != nil {
				return err
			}
			if origin {
				return a.showOrigins(loaded)
			}
			return a.emit(loaded.Tree(), func(w io.Writer) error { return writeYAML(w, loaded.Tree()) })
		},
	}, "yaml", "json", "text")
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	folderFlag(cmd, &dir)
	return cmd
}

func (a *app) showOrigins(loaded *config.Loaded) error {
	var list []shownSetting
	for _, s := range loaded.Settings() {
		list = append(list, shownSetting{Path: s.Path, Value: s.Any(), Source: s.Origin.Source.String(), Origin: s.Origin.String()})
	}
	if a.flags.format == "json" {
		return a.emit(list, nil)
	}
	a.flags.format = "text" // as a list of objects YAML would hide what is asked for: the origins
	return a.emit(list, func(w io.Writer) error {
		rows := make([][]string, 0, len(list))
		for _, s := range loaded.Settings() {
			rows = append(rows, []string{s.String(), s.Origin.String()})
		}
		if err := table(w, []string{"SETTING", "ORIGIN"}, rows); err != nil {
			return fmt.Errorf("print settings: %w", err)
		}
		return nil
	})
}
