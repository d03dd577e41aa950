package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// namesFile is where the keys of log lines stand, and all other names of telemetry.
const namesFile = "internal/telemetry/names.go"

func TestLogLinesHaveTheKeysOfOneFile(t *testing.T) {
	h := openHouse(t)
	keys := logKeys(h)
	if len(keys) < 6 {
		t.Fatalf("%s lists %d keys", namesFile, len(keys))
	}
	used := make(map[string]bool)
	for _, s := range h.sources {
		if s.test || s.made {
			continue
		}
		for _, fault := range logFaults(s, keys, used) {
			t.Error(fault)
		}
	}
	for key := range keys {
		if !used[key] && key != "worker" && key != "agent" { // those that With adds are found, too
			t.Errorf("no log line has the key %q: take it out of %s", key, namesFile)
		}
	}
}

func TestAKeyOfItsOwnInALogLineIsFound(t *testing.T) {
	fset := token.NewFileSet()
	text := `package p

func f() {
	w.log.Error("a", "err", err, "error", err)
	svc.Log.With("session", id, "sess", id)
	o.Logger.Warn("b", slog.Any("err", err))
	log.Info("c", key, 1)
	t.Error("no log", "x", 1)
}
`
	file, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse the example: %v", err)
	}
	faults := logFaults(source{name: "p.go", file: file, fset: fset}, map[string]bool{"err": true, "session": true}, make(map[string]bool))
	if got := strings.Join(faults, "\n"); len(faults) != 4 || !strings.Contains(got, `"error"`) || !strings.Contains(got, `"sess"`) {
		t.Errorf("faults:\n%s", got)
	}
}

// logKeys reads the list of keys.
func logKeys(h *house) map[string]bool {
	keys := make(map[string]bool)
	for _, s := range h.sources {
		if s.name != namesFile {
			continue
		}
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "LogKeys" {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if key, ok := constant(n); ok {
					keys[key] = true
				}
				return true
			})
		}
	}
	return keys
}

// logFaults says which log lines of a file have keys that are not listed. A logger is known by its name.
func logFaults(s source, keys, used map[string]bool) []string {
	var faults []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for i, arg := range call.Args[min(leading(call), len(call.Args)):] {
			if leading(call) == none || i%2 == 1 {
				continue
			}
			key, ok := constant(arg)
			used[key] = true
			switch {
			case !ok:
				faults = append(faults, fmt.Sprintf("%s: the key of a log line is written out, as a text", s.fset.Position(arg.Pos())))
			case !keys[key]:
				faults = append(faults, fmt.Sprintf("%s: %q is no key of log lines: take one that is listed in %s", s.fset.Position(arg.Pos()), key, namesFile))
			}
		}
		return true
	})
	return faults
}

// none says that a call writes no log line.
const none = 1 << 20

// leading is how many arguments stand before the keys and values of a log line.
func leading(call *ast.CallExpr) int {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return none
	}
	name := ""
	switch x := fn.X.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		switch {
		case !ok:
		case f.Sel.Name == "log" || f.Sel.Name == "logOf" || f.Sel.Name == "logger": // they name a trace
			name = "logger"
		case f.Sel.Name == "New":
			if p, ok := f.X.(*ast.Ident); ok && p.Name == "slog" {
				name = "logger"
			}
		}
	}
	if name = strings.ToLower(name); name != "log" && name != "logger" {
		return none
	}
	switch fn.Sel.Name {
	case "With":
		return 0
	case "Debug", "Info", "Warn", "Error":
		return 1
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return 2
	}
	return none
}

// constant is the text that a node writes out.
func constant(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
