package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// house is the module's source as it lies on disk: every file of every system, whatever the
// build tags say, because an import that only Windows sees is an import all the same.
type house struct {
	dir     string   // the module's root on disk
	module  string   // the module's path
	gomod   []string // lines of go.mod
	sources []source
}

// source is one Go file.
type source struct {
	name    string // slash path below the root
	pkg     string // its package's folder; "." is the root package
	test    bool
	made    bool // generated
	lines   int
	imports []string // as written
	file    *ast.File
	fset    *token.FileSet
}

// opened is the house as it stood when the first test asked; parsing it once is enough for all.
var opened = sync.OnceValues(readHouse)

// openHouse gives every test the same house, to be read only.
func openHouse(t *testing.T) *house {
	t.Helper()
	h, err := opened()
	if err != nil {
		t.Fatalf("read the house: %v", err)
	}
	return h
}

// readHouse parses every Go file of the module that the tests stand in.
func readHouse() (*house, error) {
	dir, err := filepath.Abs("../..")
	if err != nil {
		return nil, fmt.Errorf("find the module's root: %w", err)
	}
	h := &house{dir: dir}
	if h.gomod, err = goModLines(dir); err != nil {
		return nil, err
	}
	for _, line := range h.gomod {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			h.module = strings.TrimSpace(name)
		}
	}
	if h.module == "" {
		return nil, fmt.Errorf("go.mod in %s names no module", dir)
	}
	return h, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return h.enter(p, d.Name())
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		s, err := h.read(p)
		h.sources = append(h.sources, s)
		return err
	})
}

// enter leaves out what the go command leaves out: other modules, test data, hidden folders.
func (h *house) enter(p, name string) error {
	if p == h.dir {
		return nil
	}
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (h *house) read(p string) (source, error) {
	rel, err := filepath.Rel(h.dir, p)
	if err != nil {
		return source{}, err
	}
	text, err := os.ReadFile(p)
	if err != nil {
		return source{}, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, p, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("parse: %w", err)
	}
	name := filepath.ToSlash(rel)
	s := source{
		name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		made: ast.IsGenerated(file), lines: strings.Count(string(text), "\n"), file: file, fset: fset,
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, fmt.Errorf("read an import of %s: %w", name, err)
		}
		s.imports = append(s.imports, imported)
	}
	return s, nil
}

// ours tells whether an import is a package of this module, and where it stands below the root.
func (h *house) ours(imported string) (string, bool) {
	if imported == h.module {
		return ".", true
	}
	return strings.CutPrefix(imported, h.module+"/")
}

// packages lists the folders that hold Go files.
func (h *house) packages() []string {
	var all []string
	for _, s := range h.sources {
		all = append(all, s.pkg)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// imports maps each package to those of ours that its code, tests left out, imports.
func (h *house) imports() map[string][]string {
	out := map[string][]string{}
	for _, s := range h.sources {
		if s.test {
			continue
		}
		for _, imported := range s.imports {
			if to, ok := h.ours(imported); ok {
				out[s.pkg] = append(out[s.pkg], to)
			}
		}
	}
	for pkg, list := range out {
		slices.Sort(list)
		out[pkg] = slices.Compact(list)
	}
	return out
}

// goModLines returns the lines of go.mod without the spaces around them.
func goModLines(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read what the module requires: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines, nil
}
