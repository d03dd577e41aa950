package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The last column of docs/acceptance.md names tests (`TestX`) or files; what it names is there.
func TestAcceptanceNamesOnlyTestsThatExist(t *testing.T) {
	h := openHouse(t)
	for _, fault := range acceptanceFaults(readText(t, h.dir, "docs/acceptance.md"), testNames(h)) {
		t.Error(fault)
	}
}

func TestAMissingRowOrTestOfAcceptanceIsFound(t *testing.T) {
	var text strings.Builder
	for row := 1; row <= 98; row++ {
		switch row {
		case 7, 92, 93: // 7 is left out by mistake, the others were never given
		case 8:
			text.WriteString("| 8 | a wish | `TestThatIsThere`, `TestThatIsGone` |\n")
		case 9:
			text.WriteString("| 9 | a wish | |\n")
		default:
			fmt.Fprintf(&text, "| %d | a wish | open |\n", row)
		}
	}
	text.WriteString("| 10 | a wish | open |\n")
	got := strings.Join(acceptanceFaults(text.String(), map[string]bool{"TestThatIsThere": true}), "\n")
	want := strings.Join([]string{
		"row 8 of docs/acceptance.md is shown by TestThatIsGone, which does not exist",
		"row 9 of docs/acceptance.md is neither open nor shown by a test",
		"row 7 stands 0 times in docs/acceptance.md, not once",
		"row 10 stands 2 times in docs/acceptance.md, not once",
	}, "\n")
	if got != want {
		t.Errorf("faults:\n%s\nwant:\n%s", got, want)
	}
}

// acceptanceFaults says which rows are missing, double, empty or shown by a test that is not there.
func acceptanceFaults(text string, tests map[string]bool) []string {
	row := regexp.MustCompile(`^\| (\d+) \|.*\|([^|]*)\|$`)
	name := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	var faults []string
	seen := map[int]int{}
	for line := range strings.Lines(text) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			continue // the pattern lets digits through only: a number too long for a row
		}
		seen[n]++
		if strings.TrimSpace(m[2]) == "" {
			faults = append(faults, fmt.Sprintf("row %d of docs/acceptance.md is neither open nor shown by a test", n))
		}
		for _, test := range name.FindAllString(m[2], -1) {
			if !tests[test] {
				faults = append(faults, fmt.Sprintf("row %d of docs/acceptance.md is shown by %s, which does not exist", n, test))
			}
		}
	}
	for n := 1; n <= 98; n++ {
		if n != 92 && n != 93 && seen[n] != 1 {
			faults = append(faults, fmt.Sprintf("row %d stands %d times in docs/acceptance.md, not once", n, seen[n]))
		}
	}
	return faults
}

// testNames collects the names of the functions that go test runs.
func testNames(h *house) map[string]bool {
	names := map[string]bool{}
	for _, s := range h.sources {
		if !s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
