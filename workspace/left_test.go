package workspace_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

// spy is a content that notes, while it is written, under which temporary name.
type spy struct {
	io.Reader
	dir  string
	seen []string
}

func (s *spy) Read(b []byte) (int, error) {
	found, err := filepath.Glob(filepath.Join(s.dir, workspace.TempPrefix+"*"))
	if err != nil {
		return 0, err
	}
	s.seen = found
	return s.Reader.Read(b)
}

func TestWhatACrashLeftOfANamedWriteIsFoundByItsName(t *testing.T) {
	w, root, _ := open(t)
	write := func(id string) string {
		s := &spy{Reader: strings.NewReader("x"), dir: filepath.Join(root, "d")}
		_, err := w.WriteFrom("d/f", s, workspace.WriteOptions{Parents: true, ID: id})
		must(t, err)
		if len(s.seen) != 1 {
			t.Fatalf("while it writes there are %q", s.seen)
		}
		return s.seen[0]
	}
	first, other, nobody := write("exe_1"), write("exe_2"), write("")
	if first == other || nobody == write("") {
		t.Error("two writes have one temporary name")
	}
	must(t, os.WriteFile(first, []byte("half"), 0o600))
	if write("exe_1") != first {
		t.Error("the same write has two temporary names")
	}
	must(t, os.WriteFile(first, []byte("half"), 0o600), os.WriteFile(other, []byte("half"), 0o600))
	must(t, w.RemoveLeft("d/f", "exe_1"), w.RemoveLeft("d/f", "exe_1"), w.RemoveLeft("none/f", "exe_1"))
	if _, err := os.Stat(first); err == nil {
		t.Error("it is still there")
	}
	if content(t, root, "d/"+filepath.Base(other)) != "half" || content(t, root, "d/f") != "x" {
		t.Error("something else went with it")
	}
	wantCode(t, "outside", w.RemoveLeft("../f", "exe_2"), workspace.CodeInvalidPath)
	must(t, os.Remove(other), os.Mkdir(first, 0o755))
	put(t, root, "d/"+filepath.Base(first)+"/part", "x")
	put(t, root, "d/tree/part", "x")
	_, err := w.RemoveTree(context.Background(), "d/tree", "exe_3")
	must(t, err, w.RemoveLeft("d/tree", "exe_1"))
	noTemps(t, root)
}
