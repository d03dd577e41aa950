package policy

import (
	"fmt"
	"strings"
	"time"
)

// Scope says how long a rule lasts and for whom. The decision does not depend on it: who holds
// the rules drops those that are over.
type Scope string

// The scopes.
const (
	Once    Scope = "once"
	Session Scope = "session"
	Agent   Scope = "agent"
	Always  Scope = "always"
)

// Arg is the argument that a rule's pattern is about.
type Arg string

// The arguments; NoArg with an empty pattern speaks of every call of the tool.
const (
	NoArg      Arg = ""
	PathArg    Arg = "path"
	CommandArg Arg = "command"
	HostArg    Arg = "host"
)

// Rule is a standing answer.
//
// Tool is a tool's name, `@read`, `@edit`, `@command`, `@network` or `@plain` for every tool of a
// kind, or `*` for every tool.
//
// A path pattern goes by components: `*` and `?` stay inside one, a component `**` stands for
// any number of them, none included: `docs/**` means docs and all below. It is relative to
// the workspace and never matches through `..`.
//
// A host pattern is a name, or `*.` and a name for every host below that name.
//
// A command pattern is a list of words, compared one by one after quotes are removed. Without a
// final `*` it is the whole command. `go test *` and `go test*` are the same: these words and
// any that follow, so `go testify` does not match. A `*` after anything but a letter, a digit or
// `_` is the rest of one last word without `..`: `cat docs/*` covers `cat docs/a` and not
// `cat docs/a /etc/passwd`. A `*` never covers a command that runs another one
// (sh, env, timeout, xargs, find -exec): such a command is allowed only word by word.
type Rule struct {
	Tool    string
	Arg     Arg
	Pattern string
	Action  Action
	Scope   Scope
	Unknown Unknown // what becomes of a call that it is about when nobody knows whether it ran

	// Timeout is how long a question waits that this rule had asked; 0: as long as any.
	Timeout time.Duration

	// Remembered says that it came of an answer about one call, and is no rule that somebody wrote: it brings no tool
	// into a toolset, and a command that it allows runs in the workspace's root.
	Remembered bool
}

// RuleError says what is wrong with a rule's text and where.
type RuleError struct {
	Text string
	At   int // byte offset, from 0
	Why  string
}

// Error names the position as people count: from 1.
func (e *RuleError) Error() string {
	return fmt.Sprintf("rule %q, character %d: %s", e.Text, e.At+1, e.Why)
}

// ParseRule reads `[allow|ask|deny] TOOL[(PATTERN)] [unknown=report|retry|ask|fail] [timeout=DURATION]`, for example `exec(go test*)`,
// `write_file(docs/**)`, `deny exec(rm *)`, `@read`, `exec(git push*) unknown=ask`, `ask fetch timeout=5m`. Without a word in front it allows. The
// pattern is about the command for exec, the host for fetch and the path for every other tool,
// unless it begins with `path:`, `command:` or `host:`. The scope of the result is Session.
// Errors are of type *RuleError.
func ParseRule(text string) (Rule, error) {
	r := Rule{Action: Allow, Scope: Session}
	rest, at := text, 0
	for _, a := range []Action{Allow, Ask, Deny} {
		if after, ok := strings.CutPrefix(text, string(a)+" "); ok {
			r.Action, rest, at = a, after, len(text)-len(after)
		}
	}
	fail := func(at int, why string) (Rule, error) { return Rule{}, &RuleError{text, at, why} }
	for {
		i := strings.LastIndexByte(rest, ' ')
		if i < 0 || i < strings.LastIndexByte(rest, ')') {
			break
		}
		is, why := r.option(rest[i+1:])
		if why != "" {
			return fail(at+i+1, why)
		}
		if !is {
			break
		}
		rest, text = rest[:i], text[:at+i]
	}

	tool, pattern, has := strings.Cut(rest, "(")
	r.Tool = tool
	if i, why := checkTool(tool); why != "" {
		return fail(at+i, why)
	}
	if !has {
		return r, nil
	}
	at += len(tool) + 1
	pattern, closed := strings.CutSuffix(pattern, ")")
	if !closed {
		return fail(len(text), "the pattern has no closing )")
	}
	r.Arg = argOf(tool)
	for _, a := range []Arg{PathArg, CommandArg, HostArg} {
		if after, ok := strings.CutPrefix(pattern, string(a)+":"); ok {
			r.Arg, pattern, at = a, after, at+len(a)+1
			break
		}
	}
	r.Pattern = pattern
	if f := r.check(); f != nil {
		return fail(at+f.at, f.why)
	}
	return r, nil
}

// Words that stand behind a rule's pattern.
const (
	unknownWord = "unknown="
	timeoutWord = "timeout="
)

// option takes a word behind the pattern: whether it is one that was not given yet, and what is wrong with it.
func (r *Rule) option(word string) (is bool, why string) {
	if value, ok := strings.CutPrefix(word, unknownWord); ok && r.Unknown == "" {
		r.Unknown = Unknown(value)
		return true, r.checkUnknown()
	}
	if value, ok := strings.CutPrefix(word, timeoutWord); ok && r.Timeout == 0 {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil || d < time.Millisecond:
			return true, fmt.Sprintf("%s is no time that a question may wait: one such as 90s or 5m", word)
		case r.Action != Ask:
			return true, "only a rule that asks has a question that could wait"
		}
		r.Timeout = d
		return true, ""
	}
	return false, ""
}

func (r *Rule) checkUnknown() string {
	if _, known := r.Unknown.Outcome(); !known {
		return fmt.Sprintf("unknown=%s: there is no such policy: one of report, retry, ask, fail", r.Unknown)
	}
	if r.Action == Deny {
		return "a call that is denied has no unknown outcome"
	}
	return ""
}

// String is the text that ParseRule reads back, without the scope.
func (r Rule) String() string {
	var b strings.Builder
	if r.Action != Allow {
		b.WriteString(string(r.Action) + " ")
	}
	b.WriteString(r.Tool)
	if r.Arg != NoArg {
		b.WriteByte('(')
		if r.Arg != argOf(r.Tool) || hasArgPrefix(r.Pattern) {
			b.WriteString(string(r.Arg) + ":")
		}
		b.WriteString(r.Pattern + ")")
	}
	if r.Unknown != "" {
		b.WriteString(" " + unknownWord + string(r.Unknown))
	}
	if r.Timeout > 0 {
		b.WriteString(" " + timeoutWord + short(r.Timeout))
	}
	return b.String()
}

// short is a duration without what is nought at its end: 5m, and not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	for _, nought := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, nought) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func hasArgPrefix(p string) bool {
	for _, a := range []Arg{PathArg, CommandArg, HostArg} {
		if strings.HasPrefix(p, string(a)+":") {
			return true
		}
	}
	return false
}

// flaw is what is wrong with a pattern or a command, and where.
type flaw struct {
	at  int
	why string
}

// argOf is the argument that a pattern for a tool is about when it does not say so.
func argOf(tool string) Arg {
	switch tool {
	case "exec", "@command":
		return CommandArg
	case "fetch", "@network":
		return HostArg
	}
	return PathArg
}

func checkTool(tool string) (at int, why string) {
	name := tool
	switch {
	case tool == "":
		return 0, "a tool's name was expected"
	case tool == "*":
		return 0, ""
	case tool[0] == '@':
		switch Kind(tool[1:]) {
		case Read, Edit, Command, Network, Plain:
			return 0, ""
		}
		return 1, "no such kind of tool: there are @read, @edit, @command, @network and @plain"
	}
	for i, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("_-.:/", c):
		case c == ' ':
			return i, "unexpected space: a rule is `[allow|ask|deny] TOOL` or `[allow|ask|deny] TOOL(PATTERN)`"
		default:
			return i, fmt.Sprintf("unexpected %q in a tool's name", c)
		}
	}
	return 0, ""
}

// check finds a pattern that could never be matched, or not in the way that was meant.
func (r Rule) check() *flaw {
	if strings.TrimSpace(r.Pattern) == "" {
		return &flaw{0, "the pattern is empty: leave the parentheses out to speak of every call"}
	}
	switch r.Arg {
	case CommandArg:
		_, f := parseCommandPattern(r.Pattern)
		return f
	case HostArg:
		return checkHostPattern(r.Pattern)
	case PathArg:
		return checkPathPattern(r.Pattern)
	case NoArg:
	}
	return &flaw{0, fmt.Sprintf("no such argument: %q", r.Arg)}
}

// strict says whether the rule holds back rather than lets through. An action that is none of
// the three is taken for a denial.
func (r Rule) strict() bool { return r.Action != Allow }
