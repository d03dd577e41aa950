package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Every goroutine has an owner that ends it: the tests of a package that starts some fail when one is left.
func TestPackagesThatStartGoroutinesLookForLeftOnes(t *testing.T) {
	for _, fault := range leakFaults(openHouse(t).sources) {
		t.Error(fault)
	}
}

func TestAPackageThatDoesNotLookForItsGoroutinesIsFound(t *testing.T) {
	fset := token.NewFileSet()
	files := map[string]string{
		"a/a.go":      "package a\n\nfunc f() { go g() }\n",
		"a/a_test.go": "package a\n\nfunc TestMain(m *testing.M) { os.Exit(m.Run()) }\n",
		"b/b.go":      "package b\n\nfunc f(all *sync.WaitGroup) { all.Go(g) }\n",
		"b/b_test.go": "package b\n\nfunc TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n",
		"c/c.go":      "package c\n\nfunc f() { go g() }\n", // has no tests: it runs in those of others
		"d/d_test.go": "package d\n\nfunc TestD(t *testing.T) {}\n",
		"e/e_test.go": "package e\n\nfunc TestE(t *testing.T) { go f() }\n",
	}
	var sources []source
	for name, text := range files {
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parse the example: %v", err)
		}
		sources = append(sources, source{name: name, pkg: name[:1], test: strings.HasSuffix(name, "_test.go"), file: file, fset: fset})
	}
	faults := strings.Join(leakFaults(sources), "\n")
	if strings.Count(faults, "\n") != 1 || !strings.Contains(faults, "a starts") || !strings.Contains(faults, "e starts") {
		t.Errorf("faults:\n%s\nwant those of a and e", faults)
	}
}

// leakFaults names the packages with tests that start goroutines, themselves or in a test, and whose TestMain does not
// ask goleak what is left of them.
func leakFaults(sources []source) []string {
	starts, tested, looks := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range sources {
		starts[s.pkg] = starts[s.pkg] || startsGoroutines(s.file)
		tested[s.pkg] = tested[s.pkg] || s.test
		looks[s.pkg] = looks[s.pkg] || s.test && calls(s.file, "VerifyTestMain")
	}
	var faults []string
	for pkg := range tested {
		if tested[pkg] && starts[pkg] && !looks[pkg] {
			faults = append(faults, fmt.Sprintf("%s starts goroutines: let its TestMain call goleak.VerifyTestMain", called(pkg)))
		}
	}
	return faults
}

func startsGoroutines(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		_, ok := n.(*ast.GoStmt)
		found = found || ok
		return !found
	})
	return found || calls(file, "Go")
}
