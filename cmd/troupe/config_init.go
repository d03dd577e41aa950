package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

func newConfigInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration file; an existing one is never touched",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exactly("FILE")(cmd, args)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := a.flags.config
			if len(args) > 0 {
				name = args[0]
			}
			if name == "" {
				name = filepath.Join(config.Dirs(a.env).Config, "config.yaml")
			}
			if !filepath.IsAbs(name) {
				name = filepath.Join(a.cwd, name)
			}
			err := config.WriteStarter(name)
			switch {
			case errors.Is(err, fs.ErrExist):
				return &exitError{code: exitFailed, what: err.Error(), hint: "edit it, or name another file: troupe config init FILE", err: err}
			case err != nil:
				return &exitError{code: exitIO, what: fmt.Sprintf("write a configuration file: %v", err), err: err}
			}
			a.note("wrote %s; every setting in it is a comment until you change it", visible(name))
			return a.say(visible(name))
		},
	}
}
