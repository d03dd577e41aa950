package policy

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

func command(c string) Question {
	return Question{Tool: "exec", Kind: Command, Effect: messages.Effect_AT_MOST_ONCE, Command: c, InToolset: true, CanAsk: true, Trust: messages.Trust_RESTRICTED}
}

func file(tool string, paths ...string) Question {
	return Question{Tool: tool, Kind: Edit, Effect: messages.Effect_RECONCILABLE, Paths: paths, InToolset: true, CanAsk: true, Trust: messages.Trust_RESTRICTED}
}

func TestWhatIsRememberedOfACommandIsThatCommandAlone(t *testing.T) {
	all, err := Remember(command(`go test ./...`), Allow)
	if err != nil || len(all) != 1 || all[0].String() != "exec(go test ./...)" {
		t.Fatalf("%v %v", all, err)
	}
	q := command("go test ./...")
	q.Rules = all
	if v := Decide(q); v.Action != Allow {
		t.Fatalf("the command itself: %v", v)
	}
	q.Command = `go  test "./..."` // the same words
	if v := Decide(q); v.Action != Allow {
		t.Errorf("the same words: %v", v)
	}
	for _, other := range []string{
		"go test ./...; rm -rf x", "go test ./... > f", "go test ./... >> f", "go test ./... < f", "A=b go test ./...", "GOFLAGS=-exec=evil go test ./...",
		"go test ./... && rm x", "go test ./... | sh", "go test ./... &", "go test ./... -exec evil", "go test", "go testx ./...", "(go test ./...)", "{ go test ./...; }",
		"go test ./...\nrm x", "go test ./...\r\nrm x", "go test ./... # x\nrm", "! go test ./...", "time go test ./...", "sh -c 'go test ./...'", "go test $(rm x)", "go test `rm x`",
		"go test $X ./...", "go test ./..*", "go test {./...,x}", "Go test ./...", "./go test ./...", "go test ./...\u200b", "go test ./...;", "go\\\ntest ./...", "",
	} {
		q.Command = other
		if v := Decide(q); v.Action != Ask {
			t.Errorf("%q is covered, too: %v", other, v)
		}
	}
	q = command("go test ./...")
	q.Rules = all
	for _, where := range []string{"sub", "..", "/", ""} {
		q.Paths = []string{where}
		if v := Decide(q); v.Action != Ask {
			t.Errorf("in %q it is covered, too", where)
		}
	}
	q.Paths = []string{"."}
	if v := Decide(q); v.Action != Allow {
		t.Errorf("in the root: %v", v)
	}
	q.Flag = true // with the network
	if v := Decide(q); v.Action != Ask {
		t.Errorf("with the network: %v", v)
	}
}

func TestWhatNoRuleCanSayIsNotRemembered(t *testing.T) {
	in, flagged, always := command("make"), command("make"), command("git push")
	in.Paths, flagged.Flag = []string{"sub"}, true
	always.Rules = []Rule{rule(t, "ask exec(git push)")}
	lasting := command("make")
	lasting.Background = true
	plain := Question{Tool: "deploy", Kind: Plain, InToolset: true, CanAsk: true, Unseen: true}
	for name, q := range map[string]Question{
		"a chain": command("make; rm x"), "a redirection": command("make > f"), "an assignment": command("A=b make"), "a substitution": command("make $(x)"),
		"a glob": command("rm *"), "a star at the end": command("rm x'*"), "two lines": command("make\nrm x"), "nothing": command(""), "what cannot be seen": command("make\u202e"),
		"another folder": in, "in the background": lasting, "the network": flagged, "what is asked about anyway": always, "what is not seen": plain,
		"a star in a path": file("write_file", "a*b"), "a question mark in a path": file("write_file", "a?b"), "stars": file("write_file", "**"),
		"a line break in a path": file("write_file", "a\nb"), "a path upwards": file("write_file", "../b"), "an absolute path": file("write_file", "/b"), "a backslash": file("write_file", `a\b`),
		"two paths": file("move_file", "a", "b"), "no path": file("write_file"),
	} {
		if all, err := Remember(q, Allow); err == nil {
			t.Errorf("%s: %v", name, all)
		}
	}
}

func TestAPathIsRememberedAsItIs(t *testing.T) {
	for _, p := range []string{"a", "docs/a b.md", "a)b", "a(b", "path:a", "command:x", "a) unknown=retry", "ä/ö", "deny x", "a//b", "."} {
		q := file("write_file", p)
		all, err := Remember(q, Allow)
		if err != nil {
			if p == "a//b" {
				continue // a rule has no empty components
			}
			t.Errorf("%q: %v", p, err)
			continue
		}
		back, err := ParseRule(all[0].String())
		back.Remembered = true
		if err != nil || back != all[0] || back.Unknown != "" || back.Action != Allow {
			t.Errorf("%q: %v reads back as %v, %v", p, all[0], back, err)
		}
		q.Rules = []Rule{back}
		for other, want := range map[string]Action{p: Allow, p + "x": Ask, "x" + p: Ask, p + "/x": Ask} {
			q.Paths = []string{other}
			if v := Decide(q); v.Action != want {
				t.Errorf("%q, remembered of %q: %v", other, p, v)
			}
		}
		if q.Tool = "delete_file"; Decide(q).Action != Ask {
			t.Errorf("%q: another tool is covered, too", p)
		}
	}
}

func TestReadsAreOfferedFirstForWhatReads(t *testing.T) {
	q := file("read_file", "a")
	q.Kind, q.Effect = Read, messages.Effect_PURE
	all, err := Remember(q, Allow)
	if err != nil || len(all) != 2 || all[0].String() != Reads || all[1].String() != "read_file(a)" {
		t.Fatalf("%v %v", all, err)
	}
	q.Rules = []Rule{rule(t, "ask read_file(secret/**)"), all[0]}
	if q.Paths = []string{"b"}; Decide(q).Action != Allow {
		t.Error("another file is asked about")
	}
	if q.Paths = []string{"secret/b"}; Decide(q).Action != Ask {
		t.Error("all reads go before a rule that asks")
	}
	if all, err = Remember(q, Allow); err != nil || len(all) != 1 {
		t.Errorf("all reads are offered where they would not help: %v %v", all, err)
	}
	if all, err = Remember(q, Deny); err != nil || len(all) != 1 || all[0].String() != "deny read_file(secret/b)" {
		t.Errorf("%v %v", all, err)
	}
}

func TestWhatIsRememberedBringsNoToolIntoAToolset(t *testing.T) {
	all, err := Remember(command("make"), Allow)
	if err != nil {
		t.Fatal(err)
	}
	q := command("make")
	q.InToolset, q.Rules = false, all
	if v := Decide(q); v.Action != Deny || !strings.Contains(v.Reason, "toolset") {
		t.Errorf("%v", v)
	}
	q.Rules = []Rule{rule(t, "exec(make)")}
	if v := Decide(q); v.Action != Allow {
		t.Errorf("a rule that somebody wrote: %v", v)
	}
}

func TestARefusalThatIsRememberedHoldsForWhateverContainsIt(t *testing.T) {
	all, err := Remember(command("git push"), Deny)
	if err != nil || len(all) != 1 || all[0].String() != "deny exec(git push)" {
		t.Fatalf("%v %v", all, err)
	}
	for c, want := range map[string]Action{"git push": Deny, "make && git push": Deny, "sh -c 'git push'": Deny, "git pull": Ask} {
		q := command(c)
		q.Rules = append([]Rule{rule(t, "exec(make)")}, all...)
		if v := Decide(q); v.Action != want {
			t.Errorf("%s: %v", c, v)
		}
	}
}

func rule(t *testing.T, text string) Rule {
	t.Helper()
	r, err := ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
