package troupetest

import (
	"fmt"
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

// matches compares lines. One that is `| ...` or `< ...` stands for any number of such lines.
func matches(want, got []string) bool {
	for i, w := range want {
		if w == "| ..." || w == "< ..." {
			kind := w[:1]
			for n := 0; ; n++ {
				if matches(want[i+1:], got[min(i+n, len(got)):]) {
					return true
				}
				if i+n >= len(got) || !strings.HasPrefix(got[i+n], kind) {
					return false
				}
			}
		}
		if i >= len(got) || got[i] != w {
			return false
		}
	}
	return len(want) == len(got)
}
