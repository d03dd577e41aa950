package tools

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a diff: it is for people to look at, and must cost no more than the write it shows.
const (
	diffContext  = 3
	diffMaxEdits = 1000     // inserted and removed lines that are aligned; beyond, one block replaces another
	diffMaxBytes = 64 << 10 // of the text
)

// unifiedDiff shows how a file changes, in the unified format. It is empty when nothing changes
// or when either side is no text, and ends with a note when it was cut.
func unifiedDiff(name, before, after string, created bool) string {
	if before == after && !created || notText(before) || notText(after) {
		return ""
	}
	a, b := splitKeep(before), splitKeep(after)
	var w diffWriter
	from := "a/" + name
	if created {
		from = "/dev/null"
	}
	w.printf("--- %s\n+++ b/%s\n", from, name)
	for _, h := range hunks(changes(a, b)) {
		w.hunk(a, b, h)
	}
	return w.String()
}

func notText(s string) bool { return strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) }

// splitKeep splits into lines with their ends.
func splitKeep(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// change says that a[A0:A1] became b[B0:B1].
type change struct{ A0, A1, B0, B1 int }

// changes aligns two texts: what both begin and end with is set aside, the rest goes through
// Myers' algorithm (An O(ND) Difference Algorithm and Its Variations, 1986) while it stays cheap.
func changes(a, b []string) []change {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && a[endA-1] == b[endB-1] {
		endA--
		endB--
	}
	if start == endA && start == endB {
		return nil
	}
	trace, ok := furthest(a[start:endA], b[start:endB])
	if !ok {
		return []change{{start, endA, start, endB}}
	}
	found := backtrack(trace, endA-start, endB-start)
	for i := range found {
		found[i].A0 += start
		found[i].A1 += start
		found[i].B0 += start
		found[i].B1 += start
	}
	return found
}

// furthest runs the greedy search. trace[d] holds, for each diagonal k in -d, -d+2 ... d, how far
// in a one gets with d edits; false: more than diffMaxEdits would be needed.
func furthest(a, b []string) (trace [][]int, ok bool) {
	limit := min(len(a)+len(b), diffMaxEdits)
	var last []int
	for d := 0; d <= limit; d++ {
		row := make([]int, d+1)
		for i := range row {
			k := 2*i - d
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && last[i-1] < last[i]:
				x = last[i] // down: a line of b is inserted
			default:
				x = last[i-1] + 1 // right: a line of a is removed
			}
			for y := x - k; x < len(a) && y < len(b) && a[x] == b[y]; y++ {
				x++
			}
			row[i] = x
			if x >= len(a) && x-k >= len(b) {
				return append(trace, row), true
			}
		}
		trace = append(trace, row)
		last = row
	}
	return nil, false
}

// backtrack turns the trace into changes, in order, neighbours joined.
func backtrack(trace [][]int, lenA, lenB int) []change {
	var found []change
	x, y := lenA, lenB
	for d := len(trace) - 1; d > 0; d-- {
		k := x - y
		i := (k + d) / 2
		last := trace[d-1]
		down := k == -d || k != d && last[i-1] < last[i]
		var px, py int
		if down {
			px = last[i]
			py = px - (k + 1)
			found = append(found, change{px, px, py, py + 1})
		} else {
			px = last[i-1]
			py = px - (k - 1)
			found = append(found, change{px, px + 1, py, py})
		}
		x, y = px, py
	}
	slices.Reverse(found)
	joined := found[:0]
	for _, c := range found {
		if n := len(joined); n > 0 && joined[n-1].A1 == c.A0 && joined[n-1].B1 == c.B0 {
			joined[n-1].A1, joined[n-1].B1 = c.A1, c.B1
			continue
		}
		joined = append(joined, c)
	}
	return joined
}

// hunks groups changes whose surroundings touch.
func hunks(all []change) [][]change {
	var groups [][]change
	for _, c := range all {
		n := len(groups)
		if n > 0 {
			last := groups[n-1][len(groups[n-1])-1]
			if c.A0-last.A1 <= 2*diffContext {
				groups[n-1] = append(groups[n-1], c)
				continue
			}
		}
		groups = append(groups, []change{c})
	}
	return groups
}

// diffWriter collects the text up to its bound.
type diffWriter struct {
	strings.Builder
	full bool
}

func (w *diffWriter) printf(format string, args ...any) {
	if w.full {
		return
	}
	text := fmt.Sprintf(format, args...)
	if w.Len()+len(text) > diffMaxBytes {
		w.full = true
		text = "... [diff truncated] ...\n"
	}
	w.WriteString(text)
}

func (w *diffWriter) hunk(a, b []string, group []change) {
	first, last := group[0], group[len(group)-1]
	lead := min(diffContext, first.A0)
	tail := min(diffContext, len(a)-last.A1)
	a0, a1 := first.A0-lead, last.A1+tail
	b0, b1 := first.B0-lead, last.B1+tail
	w.printf("@@ -%s +%s @@\n", span(a0, a1), span(b0, b1))
	at := a0
	for _, c := range group {
		w.lines(" ", a[at:c.A0])
		w.lines("-", a[c.A0:c.A1])
		w.lines("+", b[c.B0:c.B1])
		at = c.A1
	}
	w.lines(" ", a[at:a1])
}

func (w *diffWriter) lines(mark string, lines []string) {
	for _, line := range lines {
		if w.full {
			return
		}
		end := ""
		if !strings.HasSuffix(line, "\n") {
			end = "\n\\ No newline at end of file\n"
		}
		if cut, long := cutLine(line, maxLineChars); long {
			line, end = cut, "...\n"
		}
		w.printf("%s%s%s", mark, line, end)
	}
}

// span writes a range of lines as the unified format does: an empty one names the line before it.
func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprintf("%d", from+1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
