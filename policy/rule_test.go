package policy

import (
	"errors"
	"strings"
	"testing"
)

func TestRuleTextIsReadAndWrittenBack(t *testing.T) {
	for _, c := range []struct {
		text string
		want Rule
	}{
		{"exec", Rule{Tool: "exec", Action: Allow}},
		{"*", Rule{Tool: "*", Action: Allow}},
		{"@read", Rule{Tool: "@read", Action: Allow}},
		{"exec(go test*)", Rule{Tool: "exec", Arg: CommandArg, Pattern: "go test*", Action: Allow}},
		{"deny exec(rm *)", Rule{Tool: "exec", Arg: CommandArg, Pattern: "rm *", Action: Deny}},
		{"ask write_file(docs/**)", Rule{Tool: "write_file", Arg: PathArg, Pattern: "docs/**", Action: Ask}},
		{"fetch(example.org)", Rule{Tool: "fetch", Arg: HostArg, Pattern: "example.org", Action: Allow}},
		{"@network(*.example.org)", Rule{Tool: "@network", Arg: HostArg, Pattern: "*.example.org", Action: Allow}},
		{"crawl(host:example.org)", Rule{Tool: "crawl", Arg: HostArg, Pattern: "example.org", Action: Allow}},
		{"run_it(command:make *)", Rule{Tool: "run_it", Arg: CommandArg, Pattern: "make *", Action: Allow}},
		{"read_file(path:host:a)", Rule{Tool: "read_file", Arg: PathArg, Pattern: "host:a", Action: Allow}},
		{`exec(git commit -m "a (b)")`, Rule{Tool: "exec", Arg: CommandArg, Pattern: `git commit -m "a (b)"`, Action: Allow}},
		{"mcp.files:read-it/x", Rule{Tool: "mcp.files:read-it/x", Action: Allow}},
		{"deny", Rule{Tool: "deny", Action: Allow}}, // alone it is a tool's name
	} {
		c.want.Scope = Session
		got, err := ParseRule(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseRule(%q) = %+v, %v; want %+v", c.text, got, err, c.want)
		}
		if got.String() != c.text {
			t.Errorf("ParseRule(%q).String() = %q", c.text, got.String())
		}
	}
}

func TestRuleErrorsSayWhere(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		says string
	}{
		{"", 0, "tool's name"},
		{"(x)", 0, "tool's name"},
		{"allow ", 6, "tool's name"},
		{"permit exec", 6, "space"},
		{"exec (ls)", 4, "space"},
		{"@write", 1, "no such kind"},
		{"exec;ls", 4, "';'"},
		{"exec(ls", 7, "closing"},
		{"exec(ls) x", 10, "closing"},
		{"exec()", 5, "empty"},
		{"exec(  )", 5, "empty"},
		{"exec(ls; rm)", 9, "more than one"},
		{"exec(#x)", 5, "no command"},
		{"exec(ls | rm)", 5, "simple"},
		{"exec(ls > f)", 8, "redirection"},
		{"exec(A=1 ls)", 5, "assignment"},
		{"exec(echo $HOME)", 10, "literal"},
		{"exec(go * x)", 8, "literal"},
		{"exec('ls)", 5, "not a command"},
		{"exec(ls &*)", 8, "background"},
		{"write_file(/etc/**)", 11, "relative"},
		{"write_file(a/../b)", 13, "upwards"},
		{"write_file(a//b)", 13, "empty component"},
		{"write_file(a/)", 13, "empty component"},
		{"write_file(a/./b)", 13, "says nothing"},
		{"write_file(a/b**)", 13, "whole components"},
		{`write_file(a\b)`, 12, "backslash"},
		{"fetch(https://example.org)", 6, "no host name"},
		{"fetch(a.*.org)", 8, "first label"},
		{"fetch(*)", 6, "first label"},
		{"fetch(exämple.org)", 6, "ASCII"},
	} {
		_, err := ParseRule(c.text)
		var re *RuleError
		if !errors.As(err, &re) {
			t.Errorf("ParseRule(%q) = %v, want a *RuleError", c.text, err)
			continue
		}
		if re.At != c.at || !strings.Contains(re.Error(), c.says) {
			t.Errorf("ParseRule(%q): at %d %q; want at %d, saying %q", c.text, re.At, re, c.at, c.says)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"exec(go test*)", "deny exec(rm *)", "@read(docs/**)", "fetch(*.example.org)", "x(path:host:a)", "exec('a'*)", "exec(\\*)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text)
		if err != nil {
			var re *RuleError
			if !errors.As(err, &re) || re.At < 0 || re.At > len(text) {
				t.Fatalf("ParseRule(%q): %#v names no place in the text", text, err)
			}
			return
		}
		back, err := ParseRule(r.String())
		if err != nil || back != r {
			t.Fatalf("ParseRule(%q) = %+v, but its text %q gives %+v, %v", text, r, r.String(), back, err)
		}
	})
}
