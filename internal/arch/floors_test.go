package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxDepth is the longest chain of imports among our packages that one can still hold in mind.
const maxDepth = 8

func TestEveryImportGoesToALowerFloor(t *testing.T) {
	for _, fault := range floorFaults(plan(), openHouse(t)) {
		t.Error(fault)
	}
}

func TestThePlanHasNoCircle(t *testing.T) {
	if circle := findCircle(planEdges(plan())); circle != nil {
		t.Errorf("the plan goes in a circle: %s", strings.Join(circle, " -> "))
	}
}

func TestThePlanOnlyPointsDown(t *testing.T) {
	for _, fault := range planFaults(plan()) {
		t.Error(fault)
	}
}

func TestThePlanNamesNoPackageTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range plan() {
		if seen[p.path] {
			t.Errorf("the plan has two rows for %s", p.path)
		}
		seen[p.path] = true
	}
}

func TestNoChainOfImportsIsTooLong(t *testing.T) {
	edges := openHouse(t).imports()
	if circle := findCircle(edges); circle != nil {
		t.Fatalf("packages import each other in a circle: %s", strings.Join(circle, " -> "))
	}
	chain := longestChain(edges)
	if len(chain) > maxDepth {
		t.Errorf("a chain of %d imports, at most %d are allowed: %s", len(chain), maxDepth, strings.Join(chain, " -> "))
	}
}

func TestAnImportThatGoesUpIsRefusedBySentence(t *testing.T) {
	h := sketch(
		source{name: "tools/grep.go", pkg: "tools", imports: []string{"m/actors"}},
		source{name: "model/script/model.go", pkg: "model/script", imports: []string{"m/model", "m/model/openai"}},
		source{name: "actors/worker_test.go", pkg: "actors", test: true, imports: []string{"m/persistence/memory", "m"}},
		source{name: "cellar/wine.go", pkg: "cellar"},
	)
	got := strings.Join(floorFaults(plan(), h), "\n")
	for _, want := range []string{
		"tools/grep.go: tools (floor 2) must not import actors (floor 3)",
		"model/script/model.go: model/script (floor 2) must not import model/openai (floor 2)",
		"actors/worker_test.go: a test of actors (floor 3) must not import the root package (floor 4)",
		"cellar is not in the plan",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no fault says %q; faults:\n%s", want, got)
		}
	}
	if n := len(strings.Split(got, "\n")); n != 4 {
		t.Errorf("%d faults instead of 4:\n%s", n, got)
	}
}

func TestACircleInAPlanIsFound(t *testing.T) {
	circular := []place{
		{path: "a", floor: 1, may: []string{"b"}},
		{path: "b", floor: 1, may: []string{"c/x"}},
		{path: "c/*", floor: 1, may: []string{"a"}},
	}
	if findCircle(planEdges(circular)) == nil {
		t.Error("the circle a -> b -> c/* -> a went unnoticed")
	}
	if n := len(planFaults(circular)); n != 3 {
		t.Errorf("%d faults instead of 3: a, b and c/* all point sideways", n)
	}
}

// floorFaults says in a sentence each what is wrong with a house's imports.
func floorFaults(places []place, h *house) []string {
	var faults []string
	for _, pkg := range h.packages() {
		if _, ok := find(places, pkg); !ok {
			faults = append(faults, fmt.Sprintf(
				"%s is not in the plan: add it to internal/arch/table_test.go, with its floor and what it may import", pkg,
			))
		}
	}
	for _, s := range h.sources {
		from, ok := find(places, s.pkg)
		if !ok {
			continue
		}
		for _, imported := range s.imports {
			to, ours := h.ours(imported)
			if !ours || to == s.pkg || from.mayImport(to) {
				continue
			}
			target, known := find(places, to)
			if s.test && known && from.testMayImport(to, target.floor) {
				continue
			}
			faults = append(faults, refusal(s, from, to, target))
		}
	}
	return faults
}

func refusal(s source, from place, to string, target place) string {
	who := called(s.pkg)
	if s.test {
		who = "a test of " + who
	}
	return fmt.Sprintf(
		"%s: %s (floor %d) must not import %s (floor %d): imports go to lower floors, and only along the plan in internal/arch/table_test.go",
		s.name, who, from.floor, called(to), target.floor,
	)
}

func called(pkg string) string {
	if pkg == "." {
		return "the root package"
	}
	return pkg
}

// mayImport tells whether the plan lets a package import another.
func (p place) mayImport(pkg string) bool { return within(p.may, pkg) }

// testMayImport: tests reach everything below their own floor, the doubles, and what their row adds.
func (p place) testMayImport(pkg string, floor int) bool {
	return floor < p.floor || within(p.tests, pkg) || within(doubles(), pkg)
}

// within tells whether a package is one of the places; "x/*" is any package right below x.
func within(places []string, pkg string) bool {
	return slices.ContainsFunc(places, func(pattern string) bool { return matches(pattern, pkg) })
}

func matches(pattern, pkg string) bool {
	if pattern == "*" || pattern == pkg {
		return true
	}
	parent, wild := strings.CutSuffix(pattern, "/*")
	return wild && path.Dir(pkg) == parent
}

// find returns the row of a package: its own, else the one that its folder shares.
func find(places []place, pkg string) (place, bool) {
	shared, found := place{}, false
	for _, p := range places {
		if p.path == pkg {
			return p, true
		}
		if matches(p.path, pkg) {
			shared, found = p, true
		}
	}
	return shared, found
}

// planEdges is what the rows allow, as a graph over the rows.
func planEdges(places []place) map[string][]string {
	edges := map[string][]string{}
	for _, p := range places {
		for _, to := range p.may {
			if target, ok := find(places, to); ok && to != "*" {
				edges[p.path] = append(edges[p.path], target.path)
			}
		}
	}
	return edges
}

// planFaults says where rows point up or sideways, or to nothing.
func planFaults(places []place) []string {
	var faults []string
	for _, p := range places {
		for _, to := range p.may {
			target, ok := find(places, to)
			switch {
			case to == "*":
			case !ok:
				faults = append(faults, fmt.Sprintf("%s may import %s, which is not in the plan", p.path, to))
			case target.floor >= p.floor && path.Dir(p.path) != to:
				faults = append(faults, fmt.Sprintf(
					"%s (floor %d) may import %s (floor %d), which is no lower", p.path, p.floor, to, target.floor,
				))
			}
		}
	}
	return faults
}

// sketch is a house of a few sources, for tests of the checks themselves.
func sketch(sources ...source) *house { return &house{module: "m", sources: sources} }
