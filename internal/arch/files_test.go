package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines is the length from which a file is two files. Generated code is not counted.
const maxLines = 500

func TestNoFileIsTooLong(t *testing.T) {
	for _, s := range openHouse(t).sources {
		if !s.made && s.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: it holds more than one thing", s.name, s.lines, maxLines)
		}
	}
}

func TestEverySkippedTestSaysWhy(t *testing.T) {
	for _, s := range openHouse(t).sources {
		for _, fault := range skipFaults(s) {
			t.Error(fault)
		}
	}
}

// TestWhatShortRunsLeaveOutRunsElsewhere: make test is short, and CI runs what it leaves out by name.
func TestWhatShortRunsLeaveOutRunsElsewhere(t *testing.T) {
	h := openHouse(t)
	list, err := os.ReadFile(filepath.Join(h.dir, ".ci", "long"))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, s := range h.sources {
		left = append(left, leftOut(s)...)
	}
	scripts, err := filepath.Glob(filepath.Join(h.dir, "cmd", "troupe", "testdata", "script", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "[short] skip") {
			left = append(left, "./cmd/troupe TestScripts/"+strings.TrimSuffix(filepath.Base(name), ".txtar"))
		}
	}
	for _, test := range left {
		if !strings.Contains(string(list), "\nrun "+test+"\n") {
			t.Errorf("%s is left out of short runs: add it to .ci/long, so that CI runs it", test)
		}
	}
	if want := strings.Count(string(list), "\nrun "); want != len(left) {
		t.Errorf(".ci/long has %d tests, and short runs leave out %d: %s", want, len(left), strings.Join(left, ", "))
	}
}

// leftOut names the tests of a file that do nothing in a short run.
func leftOut(s source) []string {
	var out []string
	if !s.test {
		return nil
	}
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Body == nil {
			continue
		}
		for _, stmt := range fn.Body.List {
			cond, ok := stmt.(*ast.IfStmt)
			if !ok || !calls(cond.Cond, "Short") || !calls(cond.Body, "Skip") && !calls(cond.Body, "Skipf") {
				continue
			}
			where := "./" + s.pkg
			if s.pkg == "." {
				where = "."
			}
			out = append(out, where+" "+fn.Name.Name)
		}
	}
	return out
}

// calls says whether a method or function of a package is called by that name below a node.
func calls(n ast.Node, name string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		found = found || ok && fn.Sel.Name == name
		return true
	})
	return found
}

func TestASilentSkipIsFound(t *testing.T) {
	fset := token.NewFileSet()
	text := "package p\n\nfunc f(t T) { t.SkipNow(); t.Skip(); t.Skip(\"needs a sandbox\") }\n"
	file, err := parser.ParseFile(fset, "p_test.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse the example: %v", err)
	}
	faults := skipFaults(source{name: "p_test.go", test: true, file: file, fset: fset})
	if len(faults) != 2 {
		t.Errorf("%d silent skips found, want 2: %s", len(faults), strings.Join(faults, "; "))
	}
}

// Every package says what it is for, in one file, above its package clause.
func TestEveryPackageIsDocumented(t *testing.T) {
	said := map[string]bool{}
	h := openHouse(t)
	code := map[string]bool{}
	for _, s := range h.sources {
		if s.test {
			continue
		}
		code[s.pkg] = true
		said[s.pkg] = said[s.pkg] || s.file.Doc != nil && !s.made
	}
	for pkg := range code {
		if !said[pkg] {
			t.Errorf("%s has no package comment: say what it is for above a package clause", called(pkg))
		}
	}
}

func TestNothingRunsBeforeMain(t *testing.T) {
	for _, s := range openHouse(t).sources {
		if s.made {
			continue
		}
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init runs behind the back of whoever imports it: make it a function and call it", s.fset.Position(fn.Pos()))
			}
		}
	}
}

func skipFaults(s source) []string {
	var faults []string
	if !s.test {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		if ok && (fn.Sel.Name == "SkipNow" || fn.Sel.Name == "Skip" && len(call.Args) == 0) {
			faults = append(faults, fmt.Sprintf("%s: a test is skipped without a reason", s.fset.Position(call.Pos())))
		}
		return true
	})
	return faults
}
