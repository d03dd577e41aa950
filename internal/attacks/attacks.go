// Package attacks has the list of attacks that tools are held to, and the folder that each of them works in. It is for tests.
package attacks

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Attack is one case of tools/testdata/attacks.json.
type Attack struct {
	ID, Category, Name, Tool, Expect, Code, Invariant, Trust, Platform string

	Arguments json.RawMessage
	Setup     []Setup
	Wire      map[string]json.RawMessage // what the frame of the call says besides
	Rules     []string
	CallID    string `json:"call_id"`
}

// Setup is one step that prepares the attacked folder.
type Setup struct {
	Op, Path, Content, Mode, Target, Hex, Byte string
	With                                       string `json:"with_symlink_to"`
	Size                                       int64
	Depth, Iterations                          int
}

// Load reads the list.
func Load(t testing.TB, file string) []Attack {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	var list struct {
		Count   int
		Attacks []Attack
	}
	must(t, json.Unmarshal(data, &list))
	if list.Count != len(list.Attacks) || list.Count < 100 {
		t.Fatalf("%d cases, want %d: the file is not the one that was agreed on", len(list.Attacks), list.Count)
	}
	return list.Attacks
}

// Arena is the folder that an attack works in, with a secret beside it.
type Arena struct {
	Root, Out, Evil string
	Known           map[string]string // hashes of files that changed since they were shown
	Repeat          int               // how often the call is made
}

// New makes the arena of an attack. What this system cannot make skips the test.
func New(t testing.TB, a Attack) *Arena {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &Arena{Root: filepath.Join(top, "root"), Out: filepath.Join(top, "outside"), Evil: filepath.Join(top, "root-evil"), Repeat: 1}
	for _, dir := range []string{r.Root, r.Out, r.Evil} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(r.Out, "secret"), []byte("TOPSECRET"), 0o644),
		os.WriteFile(filepath.Join(r.Evil, "f"), []byte("TOPSECRET"), 0o644))
	for _, op := range a.Setup {
		r.prepare(t, op)
	}
	return r
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Arguments are those of the attack, as its model writes them.
func (r *Arena) Arguments(a Attack) string {
	text := string(a.Arguments)
	var raw string
	if json.Unmarshal(a.Arguments, &raw) == nil { // a text: the arguments as they came, broken
		text = raw
	}
	return r.expand(text)
}

// expand puts the arena's names in the place of the file's variables.
func (r *Arena) expand(s string) string {
	return strings.NewReplacer("$ROOT-evil", r.Evil, "$BASENAME", filepath.Base(r.Root), "$OUTBASE", filepath.Base(r.Out),
		"$ROOT", r.Root, "$OUT", r.Out).Replace(s)
}

// Host is a name of the list as one of this machine.
func (r *Arena) Host(name string) string {
	if strings.HasPrefix(name, "$") {
		return r.expand(name)
	}
	return filepath.Join(r.Root, r.expand(name))
}

func (r *Arena) prepare(t testing.TB, op Setup) {
	t.Helper()
	name := r.Host(op.Path)
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	switch op.Op {
	case "file":
		must(t, os.WriteFile(name, []byte(op.Content), 0o644))
	case "dir":
		must(t, os.MkdirAll(name, 0o755))
	case "bytes":
		data, err := hex.DecodeString(op.Hex)
		must(t, err, os.WriteFile(name, data, 0o644))
	case "repeat":
		must(t, os.WriteFile(name, bytes.Repeat([]byte(op.Byte), int(op.Size)), 0o644))
	case "truncate":
		must(t, os.WriteFile(name, nil, 0o644), os.Truncate(name, op.Size))
	case "symlink":
		must(t, os.Symlink(r.expand(op.Target), name))
	case "hardlink":
		must(t, os.Link(r.expand(op.Target), name))
	case "fifo", "mknod":
		if err := makeSpecial(op.Op, name); err != nil {
			t.Skipf("this system does not let the test make a %s: %v", op.Op, err)
		}
	case "deep_dirs":
		makeDeep(t, r.Root, op.Depth)
	case "race_swap":
		r.swap(t, name, r.expand(op.With), op.Iterations)
	case "modify_after_approval_request":
		before, err := os.ReadFile(name)
		must(t, err, os.WriteFile(name, append(before, "changed"...), 0o644))
		r.Known = map[string]string{op.Path: sum(before)}
	default:
		t.Fatalf("nobody knows how to do setup %q", op.Op)
	}
}

// makeDeep nests directories beyond the length of a path that the system takes at once.
func makeDeep(t testing.TB, root string, depth int) {
	t.Helper()
	at, err := os.OpenRoot(root)
	must(t, err)
	for range depth {
		must(t, at.Mkdir("d", 0o755))
		next, err := at.OpenRoot("d")
		must(t, err, at.Close())
		at = next
	}
	must(t, at.Close())
}

// swap changes a directory and a link for one another until the test ends.
func (r *Arena) swap(t testing.TB, name, target string, iterations int) {
	t.Helper()
	must(t, os.MkdirAll(name, 0o755), os.Symlink(target, name+"-link"))
	r.Repeat = iterations
	if os.Getenv("TROUPE_TEST_LONG") == "" { // each call syncs to the disk: all of them take a minute
		r.Repeat = iterations / 40
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default: // each may fail: the tool makes directories too
				_ = os.Rename(name, name+"-kept")
				_ = os.Rename(name+"-link", name)
				_ = os.Rename(name, name+"-link")
				_ = os.Rename(name+"-kept", name)
			}
		}
	})
	t.Cleanup(func() { close(stop); swapper.Wait() })
}

// Outside lists everything beside the root.
func (r *Arena) Outside(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{r.Out, r.Evil} {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			all[path] = string(data)
			return err
		}))
	}
	return all
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
