package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

// newHelp is `troupe help [COMMAND...|TOPIC]`. Unlike cobra's own it fails for unknown words.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND or TOPIC]",
		Short: "Explain a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil || len(rest) > 0 {
				return unknownTopic(cmd.Root(), args)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

func unknownTopic(root *cobra.Command, args []string) error {
	var names []string
	for _, sub := range root.Commands() {
		names = append(names, sub.Name())
	}
	word := strings.Join(args, " ")
	e := usage("there is no help about %q", word)
	e.hint = "see troupe help"
	if near := config.Near(word, names); len(near) > 0 {
		e.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

// newTopics are the topics that are no commands. (config is both; its topic is the command's text.)
func newTopics(a *app) []*cobra.Command {
	exits := &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean"}
	environment := &cobra.Command{Use: "environment", Short: "The variables that troupe reads"}
	show := func(text func() string) func(*cobra.Command, []string) {
		return func(*cobra.Command, []string) {
			_, _ = fmt.Fprint(a.out, text()) // help has no way to fail
		}
	}
	exits.SetHelpFunc(show(exitCodesText))
	environment.SetHelpFunc(show(environmentText))
	return []*cobra.Command{exits, environment}
}

func exitCodesText() string {
	var b strings.Builder
	b.WriteString("Exit codes, the same for all commands:\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, m := range exitTable() {
		outcome := ""
		if m.Outcome != "" {
			outcome = "turn: " + m.Outcome
		}
		_, _ = fmt.Fprintf(w, "  %d\t%s\t%s\n", m.Code, m.Meaning, outcome) // into memory
	}
	_ = w.Flush()
	return strings.ReplaceAll(b.String(), "  \n", "\n") +
		"\nA tool call that was denied or failed does not by itself change the outcome of a turn.\n"
}

func environmentText() string {
	var b strings.Builder
	b.WriteString(`Variables that troupe reads. Flags win over them, and they win over files.

  OPENAI_API_KEY    key of the provider openai; defines it
  OPENAI_BASE_URL   address of the provider openai; defines it, no key needed
  NO_COLOR          no colours
  HOME, XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_CACHE_HOME, XDG_RUNTIME_DIR

Every setting with a fixed name has a variable: TROUPE_ and its path, with __ between levels.
Lists are separated by commas. An empty variable is not set; an unknown one is reported.
Below the names that you choose it works alike: TROUPE_PROVIDERS__LAB__BASE_URL.

`)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, d := range config.Reference() {
		if strings.Contains(d.Path, "NAME") || strings.Contains(d.Path, "[]") || !d.Settable {
			continue
		}
		_, _ = fmt.Fprintf(w, "  %s\t%s\n", config.EnvName(d.Path), d.Doc) // into memory
	}
	_ = w.Flush()
	return b.String()
}
