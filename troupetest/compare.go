package troupetest

import (
	"fmt"
	"slices"
	"strings"
)

// Played is what came of a transcript.
type Played struct {
	Got      [][]string // by exchange, line by line
	Scripted bool       // no language model was running
	of       *Transcript
}

// Same says whether all came as it was expected.
func (p *Played) Same() bool { return p.Diff() == "" }

// Diff shows what differs, exchange by exchange; "" when nothing does.
func (p *Played) Diff() string {
	var out strings.Builder
	for i := range p.of.Exchanges {
		x := &p.of.Exchanges[i]
		if matches(x.Want, p.Got[i]) {
			continue
		}
		asked, _, more := strings.Cut(x.Prompt, "\n")
		if more {
			asked += " ..."
		}
		if p.of.Pipeline != "" {
			asked = "run of " + p.of.Pipeline
		}
		fmt.Fprintf(&out, "%s:%d: %s\n%s", p.of.Name, x.line, asked, Diff(x.Want, p.Got[i]))
	}
	return out.String()
}

// Text is the transcript with what came in place of what was expected. Settings, prompts and comments outside of what differs stay.
func (p *Played) Text() string {
	var out []string
	at := 0
	for i := range p.of.Exchanges {
		x := &p.of.Exchanges[i]
		if matches(x.Want, p.Got[i]) {
			continue
		}
		out = append(out, p.of.lines[at:x.begin]...)
		out = append(out, p.Got[i]...)
		at = x.end
	}
	out = append(out, p.of.lines[at:]...)
	return strings.Join(out, "\n") + "\n"
}

// matches compares lines. One that is `| ...` or `< ...` stands for any number of such lines. What came is read once, and where in what is
// expected it may be is kept: so no transcript, whatever it says, takes longer than one line against the other.
func matches(want, got []string) bool {
	want = slices.CompactFunc(slices.Clone(want), func(a, b string) bool { return a == b && anyLines(a) })
	at := reach(want, map[int]bool{0: true})
	for _, g := range got {
		next := make(map[int]bool, len(at))
		for i := range at {
			switch {
			case i == len(want):
			case anyLines(want[i]):
				if strings.HasPrefix(g, strings.TrimSuffix(want[i], " ...")) {
					next[i] = true
				}
			case want[i] == g:
				next[i+1] = true
			}
		}
		if at = reach(want, next); len(at) == 0 {
			return false
		}
	}
	return at[len(want)]
}

// anyLines says whether a line that is expected stands for any number of lines.
func anyLines(l string) bool {
	l = unprefixed(l)
	return l == "| ..." || l == "< ..."
}

// reach adds the places behind lines that may stand for none.
func reach(want []string, at map[int]bool) map[int]bool {
	for i := range at { // what is added below is followed there, too
		for ; i < len(want) && anyLines(want[i]) && !at[i+1]; i++ {
			at[i+1] = true
		}
	}
	return at
}
