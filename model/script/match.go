package script

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// view is what the rules may know of a request.
type view struct {
	agent   string
	user    string // what the user said last
	turn    int    // how many times the user spoke
	step    int    // answers since then
	results []result
	result  result // the one that the rule asked for, else the last
	groups  []int  // of the rule's match in user
	size    int    // characters of the whole prompt
}

type result struct{ name, content string }

func look(req *model.Request) *view {
	v := &view{agent: req.Agent, size: len(req.Prompt.System)}
	for _, m := range req.Prompt.Messages {
		v.size += len(m.Text)
		switch m.Role {
		case messages.User:
			v.turn++
			v.user, v.step, v.results = m.Text, 0, v.results[:0]
		case messages.Assistant:
			v.step++
			v.results = v.results[:0]
			for _, c := range m.ToolCalls {
				v.size += len(c.GetName()) + len(c.GetArguments())
			}
		case messages.ToolRole:
			v.results = append(v.results, result{m.ToolName, m.Text})
		}
	}
	if n := len(v.results); n > 0 {
		v.result = v.results[n-1]
	}
	return v
}

// find returns the reply of the first rule that fits, or nil.
func (s *Script) find(v *view) *reply {
	last := v.result
	for i := range s.rules {
		v.result = last
		if r := s.rules[i].fits(v); r != nil {
			return r
		}
	}
	return nil
}

func (r *rule) fits(v *view) *reply {
	if (r.agent != "" && r.agent != v.agent) || (r.turn > 0 && r.turn != v.turn) || (r.step >= 0 && r.step != v.step) {
		return nil
	}
	at := 0
	if r.steps {
		if at = v.step; at >= len(r.plays) {
			return nil
		}
	}
	if r.after && !v.came(r.tool, r.holds) {
		return nil
	}
	if r.match != nil {
		if v.groups = r.match.FindStringSubmatchIndex(v.user); v.groups == nil {
			return nil
		}
	}
	return &r.plays[at]
}

// came tells whether such a result has just come in, and makes it the one of the templates.
func (v *view) came(tool, holds string) bool {
	for _, r := range v.results {
		if (tool == "" || tool == r.name) && strings.Contains(r.content, holds) {
			v.result = r
			return true
		}
	}
	return false
}

// unmatched is the error for a prompt that no rule fits. Its hint is a rule that does.
func (s *Script) unmatched(v *view) *model.Error {
	said, _, more := strings.Cut(v.user, "\n")
	if runes := []rune(said); len(runes) > 60 {
		said, more = string(runes[:60]), true
	}
	pattern := "^" + regexp.QuoteMeta(said)
	if !more {
		pattern += "$"
	}
	var hint strings.Builder
	if v.agent != "" {
		fmt.Fprintf(&hint, "  - agent: %s\n    match: %s\n", quoted(v.agent), quoted(pattern))
	} else {
		fmt.Fprintf(&hint, "  - match: %s\n", quoted(pattern))
	}
	fmt.Fprintf(&hint, "    step: %d\n    reply:\n      text: 'what the model should say'\n", v.step)
	return &model.Error{
		Class:   model.Unmatched,
		Message: fmt.Sprintf("script %q has no rule for agent %q at step %d of turn %d, which began with %q", s.Name, v.agent, v.step, v.turn, said),
		Hint:    hint.String(),
	}
}

// quoted writes a YAML scalar on one line. Control characters cannot stand in a single-quoted
// one, so they become a dot, which a pattern matches.
func quoted(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\ufffd' || r == '\ufeff' || r == '\u2028' || r == '\u2029' {
			return '.'
		}
		return r
	}, s)
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
