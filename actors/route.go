package actors

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// notRouted is what a router says of a tool that no workspace has (acceptance row 18).
const notRouted = "Error: Tool Not Found"

// route picks the workspace of a call (acceptance row 18): the one that is named by its id, name or address; else the primary, if it
// offers the tool; else the first attached that does. A plain tool needs none. gone are the workspaces that were
// detached since the turn began: what was meant for one of them, by its name or because it was the primary, goes nowhere else.
func route(all, gone []*messages.WorkspaceGrant, spec *tools.Spec, word string) (*messages.WorkspaceGrant, *tools.Error) {
	if word != "" {
		g := named(all, word)
		switch {
		case g == nil && named(gone, word) != nil:
			return nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "Workspace '%s' is not available: it was detached", word)
		case g == nil:
			return nil, noWorkspaceNamed(all, word)
		case !offers(g, spec.Name):
			return nil, notOffered(spec.Name, g.GetName())
		}
		return g, nil
	}
	if spec.NoWorkspace {
		return nil, nil
	}
	if len(all) == 0 || slices.ContainsFunc(gone, (*messages.WorkspaceGrant).GetPrimary) {
		return nil, tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project")
	}
	for _, primary := range []bool{true, false} {
		for _, g := range all {
			if g.GetPrimary() == primary && offers(g, spec.Name) {
				return g, nil
			}
		}
	}
	return nil, notOffered(spec.Name, "")
}

// notOffered refuses a tool that a workspace does not offer; with "" for its name, that none does.
func notOffered(tool, workspace string) *tools.Error {
	e := tools.ErrorNotFound(tool)
	if workspace != "" {
		e = e.With("workspace", workspace)
	}
	return e.With("diagnostic", notRouted)
}

// Offered refuses, as a session does, a tool that is not among those that are configured for a workspace (ConfiguredTools): for who runs calls
// without a session. name is how the call has named the workspace; "": not at all.
func Offered(configured []string, spec *tools.Spec, name string) error {
	if configured == nil || slices.Contains(configured, spec.Name) || spec.NoWorkspace && name == "" {
		return nil
	}
	return notOffered(spec.Name, name)
}

// offers says whether a workspace has a tool. One that names none has all.
func offers(g *messages.WorkspaceGrant, tool string) bool {
	return len(g.GetTools()) == 0 || slices.Contains(g.GetTools(), tool)
}

func names(all []*messages.WorkspaceGrant) string {
	var out []string
	for _, g := range all {
		out = append(out, g.GetName())
	}
	return strings.Join(out, ", ")
}
