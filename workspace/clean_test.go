package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

func TestMalformedPathsAreRefusedWithoutATouch(t *testing.T) {
	w, _, _ := open(t)
	for _, path := range []string{
		"", "..", "../x", "a/../../x", "/etc/passwd", "//x", "a\x00b", "a\nb", "a\tb", "\u202ea", "a\u200b", "a\ufeff", "\xff", "a\u2028b",
		strings.Repeat("n", 256), strings.Repeat("n/", 2049), "/", "/..",
	} {
		_, err := w.Rel(path)
		wantCode(t, "rel "+path, err, workspace.CodeInvalidPath)
		if err != nil && strings.ContainsAny(err.Error(), "\x00\n\t\u202e\u200b") {
			t.Errorf("%q: the error repeats what disturbs a terminal", path)
		}
	}
	for path, want := range map[string]string{
		".": ".", "./a//b/": "a/b", "a/../b": "a/../b", "~": "~", "~root/x": "~root/x", "%2e%2e/x": "%2e%2e/x", "...": "...", " a ": " a ", "..ok": "..ok",
	} {
		if got, err := w.Rel(path); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", path, got, err, want)
		}
	}
}

// A process of a hostile project swaps a directory for a link all the time, while the workspace
// writes below it: nothing may ever arrive outside.
func TestSwappingADirectoryForALinkNeverLeadsAWriteOut(t *testing.T) {
	w, root, out := open(t)
	must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755), os.Symlink(out, filepath.Join(root, "a/l")),
		os.MkdirAll(filepath.Join(root, ".git"), 0o755), os.Symlink("../.git", filepath.Join(root, "a/g")))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		name := func(s string) string { return filepath.Join(root, "a", s) }
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, link := range []string{"l", "g"} {
				_ = os.Rename(name("b"), name("kept")) // each may fail: the writer makes and moves names too
				_ = os.Rename(name(link), name("b"))
				_ = os.Rename(name("b"), name(link))
				_ = os.Rename(name("kept"), name("b"))
			}
		}
	})
	wrote, refused := 0, 0
	for range 3000 {
		if _, err := w.WriteFile("a/b/f.txt", []byte("pwn"), workspace.WriteOptions{}); err == nil {
			wrote++
		} else {
			refused++
		}
	}
	close(stop)
	swapper.Wait()
	for _, dir := range []string{out, filepath.Join(root, ".git")} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Name() != "secret" {
				t.Errorf("%s was written into %s", e.Name(), filepath.Base(dir))
			}
		}
	}
	if wrote == 0 {
		t.Errorf("no write succeeded (%d refused): the race was not run", refused)
	}
}

func FuzzRel(f *testing.F) {
	for _, seed := range []string{"a/b", "../x", "/etc", "a//b/..", ".git/x", ".troupe", "..", "a/./b", "\u202e", "//"} {
		f.Add(seed)
	}
	w, root, _ := open(f)
	f.Fuzz(func(t *testing.T, path string) {
		rel, err := w.Rel(path)
		if err != nil {
			return
		}
		full := filepath.Join(root, filepath.FromSlash(rel)) // lexical, as the worst reader would
		if full != root && !strings.HasPrefix(full, root+string(filepath.Separator)) {
			t.Fatalf("%q became %q, which leaves the root", path, rel)
		}
		for part := range strings.SplitSeq(rel, "/") {
			if strings.EqualFold(strings.TrimRight(part, ". "), ".troupe") {
				t.Fatalf("%q became %q", path, rel)
			}
		}
		if again, err := w.Rel(rel); err != nil || again != rel {
			t.Fatalf("%q: %q does not stay itself: %q, %v", path, rel, again, err)
		}
	})
}
