package actors

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// places knows the folders that are open, and finds those that overlap one. Two addresses over the same files would else
// be two locks.
type places struct {
	at    map[string]string          // path -> name of its Workspace
	below map[string]map[string]bool // path -> open paths that lie in it
}

// place is the path of a folder of this machine, "" for any other workspace: a session's own is taken to overlap
// nobody's folder. Folders in the data directory are not attached; one that the data directory is in does overlap it, without a lease.
func place(g *messages.WorkspaceGrant) string {
	if g.GetKind() != string(workspace.KindClient) || !strings.HasPrefix(g.GetUri(), workspace.LocalHost+":/") {
		return ""
	}
	return path.Clean(strings.TrimPrefix(g.GetUri(), workspace.LocalHost+":"))
}

// parents yields the folders that a path lies in.
func parents(p string, yield func(string)) {
	for up := path.Dir(p); up != p; p, up = up, path.Dir(up) {
		yield(up)
	}
}

func (x *places) add(p, name string) {
	if p == "" {
		return
	}
	if x.at == nil {
		x.at, x.below = make(map[string]string), make(map[string]map[string]bool)
	}
	x.at[p] = name
	parents(p, func(up string) {
		if x.below[up] == nil {
			x.below[up] = make(map[string]bool, 1)
		}
		x.below[up][p] = true
	})
}

func (x *places) remove(p string) {
	if p == "" {
		return
	}
	delete(x.at, p)
	parents(p, func(up string) {
		delete(x.below[up], p)
		if len(x.below[up]) == 0 {
			delete(x.below, up)
		}
	})
}

// overlaps names the Workspaces of the folders around a path and in it, in the order of their paths.
func (x *places) overlaps(p string) []string {
	if p == "" {
		return nil
	}
	found := slices.Collect(maps.Keys(x.below[p]))
	parents(p, func(up string) {
		if x.at[up] != "" {
			found = append(found, up)
		}
	})
	slices.Sort(found)
	for i, at := range found {
		found[i] = x.at[at]
	}
	return found
}

// overlap says whether one of two paths lies in the other, or is it.
func overlap(a, b string) bool { return within(a, b) || within(b, a) }

func within(inner, outer string) bool {
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}
