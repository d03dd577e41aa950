package config

import (
	"fmt"
	"slices"
	"strings"
)

// Warning is something that did not stop Load but should be known.
type Warning struct {
	Text string
	Fix  string
}

// String is the warning on one line, or two with what to do.
func (w Warning) String() string {
	if w.Fix == "" {
		return w.Text
	}
	return w.Text + "\n  " + w.Fix
}

// confine takes from a folder's layer what the folder may not say, and tells so.
//
// Whoever can write into a folder, a stranger whose repository was cloned or an agent at work in
// it, must not be able to widen what agents may do there, to send keys to another address or to
// name a command. The list is therefore one of what is allowed (the tag project), not of what is
// forbidden: a new setting is refused until someone decides otherwise.
func confine(l *layer, lower []*layer, root *shape, dir string, trusted bool) []Warning {
	c := &confiner{layer: l, lower: lower, dir: dir, trusted: trusted}
	c.section(root, "")
	if c.unsaid > 0 {
		c.warnings = append(c.warnings, Warning{Text: fmt.Sprintf("%s: %d more settings are ignored", ProjectFile, c.unsaid), Fix: c.fix()})
	}
	return c.warnings
}

// maxWarnings is how many refusals are told one by one: a hostile file has thousands.
const maxWarnings = 20

type confiner struct {
	layer    *layer
	lower    []*layer
	dir      string
	trusted  bool
	warnings []Warning
	unsaid   int // refusals beyond maxWarnings
}

func (c *confiner) section(s *shape, path string) {
	for _, f := range s.fields {
		p := child(path, f.name)
		switch f.kind {
		case section:
			c.section(f, p)
		case mapping:
			c.mapping(f, p)
		case entries:
			c.rules(f, p)
		case list, text, boolean, integer, duration, size, usd, secret:
			c.value(f, p)
		}
	}
}

func (c *confiner) value(s *shape, path string) {
	set := c.layer.settings[path]
	if set == nil {
		return
	}
	switch {
	case s.project == "never":
		c.refuse(path, set.origin, "no folder may set it, trusted or not", "set it in your own configuration")
	case c.trusted || s.project == "free":
	case s.project == "model" && !strings.HasPrefix(set.text, Scripted+"/") && !strings.HasPrefix(set.text, Replay+"/"):
	case s.project == "model": // else the folder's owner would write the answers
		c.refuse(path, set.origin, "an untrusted folder may not name a model that reads its answers from a file", "")
	case s.project == "narrow" && c.narrower(s, path, set):
	case s.project == "narrow":
		c.refuse(path, set.origin, fmt.Sprintf("an untrusted folder may only lower it, and %s is not lower", set.text), "")
	default:
		c.refuse(path, set.origin, "the folder is not trusted", "")
	}
}

// narrower tells whether a bound of the folder is at most the one in force without it. 0 is no
// limit, hence the widest.
func (c *confiner) narrower(s *shape, path string, set *setting) bool {
	current := s.def
	for _, l := range c.lower {
		if low := l.settings[path]; low != nil {
			current = low.text
		}
	}
	mine, err := s.kind.parse(set.text)
	if err != nil {
		return false
	}
	n, _ := number(mine)
	if current == "" {
		return n > 0
	}
	theirs, err := s.kind.parse(current)
	if err != nil {
		return false
	}
	most, _ := number(theirs)
	return n > 0 && (most == 0 || n <= most)
}

// mapping goes through the entries of a mapping. Where new ones are welcome, one that another
// layer defines is not: a stranger must not rewrite the prompt of an agent that has rights.
func (c *confiner) mapping(s *shape, path string) {
	if c.trusted {
		return
	}
	c.keep(s, path, func(p string) string {
		known := slices.ContainsFunc(c.lower, func(l *layer) bool { return l.marks[p] != nil })
		switch {
		case s.project != "new":
			return "the folder is not trusted"
		case known:
			return "the folder is not trusted and the name is defined elsewhere"
		case s.elem.kind == section:
			c.section(s.elem, p)
		}
		return ""
	})
}

// rules keeps of an untrusted folder's rules those that deny: even "ask" would widen what is
// refused by default.
func (c *confiner) rules(s *shape, path string) {
	if c.trusted {
		return
	}
	c.keep(s, path, func(p string) string {
		action := c.layer.settings[child(p, "action")]
		if s.project == "deny" && action != nil && action.text == "deny" {
			return ""
		}
		return "an untrusted folder may only add rules that deny"
	})
}

// keep asks for each entry why it cannot stay, and forgets those with a reason.
func (c *confiner) keep(s *shape, path string, why func(p string) string) {
	var kept []string
	for _, key := range c.layer.names[path] {
		p := child(path, key)
		reason := why(p)
		if reason == "" {
			kept = append(kept, key)
			continue
		}
		c.refuse(p, c.layer.marks[p].origin, reason, "")
		delete(c.layer.marks, p)
		c.drop(s.elem, p)
	}
	c.layer.names[path] = kept
}

// drop forgets all that was set at or below a path.
func (c *confiner) drop(s *shape, path string) {
	delete(c.layer.settings, path)
	for _, f := range s.fields {
		c.drop(f, child(path, f.name))
	}
	for _, key := range c.layer.names[path] {
		c.drop(s.elem, child(path, key))
	}
	delete(c.layer.names, path)
}

func (c *confiner) refuse(path string, origin Origin, why, fix string) {
	delete(c.layer.settings, path)
	if len(c.warnings) == maxWarnings {
		c.unsaid++
		return
	}
	if fix == "" {
		fix = c.fix()
	}
	c.warnings = append(c.warnings, Warning{Text: fmt.Sprintf("%s: %s is ignored: %s", origin, path, why), Fix: fix})
}

func (c *confiner) fix() string {
	return "if you trust what the folder says: troupe trust " + shellQuote(c.dir)
}

// shellQuote writes a path so that a person can paste it.
func shellQuote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+,@%", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
	if plain && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(printable(s), "'", `'\''`) + "'"
}
