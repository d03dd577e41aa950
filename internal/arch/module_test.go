package arch

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Acceptance row 68, first half: the libraries that troupe is asked to stand on are asked for
// by name in go.mod, and the program that people run is built from them.
func TestTheFiveLibrariesAreDirectAndInTheProgram(t *testing.T) {
	h := openHouse(t)
	direct := directRequirements(h.gomod)
	built := modulesOf(t, h.dir, "./cmd/troupe")
	for _, library := range []string{
		"github.com/asynkron/protoactor-go",
		"github.com/dgraph-io/badger/v4",
		"github.com/sashabaranov/go-openai",
		"github.com/spf13/viper",
		"github.com/oklog/run",
	} {
		if !slices.Contains(direct, library) {
			t.Errorf("%s is no direct requirement in go.mod", library)
		}
		if !slices.Contains(built, library) {
			t.Errorf("%s is not reachable from cmd/troupe", library)
		}
	}
}

// Acceptance row 68, second half.
func TestTheTenNamesStandAtTheTop(t *testing.T) {
	h := openHouse(t)
	folders := []string{"actors", "messages", "persistence", "cmd", "config", "workspace", "tools"}
	files := []string{"go.mod", "Makefile", "README.md"}
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatalf("list the module's root: %v", err)
	}
	for _, name := range slices.Concat(folders, files) {
		i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
		if i < 0 {
			t.Errorf("nothing at the top is named %s", name)
			continue
		}
		if want := slices.Contains(folders, name); entries[i].IsDir() != want {
			t.Errorf("%s: is a folder: %t, should be: %t", name, entries[i].IsDir(), want)
		}
	}
	for _, folder := range folders {
		if !slices.ContainsFunc(h.packages(), func(pkg string) bool {
			return pkg == folder || strings.HasPrefix(pkg, folder+"/")
		}) {
			t.Errorf("%s holds no Go package", folder)
		}
	}
}

func TestOnlyDirectRequirementsCount(t *testing.T) {
	got := directRequirements([]string{
		"module m", "require (", "a.org/x v1.0.0", "b.org/y v1.0.0 // indirect", ")", "require c.org/z v2.0.0",
		"require d.org/w v2.0.0 // indirect", "replace (", "e.org/v => ../v", ")",
	})
	if want := []string{"a.org/x", "c.org/z"}; !slices.Equal(got, want) {
		t.Errorf("direct requirements %v, want %v", got, want)
	}
}

// directRequirements reads the module paths that go.mod requires without `// indirect`.
func directRequirements(lines []string) []string {
	var direct []string
	block := false
	for _, line := range lines {
		rest, single := strings.CutPrefix(line, "require ")
		switch {
		case line == "require (":
			block = true
			continue
		case line == ")":
			block = false
		case single:
			line = rest
		}
		fields := strings.Fields(line)
		if (block || single) && len(fields) >= 2 && !strings.Contains(line, "// indirect") {
			direct = append(direct, fields[0])
		}
	}
	return direct
}

// modulesOf asks the go command which modules a package is built from.
func modulesOf(t *testing.T, dir, pkg string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg)
	list.Dir = dir
	var problem strings.Builder
	list.Stderr = &problem
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list what %s is built from: %v: %s", pkg, err, problem.String())
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	return slices.Compact(modules)
}
