package arch

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestEveryLayerOfSecurityIsShownByTests: SECURITY.md names, for each layer of its first table, tests in its second one, and those are there (acceptance row 88).
func TestEveryLayerOfSecurityIsShownByTests(t *testing.T) {
	h := openHouse(t)
	text := readText(t, h.dir, "SECURITY.md")
	for _, section := range []string{"## What we assume", "## What holds it", "## What does not", "## How it is tested"} {
		if !strings.Contains(text, section+"\n") {
			t.Errorf("SECURITY.md has no section %q", section)
		}
	}
	layers, faults := securityFaults(text, testNames(h))
	if layers < 30 {
		t.Errorf("%d layers were found: this is not the table", layers)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestALayerWithoutTestsIsFound(t *testing.T) {
	text := "## What holds it\n\n| layer | what it does |\n|---|---|\n| a | x |\n| b | x |\n| c | x |\n| d | x |\n## How it is tested\n" +
		"| layer | shown by |\n|---|---|\n| a | `TestThere` |\n| b | `TestThere`, `TestGone` |\n| c | by hand |\n| e | `TestThere` |\n"
	layers, got := securityFaults(text, map[string]bool{"TestThere": true})
	want := []string{
		"layer b of SECURITY.md is shown by TestGone, which does not exist",
		"layer c of SECURITY.md is shown by no test",
		"layer d of SECURITY.md is shown by no test",
		"layer e of SECURITY.md is tested and not described",
	}
	if layers != 4 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d layers, faults:\n%s\nwant:\n%s", layers, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// securityFaults counts the layers, and says which are shown by nothing, or by what is not there.
func securityFaults(text string, tests map[string]bool) (layers int, faults []string) {
	_, rest, _ := strings.Cut(text, "## What holds it\n")
	described, _, _ := strings.Cut(rest, "\n## ")
	_, tested, _ := strings.Cut(text, "## How it is tested\n")
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| (.*) \|$`)
	name := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	shown, order := map[string][]string{}, []string{}
	for _, m := range row.FindAllStringSubmatch(tested, -1) {
		if m[1] != "layer" {
			shown[m[1]] = name.FindAllString(m[2], -1)
			order = append(order, m[1])
		}
	}
	known := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(described, -1) {
		if m[1] == "layer" {
			continue
		}
		layers++
		known[m[1]] = true
		if len(shown[m[1]]) == 0 {
			faults = append(faults, fmt.Sprintf("layer %s of SECURITY.md is shown by no test", m[1]))
		}
		for _, test := range shown[m[1]] {
			if !tests[test] {
				faults = append(faults, fmt.Sprintf("layer %s of SECURITY.md is shown by %s, which does not exist", m[1], test))
			}
		}
	}
	for _, layer := range order {
		if !known[layer] {
			faults = append(faults, fmt.Sprintf("layer %s of SECURITY.md is tested and not described", layer))
		}
	}
	return layers, faults
}
