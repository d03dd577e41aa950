package config

import (
	"slices"
	"strings"
)

// NotYet reports what is set and has no effect in this version: the schema is complete from the
// start, the program is not, and some of it something else does. A command that would have to heed it refuses to work instead of doing
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
			what, fix := "is not supported yet", "leave it out: this version would ignore it"
			if s.instead != "" { // it will not come: something else does it
				what, fix = "is not taken here", "leave it out, and use "+s.instead
			}
			if shown := printable(v); s.kind != secret && shown != "" {
				what = s.Path + ": " + shown + " " + what
			} else {
				what = s.Path + " " + what
			}
			out = append(out, &Problem{What: what, Path: s.Path, Origin: s.Origin, Excerpt: s.excerpt, Fix: fix})
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
	case s.instead != "" && s.later[0] == "*":
		return " Not taken here: use " + s.instead + "."
	case s.instead != "":
		return " Not taken here: " + strings.Join(s.later, ", ") + "; use " + s.instead + "."
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
