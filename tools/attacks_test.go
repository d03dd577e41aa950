package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/internal/attacks"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// attack is one case of testdata/attacks.json.
type attack = attacks.Attack

func loadAttacks(t *testing.T) []attack {
	t.Helper()
	return attacks.Load(t, "testdata/attacks.json")
}

// arena is the folder that an attack works in, as a workspace.
type arena struct {
	*attacks.Arena
	ws *workspace.Workspace
}

func newArena(t *testing.T, a attack) *arena {
	t.Helper()
	r := &arena{Arena: attacks.New(t, a)}
	trust := messages.Trust_FULL
	if a.Trust == "Restricted" {
		trust = messages.Trust_RESTRICTED
	}
	var err error
	r.ws, err = workspace.Open(workspace.Options{Dir: r.Root, Trust: trust})
	noError(t, err)
	t.Cleanup(func() { noError(t, r.ws.Close()) })
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

// call makes the attacked call with the attacker's arguments.
func (r *arena) call(t *testing.T, tool Tool, a attack) (*Result, error) {
	t.Helper()
	expanded := r.Arguments(a)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tc := &Context{Signal: ctx, Workspace: r.ws, Known: r.Known, Fresh: r.Known == nil}
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
	before := r.Outside(t)
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	var result *Result
	var err error
	for range r.Repeat {
		result, err = r.call(t, tool, a)
	}
	runtime.ReadMemStats(&end)
	if !maps.Equal(before, r.Outside(t)) {
		t.Errorf("something outside the root changed: %v", r.Outside(t))
	}
	secret := strings.Contains(a.Invariant, "must not appear") || a.Category == "path"
	if secret && result != nil && strings.Contains(result.Content+result.Diff, "TOPSECRET") {
		t.Errorf("the secret came out: %q", result.Content)
	}
	var failure *Error
	switch {
	case r.Repeat > 1: // a race: any outcome, as long as nothing left the root
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
		if info, err := os.Lstat(r.Host("fifo")); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			t.Errorf("the fifo is none any more: %v", err)
		}
	case "special-009":
		if _, err := os.Lstat(r.Host("x")); err == nil {
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
