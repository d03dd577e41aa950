package policy

import (
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

func execCall(command string, rules ...string) Question {
	q := Question{Tool: "exec", Kind: Command, Command: command, InToolset: true, CanAsk: true}
	for _, s := range rules {
		r, err := ParseRule(s)
		if err != nil {
			panic(err)
		}
		q.Rules = append(q.Rules, r)
	}
	return q
}

func TestCommandRuleAllowsASimpleCommandAndItsArguments(t *testing.T) {
	for _, c := range []struct{ rule, command string }{
		{"exec(go test*)", "go test"},
		{"exec(go test*)", "go test ./... -run TestX"},
		{"exec(go test *)", "go test"},
		{"exec(go test *)", "  go\ttest ./... "},
		{"exec(go test*)", `go 'test' "./..."`},
		{"exec(go test*)", `g\o test`},
		{"exec(go test ./...)", "go test ./..."},
		{"exec(git status*)", "git status -s"},
		{"exec(git log*)", "git log HEAD~1 --format=%h"},
		{"exec(git show*)", "git show HEAD^"},
		{"exec(find *)", "find . -name x.go"},
		{"exec(npm run build:*)", "npm run build:web"},
		{"exec(cat docs/*)", "cat docs/a/b.md"},
		{"exec(*)", "anything at all"},
		{"exec(timeout 5 go test)", "timeout 5 go test"},
		{`exec(sh -c "go test; go vet")`, "sh -c 'go test; go vet'"},
		{"exec(grep *)", "grep -rn 'a|b; $(c)' ."},
	} {
		if v := Decide(execCall(c.command, c.rule)); v.Action != Allow {
			t.Errorf("%s, %q: %s (%s), want allow", c.rule, c.command, v.Action, v.Reason)
		}
	}
}

// hostile holds commands that begin like `go test` and are more, or other, than that.
var hostile = []string{
	"go testify", "go tes", "go", "gotest", "go -C / test", "GO test", "./go test", "/tmp/go test",
	"go test; rm -rf /", "go test;rm -rf /", "go test;", "; go test", "go test && rm x", "go test || rm x",
	"go test | sh", "go test |& sh", "go test & rm x", "go test &", "go test\nrm x", "go test\r\nrm x", "go test\n", "\ngo test",
	"go test \\\n; rm x", "go te\\\nst", "go test $(rm x)", "go test `rm x`", "go test \"$(rm x)\"", "go test \"`rm x`\"",
	"go test <(rm x)", "go test >(rm x)", "go test > f", "go test >> f", "go test < f", "go test 2>&1", "go test <<< x", "go test <<X\n$(id)\nX",
	"go test $X", "go test ${X}", "go test \"$X\"", "go test $((1))", "go test $'a'", "go test $\"a\"", "go test ~", "go test a=~",
	"go test *", "go test ?", "go test [a]", "go test {a,b}", "go test @(a|b)", "X=1 go test", "PATH=. go test", "X=1",
	"! go test", "time go test", "coproc go test", "(go test)", "{ go test; }", "if go test; then rm x; fi", "while go test; do rm x; done",
	"go() { rm x; }; go test", "function go { rm x; }", "export go test", "declare go", "let go", "[[ go == test ]]", "((go))",
	"go\u00a0test", "go test\u00a0x", "go test\u2028rm x", "go test \u200b", "go test \u202ecod", "go test \x00 rm", "go test \x1b[2J", "go test \xff",
	"\ufeffgo test", "go\u3000test", "go test \x85", "go test 'unclosed", "go test \"unclosed", "go test )", "",
	" ", "#go test", "go test #x\nrm", "eval go test", "env go test", "timeout 5 go test", "sh -c 'go test'", "xargs go test",
	"command go test", "exec go test", "sudo go test", "nice go test", "$GO test", "'' go test", "go  \vtest",
}

func TestHostileCommandIsNeverAllowedByARule(t *testing.T) {
	for _, h := range hostile {
		if v := Decide(execCall(h, "exec(go test*)", "exec(go test *)")); v.Action != Ask {
			t.Errorf("%q: %s (%s), want ask", h, v.Action, v.Reason)
		}
	}
}

func TestWildcardNeverCoversWhatALauncherRuns(t *testing.T) {
	for _, c := range []struct{ rule, command string }{
		{"exec(timeout *)", "timeout 5 rm -rf ."},
		{"exec(env *)", "env rm -rf ."},
		{"exec(env *)", "env"},
		{"exec(sh *)", "sh -c 'rm -rf .'"},
		{"exec(/bin/sh *)", "/bin/sh -c x"},
		{"exec(*)", "bash -c x"},
		{"exec(*)", "/usr/bin/sudo rm"},
		{"exec(xargs *)", "xargs rm"},
		{"exec(find *)", "find . -exec rm {} +"},
		{"exec(find *)", `find . -exec rm x \;`},
		{"exec(find *)", "find . -execdir rm x +"},
		{"exec(find *)", "find . -ok rm x +"},
		{"exec(find *)", "find . '-delete'"},
		{"exec(find *)", "find . -fprint .git/hooks/x"},
		{"exec(git *)", "git -c alias.x='!rm -rf .' x"},
		{"exec(git status*)", "git -c core.fsmonitor=x status"},
		{"exec(git log*)", "git log --output=.git/hooks/post-commit"},
		{"exec(git status*)", "git-evil status"},
		{"exec(rm build/*)", "rm build/../../x"},
		{"exec(rm build/*)", "rm build/x /etc/passwd"},
		{"exec(tool --dir=*)", "tool --dir=../x"},
	} {
		if v := Decide(execCall(c.command, c.rule)); v.Action != Ask {
			t.Errorf("%s, %q: %s (%s), want ask", c.rule, c.command, v.Action, v.Reason)
		}
	}
}

func TestDenyRuleSeesEveryCommandOfAScript(t *testing.T) {
	for _, cmd := range []string{
		"rm -rf x", "rm", "RM x", "/bin/rm x", `\rm x`, `'r'"m" x`, "r\\\nm x",
		"ls; rm x", "ls && rm x", "ls || rm x", "ls | rm x", "ls & rm x", "ls\nrm x", "(rm x)", "{ rm x; }", "! rm x", "X=1 rm x", "rm x > f", "time rm x",
		"echo $(rm x)", "echo `rm x`", "echo \"$(rm x)\"", "cat <(rm x)", "cat <<X\n$(rm x)\nX", "X=$(rm x)", "export X=$(rm x)", "echo ${X:-$(rm x)}",
		"echo $(( $(rm x) ))", "[[ $(rm x) ]]", "if true; then rm x; fi", "for i in a; do rm $i; done", "case a in a) rm x;; esac", "f() { rm x; }",
		"timeout 5 rm x", "env A=1 rm x", "nice -n 5 rm x", "sudo -u root rm x", "xargs rm", "echo x | xargs -0 rm -f", "find . -exec rm {} +",
		"find . -name '*' -ok rm {} \\;", "sh -c 'rm x'", "bash -lc 'cd a && rm x'", "sh -c \"sh -c 'rm x'\"", "eval rm x", "eval 'r''m x'", "eval 'rm' x",
		"env -S 'rm x'", "ssh host rm x", "watch 'ls; rm x'", "busybox rm x", "command rm x", "exec rm x", "timeout 5 env nice rm x",
		"$X x", "${X} -rf", "`which rm` x", "r? x", "/bin/r* x", "{rm,x}", "~/x", "sh -c \"$X\"", "echo rm x | sh", "echo x | timeout 5 sh -s", "eval $X", "timeout 5 $X",
		"echo 'x' $'\\'; rm x #'", "rm 'unclosed", "rm x\n(", "sh -c 'rm x\n('", strings.Repeat("(", 50) + "rm x" + strings.Repeat(")", 50),
		strings.Repeat("true;", maxCommand/5+1),
	} {
		q := execCall(cmd, "exec", "deny exec(rm *)")
		q.Trust = 2
		if v := Decide(q); v.Action != Deny || v.Code != "permission_denied" || v.Rule == nil {
			t.Errorf("%.80q: %+v, want a denial by the rule", cmd, v)
		}
	}
}

func TestDenyRuleLeavesOtherCommandsAlone(t *testing.T) {
	for _, cmd := range []string{
		"ls", "rmdir x", "echo rm", "git rm x", "cat rm", "go test $PKG", "ls | grep rm", "find . -name rm", "timeout 5 ls", "sh build.sh", "bash -c 'ls -l'",
		"env A='x y' ls", "echo \"it's\" fine", "for f in *; do echo $f; done",
	} {
		if v := Decide(execCall(cmd, "exec", "deny exec(rm *)")); v.Action != Allow {
			t.Errorf("%q: %s (%s), want allow", cmd, v.Action, v.Reason)
		}
	}
}

func TestUnknownWordMayBeWhatIsDenied(t *testing.T) {
	for _, cmd := range []string{"git $X", "git push $X", "git $X --force", "git push --force $X"} {
		if v := Decide(execCall(cmd, "exec", "deny exec(git push --force)")); v.Action != Deny {
			t.Errorf("%q: %s (%s), want deny", cmd, v.Action, v.Reason)
		}
	}
	for _, cmd := range []string{"git push", "git push --force now", "git fetch $X"} {
		if v := Decide(execCall(cmd, "exec", "deny exec(git push --force)")); v.Action != Allow {
			t.Errorf("%q: %s (%s), want allow", cmd, v.Action, v.Reason)
		}
	}
}

func TestScriptsWithinScriptsAreReadWithinBounds(t *testing.T) {
	nested := func(launcher, s string, levels int) string {
		for range levels {
			q, err := syntax.Quote(s, syntax.LangBash)
			if err != nil {
				t.Fatal(err)
			}
			s = launcher + " " + q
		}
		if len(s) > maxCommand {
			t.Fatal("the test's own script is too long to say anything")
		}
		return s
	}
	for _, launcher := range []string{"sh -c", "env -S", "eval"} {
		for levels, want := range map[int]Action{2: Allow, 12: Deny} {
			if v := Decide(execCall(nested(launcher, "true", levels), "exec", "deny exec(rm *)")); v.Action != want {
				t.Errorf("a script %d deep in %s: %s, want %s", levels, launcher, v.Action, want)
			}
		}
	}
	// Each level is read several times over: once alone and once together, as bash and as sh.
	long := nested("eval", "true "+strings.Repeat("x", 50<<10), 4)
	var l list
	l.script(long, 0)
	if !l.lost || l.read > maxRead || l.read < 8*len(long) {
		t.Errorf("%d bytes read for a command of %d, given up: %v", l.read, len(long), l.lost)
	}
}

func TestWordsOfEvalAreReadTogether(t *testing.T) {
	for _, cmd := range []string{"eval 'ls; rm' -rf x", "ssh host 'cd a && rm' -rf x"} {
		if v := Decide(execCall(cmd, "exec", "deny exec(rm -rf *)")); v.Action != Deny {
			t.Errorf("%q: %s, want deny", cmd, v.Action)
		}
	}
}

// FuzzCommand holds the reading of simple commands against the shell's grammar, printed anew.
func FuzzCommand(f *testing.F) {
	for _, h := range hostile {
		f.Add(h)
	}
	f.Add(`go 'te'st "a b" c\ d`)
	f.Fuzz(func(t *testing.T, command string) {
		words, flaw := simple(command)
		cmds, readable := commandsIn(command)
		if flaw != nil {
			return
		}
		if !readable || len(cmds) == 0 {
			t.Fatalf("%q is simple and yet cannot be read", command)
		}
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
			if !cmds[0][i].known || cmds[0][i].text != w {
				t.Fatalf("%q: word %d is %q to allow rules and %+v to deny rules", command, i, w, cmds[0][i])
			}
		}
		again, flaw := simple(strings.Join(quoted, " "))
		if flaw != nil || strings.Join(again, "\x00") != strings.Join(words, "\x00") {
			t.Fatalf("%q means %q; quoted anew %q means %q (%v)", command, words, quoted, again, flaw)
		}
	})
}
