package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func TestLibrariesStayBehindTheirAdapters(t *testing.T) {
	for _, fault := range boundaryFaults(boundaries(), openHouse(t)) {
		t.Error(fault)
	}
}

func TestAForbiddenLibraryIsRefusedBySentence(t *testing.T) {
	h := sketch(
		source{name: "actors/worker.go", pkg: "actors", imports: []string{"github.com/dgraph-io/badger/v4"}},
		source{name: "actors/worker_test.go", pkg: "actors", test: true, imports: []string{"github.com/dgraph-io/badger/v4"}},
		source{name: "persistence/badger/store.go", pkg: "persistence/badger", imports: []string{"github.com/dgraph-io/badger/v4"}},
		source{name: "conversation/fold.go", pkg: "conversation", imports: []string{"os/exec", "time", "strings"}},
		source{name: "conversation/fold_test.go", pkg: "conversation", test: true, imports: []string{"time"}},
		source{name: "tools/exec.go", pkg: "tools", imports: []string{"log/slog", "os", "time"}},
	)
	got := strings.Join(boundaryFaults(boundaries(), h), "\n")
	want := strings.Join([]string{
		"actors/worker.go imports github.com/dgraph-io/badger/v4: only persistence/badger knows Badger",
		"actors/worker_test.go imports github.com/dgraph-io/badger/v4: only persistence/badger knows Badger",
		"conversation/fold.go imports os/exec: pure code touches no machine",
		"conversation/fold.go imports time: a conversation reads no clock; times come with the facts",
	}, "\n")
	if got != want {
		t.Errorf("faults:\n%s\nwant:\n%s", got, want)
	}
}

// Acceptance row 3: the circle tool -> session -> executor -> tool cannot be built.
func TestToolsReachNoActorAndNoSession(t *testing.T) {
	h := openHouse(t)
	edges := h.imports()
	for _, pkg := range h.packages() {
		if pkg != "tools" && !matches("tools/*", pkg) {
			continue
		}
		for _, far := range []string{".", "actors", "actors/act", "conversation", "gateway", "persistence", "client"} {
			if reach(edges, pkg)[far] {
				t.Errorf("%s reaches %s: a tool sees a tools.Context and nothing else of the program", pkg, called(far))
			}
		}
	}
	for _, fault := range sessionFaults(h) {
		t.Error(fault)
	}
}

func TestASessionTypeInAToolIsFound(t *testing.T) {
	fset := token.NewFileSet()
	text := "package tools\n\ntype SessionPort interface{}\n\nfunc f(m *messages.SessionCreated, s *messages.Usage) {}\n"
	file, err := parser.ParseFile(fset, "tools/leak.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse the example: %v", err)
	}
	faults := sessionFaults(sketch(source{name: "tools/leak.go", pkg: "tools", file: file, fset: fset}))
	got := strings.Join(faults, "\n")
	if len(faults) != 2 || !strings.Contains(got, "SessionPort") || !strings.Contains(got, "SessionCreated") {
		t.Errorf("faults:\n%s\nwant one for SessionPort and one for SessionCreated", got)
	}
}

// boundaryFaults says in a sentence each which import crosses a boundary.
func boundaryFaults(rules []boundary, h *house) []string {
	var faults []string
	for _, s := range h.sources {
		for _, imported := range s.imports {
			for _, b := range rules {
				if b.meansImport(imported) && b.refuses(s) {
					faults = append(faults, fmt.Sprintf("%s imports %s: %s", s.name, imported, b.because))
				}
			}
		}
	}
	return faults
}

func (b boundary) meansImport(imported string) bool {
	return imported == b.what || !b.exact && strings.HasPrefix(imported, b.what+"/")
}

func (b boundary) refuses(s source) bool {
	if s.test && !b.tests {
		return false
	}
	if b.inside != nil && !within(b.inside, s.pkg) {
		return false
	}
	return !within(b.only, s.pkg)
}

// sessionFaults names the places where tools mention a session type, ours or that of messages.
func sessionFaults(h *house) []string {
	var faults []string
	for _, s := range h.sources {
		if s.pkg != "tools" && !matches("tools/*", s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "messages" {
					name = n.Sel.Name
				}
			case *ast.TypeSpec:
				name = n.Name.Name
			}
			if strings.HasPrefix(name, "Session") {
				faults = append(faults, fmt.Sprintf("%s: a tool mentions %s: tools know no session", s.fset.Position(n.Pos()), name))
			}
			return true
		})
	}
	return faults
}
