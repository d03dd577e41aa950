package main

import (
	"github.com/spf13/cobra"
)

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show, check and start the configuration",
		Long: `Show, check and start the configuration.

Settings are taken from, the strongest first:

  flags
  TROUPE_* variables          see troupe help environment
  OPENAI_API_KEY, OPENAI_BASE_URL
  .troupe/config.yaml         of the folder at work (-C)
  $XDG_CONFIG_HOME/troupe/config.yaml, else ~/.config/troupe/config.yaml
  /etc/troupe/config.yaml
  defaults

With --config FILE, that file stands for the three files. Files are YAML and read strictly:
unknown keys and wrong types are errors with line and column. Mappings of several files are
joined key by key, rules of all files count, any other list is replaced by the stronger one.

The file of a folder that you have not trusted may choose a model, define new agents, lower
limits and add rules that deny. Whatever else it says is ignored and reported, until
troupe trust DIR. Keys never stand in a file: name a variable (api_key_env), a file
(api_key_file) or a command (api_key_command).`,
	}
	cmd.AddCommand(newConfigShow(a), newConfigValidate(a), newConfigInit(a), newConfigSchema(a))
	return cmd
}
