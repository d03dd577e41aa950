package tools

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// attack is one case of testdata/attacks.json.
type attack struct {
	ID, Category, Name, Tool, Expect, Code, Invariant, Trust, Platform string

	Arguments json.RawMessage
	Setup     []setupOp
	Wire      map[string]json.RawMessage // what the frame of the call says besides
}

// setupOp is one step that prepares the attacked folder.
type setupOp struct {
	Op, Path, Content, Mode, Target, Hex, Byte string
	With                                       string `json:"with_symlink_to"`
	Size                                       int64
	Depth, Iterations                          int
}

func loadAttacks(t *testing.T) []attack {
	t.Helper()
	data, err := os.ReadFile("testdata/attacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Count   int
		Attacks []attack
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if file.Count != len(file.Attacks) || file.Count < 100 {
		t.Fatalf("%d cases, want %d: the file is not the one that was agreed on", len(file.Attacks), file.Count)
	}
	return file.Attacks
}

// arena is the folder that an attack works in, with a secret beside it.
type arena struct {
	root, out, evil string
	ws              *workspace.Workspace
	known           map[string]string
	repeat          int // how often the call is made
}

func newArena(t *testing.T, a attack) *arena {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &arena{root: filepath.Join(top, "root"), out: filepath.Join(top, "outside"), evil: filepath.Join(top, "root-evil"), repeat: 1}
	for _, dir := range []string{r.root, r.out, r.evil} {
		noError(t, os.Mkdir(dir, 0o755))
	}
	noError(t, os.WriteFile(filepath.Join(r.out, "secret"), []byte("TOPSECRET"), 0o644),
		os.WriteFile(filepath.Join(r.evil, "f"), []byte("TOPSECRET"), 0o644))
	trust := messages.Trust_FULL
	if a.Trust == "Restricted" {
		trust = messages.Trust_RESTRICTED
	}
	r.ws, err = workspace.Open(workspace.Options{Dir: r.root, Trust: trust})
	noError(t, err)
	t.Cleanup(func() { noError(t, r.ws.Close()) })
	for _, op := range a.Setup {
		r.prepare(t, op)
	}
	return r
}

func noError(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// expand puts the arena's names in the place of the file's variables.
func (r *arena) expand(s string) string {
	return strings.NewReplacer("$ROOT-evil", r.evil, "$BASENAME", filepath.Base(r.root), "$OUTBASE", filepath.Base(r.out),
		"$ROOT", r.root, "$OUT", r.out).Replace(s)
}

func (r *arena) host(name string) string {
	if strings.HasPrefix(name, "$") {
		return r.expand(name)
	}
	return filepath.Join(r.root, r.expand(name))
}

func (r *arena) prepare(t *testing.T, op setupOp) {
	t.Helper()
	name := r.host(op.Path)
	noError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	switch op.Op {
	case "file":
		noError(t, os.WriteFile(name, []byte(op.Content), 0o644))
	case "dir":
		noError(t, os.MkdirAll(name, 0o755))
	case "bytes":
		data, err := hex.DecodeString(op.Hex)
		noError(t, err, os.WriteFile(name, data, 0o644))
	case "repeat":
		noError(t, os.WriteFile(name, bytes.Repeat([]byte(op.Byte), int(op.Size)), 0o644))
	case "truncate":
		noError(t, os.WriteFile(name, nil, 0o644), os.Truncate(name, op.Size))
	case "symlink":
		noError(t, os.Symlink(r.expand(op.Target), name))
	case "hardlink":
		noError(t, os.Link(r.expand(op.Target), name))
	case "fifo", "mknod":
		if err := makeSpecial(op.Op, name); err != nil {
			t.Skipf("this system does not let the test make a %s: %v", op.Op, err)
		}
	case "deep_dirs":
		makeDeep(t, r.root, op.Depth)
	case "race_swap":
		r.swap(t, name, r.expand(op.With), op.Iterations)
	case "modify_after_approval_request":
		before, err := os.ReadFile(name)
		noError(t, err, os.WriteFile(name, append(before, "changed"...), 0o644))
		r.known = map[string]string{op.Path: workspace.Sum(before)}
	default:
		t.Fatalf("nobody knows how to do setup %q", op.Op)
	}
}

// makeDeep nests directories beyond the length of a path that the system takes at once.
func makeDeep(t *testing.T, root string, depth int) {
	t.Helper()
	at, err := os.OpenRoot(root)
	noError(t, err)
	for range depth {
		noError(t, at.Mkdir("d", 0o755))
		next, err := at.OpenRoot("d")
		noError(t, err, at.Close())
		at = next
	}
	noError(t, at.Close())
}

// swap changes a directory and a link for one another until the test ends.
func (r *arena) swap(t *testing.T, name, target string, iterations int) {
	t.Helper()
	noError(t, os.MkdirAll(name, 0o755), os.Symlink(target, name+"-link"))
	r.repeat = iterations
	if os.Getenv("TROUPE_TEST_LONG") == "" { // each call syncs to the disk: all of them take a minute
		r.repeat = iterations / 40
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

// call makes the attacked call with the attacker's arguments.
func (r *arena) call(t *testing.T, tool Tool, a attack) (*Result, error) {
	t.Helper()
	args := a.Arguments
	var raw string
	if json.Unmarshal(args, &raw) == nil { // a text: the arguments as they came, broken
		args = json.RawMessage(raw)
	}
	expanded := r.expand(string(args))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tc := &Context{Signal: ctx, Workspace: r.ws, Known: r.known, Fresh: r.known == nil}
	type answer struct {
		result *Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := tool.Run(tc, json.RawMessage(expanded))
		done <- answer{result, err}
	}()
	select {
	case got := <-done:
		return got.result, got.err
	case <-ctx.Done():
		t.Fatal("the call hangs")
		return nil, nil
	}
}

// outside lists everything beside the root.
func (r *arena) outside(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{r.out, r.evil} {
		noError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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

func fileTools() map[string]Tool {
	all := map[string]Tool{}
	for _, tool := range []Tool{
		ReadFile(), WriteFile(), EditFile(), ListFiles(), CreateDirectory(), DeleteFile(), MoveFile(), Glob(), Grep(),
	} {
		all[tool.Spec().Name] = tool
	}
	return all
}

func TestEveryAttackOnFilesEndsAsAgreed(t *testing.T) {
	all, ran := fileTools(), 0
	for _, a := range loadAttacks(t) {
		tool := all[a.Tool]
		if tool == nil {
			continue
		}
		if a.Platform != "" && a.Platform != runtime.GOOS {
			continue // its rules for names decide: package workspace has this case on every system
		}
		ran++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			switch {
			case a.Wire != nil:
				attackOnTheWire(t, a)
				return
			case a.Code == CodeWorkspaceNotFound:
				t.Skip("decided by routing: TestAWorkspaceOfAnotherSessionIsNotFound runs it")
			}
			attackOnce(t, tool, a)
		})
	}
	if ran < 40 {
		t.Errorf("only %d attacks concern the file tools, want at least 40", ran)
	}
}

// attackOnTheWire is about what a client says of a call: whether it is asked about.
func attackOnTheWire(t *testing.T, a attack) {
	frame := map[string]json.RawMessage{"type": json.RawMessage(`"tool_call"`), "call_id": json.RawMessage(`"c"`), "arguments": a.Arguments}
	frame["tool_name"], _ = json.Marshal(a.Tool)
	maps.Copy(frame, a.Wire)
	text, err := json.Marshal(frame)
	noError(t, err)
	f, err := messages.DecodeFrame(text)
	noError(t, err)
	call, ok := f.(*messages.ToolCallFrame)
	if !ok || call.Asks() != (a.Expect == "ask") || call.ToolName != a.Tool {
		t.Errorf("%s: it expects %s: %+v", text, a.Expect, f)
	}
}

func attackOnce(t *testing.T, tool Tool, a attack) {
	r := newArena(t, a)
	before := r.outside(t)
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	var result *Result
	var err error
	for range r.repeat {
		result, err = r.call(t, tool, a)
	}
	runtime.ReadMemStats(&end)
	if !maps.Equal(before, r.outside(t)) {
		t.Errorf("something outside the root changed: %v", r.outside(t))
	}
	secret := strings.Contains(a.Invariant, "must not appear") || a.Category == "path"
	if secret && result != nil && strings.Contains(result.Content+result.Diff, "TOPSECRET") {
		t.Errorf("the secret came out: %q", result.Content)
	}
	var failure *Error
	switch {
	case r.repeat > 1: // a race: any outcome, as long as nothing left the root
	case a.Expect == "allow" && err != nil:
		t.Errorf("refused: %v", err)
	case a.Expect == "deny" || a.Expect == "error":
		if !errors.As(err, &failure) || failure.Code != a.Code {
			t.Errorf("got %+v, %v, want code %s", result, err, a.Code)
		}
	case err != nil && !errors.As(err, &failure):
		t.Errorf("a defect instead of a refusal: %v", err)
	}
	r.invariant(t, a, result, end.TotalAlloc-start.TotalAlloc)
}

// invariant checks what a case demands beyond its outcome.
func (r *arena) invariant(t *testing.T, a attack, result *Result, allocated uint64) {
	t.Helper()
	switch a.ID {
	case "symlink-019":
		if result.Meta["matches"] != 0 {
			t.Errorf("%v matches, want 0", result.Meta["matches"])
		}
	case "symlink-021", "path-037", "path-039":
		if result.Content != "     1\tok\n" {
			t.Errorf("content %q", result.Content)
		}
	case "special-005":
		if info, err := os.Lstat(r.host("fifo")); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			t.Errorf("the fifo is none any more: %v", err)
		}
	case "special-009":
		if _, err := os.Lstat(r.host("x")); err == nil {
			t.Error("a file was made")
		}
	case "special-011":
		if allocated > 32<<20 {
			t.Errorf("%d bytes were allocated", allocated)
		}
	case "special-015":
		if !result.Truncated {
			t.Error("a tree beyond the bounds is not reported as cut")
		}
	case "protocol-025":
		if result != nil {
			t.Errorf("ran with an argument that is not the tool's: %q", result.Content)
		}
	}
}
