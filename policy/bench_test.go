package policy

import (
	"fmt"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// BenchmarkDecide decides on a command under 21 rules, of which one allows it: what the approval path adds to a call,
// besides the check of its arguments.
func BenchmarkDecide(b *testing.B) {
	q := Question{
		Tool: "exec", Kind: Command, Effect: messages.Effect_AT_MOST_ONCE, Command: "go test ./...",
		Trust: messages.Trust_RESTRICTED, InToolset: true, CanAsk: true,
	}
	for i := range 20 {
		q.Rules = append(q.Rules, benchRule(b, fmt.Sprintf("exec(tool%d run *)", i)))
	}
	q.Rules = append(q.Rules, benchRule(b, "exec(go test*)"))
	b.ReportAllocs()
	for b.Loop() {
		if v := Decide(q); v.Action != Allow {
			b.Fatal(v)
		}
	}
}

func benchRule(b *testing.B, text string) Rule {
	b.Helper()
	r, err := ParseRule(text)
	if err != nil {
		b.Fatal(err)
	}
	return r
}
