package workspace_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

func TestStatFollowsLinksAndLstatDoesNot(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, "d/f", "12345")
	must(t, os.Symlink("d/f", filepath.Join(root, "l")), os.Symlink("d/", filepath.Join(root, "dl")))
	info, err := w.Stat("l")
	if err != nil || info.Path != "d/f" || info.Size != 5 || info.IsDir() {
		t.Errorf("stat: %+v, %v", info, err)
	}
	info, err = w.Lstat("l")
	if err != nil || info.Path != "l" || info.Mode.Type() != fs.ModeSymlink {
		t.Errorf("lstat: %+v, %v", info, err)
	}
	for path, want := range map[string]string{".": ".", "d/": "d", "d/..": ".", "d/../d/.": "d", "dl": "d", "dl/": "d", root: ".", "d/./": "d"} {
		if info, err := w.Stat(path); err != nil || info.Path != want || !info.IsDir() {
			t.Errorf("stat %q: %+v, %v, want the directory %q", path, info, err, want)
		}
	}
	_, err = w.Stat("none")
	wantCode(t, "stat none", err, workspace.CodeNotFound)
	_, err = w.Lstat("none/")
	wantCode(t, "lstat none/", err, workspace.CodeNotFound)
}

func TestOpenFileReadsPartsAndHidesTheMachinesPath(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, "f", "0123456789")
	f, info, err := w.OpenFile("f")
	must(t, err)
	if _, err := f.Seek(4, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(f)
	must(t, err, f.Close())
	if string(rest) != "456789" || info.Size != 10 {
		t.Errorf("got %q of %d bytes", rest, info.Size)
	}
	if _, named := f.(interface{ Name() string }); named {
		t.Error("the reader tells the machine's path")
	}
	_, _, err = w.OpenFile("none")
	wantCode(t, "open none", err, workspace.CodeNotFound)
	_, _, err = w.OpenFile("../x")
	wantCode(t, "open ../x", err, workspace.CodeInvalidPath)
	_, err = w.ReadFile("f", 9)
	wantCode(t, "read with a limit", err, workspace.CodeTooLarge)
	if got, err := w.ReadFile("f", 10); err != nil || string(got.Data) != "0123456789" {
		t.Errorf("at the limit: %v", err)
	}
}

func TestMkdirMakesOnlyWhatIsMissing(t *testing.T) {
	w, root, _ := open(t)
	put(t, root, "f", "")
	must(t, os.Symlink("real", filepath.Join(root, "dangling")))
	if info, made, err := w.Mkdir("a/b/c/", true); err != nil || !made || info.Path != "a/b/c" {
		t.Errorf("%+v, %v, %v", info, made, err)
	}
	if _, made, err := w.Mkdir("a/b", true); err != nil || made {
		t.Errorf("an existing one: %v, %v", made, err)
	}
	if info, made, err := w.Mkdir("dangling", false); err != nil || !made || info.Path != "real" {
		t.Errorf("through a link: %+v, %v, %v", info, made, err)
	}
	_, _, err := w.Mkdir("x/y", false)
	wantCode(t, "without parents", err, workspace.CodeNotFound)
	_, _, err = w.Mkdir("f", true)
	wantCode(t, "where a file is", err, workspace.CodeExists)
	_, _, err = w.Mkdir("f/x", true)
	wantCode(t, "below a file", err, workspace.CodeInvalidPath)
	if info, made, err := w.Mkdir(".", true); err != nil || made || info.Path != "." {
		t.Errorf("the root: %v, %v", made, err)
	}
}

func TestLinksThatLeadNowhereOrInACircleAreRefused(t *testing.T) {
	w, root, _ := open(t)
	chain := "end"
	put(t, root, "end", "x")
	for i := range 45 {
		name := "c" + strings.Repeat("i", i+1)
		must(t, os.Symlink(chain, filepath.Join(root, name)))
		chain = name
	}
	must(t, os.Symlink(root, filepath.Join(root, "abs")), os.Symlink("a/../../x", filepath.Join(root, "up")), os.Mkdir(filepath.Join(root, "a"), 0o755))
	for _, path := range []string{chain, "abs/end", "up"} {
		_, err := w.ReadFile(path, 0)
		wantCode(t, path, err, workspace.CodeInvalidPath)
	}
	if _, err := w.ReadFile("ciiiii", 0); err != nil {
		t.Errorf("a short chain: %v", err)
	}
}

func TestAWalkReadsFilesByTheirHandleAndSkipsWhatItIsTold(t *testing.T) {
	w, root, out := open(t)
	put(t, root, "a/f", "A")
	put(t, root, "b/f", "B")
	put(t, root, "c/f", "C")
	must(t, os.Link(filepath.Join(out, "secret"), filepath.Join(root, "a/h")))
	var got strings.Builder
	visit := func(e *workspace.Entry) error {
		switch e.Path {
		case "b":
			return workspace.SkipDir
		case "c/f":
			return workspace.Stop
		}
		if e.Mode.IsRegular() {
			f, err := e.ReadFile(0)
			if err != nil {
				got.WriteString(workspace.CodeOf(err) + " ")
				return nil
			}
			got.WriteString(string(f.Data) + " ")
		}
		return nil
	}
	cut, err := w.Under(messages.Trust_RESTRICTED).Walk(context.Background(), ".", visit)
	if err != nil || cut || got.String() != "A permission_denied " {
		t.Errorf("got %q, cut %v, %v", got.String(), cut, err)
	}
	stop := errors.New("enough")
	if _, err := w.Walk(context.Background(), "c", func(*workspace.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the function's own error: %v", err)
	}
}

func TestCallsLeaveNoDescriptorOpen(t *testing.T) {
	const fds = "/proc/self/fd"
	if _, err := os.ReadDir(fds); err != nil {
		t.Skipf("descriptors cannot be counted here: %v", err)
	}
	w, root, out := open(t)
	put(t, root, "a/b/c/f", "x")
	must(t, os.Symlink("a/b", filepath.Join(root, "l")), os.Symlink(out, filepath.Join(root, "o")))
	count := func() int {
		entries, err := os.ReadDir(fds)
		must(t, err)
		return len(entries)
	}
	ctx := context.Background()
	all := func() {
		for _, path := range []string{"a/b/c/f", "l/c/f", "l/../b/c/f", "o/secret", "none/x", "a/b/c/f/x", "a/b/c/../..", "l/", "a/b/../../..", "a/.troupe/x"} {
			_, _ = w.ReadFile(path, 0) // some fail: both ways must close what they opened
			_, _ = w.Stat(path)
			_, _ = w.WriteFile(path, []byte("x"), workspace.WriteOptions{Parents: true})
			_, _, _ = w.Hash(ctx, path, false)
			_, _, _ = w.Rename(ctx, path, "moved/x", workspace.MoveOptions{Parents: true})
			_, _, _ = w.Rename(ctx, "moved/x", path, workspace.MoveOptions{Parents: true})
			_, _ = w.Walk(ctx, path, func(*workspace.Entry) error { return nil })
			_, _ = w.RemoveTree(ctx, "none/"+path, "")
		}
	}
	all()
	before := count()
	for range 20 {
		all()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestTheSystemsRefusalsHaveCodes(t *testing.T) {
	if syscall.Getuid() == 0 {
		t.Skip("root may read and write everything: permissions refuse nothing")
	}
	w, root, _ := open(t)
	put(t, root, "shut/f", "x")
	must(t, os.Chmod(filepath.Join(root, "shut"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "shut"), 0o755) })
	_, err := w.ReadFile("shut/f", 0)
	wantCode(t, "read", err, workspace.CodeDenied)
	wantCode(t, "write", write(w, "shut/g", "x"), workspace.CodeDenied)
}

func TestSmallAnswersOfAWorkspace(t *testing.T) {
	a := parse(t, "local:/x")
	root := t.TempDir()
	w, err := workspace.Open(workspace.Options{Dir: filepath.Join(root, "home"), Create: true, Address: a})
	must(t, err)
	if w.Address() != a || w.HostDir() != filepath.Join(root, "home") || w.Trust() != messages.Trust_RESTRICTED || a.String() != "local:/x" {
		t.Errorf("%v %v %v", w.Address(), w.HostDir(), w.Trust())
	}
	if w.Under(messages.Trust_FULL).Trust() != messages.Trust_FULL || w.Under(messages.Trust_UNSPECIFIED) != w {
		t.Error("a view is not at its level")
	}
	must(t, w.Ensure())
	if seen, err := w.Seen("a/b"); err != nil || seen != filepath.Join(root, "home", "a", "b") {
		t.Errorf("seen as %q, %v", seen, err)
	}
	must(t, w.Close())
	wantCode(t, "ensure after Close", w.Ensure(), workspace.CodeUnavailable)
	_, err = workspace.Parse("x", "")
	var bad *workspace.AddressError
	if !errors.As(err, &bad) || bad.Code() != workspace.CodeInvalidURI || workspace.CodeOf(err) != workspace.CodeInvalidURI ||
		bad.Error() != "invalid workspace address: missing host separator (at byte 1)" {
		t.Errorf("got %v", err)
	}
	if workspace.CodeOf(io.EOF) != workspace.CodeInternal {
		t.Error("a foreign error has a code of this package")
	}
	if n, err := w.RemoveStale(context.Background(), 0, time.Time{}); n != 0 || err == nil {
		t.Errorf("sweep after Close: %d, %v", n, err)
	}
	for _, o := range []workspace.Options{{Dir: root, InnerDir: "rel"}, {Dir: filepath.Join(root, "none")}} {
		if _, err := workspace.Open(o); err == nil {
			t.Errorf("%+v opened", o)
		}
	}
}
