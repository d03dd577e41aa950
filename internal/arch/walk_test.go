package arch

import (
	"maps"
	"slices"
)

// findCircle returns a circle of a graph, first node repeated at the end, or nil.
func findCircle(edges map[string][]string) []string {
	done := map[string]bool{}
	var trail []string
	var visit func(node string) []string
	visit = func(node string) []string {
		if i := slices.Index(trail, node); i >= 0 {
			return append(slices.Clone(trail[i:]), node)
		}
		if done[node] {
			return nil
		}
		trail = append(trail, node)
		for _, next := range edges[node] {
			if circle := visit(next); circle != nil {
				return circle
			}
		}
		trail = trail[:len(trail)-1]
		done[node] = true
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(edges)) {
		if circle := visit(node); circle != nil {
			return circle
		}
	}
	return nil
}

// longestChain returns the longest path of a graph without circles.
func longestChain(edges map[string][]string) []string {
	known := map[string][]string{}
	var from func(node string) []string
	from = func(node string) []string {
		if chain, ok := known[node]; ok {
			return chain
		}
		var best []string
		for _, next := range edges[node] {
			if chain := from(next); len(chain) > len(best) {
				best = chain
			}
		}
		known[node] = append([]string{node}, best...)
		return known[node]
	}
	var longest []string
	for _, node := range slices.Sorted(maps.Keys(edges)) {
		if chain := from(node); len(chain) > len(longest) {
			longest = chain
		}
	}
	return longest
}

// reach returns every node that can be reached from one, itself included.
func reach(edges map[string][]string, from string) map[string]bool {
	seen := map[string]bool{from: true}
	queue := []string{from}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, next := range edges[node] {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return seen
}
