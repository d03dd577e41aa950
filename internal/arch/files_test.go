package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
