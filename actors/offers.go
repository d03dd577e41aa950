package actors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// Each workspace offers tools of its own (acceptance row 72): those that whoever attached it has named, of those that are configured for its address;
// where nobody says anything, all.

// ConfiguredTools are the tools that an address offers, nil for all: its own list; else that of the nearest folder around it, so that the
// address of all sessions (SERVER:/sessions) stands for what each of them keeps. Of a repository any ref and folder is the same, as a clone has all of it: it
// offers what all lists of that have in common, which may be nothing.
func ConfiguredTools(all map[string][]string, uri string) []string {
	if own := all[uri]; len(own) > 0 {
		return own
	}
	host, path, _ := strings.Cut(uri, ":")
	var found []string
	nearest := -1
	for other, list := range all {
		h, p, _ := strings.Cut(other, ":")
		switch {
		case h != host || len(list) == 0: // who lists nothing says nothing
		case h == "git" && !strings.EqualFold(repository(path), repository(p)):
		case h == "git" && found == nil:
			found = list
		case h == "git":
			found = slices.DeleteFunc(slices.Clone(found), func(name string) bool { return !slices.Contains(list, name) })
		case within(path, p) && len(p) > nearest:
			found, nearest = list, len(p)
		}
	}
	return found
}

// settleTools checks the tools that a workspace is to offer, and leaves out what it may not.
func (s *Services) settleTools(a *messages.WorkspaceAttached) *messages.Failure {
	for _, name := range a.GetTools() {
		if _, err := s.Tools.Lookup(name); err != nil {
			return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s: %v", a.GetUri(), err), "")
		}
	}
	called := known(&messages.WorkspaceGrant{Uri: a.GetUri(), Source: a.GetSource()})
	configured := ConfiguredTools(s.Offers, called)
	switch {
	case configured == nil:
		return nil
	case len(configured) == 0:
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s offers no tool at all", called), "what is configured for its repository has no tool in common")
	case len(a.GetTools()) == 0:
		a.Tools = configured
		return nil
	}
	a.Tools = slices.DeleteFunc(slices.Clone(a.GetTools()), func(name string) bool { return !slices.Contains(configured, name) })
	if len(a.GetTools()) == 0 {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s offers none of the tools that were named", called), "as configured it has: "+strings.Join(configured, ", "))
	}
	return nil
}

// toolsIn are, for the prompt, the tools that the worker has in a workspace, sorted; "" where it has there what it has anywhere.
func (w *Worker) toolsIn(g *messages.WorkspaceGrant) string {
	var there []string
	all := true
	for _, d := range w.toolDefs() {
		t, err := w.svc.Tools.Lookup(d.Name)
		switch {
		case err != nil || t.Spec().NoWorkspace:
		case d.Name == tools.WriteAccessName && g.GetTrust() == messages.Trust_FULL: // there is nothing to ask for
		case w.has(g, d.Name):
			there = append(there, d.Name)
		default:
			all = false
		}
	}
	switch {
	case len(g.GetTools()) > 0 && len(there) == 0, !all && len(there) == 0:
		return "none"
	case len(g.GetTools()) > 0, !all:
		return strings.Join(there, ", ")
	}
	return ""
}

// has says whether the worker has a tool in a workspace, whatever decides about its calls.
func (w *Worker) has(g *messages.WorkspaceGrant, name string) bool {
	if !offers(g, name) {
		return false
	}
	for _, r := range w.roles() {
		added := slices.ContainsFunc(w.rules(r), func(r policy.Rule) bool { return r.Tool == name && r.Action == policy.Allow })
		if !added && !w.inToolset(r, name, g.GetTrust()) {
			return false
		}
	}
	return true
}
