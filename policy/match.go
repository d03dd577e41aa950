package policy

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// selects says whether the rule is about the tool at all.
func (r Rule) selects(q Question) bool {
	switch {
	case r.Tool == "*":
		return true
	case strings.HasPrefix(r.Tool, "@"):
		return r.Tool[1:] == string(q.Kind)
	}
	return r.Tool == q.Tool
}

// covers says whether the rule, which allows, speaks of the whole call.
func (r Rule) covers(q Question) bool {
	if !r.selects(q) || r.Tool == "@"+string(Read) && q.Effect != messages.Effect_PURE {
		return false
	}
	if r.Arg == NoArg {
		return r.Pattern == ""
	}
	if r.check() != nil {
		return false
	}
	switch r.Arg {
	case PathArg:
		for _, p := range q.Paths {
			if !pathCovered(r.Pattern, p, q.Deep) {
				return false
			}
		}
		return len(q.Paths) > 0
	case CommandArg:
		return commandCovered(r.Pattern, q.Command) && !(r.Remembered && (elsewhere(q) || q.Background))
	case HostArg:
		return validHost(q.Host) && hostMatches(r.Pattern, q.Host)
	case NoArg:
	}
	return false
}

// touches says whether the rule, which denies or asks, speaks of any part of the call, or may
// do so as far as can be read. A call whose kind has the argument and does not state it is touched.
func (r Rule) touches(q Question) bool {
	if !r.selects(q) {
		return false
	}
	if r.Arg == NoArg || r.check() != nil {
		return true
	}
	switch r.Arg {
	case PathArg:
		for _, p := range q.Paths {
			if pathTouched(r.Pattern, p, q.Deep) {
				return true
			}
		}
		return len(q.Paths) == 0 && (q.Kind == Read || q.Kind == Edit)
	case CommandArg:
		return (q.Kind == Command || q.Command != "") && commandTouched(r.Pattern, q.Command)
	case HostArg:
		if q.Host == "" {
			return q.Kind == Network
		}
		return !validHost(q.Host) || hostMatches(r.Pattern, q.Host)
	case NoArg:
	}
	return true
}

// compare orders rules by how much they say: a pattern before none, one without wildcards before
// one with, more literal characters before fewer, then a named tool before a kind before any tool.
func (r Rule) compare(o Rule) int {
	return cmp.Or(
		truth(r.Pattern != "")-truth(o.Pattern != ""),
		truth(!r.wild())-truth(!o.wild()),
		cmp.Compare(r.literals(), o.literals()),
		cmp.Compare(r.toolRank(), o.toolRank()),
	)
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r Rule) wild() bool {
	switch r.Arg {
	case CommandArg:
		return strings.HasSuffix(r.Pattern, "*")
	case HostArg:
		return strings.HasPrefix(r.Pattern, "*")
	case NoArg, PathArg:
	}
	return strings.ContainsAny(r.Pattern, "*?")
}

func (r Rule) literals() int {
	return len(r.Pattern) - strings.Count(r.Pattern, "*") - strings.Count(r.Pattern, "?")
}

func (r Rule) toolRank() int {
	switch {
	case r.Tool == "*":
		return 0
	case strings.HasPrefix(r.Tool, "@"):
		return 1
	}
	return 2
}

// RuleFor returns the narrowest rule that would allow the call unasked, to be shown to a person
// or remembered; false when no rule can say just that.
func RuleFor(q Question) (Rule, bool) {
	r := Rule{Tool: q.Tool, Action: Allow, Scope: Session}
	switch {
	case q.Kind == Command:
		r.Arg, r.Pattern = CommandArg, strings.TrimSpace(q.Command)
	case q.Kind == Network:
		r.Arg, r.Pattern = HostArg, strings.ToLower(q.Host)
	case len(q.Paths) == 1:
		r.Arg, r.Pattern = PathArg, q.Paths[0]
		if q.Deep {
			r.Pattern = strings.TrimPrefix(strings.TrimSuffix(r.Pattern, "/")+"/**", "./")
		}
	case q.Kind != Plain:
		return Rule{}, false
	}
	if r.Arg != NoArg && r.wild() != (r.Arg == PathArg && q.Deep) { // the argument itself holds a wildcard
		return Rule{}, false
	}
	back, err := ParseRule(r.String())
	if err != nil || back != r || !r.covers(q) {
		return Rule{}, false
	}
	return r, true
}
