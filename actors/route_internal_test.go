package actors

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestACallIsRoutedAsTheTableSays is the decision table of acceptance rows 18, 46, 71, 72 and 73.
func TestACallIsRoutedAsTheTableSays(t *testing.T) {
	ws := func(name string, primary bool, offered ...string) *messages.WorkspaceGrant {
		return &messages.WorkspaceGrant{Name: name, Id: "id-" + name, Uri: "local:/" + name, Primary: primary, Tools: offered}
	}
	dir, lib, docs, home := ws("dir", true), ws("lib", false, "read_file", "exec"), ws("docs", false, "read_file", "fetch"), ws("home", false)
	picky := ws("picky", true, "read_file")
	in := func(all ...*messages.WorkspaceGrant) []*messages.WorkspaceGrant { return all }
	none := in()
	const notFound, notThere = tools.CodeToolNotFound, tools.CodeWorkspaceNotAvailable
	for _, c := range []struct {
		what      string
		all, gone []*messages.WorkspaceGrant
		tool      string
		plain     bool
		word      string
		want      string // name of the workspace, or a code
	}{
		{"named by its name", in(dir, lib, home), none, "exec", false, "lib", "lib"},
		{"named by its id", in(dir, lib, home), none, "exec", false, "id-lib", "lib"},
		{"named by its address", in(dir, lib, home), none, "exec", false, "local:/lib", "lib"},
		{"named, and it does not have the tool", in(dir, lib, home), none, "fetch", false, "lib", notFound},
		{"named, and not there", in(dir, home), none, "exec", false, "lib", tools.CodeWorkspaceNotFound},
		{"named in another case", in(dir, lib), none, "exec", false, "LIB", tools.CodeWorkspaceNotFound},
		{"a plain tool with a name", in(dir, lib), none, "exec", true, "lib", "lib"},
		{"not named: the primary", in(lib, dir, home), none, "exec", false, "", "dir"},
		{"the primary has not got it: the first attached that has", in(picky, docs, lib, home), none, "exec", false, "", "lib"},
		{"in the order of attachment", in(picky, lib, docs, home), none, "fetch", false, "", "docs"},
		{"only home has it", in(picky, lib, docs, home), none, "write_file", false, "", "home"},
		{"nobody has it", in(picky, lib, docs), none, "write_file", false, "", notFound},
		{"home alone", in(ws("home", true)), none, "exec", false, "", "home"},
		{"a plain tool needs none", in(dir), none, "todo", true, "", ""},
		{"a plain tool where there is none", none, none, "todo", true, "", ""},
		{"there is none", none, none, "read_file", false, "", notThere},
		{"named, and detached", in(dir, home), in(lib), "exec", false, "lib", notThere},
		{"named by its address, and detached", in(dir, home), in(lib), "exec", false, "local:/lib", notThere},
		{"the primary was detached: nothing else takes its calls", in(lib, home), in(dir), "read_file", false, "", notThere},
		{"the primary was detached, and another is named", in(lib, home), in(dir), "read_file", false, "lib", "lib"},
		{"another one was detached", in(dir, home), in(lib), "read_file", false, "", "dir"},
		{"attached anew under the name of a detached one", in(dir, lib), in(ws("lib", false)), "exec", false, "lib", "lib"},
	} {
		g, err := route(c.all, c.gone, &tools.Spec{Name: c.tool, NoWorkspace: c.plain}, c.word)
		got := g.GetName()
		if err != nil {
			got = err.Code
		}
		if got != c.want {
			t.Errorf("%s: %q instead of %q", c.what, got, c.want)
		}
		if got == notFound && err.Details["diagnostic"] != "Error: Tool Not Found" {
			t.Errorf("%s: diagnostic %v", c.what, err.Details)
		}
		if got == notThere && c.word == "" && err.Message != "No active project" {
			t.Errorf("%s: %q", c.what, err.Message)
		}
	}
}

// TestOverlapsAreWhatOneFolderHasOfAnother holds the index of open folders against the definition.
func TestOverlapsAreWhatOneFolderHasOfAnother(t *testing.T) {
	paths := rapid.Custom(func(rt *rapid.T) string {
		return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ab", "b"}), 0, 4).Draw(rt, "path"), "/")
	})
	rapid.Check(t, func(rt *rapid.T) {
		var x places
		open := map[string]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"open":  func(rt *rapid.T) { p := paths.Draw(rt, "p"); x.add(p, "ws"+p); open[p] = true },
			"close": func(rt *rapid.T) { p := paths.Draw(rt, "p"); x.remove(p); delete(open, p) },
			"": func(rt *rapid.T) {
				p := paths.Draw(rt, "at")
				var want []string
				for o := range open {
					if o != p && overlap(o, p) {
						want = append(want, "ws"+o)
					}
				}
				slices.Sort(want)
				if got := x.overlaps(p); !slices.Equal(got, want) {
					rt.Fatalf("%s overlaps %q instead of %q", p, got, want)
				}
			},
		})
	})
}

func TestNamesOfWorkspacesKeepOutOfThePromptsLinesAndAreNeitherIdsNorAddresses(t *testing.T) {
	for name, want := range map[string]bool{
		"lib": true, "my-lib_2.0": true, "Bibliothèque": true, "2": true, "日本": true,
		"": false, "-x": false, ".git": false, "a b": false, "a\nb": false, "a\x1b[31m": false, "a:b": false, "a/b": false, "a=b": false, "..": false,
		"a\u202eb": false, "a\u200bb": false, "\xff": false, strings.Repeat("a", 65): false, strings.Repeat("ab", 32): false, strings.Repeat("x", 64): true,
	} {
		if validName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	have := []*messages.WorkspaceAttached{{Name: HomeName}, {Name: "work"}}
	for path, want := range map[string]string{
		"/x/lib": "lib", "/x/work": "work-2", "/home": "home-2", "/x/Home": "Home-2", "/x/my lib": "my-lib", "/x/.config": "config", "/x/---": "folder", "/": "folder",
		"/x/" + strings.Repeat("y", 200): strings.Repeat("y", 60),
	} {
		got, fail := nameFor("", &messages.WorkspaceAttached{Path: path}, have)
		if got != want || fail != nil {
			t.Errorf("%s is called %q (%v) instead of %q", path, got, fail, want)
		}
	}
}
