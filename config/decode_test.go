package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestWrongFileIsToldWithPlaceAndFix(t *testing.T) {
	cases := []struct{ name, file, at, what, fix string }{
		{"unknown key", "modle: x\n", ":1:1", `unknown key "modle"`, `did you mean "model"?`},
		{"unknown key inside", "server:\n  nmae: x\n", ":2:3", `unknown key "nmae" in server`, `"name"`},
		{"unknown key, nothing near", "log: {zzz: 1}\n", ":1:7", `unknown key "zzz" in log`, "known are file, format, level"},
		{"unknown key below a map", "agents:\n  a.b:\n    sytem: x\n", ":3:5", `unknown key "sytem" in agents."a.b"`, `"system"`},
		{"literal key", "providers:\n  x:\n    api_key: sk-verysecret\n", ":3:5", `unknown key "api_key"`, "api_key_env"},
		{"literal key in a line", "providers: {x: {base_url: 'http://h', api_key: sk-verysecret}}\n", ":1:39", `unknown key "api_key"`, ""},
		{"key for a variable", "providers:\n  x: {base_url: 'http://h', api_key_env: sk-verysecret}\n", ":2:42", "no name of a variable", "in capitals"},
		{"key for a file", "providers:\n  x: {base_url: 'http://h', api_key_file: sk-verysecret}\n", ":2:43", "the path is relative", ""},
		{"number for text", "model: 12\n", ":1:8", "model is text; this is a whole number", "quotes"},
		{"text for number", "limits: {steps: many}\n", ":1:17", "limits.steps is a whole number; this is text", ""},
		{"text for bool", "cluster:\n  enabled: yes\n", ":2:12", "cluster.enabled is true or false; this is text", "write true or false"},
		{"duration without unit", "lease: {hold: 60}\n", ":1:15", `duration "60" has no unit`, ""},
		{"no duration", "lease: {hold: soon}\n", ":1:15", `"soon" is no duration`, ""},
		{"negative", "limits: {steps: -1}\n", ":1:17", "-1 is too small", "the least is 0"},
		{"below the least", "lease: {ttl: 1ms}\n", ":1:14", "1ms is too small", "the least is 1s"},
		{"out of range", "limits: {steps: 99999999999999999999}\n", ":1:17", "out of range", ""},
		{"no size", "data: {reserve: 12 apples}\n", ":1:17", `"12 apples" is no size`, ""},
		{"rounded money", "budgets: {usd: 0.1234567}\n", ":1:16", "no amount in US dollars", ""},
		{"enum", "log: {level: wran}\n", ":1:14", `"wran" is not known here`, `did you mean "warn"?`},
		{"list for mapping", "server: [a]\n", ":1:9", "server is a section; this is a list", "indented"},
		{"mapping for list", "env: {inherit: {a: 1}}\n", ":1:16", "env.inherit is a list of texts; this is a mapping", "beginning with -"},
		{"text for list", "env: {inherit: HOME}\n", ":1:16", "env.inherit is a list of texts; this is text", ""},
		{"number in list", "env:\n  inherit:\n    - A\n    - 3\n", ":4:7", "this is a whole number", "quotes"},
		{"root is a list", "- a\n", ":1:1", "the file is a section; this is a list", ""},
		{"duplicate key", "model: a/b\nmodel: c/d\n", ":2:1", "already defined", ""},
		{"tab", "log:\n\tlevel: info\n", ":2:1", "YAML syntax", ""},
		{"open bracket", "env: {inherit: [A\n", "", "YAML syntax", ""},
		{"two documents", "model: a/b\n---\nmodel: c/d\n", "", "second YAML document", ""},
		{"anchor", "model: &m a/b\n", ":1:8", "anchors", "value itself"},
		{"tag", "model: !x a/b\n", ":1:8", "tags are not supported", ""},
		{"control character", "model: a\x1b[31mb\n", ":1:9", "control character U+001B", ""},
		{"no UTF-8", "model: \xff\n", ":1:8", "not UTF-8", ""},
		{"bidi", "model: \"a\u202eb\"\n", ":1:8", "cannot be seen", ""},
		{"rule without action", "approvals:\n  rules:\n    - {tool: exec}\n", ":3:7", `needs "action"`, ""},
		{"reserved provider", "providers:\n  scripted: {base_url: http://x}\n", ":2:3", "reserved", ""},
		{"bad alias", "models:\n  a/b: {provider: x, name: y}\n", ":2:3", "a name consists of", ""},
		{"password in address", "providers:\n  x: {base_url: 'http://u:hunter22@h/v1'}\n", ":2:17", "holds a user or password", "remove"},
		{"no address", "providers:\n  x: {base_url: 'ftp://h'}\n", ":2:17", "no http or https address", ""},
		{"reserved host", "server: {name: localhost}\n", ":1:16", "cannot be the host", ""},
		{"no port", "server: {listen: 127.0.0.1}\n", ":1:18", "no HOST:PORT", ""},
		{"no range", "sandbox: {fetch: [10.0.0.1]}\n", ":1:19", "no address range", ""},
		{"two keys", "providers:\n  x: {api_key_env: A, api_key_file: /b}\n", "", "exclude each other", "keep one"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			name := m.user(c.file)
			p := m.problem()
			if !strings.Contains(p.What, c.what) {
				t.Errorf("says %q, want %q", p.What, c.what)
			}
			if !strings.Contains(p.Fix, c.fix) {
				t.Errorf("advises %q, want %q", p.Fix, c.fix)
			}
			if got := p.Origin.String(); !strings.HasPrefix(got, name) || !strings.Contains(got, c.at) {
				t.Errorf("points at %q, want %s%s", got, name, c.at)
			}
			if strings.Contains(p.Error(), "verysecret") || strings.Contains(p.Error(), "\x1b") {
				t.Errorf("shows what it must not: %q", p.Error())
			}
		})
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	m := newMachine(t)
	m.user("modle: x\nlog: {level: 3}\n")
	m.env["TROUPE_LEASE__HOLD"] = "60"
	_, err := m.load()
	if err == nil {
		t.Fatal("a wrong file was loaded")
	}
	for _, want := range []string{"modle", "log.level", "environment TROUPE_LEASE__HOLD"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}

func TestCaretStandsBelowTheMistake(t *testing.T) {
	m := newMachine(t)
	m.user("server:\n  nmae: x\n")
	want := "  2 |   nmae: x\n    |   ^"
	if got := m.problem().Excerpt; got != want {
		t.Errorf("excerpt is\n%s\nwant\n%s", got, want)
	}
}

func TestExcerptOfALongLineStaysShort(t *testing.T) {
	got := excerpt([]string{strings.Repeat("x", 5000) + "!"}, 1, 5001)
	if len(got) > 300 || !strings.Contains(got, "!") {
		t.Errorf("excerpt has %d bytes: %q", len(got), got)
	}
	caret := strings.Index(strings.Split(got, "\n")[1], "^")
	if line := strings.Split(got, "\n")[0]; line[caret] != '!' {
		t.Errorf("the caret is below %q", line[caret])
	}
}

func TestHostileFilesAreRefusedQuickly(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", maxFile-1),
		"braces":   strings.Repeat("{a: ", maxFile/5),
		"dashes":   strings.Repeat("- ", maxFile/4),
		"anchors":  strings.Repeat("&a ", maxFile/8),
		"big":      strings.Repeat("#\n", maxFile),
		"unknown":  manyLines("k%d: v\n"),
		"valid":    "models:\n" + manyLines(" k%d: {name: 1}\n"),
		"bomb":     "a: &a [x,x]\nb: &b [*a,*a]\nmodel: *b\n",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.user(text)
			if _, err := m.load(); err == nil {
				t.Error("was loaded")
			}
		})
	}
}

// manyLines repeats a line with a number up to the limit of a file.
func manyLines(format string) string {
	var b strings.Builder
	for i := 0; b.Len() < maxFile-40; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestEmptyFilesSetNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "server:\nmodel:\nproviders:\n", "\ufeff# with a mark\n"} {
		m := newMachine(t)
		m.user(text)
		if _, err := m.load(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzDecode: whatever a file holds, decoding ends, and what it accepts can be merged and shown.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", starter, "model: a/b", "approvals: {rules: [{tool: x, action: deny}]}", "a: &x [*x]", "? [a]\n: b", "models: {1: {name: x}, 1.0: {}}", "- - -"} {
		f.Add(seed)
	}
	root := describe()
	f.Fuzz(func(t *testing.T, text string) {
		l, problems := decodeFile(FromProject, "f", []byte(text), root, nil)
		if len(problems) > 0 {
			_ = problems.Error()
			return
		}
		confine(l, nil, root, "/d", false)
		if _, settings, problems := merge([]*layer{l}, root, "/h"); len(problems) == 0 {
			_ = (&Loaded{settings: settings}).Tree()
		}
	})
}
