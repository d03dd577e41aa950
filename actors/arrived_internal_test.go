package actors

import (
	"strings"
	"testing"
)

func TestWhatHasArrivedOfAnAnswerIsBoundedAsAResultIs(t *testing.T) {
	all := strings.Repeat("äbc", 1+maxResult/4) + "the end"
	for _, piece := range []int{7, 1 << 16, len(all)} {
		var a arrived
		for rest := all; rest != ""; {
			n := min(piece, len(rest))
			a.add(rest[:n])
			rest = rest[n:]
		}
		if want, _ := cut(all, maxResult); a.String() != want {
			t.Errorf("in pieces of %d bytes: %d bytes are kept, want %d, ending in %q", piece, len(a.String()), len(want), want[len(want)-40:])
		}
		if len(a.text) > maxResult+1 {
			t.Errorf("in pieces of %d bytes: %d bytes are in memory", piece, len(a.text))
		}
	}
	var a arrived
	all = strings.Repeat("x", maxResult)
	a.add(all)
	if a.String() != all {
		t.Errorf("what is as large as may be is cut to %d bytes", len(a.String()))
	}
	(*arrived)(nil).add("nobody sees it")
}
