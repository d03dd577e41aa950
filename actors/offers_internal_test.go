package actors

import (
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestListsOfOneRepositoryThatHaveNothingInCommonOfferNothing, and not all.
func TestListsOfOneRepositoryThatHaveNothingInCommonOfferNothing(t *testing.T) {
	const clone = "git:git.example.com/team/app@dev"
	for name, c := range map[string]struct {
		offers map[string][]string
		want   []string
		fails  bool
	}{
		"nothing in common": {map[string][]string{"git:git.example.com/team/app@one": {"read_file"}, "git:git.example.com/team/app@two": {"grep"}}, nil, true},
		"its own":           {map[string][]string{"git:git.example.com/team/app@dev": {"read_file"}, "git:git.example.com/team/app@release": {"read_file", "exec"}}, []string{"read_file"}, false},
		"longer":            {map[string][]string{"git:git.example.com/team/app@a": {"read_file"}, "git:git.example.com/team/app@release": {"read_file", "exec"}}, []string{"read_file"}, false},
		"something":         {map[string][]string{"git:git.example.com/team/app@one": {"read_file", "grep"}, "git:git.example.com/team/app@two": {"grep"}}, []string{"grep"}, false},
		"another's":         {map[string][]string{"git:git.example.com/team/lib": {"read_file"}}, nil, false},
		"an empty list":     {map[string][]string{"git:git.example.com/team/app": {}}, nil, false},
	} {
		a := &messages.WorkspaceAttached{Uri: clone}
		fail := (&Services{Offers: c.offers}).settleTools(a)
		if (fail != nil) != c.fails || !slices.Equal(a.GetTools(), c.want) {
			t.Errorf("%s: %v, %v", name, a.GetTools(), fail)
		}
	}
}
