package main

import (
	"io"

	"github.com/spf13/cobra"
)

func newCompletion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion",
		Short: "Print a completion script for a shell",
		Long: `Print a completion script for a shell. To try it in the running one:

  bash:        source <(troupe completion bash)
  zsh:         source <(troupe completion zsh)
  fish:        troupe completion fish | source
  powershell:  troupe completion powershell | Out-String | Invoke-Expression`,
	}
	shells := []struct {
		name  string
		write func(root *cobra.Command, w io.Writer) error
	}{
		{"bash", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }},
		{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"powershell", func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }},
	}
	for _, s := range shells {
		cmd.AddCommand(&cobra.Command{
			Use:   s.name,
			Short: "Print the script for " + s.name,
			Args:  exactly(),
			RunE:  func(cmd *cobra.Command, _ []string) error { return s.write(cmd.Root(), a.out) },
		})
	}
	return cmd
}
