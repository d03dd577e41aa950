package workcopy_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools/workcopy"
)

func write(t *testing.T, files map[string]string, parts ...string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(append(parts, name)...)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// state is all of a folder: names with contents, links with targets.
func state(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		switch {
		case d.IsDir():
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(name)
			out = append(out, rel+"->"+target)
		default:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			out = append(out, rel+"="+string(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func newCopy(t *testing.T, files map[string]string) (c *workcopy.Copies, folder, dir, tree string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder, dir = filepath.Join(top, "folder"), filepath.Join(top, "copies", "session", "copy")
	write(t, files, folder)
	c = workcopy.New(workcopy.Options{})
	if err := c.Make(t.Context(), folder, dir); err != nil {
		t.Fatal(err)
	}
	return c, folder, dir, filepath.Join(dir, workcopy.TreeName)
}

func codeOf(err error) string {
	var f *messages.Failure
	if errors.As(err, &f) {
		return f.GetCode()
	}
	return ""
}

func TestACopyIsTheFolderWithoutWhatLeadsElsewhere(t *testing.T) {
	top := t.TempDir()
	folder := filepath.Join(top, "folder")
	write(t, map[string]string{"a": "a", ".git/config": "c", ".troupe/config.yaml": "x", "sub/.git": "gitdir: ../../.git/modules/sub", ".troupe-tmp-1": "half"}, folder)
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(folder, "out")), os.Symlink("a", filepath.Join(folder, "in"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, "a"), 0o500); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "copy")
	if err := workcopy.New(workcopy.Options{}).Make(t.Context(), folder, dir); err != nil {
		t.Fatal(err)
	}
	if got, want := state(t, filepath.Join(dir, workcopy.TreeName)), ".git/config=c a=a in->a out->/etc/passwd"; got != want {
		t.Errorf("%s instead of %s", got, want)
	}
	info, err := os.Stat(filepath.Join(dir, workcopy.TreeName, "a"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for _, o := range []workcopy.Options{{MaxBytes: 1}, {MaxFiles: 2}} {
		if err := workcopy.New(o).Make(t.Context(), folder, dir+"2"); codeOf(err) != "too_large" {
			t.Errorf("%+v: %v", o, err)
		}
		if left, _ := filepath.Glob(dir + "2*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestWhatStandsInTheWayIsNamedAndNothingIsApplied(t *testing.T) {
	c, folder, dir, tree := newCopy(t, map[string]string{"same": "1\n2\n3\n4\n", "gone": "g", "kept": "k", "d/x": "x", "fine": "f", "bin": "\x00", "l": "l"})
	write(t, map[string]string{"same": "one\n2\n3\n4\n", "gone": "changed", "new": "mine", "d/x": "y", "fine": "F", "bin": "\x00\x01"}, tree)
	if err := errors.Join(os.Remove(filepath.Join(tree, "kept")), os.Remove(filepath.Join(tree, "l")), os.Symlink("../../etc", filepath.Join(tree, "l"))); err != nil {
		t.Fatal(err)
	}
	write(t, map[string]string{"same": "uno\n2\n3\n4\n", "kept": "K", "new": "theirs", "bin": "\x00\x02"}, folder)
	if err := errors.Join(os.Remove(filepath.Join(folder, "gone")), os.RemoveAll(filepath.Join(folder, "d")), os.Symlink("/tmp", filepath.Join(folder, "d"))); err != nil {
		t.Fatal(err)
	}
	before := state(t, folder)
	_, err := c.Apply(t.Context(), folder, dir)
	if codeOf(err) != "conflict" {
		t.Fatal(err)
	}
	for _, name := range []string{"same: ", "gone: ", "kept: ", "new: ", "d/x: ", "bin: ", "l: "} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
	if strings.Contains(err.Error(), "fine") {
		t.Errorf("too much is named: %v", err)
	}
	if after := state(t, folder); after != before {
		t.Errorf("%s instead of %s", after, before)
	}
}

func TestLinksThatLeadOutOfTheFolderAreNotApplied(t *testing.T) {
	for name, target := range map[string]string{"abs": "/etc/passwd", "up": "../x", "d/up": "../../x", "chain": "d/sub/p/../secret", "deep": "d/sub/../../d/sub/p/../../x"} {
		c, folder, dir, tree := newCopy(t, map[string]string{"a": "1", "d/sub/f": "2"})
		if err := errors.Join(os.Symlink("../..", filepath.Join(tree, "d", "sub", "p")), os.Symlink(target, filepath.Join(tree, name))); err != nil {
			t.Fatal(err)
		}
		before := state(t, folder)
		_, err := c.Apply(t.Context(), folder, dir)
		if codeOf(err) != "conflict" || !strings.Contains(err.Error(), name+": it is a link that leads out") {
			t.Errorf("%s -> %s: %v", name, target, err)
		}
		if after := state(t, folder); after != before {
			t.Errorf("%s instead of %s", after, before)
		}
	}
	c, folder, dir, tree := newCopy(t, map[string]string{"a": "1", "d/sub/f": "2"})
	if err := errors.Join(os.Symlink("../a", filepath.Join(tree, "d", "up")), os.Symlink("d/up", filepath.Join(tree, "twice")), os.Symlink("sub/../../a", filepath.Join(tree, "d", "round"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), folder, dir); err != nil {
		t.Errorf("links within it: %v", err)
	}
}

func TestAnApplyThatFailsSaysSoAndChangesNothing(t *testing.T) {
	c, folder, dir, tree := newCopy(t, map[string]string{"a": "1", "b": "2"})
	write(t, map[string]string{"a": "one", "b": "two"}, tree)
	if err := os.Mkdir(filepath.Join(folder, ".troupe-tmp-apply"), 0o700); err != nil { // in the way of every write
		t.Fatal(err)
	}
	write(t, map[string]string{"x": ""}, folder, ".troupe-tmp-apply")
	if x, err := c.Apply(t.Context(), folder, dir); err == nil {
		t.Errorf("%v", x)
	}
	if got := state(t, folder); !strings.HasSuffix(got, " a=1 b=2") {
		t.Errorf("changed: %s", got)
	}
}

func TestAnApplyThatWasCutOffIsFinishedOrTakenBack(t *testing.T) {
	files := map[string]string{"a": "1", "b": "2", "c": "3"}
	changes := map[string]string{"a": "one", "b": "two", "n/d": "four"}
	const whole = "a=one b=two n/d=four"
	// cut leaves the copy as a kill leaves it after the given number of files.
	cut := func(t *testing.T, after int) (c *workcopy.Copies, folder, dir string) {
		c, folder, dir, tree := newCopy(t, files)
		write(t, changes, tree)
		if err := os.Remove(filepath.Join(tree, "c")); err != nil {
			t.Fatal(err)
		}
		old := state(t, folder)
		if err := c.Plan(t.Context(), folder, dir); err != nil || state(t, folder) != old {
			t.Fatalf("%v %s", err, state(t, folder))
		}
		for _, name := range []string{"a", "b", "c", "n/d"}[:after] {
			if name == "c" {
				if err := os.Remove(filepath.Join(folder, "c")); err != nil {
					t.Fatal(err)
				}
				continue
			}
			write(t, map[string]string{name: changes[name]}, folder)
		}
		return c, folder, dir
	}
	for after := range 5 {
		_, folder, dir := cut(t, after)
		if after%2 == 0 { // at the start of the process; else by who looks first
			workcopy.ResumeAll(filepath.Join(dir, "..", ".."), slog.New(slog.DiscardHandler))
			if got := state(t, folder); got != whole {
				t.Errorf("cut after %d, at the start: %s", after, got)
			}
		}
		x, err := workcopy.New(workcopy.Options{}).Changes(t.Context(), folder, dir)
		again := state(t, folder)
		if err != nil || len(x.GetFiles()) > 0 || again != whole {
			t.Errorf("cut after %d: %s, %v %v", after, again, x, err)
		}
	}
	c, folder, dir := cut(t, 2)
	write(t, map[string]string{"n/d": "somebody's"}, folder)
	if _, err := c.Changes(t.Context(), folder, dir); codeOf(err) != "conflict" {
		t.Error(err)
	}
	if got, want := state(t, folder), "a=1 b=2 c=3 n/d=somebody's"; got != want {
		t.Errorf("taken back: %s instead of %s", got, want)
	}
	if _, err := c.Apply(t.Context(), folder, dir); codeOf(err) != "conflict" || !strings.Contains(err.Error(), "n/d") {
		t.Error(err)
	}
}
