package yamldoc

import (
	"slices"
	"strings"
)

// Near gives the candidates that a person who wrote word probably meant, at most three, all
// equally near. Case does not count; a typo in three letters is too many.
func Near(word string, candidates []string) []string {
	type guess struct {
		name string
		cost int
	}
	var guesses []guess
	w := strings.ToLower(word)
	for _, c := range candidates {
		cost := distance(w, strings.ToLower(c))
		if len(w) >= 3 && cost > 2 && (strings.HasPrefix(strings.ToLower(c), w) || strings.HasSuffix(strings.ToLower(c), "/"+w)) {
			cost = 2
		}
		if cost <= 2 && cost < len(w) {
			guesses = append(guesses, guess{c, cost})
		}
	}
	slices.SortStableFunc(guesses, func(a, b guess) int {
		if a.cost != b.cost {
			return a.cost - b.cost
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, g := range guesses {
		if len(out) < 3 && g.cost == guesses[0].cost && !slices.Contains(out, g.name) {
			out = append(out, g.name)
		}
	}
	return out
}

// DidYouMean is the end of an error about an unknown word: a suggestion, or what there is.
func DidYouMean(word string, candidates []string) string {
	if near := Near(word, candidates); len(near) > 0 {
		return "did you mean " + QuoteAll(near, " or ") + "?"
	}
	if len(candidates) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(candidates))
	return "known are " + strings.Join(sorted, ", ")
}

// QuoteAll puts each word into quotes and joins them.
func QuoteAll(words []string, sep string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = `"` + w + `"`
	}
	return strings.Join(out, sep)
}

// distance counts insertions, deletions, replacements and swaps of neighbours between two words.
// Both are cut at 64 bytes: nobody mistypes more.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
