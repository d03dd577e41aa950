package actors_test

import (
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/workspace"
)

// TestARepositoryIsConfinedByWhicheverNameItIsCloned: by another ref, which may be the same commit, a folder in it, or a spelling that its host takes for the same.
func TestARepositoryIsConfinedByWhicheverNameItIsCloned(t *testing.T) {
	modes := map[string]string{"git:example.org/team/proj": "container", "git:example.org/team/part@v1//sub": "container", "git:example.org/team/proj@free": "local"}
	for uri, want := range map[string]string{
		"git:example.org/team/proj": "container", "git:example.org/team/proj@main": "container", "git:example.org/team/proj//sub": "container",
		"git:example.org/team/proj@main//sub": "container", "git:example.org:443/team/proj": "container", "git:EXAMPLE.org/Team/Proj.git": "container",
		"git:example.org/team/proj.git.git": "container", "git:example.org/team/proj/": "container", "git:example.org/team/part": "container", "git:example.org/team/part@v2": "container",
		"git:example.org/team/proj@free": "local", "git:example.org/team/project": "local", "git:example.org/team/pro": "local", "git:example.com/team/proj": "local",
		"git:example.org:8443/team/proj": "local", "git:example.org/team/proj/more": "local",
	} {
		addr, err := workspace.Parse(uri, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := actors.ConfiguredMode(modes, addr.Canonical); got != want {
			t.Errorf("%s (%s): mode %s instead of %s", uri, addr.Canonical, got, want)
		}
	}
}
