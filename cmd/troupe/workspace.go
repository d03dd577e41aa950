package main

import "github.com/spf13/cobra"

func newWorkspace(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "Workspaces of sessions, and their addresses",
		Long: `Workspaces of sessions, and their addresses. There are three kinds:

  troupe:/sessions/a1b2             kept by the server (its host is server.name)
  macbook-pro:~/dev/project         a folder of somebody's machine; local:/abs/path is one of this machine
  git:github.com/owner/repo@main    a repository, cloned when it is needed`,
	}
	cmd.AddCommand(newWorkspaceParse(a), newWorkspaceAttach(a), newWorkspaceDetach(a), newWorkspaceFields(a), newWorkspaceSet(a), newListWorkspaces(a, "ls", "List the workspaces of all sessions, or of one"))
	return cmd
}
