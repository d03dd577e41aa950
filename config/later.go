package config

import (
	"fmt"
	"slices"
	"strings"
)

// NotYet reports what is set and has no effect in this version: the schema is complete from the
// start, the program is not. A command that would have to heed it refuses to work instead of doing
// something else than what stands there. What is set to its default is no problem.
func (l *Loaded) NotYet() Problems {
	var out Problems
	for _, s := range l.settings {
		if len(s.later) == 0 || s.Origin.Source == FromDefault || s.Value == s.def && !s.IsList {
			continue
		}
		values := s.List
		if !s.IsList {
			values = []string{s.Value}
		}
		for _, v := range values {
			if !slices.Contains(s.later, v) && s.later[0] != "*" {
				continue
			}
			what, shown := fmt.Sprintf("%s is not supported yet", s.Path), printable(v)
			if s.kind != secret && shown != "" {
				what = fmt.Sprintf("%s: %s is not supported yet", s.Path, shown)
			}
			out = append(out, &Problem{What: what, Path: s.Path, Origin: s.Origin, Excerpt: s.excerpt, Fix: "leave it out: this version would ignore it"})
			break
		}
	}
	return out
}

// waiting says in the description what has no effect yet.
func (s *shape) waiting() string {
	switch {
	case len(s.later) == 0:
		return ""
	case s.later[0] == "*":
		return " Not supported yet."
	}
	return " Not supported yet: " + strings.Join(s.later, ", ") + "."
}

// laterOf reads the tag later: "*" for every value but the default, or those that wait, by commas.
func laterOf(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}
