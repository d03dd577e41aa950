package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

// validation is what `config validate -o json` prints.
type validation struct {
	Valid    bool             `json:"valid"`
	Files    []string         `json:"files"`
	Problems []problemDetails `json:"problems"`
	Warnings []string         `json:"warnings"`
}

// problemDetails is one problem of a configuration.
type problemDetails struct {
	What   string `json:"what"`
	Path   string `json:"path,omitempty"`
	Origin string `json:"origin"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Col    int    `json:"col,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

func newConfigValidate(a *app) *cobra.Command {
	var dir string
	cmd := formats(&cobra.Command{
		Use:   "validate",
		Short: "Check files, environment and references; exit 78 if something is wrong",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			loaded, err := a.load(dir)
			problems, err := allProblems(loaded, err)
			if err != nil {
				return err
			}
			result := validation{Valid: len(problems) == 0, Files: []string{}, Problems: []problemDetails{}, Warnings: []string{}}
			for _, p := range problems {
				result.Problems = append(result.Problems, problemDetails{
					What: p.What, Path: p.Path, Origin: p.Origin.String(),
					File: p.Origin.File, Line: p.Origin.Line, Col: p.Origin.Col, Fix: p.Fix,
				})
			}
			if loaded != nil {
				result.Files = append(result.Files, loaded.Files...)
				for _, w := range loaded.Warnings {
					result.Warnings = append(result.Warnings, w.String())
				}
			}
			if !result.Valid {
				return &exitError{code: exitConfig, what: "the configuration is wrong\n" + problems.Error(), data: result}
			}
			return a.emit(result, func(w io.Writer) error { return printValid(w, result.Files) })
		},
	}, "text", "json", "yaml")
	folderFlag(cmd, &dir)
	return cmd
}

// allProblems joins those of reading with those across settings. Any other error stays one.
func allProblems(loaded *config.Loaded, err error) (config.Problems, error) {
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		return problems, nil
	case err != nil:
		return nil, err
	}
	return append(append(loaded.Check(), loaded.NotYet()...), unknownTools(loaded)...), nil
}

func printValid(w io.Writer, files []string) error {
	if len(files) == 0 {
		_, err := fmt.Fprintln(w, "valid (no file; troupe config init writes one)")
		return err
	}
	for _, f := range files {
		if _, err := fmt.Fprintf(w, "valid: %s\n", visible(f)); err != nil {
			return err
		}
	}
	return nil
}
