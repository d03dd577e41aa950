package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/policy"
)

func TestARuleSaysWhatBecomesOfAnUnknownOutcomeAndHowLongItAsksAndReadsBack(t *testing.T) {
	for text, want := range map[string]policy.Rule{
		"exec(git push*) unknown=ask": {Tool: "exec", Arg: policy.CommandArg, Pattern: "git push*", Action: policy.Allow, Scope: policy.Session, Unknown: policy.UnknownAsk},
		"ask exec unknown=fail":       {Tool: "exec", Action: policy.Ask, Scope: policy.Session, Unknown: policy.UnknownFail},
		"ask exec unknown=fail timeout=1m30s": {
			Tool: "exec", Action: policy.Ask, Scope: policy.Session, Unknown: policy.UnknownFail, Timeout: 90 * time.Second,
		},
		"ask fetch(example.org) timeout=5m": {Tool: "fetch", Arg: policy.HostArg, Pattern: "example.org", Action: policy.Ask, Scope: policy.Session, Timeout: 5 * time.Minute},
		"ask exec timeout=1h":               {Tool: "exec", Action: policy.Ask, Scope: policy.Session, Timeout: time.Hour},
		"ask exec(sleep timeout=1h)":        {Tool: "exec", Arg: policy.CommandArg, Pattern: "sleep timeout=1h", Action: policy.Ask, Scope: policy.Session},
		"exec(echo unknown=retry)":          {Tool: "exec", Arg: policy.CommandArg, Pattern: "echo unknown=retry", Action: policy.Allow, Scope: policy.Session},
	} {
		r, err := policy.ParseRule(text)
		if err != nil || r != want {
			t.Errorf("%s: %+v (%v)", text, r, err)
		}
		if r.String() != text {
			t.Errorf("%s reads back as %s", text, r)
		}
	}
	for text, why := range map[string]string{
		"exec unknown=never":             "no such policy",
		"exec unknown=":                  "no such policy",
		"deny exec(rm *) unknown=fail":   "no unknown outcome",
		"exec unknown=ask unknown=ask":   "unexpected space",
		"exec(git push* unknown=ask":     "no closing",
		"ask exec timeout=":              "no time",
		"ask exec timeout=0s":            "no time",
		"ask exec timeout=-1m":           "no time",
		"ask exec timeout=soon":          "no time",
		"ask exec timeout=1h unknown=":   "no such policy",
		"ask exec timeout=1h timeout=2h": "unexpected space",
		"exec timeout=1h":                "only a rule that asks",
		"deny exec timeout=1h":           "only a rule that asks",
	} {
		if _, err := policy.ParseRule(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}

func TestTheMostSpecificRuleDecidesAboutAnUnknownOutcomeAndRetryMustCoverTheCall(t *testing.T) {
	for _, c := range []struct {
		rules   string
		command string
		want    policy.Unknown
	}{
		{"exec", "git push", ""},
		{"exec unknown=retry; exec(git push*) unknown=ask", "git push origin", policy.UnknownAsk},
		{"exec unknown=retry; exec(git push*) unknown=ask", "make", policy.UnknownRetry},
		{"exec(make*) unknown=retry", "make", policy.UnknownRetry},
		{"exec(make*) unknown=retry", "make; git push", ""},                                       // it covers a part
		{"exec(git push*) unknown=ask", "make && git push", policy.UnknownAsk},                    // a part is enough
		{"exec unknown=report; ask exec unknown=fail; exec unknown=ask", "x", policy.UnknownFail}, // of equals, the careful one
		{"@command unknown=fail; exec unknown=report", "x", policy.UnknownReport},
		{"write_file unknown=fail", "x", ""},
	} {
		q := policy.Question{Tool: "exec", Kind: policy.Command, Command: c.command}
		for _, text := range strings.Split(c.rules, "; ") {
			r, err := policy.ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			q.Rules = append(q.Rules, r)
		}
		if got := policy.UnknownFor(q); got != c.want {
			t.Errorf("%s about %q: %q, want %q", c.rules, c.command, got, c.want)
		}
	}
}
