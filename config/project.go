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
	return c.warnings
}

type confiner struct {
	layer    *layer
	lower    []*layer
	dir      string
	trusted  bool
	warnings []Warning
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
	for _, key := range slices.Clone(c.layer.names[path]) {
		p := child(path, key)
		known := slices.ContainsFunc(c.lower, func(l *layer) bool { return l.marks[p] != nil })
		switch {
		case c.trusted:
		case s.project != "new":
			c.refuse(p, c.layer.marks[p].origin, "the folder is not trusted", "")
			c.drop(path, key)
		case known:
			c.refuse(p, c.layer.marks[p].origin, "the folder is not trusted and the name is defined elsewhere", "")
			c.drop(path, key)
		case s.elem.kind == section:
			c.section(s.elem, p)
		}
	}
}

// rules keeps of an untrusted folder's rules those that deny: even "ask" would widen what is
// refused by default.
func (c *confiner) rules(s *shape, path string) {
	for _, key := range slices.Clone(c.layer.names[path]) {
		p := child(path, key)
		action := c.layer.settings[child(p, "action")]
		if c.trusted || s.project == "deny" && action != nil && action.text == "deny" {
			continue
		}
		c.refuse(p, c.layer.marks[p].origin, "an untrusted folder may only add rules that deny", "")
		c.drop(path, key)
	}
}

// drop forgets an entry and all below it.
func (c *confiner) drop(path, key string) {
	p := child(path, key)
	c.layer.names[path] = slices.DeleteFunc(c.layer.names[path], func(k string) bool { return k == key })
	delete(c.layer.marks, p)
	for name := range c.layer.settings {
		if strings.HasPrefix(name, p+".") || strings.HasPrefix(name, p+"[") || name == p {
			delete(c.layer.settings, name)
		}
	}
}

func (c *confiner) refuse(path string, origin Origin, why, fix string) {
	if fix == "" {
		fix = "if you trust what the folder says: troupe trust " + shellQuote(c.dir)
	}
	delete(c.layer.settings, path)
	c.warnings = append(c.warnings, Warning{Text: fmt.Sprintf("%s: %s is ignored: %s", origin, path, why), Fix: fix})
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
