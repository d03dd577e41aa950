package tools

import (
	"slices"
	"strings"
)

// Diff shows how a text changes, in the unified format; see unifiedDiff.
func Diff(name, before, after string) string {
	return unifiedDiff(name, before, after, before == "")
}

// Merge brings two changes of one text together, as long as they are in different places: of lines that lie next to each other
// it says no, as of those that both have changed. ok tells whether it could.
func Merge(base, ours, theirs string) (merged string, ok bool) {
	switch {
	case base == ours || ours == theirs:
		return theirs, true
	case base == theirs:
		return ours, true
	case notText(base) || notText(ours) || notText(theirs):
		return "", false
	}
	b, o, t := splitKeep(base), splitKeep(ours), splitKeep(theirs)
	type edit struct {
		change
		lines []string
	}
	var all []edit
	for _, c := range changes(b, o) {
		all = append(all, edit{c, o[c.B0:c.B1]})
	}
	mine := len(all)
	for _, c := range changes(b, t) {
		e := edit{c, t[c.B0:c.B1]}
		same := false
		for _, other := range all[:mine] {
			switch {
			case other.A0 == e.A0 && other.A1 == e.A1 && slices.Equal(other.lines, e.lines):
				same = true
			case other.A1 >= e.A0 && e.A1 >= other.A0:
				return "", false
			}
		}
		if !same {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(x, y edit) int { return x.A0 - y.A0 })
	var w strings.Builder
	at := 0
	for _, e := range all {
		w.WriteString(strings.Join(b[at:e.A0], ""))
		w.WriteString(strings.Join(e.lines, ""))
		at = e.A1
	}
	w.WriteString(strings.Join(b[at:], ""))
	return w.String(), true
}
