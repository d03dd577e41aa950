package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// open gives a Full workspace in a fresh folder, and a secret outside of it.
func open(t testing.TB) (w *workspace.Workspace, root, out string) {
	t.Helper()
	top := t.TempDir()
	root, out = filepath.Join(top, "root"), filepath.Join(top, "out")
	must(t, os.Mkdir(root, 0o755), os.Mkdir(out, 0o755))
	put(t, out, "secret", "TOPSECRET")
	w, err := workspace.Open(workspace.Options{Dir: root, Trust: messages.Trust_FULL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, w.Close()) })
	return w, root, out
}

func put(t testing.TB, dir, name, content string) {
	t.Helper()
	full := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644))
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantCode(t testing.TB, what string, err error, code string) {
	t.Helper()
	if err == nil || workspace.CodeOf(err) != code {
		t.Errorf("%s: got %v (code %s), want code %s", what, err, workspace.CodeOf(err), code)
	}
	if err != nil && strings.Contains(err.Error(), os.TempDir()) && !strings.Contains(what, os.TempDir()) {
		t.Errorf("%s: the error tells a path of the machine: %v", what, err)
	}
}

func write(w *workspace.Workspace, path, data string) error {
	_, err := w.WriteFile(path, []byte(data), workspace.WriteOptions{Parents: true})
	return err
}

func TestProtectedNamesAreRefusedUnderEveryDisguise(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, ".git/config", "c")
	put(t, root, ".troupe/secret", "s")
	put(t, root, "sub/.git/config", "c")
	must(t, os.Symlink(".git", filepath.Join(root, "g")), os.Symlink("../.troupe", filepath.Join(root, "sub/t")),
		os.Symlink(".git/config", filepath.Join(root, "gc")), os.Symlink(".", filepath.Join(root, "here")))
	for _, path := range []string{
		".git/config", ".GIT/config", ".git./config", ".Git /config", "sub/.git/config", ".git", "g/config", "gc", "here/.git/x", "here/g/x",
		"new/.git/x", "GIT~1/x", ".troupe/x", ".TROUPE./x", "sub/t/x", "x/.troupe", ".troupe-tmp-1",
	} {
		wantCode(t, "write "+path, write(w, path, "x"), workspace.CodeDenied)
	}
	if _, err := os.Lstat(filepath.Join(root, "new")); err == nil {
		t.Error("a refused write left the directory new behind")
	}
	for _, path := range []string{".troupe/secret", "sub/t/secret", "sub/../.troupe/secret", ".Troupe/secret"} {
		_, err := w.ReadFile(path, 0)
		wantCode(t, "read "+path, err, workspace.CodeDenied)
	}
	if f, err := w.ReadFile(".git/config", 0); err != nil || string(f.Data) != "c" {
		t.Errorf("reading .git/config: %v, want it allowed", err)
	}
	ctx := context.Background()
	_, err := w.RemoveTree(ctx, "sub", "")
	wantCode(t, "remove a tree with a repository in it", err, workspace.CodeDenied)
	_, err = w.Remove(".git")
	wantCode(t, "remove .git", err, workspace.CodeDenied)
	for _, pair := range [][2]string{{"sub", "other"}, {".git", "x"}, {"here", ".git"}, {"gc", ".git/hooks"}, {".git/config", "c"}} {
		_, _, err := w.Rename(ctx, pair[0], pair[1], workspace.MoveOptions{Overwrite: true})
		wantCode(t, "move "+pair[0]+" to "+pair[1], err, workspace.CodeDenied)
	}
}

func TestPathsAreNotCleanedLexically(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, "a/f", "a")
	put(t, root, "deep/er/f", "deep")
	put(t, root, "deep/g", "beside")
	put(t, root, "g", "top")
	must(t, os.Symlink("deep/er", filepath.Join(root, "l")))
	for path, want := range map[string]string{
		"l/../g": "beside", "a/../g": "top", "./a//f": "a", "l/f": "deep", filepath.Join(root, "a/f"): "a", root + "//g": "top",
	} {
		if f, err := w.ReadFile(path, 0); err != nil || string(f.Data) != want {
			t.Errorf("%q: got %v, want %q: dot-dot goes up from where a link led", path, err, want)
		}
	}
	f, err := w.ReadFile("l/f", 0)
	must(t, err)
	if f.Path != "deep/er/f" {
		t.Errorf("real path %q, want the one without the link", f.Path)
	}
	_, err = w.ReadFile("g/", 0)
	wantCode(t, "file with a trailing slash", err, workspace.CodeInvalidPath)
	_, err = w.ReadFile("g/..", 0)
	wantCode(t, "dot-dot below a file", err, workspace.CodeInvalidPath)
	_, err = w.ReadFile("missing/../g", 0)
	wantCode(t, "dot-dot below nothing", err, workspace.CodeNotFound)
	wantCode(t, "write below nothing and up", write(w, "no/../x", ""), workspace.CodeNotFound)
	_, err = w.ReadFile(root+"-evil/f", 0)
	wantCode(t, "sibling with a shared prefix "+root+"-evil/f", err, workspace.CodeInvalidPath)
}

func TestWritesReplaceTheFileAndKeepItsMode(t *testing.T) {
	w, root, out := open(t)
	put(t, root, "run.sh", "old")
	must(t, os.Chmod(filepath.Join(root, "run.sh"), 0o755), os.Link(filepath.Join(out, "secret"), filepath.Join(root, "h")),
		os.Symlink("run.sh", filepath.Join(root, "l")))
	must(t, write(w, "l", "new"), write(w, "h", "mine"), write(w, "a/b/c", "deep"))
	info, err := os.Lstat(filepath.Join(root, "run.sh"))
	must(t, err)
	if info.Mode().Perm() != 0o755 || content(t, root, "run.sh") != "new" {
		t.Errorf("mode %v, content %q: want the mode kept and the link's target written", info.Mode(), content(t, root, "run.sh"))
	}
	if content(t, out, "secret") != "TOPSECRET" || content(t, root, "h") != "mine" {
		t.Error("a write went through a hard link")
	}
	must(t, os.Chmod(filepath.Join(root, "run.sh"), 0o444))
	wantCode(t, "read-only file", write(w, "run.sh", "x"), workspace.CodeDenied)
	wantCode(t, "directory", write(w, "a", "x"), workspace.CodeInvalidPath)
	_, err = w.WriteFile("big", make([]byte, 11), workspace.WriteOptions{Limit: 10})
	wantCode(t, "too large", err, workspace.CodeTooLarge)
	_, err = w.WriteFile("no/x", nil, workspace.WriteOptions{})
	wantCode(t, "missing directory", err, workspace.CodeNotFound)
	noTemps(t, root)
}

func noTemps(t *testing.T, root string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), workspace.TempPrefix) {
			t.Errorf("%s was left behind", path)
		}
		return err
	}))
}

func TestAWriteSeesWhetherTheFileIsStillTheExpectedOne(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, "f", "one")
	nothing, one := "", workspace.Sum([]byte("one"))
	_, err := w.WriteFile("f", []byte("x"), workspace.WriteOptions{Expect: &nothing})
	wantCode(t, "expected nothing", err, workspace.CodeChanged)
	_, err = w.WriteFile("g", []byte("x"), workspace.WriteOptions{Expect: &one})
	wantCode(t, "expected a file", err, workspace.CodeChanged)
	_, err = w.WriteFile("f", []byte("two"), workspace.WriteOptions{Expect: &one})
	must(t, err)
	_, err = w.WriteFile("f", []byte("three"), workspace.WriteOptions{Expect: &one})
	wantCode(t, "expected the older content", err, workspace.CodeChanged)
	if got := content(t, root, "f"); got != "two" {
		t.Errorf("content %q, want two", got)
	}
	noTemps(t, root)
}

func TestRestrictedRefusesSecondNamesOfFilesAndFullDoesNot(t *testing.T) {
	full, root, out := open(t)
	must(t, os.Link(filepath.Join(out, "secret"), filepath.Join(root, "h")))
	restricted := full.Under(messages.Trust_RESTRICTED)
	_, err := restricted.ReadFile("h", 0)
	wantCode(t, "read", err, workspace.CodeDenied)
	wantCode(t, "write", write(restricted, "h", "x"), workspace.CodeDenied)
	if _, err := full.ReadFile("h", 0); err != nil {
		t.Errorf("Full: %v", err)
	}
	unsaid, err := workspace.Open(workspace.Options{Dir: root})
	must(t, err)
	defer unsaid.Close()
	_, err = unsaid.ReadFile("h", 0)
	wantCode(t, "unspecified trust", err, workspace.CodeDenied)
}

func TestAFolderMadeOnFirstUseCostsNothingBefore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "homes", "s1")
	w, err := workspace.Open(workspace.Options{Dir: dir, Create: true, Trust: messages.Trust_FULL})
	must(t, err)
	defer w.Close()
	_, err = w.ReadFile("x", 0)
	wantCode(t, "read", err, workspace.CodeNotFound)
	_, err = w.Remove("x")
	wantCode(t, "remove", err, workspace.CodeNotFound)
	for path, code := range map[string]string{".": "", dir: "", "below": workspace.CodeNotFound, "..": workspace.CodeInvalidPath} {
		_, err := w.Walk(t.Context(), path, func(*workspace.Entry) error { return errors.New("an entry") })
		if code != "" {
			wantCode(t, "list "+path, err, code)
		} else if err != nil {
			t.Errorf("list %q: %v", path, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the folder exists after mere looks: %v", err)
	}
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			if err := write(w, name, name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b", "c", "d"} {
		if got := content(t, dir, name); got != name {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if _, err := workspace.Open(workspace.Options{Dir: dir + "-no"}); err == nil {
		t.Error("opening a missing folder without Create gave no error")
	}
	if _, err := workspace.Open(workspace.Options{Dir: "relative"}); err == nil {
		t.Error("opening a relative folder gave no error")
	}
	must(t, w.Close(), w.Close())
	_, err = w.ReadFile("a", 0)
	wantCode(t, "after Close", err, workspace.CodeUnavailable)
}

func TestRemovalsFollowNoLinksAndAreWhole(t *testing.T) {
	w, root, out := open(t)
	put(t, root, "t/a/f", "x")
	put(t, root, "t/.troupe-tmp-dead/f", "left by a crash")
	must(t, os.Symlink(out, filepath.Join(root, "t/d")), os.Symlink("t", filepath.Join(root, "l")))
	_, err := w.Remove("t")
	wantCode(t, "a directory that is not empty", err, workspace.CodeExists)
	if info, err := w.Remove("l"); err != nil || info.Path != "l" {
		t.Errorf("removing a link: %v, %v", info, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.RemoveTree(ctx, "t", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled removal: %v", err)
	}
	if content(t, root, "t/a/f") != "x" {
		t.Error("a cancelled removal removed something")
	}
	_, err = w.RemoveTree(context.Background(), "t", "")
	must(t, err)
	if _, err := os.Lstat(filepath.Join(root, "t")); err == nil || content(t, out, "secret") != "TOPSECRET" {
		t.Errorf("t is still there, or something outside is gone: %v", err)
	}
	for _, path := range []string{".", "a/..", root} {
		_, err := w.RemoveTree(context.Background(), path, "")
		if path == "a/.." {
			wantCode(t, path, err, workspace.CodeNotFound)
			continue
		}
		wantCode(t, "remove "+path, err, workspace.CodeInvalidPath)
	}
	noTemps(t, root)
}

func TestMovesKeepToTheirRules(t *testing.T) {
	w, root, out := open(t)
	ctx := context.Background()
	put(t, root, "a", "A")
	put(t, root, "b", "B")
	put(t, root, "d/x", "X")
	must(t, os.Symlink("a", filepath.Join(root, "l")), os.Symlink("../out", filepath.Join(root, "esc")))
	type move struct {
		from, to string
		o        workspace.MoveOptions
		code     string
	}
	for _, m := range []move{
		{"a", "b", workspace.MoveOptions{}, workspace.CodeExists},
		{"a", "d", workspace.MoveOptions{Overwrite: true}, workspace.CodeExists},
		{"a", "a", workspace.MoveOptions{Overwrite: true}, workspace.CodeExists},
		{"d", "d/sub", workspace.MoveOptions{}, workspace.CodeInvalidPath},
		{"d", "a", workspace.MoveOptions{Overwrite: true}, workspace.CodeExists},
		{"a", "../out/a", workspace.MoveOptions{}, workspace.CodeInvalidPath},
		{"a", "esc/a", workspace.MoveOptions{}, workspace.CodeInvalidPath},
		{"esc/secret", "s", workspace.MoveOptions{}, workspace.CodeInvalidPath},
		{"l", "d/l", workspace.MoveOptions{}, workspace.CodeInvalidPath},
		{"no", "n", workspace.MoveOptions{}, workspace.CodeNotFound},
		{"a", "n/n", workspace.MoveOptions{}, workspace.CodeNotFound},
		{".", "n", workspace.MoveOptions{}, workspace.CodeInvalidPath},
	} {
		_, _, err := w.Rename(ctx, m.from, m.to, m.o)
		wantCode(t, "move "+m.from+" to "+m.to, err, m.code)
	}
	for _, m := range []move{
		{from: "a", to: "b", o: workspace.MoveOptions{Overwrite: true}},
		{from: "l", to: "l2"},
		{from: "d", to: "p/q", o: workspace.MoveOptions{Parents: true}},
	} {
		if _, to, err := w.Rename(ctx, m.from, m.to, m.o); err != nil || to.Path != m.to {
			t.Errorf("move %s to %s: %v, %v", m.from, m.to, to, err)
		}
	}
	if content(t, root, "b") != "A" || content(t, root, "p/q/x") != "X" || content(t, out, "secret") != "TOPSECRET" {
		t.Error("what was moved is not where it should be")
	}
}

func TestWalkIsSortedBoundedAndLeavesOutWhatIsProtected(t *testing.T) {
	w, root, out := open(t)
	for _, name := range []string{"b", "a/z", "a/y", ".hidden", ".git/config", ".troupe/x", ".troupe-tmp-1"} {
		put(t, root, name, name)
	}
	must(t, os.Symlink(out, filepath.Join(root, "link")))
	deep := strings.Repeat("n/", workspace.MaxDepth+5)
	must(t, os.MkdirAll(filepath.Join(root, deep), 0o755))
	var seen []string
	cut, err := w.Walk(context.Background(), ".", func(e *workspace.Entry) error {
		if e.Depth < 3 && e.Name != "n" {
			seen = append(seen, e.Path)
		}
		return nil
	})
	must(t, err)
	if got := strings.Join(seen, " "); got != ".git .hidden a a/y a/z b link" || !cut {
		t.Errorf("saw %q (cut %v), want the sorted list without protected names, cut by its depth", got, cut)
	}
	_, err = w.Walk(context.Background(), "link", nil)
	wantCode(t, "walk a link out", err, workspace.CodeInvalidPath)
	_, err = w.Walk(context.Background(), "b", nil)
	wantCode(t, "walk a file", err, workspace.CodeInvalidPath)
}

func TestStaleTemporaryFilesAreSweptAndFreshOnesKept(t *testing.T) {
	w, root, _ := open(t)
	now := time.Now()
	put(t, root, "a/.troupe-tmp-0123456789abcdef", "x")
	put(t, root, ".troupe-tmp-1123456789abcdef/f", "x")
	put(t, root, ".troupe-tmp-2123456789abcdef", "x")
	put(t, root, ".git/.troupe-tmp-not-ours", "x")
	put(t, root, ".troupe-tmp-of-a-user", "x")
	old := now.Add(-2 * time.Hour)
	for _, name := range []string{".troupe-tmp-of-a-user", "a/.troupe-tmp-0123456789abcdef", ".troupe-tmp-1123456789abcdef", ".git/.troupe-tmp-not-ours"} {
		must(t, os.Chtimes(filepath.Join(root, name), old, old))
	}
	n, err := w.RemoveStale(context.Background(), time.Hour, now)
	must(t, err)
	if n != 2 || content(t, root, ".troupe-tmp-2123456789abcdef") != "x" || content(t, root, ".git/.troupe-tmp-not-ours") != "x" ||
		content(t, root, ".troupe-tmp-of-a-user") != "x" {
		t.Errorf("removed %d, want the two old ones and nothing else", n)
	}
}

func TestHashesNameStates(t *testing.T) {
	w, root, _ := open(t)
	ctx := context.Background()
	put(t, root, "d/f", "x")
	must(t, os.Symlink("d/f", filepath.Join(root, "l")))
	hash := func(path string, follow bool) string {
		sum, _, err := w.Hash(ctx, path, follow)
		must(t, err)
		return sum
	}
	if hash("none", true) != "" || hash("no/ne", true) != "" {
		t.Error("nothing has a hash")
	}
	if hash("d/f", false) != workspace.Sum([]byte("x")) || hash("l", true) != hash("d/f", false) || hash("l", false) == hash("l", true) {
		t.Error("a file's hash is not the one of its content, or a link's not its own")
	}
	before := hash("d", false)
	_, _, err := w.Rename(ctx, "d", "e", workspace.MoveOptions{})
	must(t, err)
	if hash("e", false) != before {
		t.Error("moving a directory changed its hash")
	}
	put(t, root, "e/g", "y")
	if hash("e", false) == before {
		t.Error("another file left a directory's hash as it was")
	}
}

func TestInContainerModeOnlyTheInnerPathNamesTheRoot(t *testing.T) {
	root := t.TempDir()
	put(t, root, "f", "x")
	w, err := workspace.Open(workspace.Options{Dir: root, InnerDir: "/inner", Trust: messages.Trust_FULL})
	must(t, err)
	defer w.Close()
	if _, err := w.ReadFile("/inner/f", 0); err != nil {
		t.Error(err)
	}
	_, err = w.ReadFile(filepath.Join(root, "f"), 0)
	wantCode(t, "the machine's own path "+root, err, workspace.CodeInvalidPath)
	if seen, err := w.Seen("f"); err != nil || seen != "/inner/f" {
		t.Errorf("seen as %q, %v", seen, err)
	}
}

func TestTrustHoldsForTheVeryFolderAlone(t *testing.T) {
	store := workspace.NewTrustStore(filepath.Join(t.TempDir(), "data", "trust.json"))
	parent, child, other := parse(t, "local:/src"), parse(t, "local:/src/clone"), parse(t, "mac:/src")
	level := func(a *workspace.Address) messages.Trust_Level {
		l, err := store.Level(a)
		must(t, err)
		return l
	}
	if level(parent) != messages.Trust_RESTRICTED {
		t.Error("a folder is trusted before anybody said so")
	}
	must(t, store.Trust(parent, time.Unix(1, 0)), store.Trust(parent, time.Unix(2, 0)), store.Trust(other, time.Unix(3, 0)))
	if level(parent) != messages.Trust_FULL || level(child) != messages.Trust_RESTRICTED {
		t.Error("want the folder trusted and what lies below it not")
	}
	list, err := store.List()
	if err != nil || len(list) != 2 || list[0].Address != "local:/src" || !list[0].Since.Equal(time.Unix(1, 0)) {
		t.Errorf("list %v, %v", list, err)
	}
	if found, err := store.Untrust(parent); !found || err != nil || level(parent) != messages.Trust_RESTRICTED {
		t.Errorf("untrust: %v, %v", found, err)
	}
	if found, err := store.Untrust(parent); found || err != nil {
		t.Errorf("second untrust: %v, %v", found, err)
	}
	for _, uri := range []string{"git:github.com/o/r", "troupe:/sessions/x"} {
		if err := store.Trust(parse(t, uri), time.Unix(1, 0)); err == nil {
			t.Errorf("%s was trusted", uri)
		}
	}
}

func TestATrustFileThatOthersCanWriteTrustsNothing(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("modes do not tell on windows")
	}
	file := filepath.Join(t.TempDir(), "trust.json")
	store, a := workspace.NewTrustStore(file), parse(t, "local:/src")
	must(t, store.Trust(a, time.Unix(1, 0)), os.Chmod(file, 0o666))
	if l, err := store.Level(a); l != messages.Trust_RESTRICTED || err == nil {
		t.Errorf("got %v, %v", l, err)
	}
	must(t, os.Chmod(file, 0o600), os.WriteFile(file, []byte("{"), 0o600))
	if l, err := store.Level(a); l != messages.Trust_RESTRICTED || err == nil {
		t.Errorf("broken file: got %v, %v", l, err)
	}
}

func parse(t testing.TB, uri string) *workspace.Address {
	t.Helper()
	a, err := workspace.Parse(uri, "")
	must(t, err)
	return a
}
