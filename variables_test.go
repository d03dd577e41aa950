package troupe_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// TestAVariableComesFromAProviderForEachCallAnewAndIsNeverWrittenDown (acceptance row 95).
func TestAVariableComesFromAProviderForEachCallAnewAndIsNeverWrittenDown(t *testing.T) {
	dir, n := t.TempDir(), 0
	p := &place{store: memoryOf(t), data: t.TempDir()}
	t.Cleanup(func() { _ = p.store.Close() })
	values := []string{"Provider-Value-1111", "Provider-Value-2222"}
	computed := func(_ context.Context, c troupe.Call) (map[string]string, error) {
		return map[string]string{"OF_" + c.Agent: values[n] + "-by-function"}, nil
	}
	p.Runtime, _ = runtimeOf(t, troupe.Options{
		Model: echo(), Sandbox: unconfined(t), Store: p.store, DataDir: p.data, Redact: config.NewRedactor(), Variables: computed,
	})
	project, err := p.Ask(t.Context(), &messages.SaveProject{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	id := project.(*messages.Project).GetId()
	if err := set(t.Context(), p.Runtime, id, &messages.Variable{Name: "TOKEN", Command: "echo noise >&2; cat token"}); err != nil {
		t.Fatal(err)
	}
	s, err := p.Session(t.Context(), troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for n = range values {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(values[n]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"TOKEN": values[n], "OF_default": values[n] + "-by-function"} {
			sum := sha256.Sum256([]byte(want))
			got := execs(t, s, `printf %s "$`+name+`" | sha256sum; echo "it is $`+name+`"`)
			if !strings.Contains(got.GetContent(), hex.EncodeToString(sum[:])) || strings.Contains(got.GetContent(), "Provider-Value") || !strings.Contains(got.GetContent(), "it is ") {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
	if file := export(t, p, s.ID()); strings.Contains(file, "Provider-Value") {
		t.Error("a value was written down")
	}
	if r, err := s.Call(t.Context(), "list_files", struct{}{}); err != nil || r.GetStatus() != messages.ToolFinished_OK {
		t.Errorf("a call that has no use for them: %v %v", r, err)
	}
}

func execs(t *testing.T, s *troupe.Session, command string) *messages.ToolReply {
	t.Helper()
	r, err := s.Call(t.Context(), "exec", map[string]any{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestACallWhoseVariablesCannotBeHadDoesNotRun(t *testing.T) {
	boom := errors.New("no vault")
	slow := func(ctx context.Context, _ troupe.Call) (map[string]string, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	failing := func(context.Context, troupe.Call) (map[string]string, error) { return nil, boom }
	short := func(context.Context, troupe.Call) (map[string]string, error) {
		return map[string]string{"X": "1234"}, nil
	}
	steering := func(context.Context, troupe.Call) (map[string]string, error) {
		return map[string]string{"LD_PRELOAD": "Something-Long-1"}, nil
	}
	panics := func(context.Context, troupe.Call) (map[string]string, error) { panic("no") }
	for what, c := range map[string]struct {
		command  string
		function func(context.Context, troupe.Call) (map[string]string, error)
		code     string
		text     string
	}{
		"a command that fails":       {"echo Secret-In-Output-1; exit 3", nil, "validation_failed", "exit code 3"},
		"a command that takes long":  {"sleep 600", nil, "timeout", "took longer"},
		"a value that is too short":  {"echo 1234", nil, "validation_failed", "too short"},
		"a value that is too large":  {"head -c 40000 /dev/zero | tr '\\0' x", nil, "validation_failed", "X"},
		"a function that fails":      {"", failing, "validation_failed", "no vault"},
		"a function that takes long": {"", slow, "timeout", "took longer"},
		"a function that panics":     {"", panics, "validation_failed", "panicked"},
		"a function's short value":   {"", short, "validation_failed", "too short"},
		"what steers the loader":     {"", steering, "validation_failed", "LD_PRELOAD"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			rt, ctx := runtimeOf(t, troupe.Options{
				Model: echo(), Sandbox: unconfined(t), Redact: config.NewRedactor(), Variables: c.function, Limits: troupe.Limits{Provider: 500 * time.Millisecond},
			})
			if c.command != "" {
				project, err := rt.Ask(ctx, &messages.SaveProject{Path: dir})
				if err != nil {
					t.Fatal(err)
				}
				if err := set(ctx, rt, project.(*messages.Project).GetId(), &messages.Variable{Name: "X", Command: c.command}); err != nil {
					t.Fatal(err)
				}
			}
			s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
			if err != nil {
				t.Fatal(err)
			}
			r := execs(t, s, "touch ran")
			if r.GetErrorCode() != c.code || !strings.Contains(r.GetContent(), c.text) || strings.Contains(r.GetContent(), "Secret-In-Output") {
				t.Errorf("%v", r)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("it ran")
			}
		})
	}
}

func TestAVariableIsEitherGivenOrComesFromACommand(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Redact: config.NewRedactor()})
	project, err := rt.Ask(ctx, &messages.SaveProject{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	id := project.(*messages.Project).GetId()
	wantCode(t, "both", set(ctx, rt, id, &messages.Variable{Name: "X", Value: "1", Command: "echo"}), messages.CodeBadRequest)
	wantCode(t, "a secret one", set(ctx, rt, id, &messages.Variable{Name: "X", Secret: true, Command: "echo"}), messages.CodeBadRequest)
	wantCode(t, "what is steering", set(ctx, rt, id, &messages.Variable{Name: "PATH", Command: "echo"}), messages.CodeBadRequest)
	wantCode(t, "too large", set(ctx, rt, id, &messages.Variable{Name: "X", Command: strings.Repeat("x", 5000)}), messages.CodeTooLarge)
}
