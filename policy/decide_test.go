package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// judged is a rule together with what a person says of it, for a write_file to docs/a.md.
type judged struct {
	text    string
	matches bool
	rank    int  // how specific, by hand: the greater wins
	names   bool // names write_file itself
}

var pool = []judged{
	{"*", true, 0, false},
	{"@edit", true, 1, false},
	{"write_file", true, 2, true},
	{"*(docs/**)", true, 3, false},
	{"@edit(docs/**)", true, 4, false},
	{"write_file(docs/**)", true, 5, true},
	{"write_file(docs/*.md)", true, 6, true},
	{"@edit(docs/a.md)", true, 7, false},
	{"write_file(docs/a.md)", true, 8, true},
	{"write_file(src/**)", false, 0, true},
	{"@read", false, 0, false},
	{"edit_file", false, 0, false},
}

// oracle decides by the sentences of the design, in their own order, from what people say of the rules.
func oracle(q Question, actions []Action, js []judged) (Action, string) {
	named, top, verdict := false, -1, Action("")
	for i, j := range js {
		if actions[i] == Deny && j.matches {
			return Deny, ""
		}
	}
	for i, j := range js {
		if actions[i] == Deny {
			continue
		}
		if j.names {
			named = true
		}
		if j.matches && (j.rank > top || j.rank == top && actions[i] == Ask) {
			top, verdict = j.rank, actions[i]
		}
	}
	if !named && !q.InToolset {
		return Deny, ""
	}
	if verdict == "" {
		verdict = Ask
		if q.Trust == messages.Trust_FULL || q.NeverAsks {
			verdict = Allow
		}
	}
	if q.Flag {
		verdict = Ask // allow is raised, ask stays
	}
	if verdict == Ask && !q.CanAsk {
		return Deny, NotAsked
	}
	return verdict, ""
}

// TestEveryCombinationIsDecidedAsTheDesignSays walks all sets of up to three rules, each with each
// action, under every trust and switch.
func TestEveryCombinationIsDecidedAsTheDesignSays(t *testing.T) {
	base := Question{Tool: "write_file", Kind: Edit, Effect: messages.Effect_RECONCILABLE, Paths: []string{"docs/a.md"}}
	seen, cases := map[Action]int{}, 0
	for _, set := range sets(len(pool), 3) {
		for mask := range pow(3, len(set)) {
			q, js, as := base, []judged{}, []Action{}
			for _, i := range set {
				a := []Action{Allow, Ask, Deny}[mask%3]
				mask /= 3
				r, err := ParseRule(string(a) + " " + pool[i].text)
				if err != nil {
					t.Fatal(err)
				}
				q.Rules, js, as = append(q.Rules, r), append(js, pool[i]), append(as, a)
			}
			for bits := range 16 {
				q.InToolset, q.NeverAsks, q.Flag, q.CanAsk = bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0
				for _, trust := range []messages.Trust_Level{messages.Trust_UNSPECIFIED, messages.Trust_RESTRICTED, messages.Trust_FULL, 99} {
					q.Trust = trust
					cases++
					want, decision := oracle(q, as, js)
					got := Decide(q)
					seen[got.Action]++
					check(t, q, got, want, decision)
					slices.Reverse(q.Rules)
					check(t, q, Decide(q), want, decision)
					slices.Reverse(q.Rules)
				}
			}
		}
	}
	if cases < 100_000 || seen[Allow] < 1000 || seen[Ask] < 1000 || seen[Deny] < 1000 {
		t.Errorf("%d cases with outcomes %v say too little", cases, seen)
	}
}

func check(t *testing.T, q Question, got Verdict, want Action, decision string) {
	t.Helper()
	code := ""
	if want == Deny {
		code = "permission_denied"
	}
	if got.Action != want || got.Decision != decision || got.Code != code || got.Reason == "" {
		t.Fatalf("%+v\n got %+v\nwant %s %q", q, got, want, decision)
	}
}

// sets lists all sets of at most k of n, twice the same one included.
func sets(n, k int) [][]int {
	out := [][]int{nil}
	for start := 0; k > 0; k-- {
		end := len(out)
		for _, s := range out[start:end] {
			from := 0
			if len(s) > 0 {
				from = s[len(s)-1]
			}
			for i := from; i < n; i++ {
				out = append(out, append(slices.Clone(s), i))
			}
		}
		start = end
	}
	return out
}

func pow(b, n int) int {
	p := 1
	for range n {
		p *= b
	}
	return p
}

func TestVerdictNamesTheRuleThatDecided(t *testing.T) {
	q := execCall("go test ./...", "exec", "exec(go *)", "exec(go test*)", "ask exec(go test -exec*)", "deny exec(rm *)")
	v := Decide(q)
	if v.Action != Allow || v.Rule == nil || v.Rule.Pattern != "go test*" || v.Reason != "rule exec(go test*)" {
		t.Errorf("%+v", v)
	}
	v.Rule.Pattern = "changed"
	if q.Rules[2].Pattern != "go test*" {
		t.Error("a verdict's rule is the question's own: changing one changes the other")
	}
	if v := Decide(execCall("go test -exec x", "exec(go test*)", "ask exec(go test -exec*)")); v.Action != Ask {
		t.Errorf("the more specific rule asks, and the verdict is %+v", v)
	}
	if v := Decide(execCall("ls; rm x", "exec", "ask exec(rm *)")); v.Action != Ask {
		t.Errorf("part of the script is asked about, and the verdict is %+v", v)
	}
}

func TestRuleWithoutWildcardsWinsOverALongerOne(t *testing.T) {
	q := Question{Tool: "write_file", Kind: Edit, Paths: []string{"a.md"}, InToolset: true, CanAsk: true}
	for _, text := range []string{"write_file(**/a.md)", "ask write_file(a.md)"} {
		r, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		q.Rules = append(q.Rules, r)
	}
	if v := Decide(q); v.Action != Ask {
		t.Errorf("%+v", v)
	}
}

func TestPathRules(t *testing.T) {
	const no, yes = false, true
	for _, c := range []struct {
		pattern, path  string
		deep           bool
		allows, denies bool
	}{
		{"docs/**", "docs/a", no, yes, yes},
		{"docs/**", "docs/a/b/c", no, yes, yes},
		{"docs/**", "docs", no, yes, yes},
		{"docs/**", "./docs//a/", no, yes, yes},
		{"docs/**", "docsx/a", no, no, no},
		{"docs/**", "a/docs/b", no, no, no},
		{"docs/**", "docs/../src/a", no, no, yes},
		{"docs/**", "../docs/a", no, no, yes},
		{"docs/**", "docs/..", no, no, yes},
		{"docs/**", "/docs/a", no, no, yes},
		{"docs/**", "", no, no, yes},
		{"docs/**", `docs\a`, no, no, yes},
		{"docs/**", "docs/a\n", no, no, yes},
		{"docs/**", "docs/\xff", no, no, yes},
		{"docs/**", "DOCS/a", no, no, yes},
		{"docs/*", "docs/a", no, yes, yes},
		{"docs/*", "docs/a/b", no, no, no},
		{"docs/*", "docs", no, no, no},
		{"**/*.go", "a.go", no, yes, yes},
		{"**/*.go", "x/y/a.go", no, yes, yes},
		{"**/*.go", "x/y/a.got", no, no, no},
		{"**/test/**", "a/test/b", no, yes, yes},
		{"**/test/**", "a/b", no, no, no},
		{"a?c", "abc", no, yes, yes},
		{"a?c", "a/c", no, no, no},
		{"a*b*c", "aXbYbZc", no, yes, yes},
		{"a*b*c", "aXbYbZ", no, no, no},
		{"**", ".", no, yes, yes},
		{"**", "x/..hidden", no, yes, yes},
		{".", ".", no, yes, yes},
		{".", "a", no, no, no},
		{"docs/**", "docs", yes, yes, yes},
		{"docs/**", "docs/a", yes, yes, yes},
		{"docs/**", ".", yes, no, yes},
		{"docs/*", "docs/a", yes, no, yes},
		{"docs/*", "docs", yes, no, yes},
		{"docs/a", "docs/a", yes, no, yes},
		{"docs/a", "src", yes, no, no},
		{"**/*.key", "src", yes, no, yes},
		{"**/*.key", "src", no, no, no},
		{".", ".", yes, no, yes},
	} {
		q := Question{Tool: "t", Kind: Edit, Paths: []string{c.path}, Deep: c.deep, InToolset: true, CanAsk: true}
		verdict := func(a Action, trust messages.Trust_Level) Action {
			r, err := ParseRule(fmt.Sprintf("%s t(%s)", a, c.pattern))
			if err != nil {
				t.Fatal(err)
			}
			q.Rules, q.Trust = []Rule{r}, trust
			return Decide(q).Action
		}
		if got := verdict(Allow, messages.Trust_RESTRICTED) == Allow; got != c.allows {
			t.Errorf("t(%s) allows %q (deep %v): %v, want %v", c.pattern, c.path, c.deep, got, c.allows)
		}
		if got := verdict(Deny, messages.Trust_FULL) == Deny; got != c.denies {
			t.Errorf("deny t(%s) denies %q (deep %v): %v, want %v", c.pattern, c.path, c.deep, got, c.denies)
		}
		if got := verdict(Ask, messages.Trust_FULL) == Ask; got != c.denies {
			t.Errorf("ask t(%s) asks about %q (deep %v): %v, want %v", c.pattern, c.path, c.deep, got, c.denies)
		}
	}
}

func TestEveryPathOfACallCounts(t *testing.T) {
	move := Question{Tool: "move_file", Kind: Edit, Paths: []string{"docs/a", "src/a"}, InToolset: true, CanAsk: true}
	for rules, want := range map[string]Action{
		"move_file(docs/**)":      Ask,
		"move_file(**)":           Allow,
		"deny move_file(src/**)":  Deny,
		"deny move_file(docs/**)": Deny,
	} {
		r, err := ParseRule(rules)
		if err != nil {
			t.Fatal(err)
		}
		move.Rules = []Rule{r}
		if v := Decide(move); v.Action != want {
			t.Errorf("%s: %s, want %s", rules, v.Action, want)
		}
	}
}

func TestHostRules(t *testing.T) {
	for _, c := range []struct {
		pattern, host  string
		allows, denies bool
	}{
		{"example.org", "example.org", true, true},
		{"example.org", "EXAMPLE.org.", true, true},
		{"example.org", "example.org.evil.com", false, false},
		{"example.org", "www.example.org", false, false},
		{"example.org", "example.org@evil.com", false, true},
		{"example.org", "example.org/x", false, true},
		{"example.org", "example。org", false, true},
		{"example.org", "", false, true},
		{"*.example.org", "www.example.org", true, true},
		{"*.example.org", "a.b.example.org", true, true},
		{"*.example.org", "example.org", false, false},
		{"*.example.org", "evilexample.org", false, false},
		{"*.example.org", ".example.org", false, true},
		{"*.example.org", "a..example.org", false, true},
		{"::1", "::1", true, true},
	} {
		for a, want := range map[Action]bool{Allow: c.allows, Deny: c.denies} {
			r, err := ParseRule(fmt.Sprintf("%s fetch(%s)", a, c.pattern))
			if err != nil {
				t.Fatal(err)
			}
			q := Question{Tool: "fetch", Kind: Network, Effect: messages.Effect_PURE, Host: c.host, Rules: []Rule{r}, InToolset: true, CanAsk: true}
			if got := Decide(q).Action == a; got != want {
				t.Errorf("%s fetch(%s), host %q: %v, want %v", a, c.pattern, c.host, got, want)
			}
		}
	}
}

func TestRuleThatCannotBeReadAllowsNothingAndDeniesAll(t *testing.T) {
	q := Question{Tool: "exec", Kind: Command, Command: "ls", Trust: messages.Trust_FULL, InToolset: true, CanAsk: true}
	for _, bad := range []Rule{
		{Tool: "exec", Arg: CommandArg, Pattern: "ls; rm *"},
		{Tool: "exec", Arg: CommandArg, Pattern: ""},
		{Tool: "exec", Arg: "color", Pattern: "red"},
		{Tool: "exec", Arg: PathArg, Pattern: "../x"},
	} {
		for a, want := range map[Action]Action{Allow: Allow, Ask: Ask, Deny: Deny, "": Deny, "later": Deny} {
			bad.Action = a
			q.Rules = []Rule{bad}
			v := Decide(q)
			if v.Action != want || a == Allow && v.Rule != nil {
				t.Errorf("%q %+v: %+v, want %s", a, bad, v, want)
			}
		}
	}
}

func TestReadsRuleCoversOnlyWhatChangesNothing(t *testing.T) {
	r, err := ParseRule("@read")
	if err != nil {
		t.Fatal(err)
	}
	for e, want := range map[messages.Effect_Class]Action{
		messages.Effect_PURE: Allow, messages.Effect_IDEMPOTENT: Ask, messages.Effect_AT_MOST_ONCE: Ask, messages.Effect_UNSPECIFIED: Ask,
	} {
		q := Question{Tool: "search", Kind: Read, Effect: e, Paths: []string{"."}, Rules: []Rule{r}, InToolset: true, CanAsk: true}
		if v := Decide(q); v.Action != want {
			t.Errorf("effect %s: %s, want %s", e, v.Action, want)
		}
	}
}

func TestSuggestedRuleAllowsThisCallAndNoOther(t *testing.T) {
	for _, c := range []struct {
		q    Question
		want string
	}{
		{Question{Tool: "exec", Kind: Command, Command: " go test ./... "}, "exec(go test ./...)"},
		{Question{Tool: "exec", Kind: Command, Command: "sh -c 'a; b'"}, "exec(sh -c 'a; b')"},
		{Question{Tool: "exec", Kind: Command, Command: "a; b"}, ""},
		{Question{Tool: "exec", Kind: Command, Command: "ls *"}, ""},
		{Question{Tool: "write_file", Kind: Edit, Paths: []string{"docs/a.md"}}, "write_file(docs/a.md)"},
		{Question{Tool: "delete_file", Kind: Edit, Paths: []string{"docs"}, Deep: true}, "delete_file(docs/**)"},
		{Question{Tool: "grep", Kind: Read, Paths: []string{"."}, Deep: true}, "grep(**)"},
		{Question{Tool: "write_file", Kind: Edit, Paths: []string{"a*"}}, ""},
		{Question{Tool: "write_file", Kind: Edit, Paths: []string{"../a"}}, ""},
		{Question{Tool: "write_file", Kind: Edit, Paths: []string{"host:a"}}, "write_file(path:host:a)"},
		{Question{Tool: "move_file", Kind: Edit, Paths: []string{"a", "b"}}, ""},
		{Question{Tool: "fetch", Kind: Network, Host: "Example.org"}, "fetch(example.org)"},
		{Question{Tool: "delegate", Kind: Plain}, "delegate"},
	} {
		r, ok := RuleFor(c.q)
		if !ok {
			if c.want != "" {
				t.Errorf("%+v: no rule, want %s", c.q, c.want)
			}
			continue
		}
		c.q.Rules, c.q.CanAsk = []Rule{r}, true
		if r.String() != c.want || Decide(c.q).Action != Allow {
			t.Errorf("%+v: rule %s, want %q", c.q, r, c.want)
		}
	}
}
