package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

func newConfigSchema(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			raw, err := config.Schema()
			if err != nil {
				return err
			}
			return a.emit(json.RawMessage(raw), func(w io.Writer) error {
				if _, err := w.Write(raw); err != nil {
					return fmt.Errorf("print the schema: %w", err)
				}
				return nil
			})
		},
	}, "json", "yaml")
}
