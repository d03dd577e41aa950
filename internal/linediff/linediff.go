// Package linediff shows how lines differ from others.
package linediff

import (
	"fmt"
	"strings"
)

const (
	// around is how many lines that are the same are shown before and after a difference.
	around = 3
	// maxCells bounds the comparison: more than that is shown as wholly different.
	maxCells = 4 << 20
)

// Diff shows how lines differ from those that were expected: what is gone with "- ", what is new with "+ ", and some of what is the
// same around it. It is "" when they are equal.
func Diff(want, got []string) string {
	head := 0
	for head < len(want) && head < len(got) && want[head] == got[head] {
		head++
	}
	if head == len(want) && head == len(got) {
		return ""
	}
	tail := 0
	for tail < len(want)-head && tail < len(got)-head && want[len(want)-1-tail] == got[len(got)-1-tail] {
		tail++
	}
	var all []string
	for _, l := range want[:head] {
		all = append(all, "  "+l)
	}
	all = append(all, changes(want[head:len(want)-tail], got[head:len(got)-tail])...)
	for _, l := range want[len(want)-tail:] {
		all = append(all, "  "+l)
	}
	return shorten(all)
}

// changes is the shortest way from one list to another, by the longest common subsequence.
func changes(want, got []string) (out []string) {
	if len(want)*len(got) > maxCells {
		for _, l := range want {
			out = append(out, "- "+l)
		}
		for _, l := range got {
			out = append(out, "+ "+l)
		}
		return out
	}
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			out = append(out, "  "+want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+want[i])
			i++
		default:
			out = append(out, "+ "+got[j])
			j++
		}
	}
	return out
}

// shorten leaves out what is the same and far from any difference.
func shorten(all []string) string {
	near := make([]bool, len(all))
	for i, l := range all {
		if strings.HasPrefix(l, "  ") {
			continue
		}
		for k := max(0, i-around); k <= min(len(all)-1, i+around); k++ {
			near[k] = true
		}
	}
	var out strings.Builder
	left := 0
	for i, l := range all {
		if !near[i] {
			left++
			continue
		}
		if left > 0 {
			fmt.Fprintf(&out, "  ... %d the same\n", left)
			left = 0
		}
		out.WriteString(l + "\n")
	}
	if left > 0 {
		fmt.Fprintf(&out, "  ... %d the same\n", left)
	}
	return out.String()
}
