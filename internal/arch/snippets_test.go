package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The Go of the guides is type-checked as it stands there: as declarations, or as what a function does. Names that a reader knows are declared here.
const snippetKnows = `
type Verdict struct{ Good bool }
var (
	ctx context.Context
	m troupe.Model
	rt *troupe.Runtime
	s *troupe.Session
	worker *troupe.Worker
	agents []troupe.Agent
	exporter sdktrace.SpanExporter
	script string
)
func charge(*atomic.Int64) troupe.Tool { return nil }
`

// snippetImports are the packages that a snippet may use without saying so, by name.
func snippetImports() map[string]string {
	all := map[string]string{
		"atomic": "sync/atomic", "synctest": "testing/synctest", "sdktrace": "go.opentelemetry.io/otel/sdk/trace",
		"troupe": "github.com/troupe-dev/troupe", "build": "github.com/troupe-dev/troupe/pipeline/build",
	}
	for _, std := range []string{"context", "errors", "fmt", "http", "testing", "time"} {
		all[std] = std
	}
	all["http"] = "net/http"
	for _, ours := range []string{"troupetest", "pipeline", "messages", "tools", "policy", "config", "gateway"} {
		all[ours] = "github.com/troupe-dev/troupe/" + ours
	}
	return all
}

// books are the texts that hold Go for programs that use troupe.
func books(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, name := range found {
		out = append(out, "docs/"+filepath.Base(name))
	}
	return out
}

func TestTheGoOfTheGuidesCompiles(t *testing.T) {
	h := openHouse(t)
	from := compiled(t, h.dir)
	seen := 0
	for _, book := range books(t, h.dir) {
		for _, s := range snippetsIn(readText(t, h.dir, book)) {
			if strings.HasPrefix(s.text, "package ") { // a whole file, which the test of docs/workspace-tools.md puts in its place
				continue
			}
			seen++
			for _, err := range from.check(s.text) {
				t.Errorf("%s:%d: %v", book, s.line, err)
			}
		}
	}
	if seen < 8 {
		t.Errorf("found %d snippets", seen)
	}
}

func TestWrongGoInAGuideIsFound(t *testing.T) {
	h := openHouse(t)
	from := compiled(t, h.dir)
	for text, want := range map[string]string{
		"res, err := s.Run(ctx, 7)": "cannot use 7",
		"rt.Nothing()":              "rt.Nothing undefined",
		"func f( {":                 "expected",
		"func TestX(t *testing.T) { troupetest.Check(t) }":           "not enough arguments",
		"for e, err := range s.Stream(ctx, \"x\") { ... }":           "",
		"rt, err := troupe.New(ctx, troupe.Options{Model: m})":       "",
		"func TestX(t *testing.T) { troupetest.Model(t, script) }":   "",
		"build.Param[string](build.New(\"p\"), \"topic\", \"what\")": "",
	} {
		errs := from.check(text)
		if got := fmt.Sprint(errs); want == "" && len(errs) > 0 || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", text, errs, want)
		}
	}
}

// TestWhatTheGuidesNameInGoIsThere looks at words such as `troupe.NewTask`, `Options.Clock`, `rt.Approvals`.
func TestWhatTheGuidesNameInGoIsThere(t *testing.T) {
	h := openHouse(t)
	from := compiled(t, h.dir)
	seen := 0
	for _, book := range books(t, h.dir) {
		for i, line := range strings.Split(readText(t, h.dir, book), "\n") {
			for _, name := range goNames(line) {
				seen++
				if err := from.find(name); err != nil {
					t.Errorf("%s:%d: `%s`: %v", book, i+1, strings.Join(name, "."), err)
				}
			}
		}
	}
	if seen < 40 {
		t.Errorf("found %d names", seen)
	}
	for _, name := range [][]string{{"troupe", "Nothing"}, {"Options", "Nothing"}, {"rt", "Nothing"}} {
		if from.find(name) == nil {
			t.Errorf("%v was found", name)
		}
	}
}

// goNames are the names of Go in the code of a line: of packages of ours, and fields and methods of types of the root package.
func goNames(line string) (out [][]string) {
	code := regexp.MustCompile("`([^`]+)`")
	name := regexp.MustCompile(`(?:^|[^\w./])([A-Za-z]+)((?:\.[A-Z]\w*)+)`)
	for _, c := range code.FindAllStringSubmatch(line, -1) {
		for _, n := range name.FindAllStringSubmatch(c[1], -1) {
			_, pkg := snippetImports()[n[1]]
			known := slices.Contains([]string{"rt", "s", "Options", "SessionOptions", "RunOptions", "ForkOptions", "Runtime", "Session", "Worker", "Run", "Task", "Agent", "Answer", "Limits", "Budget"}, n[1])
			if (pkg || known) && n[2] != ".NAME" { // which stands for any
				out = append(out, append([]string{n[1]}, strings.Split(strings.TrimPrefix(n[2], "."), ".")...))
			}
		}
	}
	return out
}

type snippet struct {
	line int
	text string
}

// snippetsIn finds the fences of Go.
func snippetsIn(text string) (out []snippet) {
	var cur *snippet
	for i, line := range strings.Split(text, "\n") {
		switch {
		case cur == nil && line == "```go":
			cur = &snippet{line: i + 2}
		case cur != nil && line == "```":
			out, cur = append(out, *cur), nil
		case cur != nil:
			cur.text += line + "\n"
		}
	}
	return out
}

// exports are packages as they were compiled.
type exports struct {
	fset     *token.FileSet
	importer types.Importer
}

func compiled(t *testing.T, dir string) *exports {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}"}
	cmd := exec.Command("go", append(args, slices.Sorted(maps.Values(snippetImports()))...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			files[path] = file
		}
	}
	fset := token.NewFileSet()
	return &exports{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })}
}

// check type-checks a snippet. What is declared and not used is none of its faults.
func (x *exports) check(text string) (errs []error) {
	text = strings.ReplaceAll(text, "{ ... }", "{}")
	body := text
	if !regexp.MustCompile(`(?m)^(func|type|var) `).MatchString(text) {
		body = "func snippet() {\n" + text + "\n}"
	}
	body += snippetKnows
	var head strings.Builder
	head.WriteString("package snippet; ")
	for _, name := range slices.Sorted(maps.Keys(snippetImports())) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&head, "import %s %q; ", name, snippetImports()[name])
		}
	}
	file, err := parser.ParseFile(x.fset, "snippet", head.String()+body, parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	conf := types.Config{Importer: x.importer, Error: func(err error) {
		var te types.Error
		if !errors.As(err, &te) || !te.Soft {
			errs = append(errs, err)
		}
	}}
	_, _ = conf.Check("snippet", x.fset, []*ast.File{file}, nil) // Error was told
	return errs
}

// find looks a name up.
func (x *exports) find(name []string) error {
	where, rest := name[0], name[1:]
	if where == "rt" || where == "s" {
		where = map[string]string{"rt": "Runtime", "s": "Session"}[where]
	}
	path, isPackage := snippetImports()[where]
	if !isPackage {
		path, rest = snippetImports()["troupe"], append([]string{where}, rest...)
	}
	pkg, err := x.importer.Import(path)
	if err != nil {
		return err
	}
	obj := pkg.Scope().Lookup(rest[0])
	if obj == nil {
		return fmt.Errorf("package %s has no %s", pkg.Name(), rest[0])
	}
	for _, part := range rest[1:] {
		found, _, _ := types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, pkg, part)
		if found == nil {
			found, _, _ = types.LookupFieldOrMethod(obj.Type(), true, pkg, part)
		}
		if found == nil {
			return fmt.Errorf("%s has no %s", obj.Name(), part)
		}
		obj = found
	}
	return nil
}
