package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// template is text with variables: ${1} and ${name} are groups of the rule's match, ${user} the
// last thing the user said, ${agent}, ${turn} and ${step} where the conversation stands,
// ${tool.name} and ${tool.content} the result that came in last. $${ stands for ${.
type template struct {
	parts []part
}

type part struct {
	text string
	name string // of a variable, else empty
	at   int    // its group, -1 when it is none
}

// compile reads a template; match is the rule's pattern, nil when it has none.
func compile(s string, match *regexp.Regexp) (template, error) {
	var t template
	for s != "" {
		i := strings.Index(s, "${")
		if i < 0 {
			break
		}
		if i > 0 && s[i-1] == '$' {
			t.literal(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return t, fmt.Errorf("unfinished variable in %q: write $${ for a plain ${", s[i:])
		}
		t.literal(s[:i])
		p, err := variable(s[i+2:i+end], match)
		if err != nil {
			return t, err
		}
		t.parts = append(t.parts, p)
		s = s[i+end+1:]
	}
	t.literal(s)
	return t, nil
}

func (t *template) literal(s string) {
	if s == "" {
		return
	}
	if n := len(t.parts); n > 0 && t.parts[n-1].name == "" {
		t.parts[n-1].text += s
		return
	}
	t.parts = append(t.parts, part{text: s})
}

func variable(name string, match *regexp.Regexp) (part, error) {
	p := part{name: name, at: -1}
	switch name {
	case "user", "agent", "turn", "step", "tool.name", "tool.content":
		return p, nil
	}
	if match != nil {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= match.NumSubexp() {
			p.at = n
			return p, nil
		}
		if i := slices.Index(match.SubexpNames(), name); i > 0 {
			p.at = i
			return p, nil
		}
	}
	return p, fmt.Errorf("unknown variable ${%s}: the rule's match has no such group", name)
}

// fixed tells that the template has no variables.
func (t *template) fixed() bool {
	return len(t.parts) == 0 || (len(t.parts) == 1 && t.parts[0].name == "")
}

func (t *template) render(v *view) string {
	switch {
	case len(t.parts) == 0:
		return ""
	case t.fixed():
		return t.parts[0].text
	}
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.value(v))
	}
	return b.String()
}

func (p *part) value(v *view) string {
	switch {
	case p.name == "":
		return p.text
	case p.at >= 0:
		if from, to := v.groups[2*p.at], v.groups[2*p.at+1]; from >= 0 {
			return v.user[from:to]
		}
		return ""
	}
	switch p.name {
	case "user":
		return v.user
	case "agent":
		return v.agent
	case "turn":
		return strconv.Itoa(v.turn)
	case "step":
		return strconv.Itoa(v.step)
	case "tool.name":
		return v.result.name
	default:
		return v.result.content
	}
}
