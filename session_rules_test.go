package troupe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// once opens a runtime on a directory, lets work be done, and closes it.
func once(t *testing.T, o troupe.Options, work func(ctx context.Context, rt *troupe.Runtime)) {
	t.Helper()
	ctx := t.Context()
	rt, err := troupe.New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	work(ctx, rt)
	if err := rt.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestVariablesOfASessionComeBackWithItAndSecretsAreRefused(t *testing.T) {
	showEnv := tool(t, "show_env", messages.Effect_PURE, func(tc *tools.Context, _ struct{}) (*tools.Result, error) {
		return &tools.Result{Content: strings.Join(tc.ProcessEnv, " ")}, nil
	})
	o := troupe.Options{DataDir: t.TempDir(), Model: echo(), Tools: []troupe.Tool{showEnv}, Redact: config.NewRedactor(config.NewSecret(canary))}
	id := ""
	check := func(ctx context.Context, s *troupe.Session) {
		t.Helper()
		r, err := s.Call(ctx, "show_env", nil)
		if err != nil || !strings.Contains(r.GetContent(), "A=1 ") || !strings.Contains(r.GetContent(), "REGION=eu north") {
			t.Errorf("the call sees %q, %v", r.GetContent(), err)
		}
	}
	once(t, o, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Env: map[string]string{"REGION": "eu north", "A": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		check(ctx, s)
		for name, value := range map[string]string{"KEY": "Bearer " + canary, "1X": "y", "HOME": "/", "NUL": "a\x00b", "TROUPE_DATA": "x"} {
			_, err := rt.Session(ctx, troupe.SessionOptions{Env: map[string]string{name: value}})
			var refused *messages.Failure
			if !errors.As(err, &refused) || refused.GetCode() != messages.CodeBadRequest || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	once(t, o, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		check(ctx, s)
	})
}

func TestStandingRulesAreThoseOfNowAndASessionsOwnStayItsOwn(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "a", "b.txt": "b"})
	var standing []string
	var broken error
	var asked []string
	o := troupe.Options{DataDir: t.TempDir(), Model: echo(), Rules: func(folder string) ([]string, error) {
		asked = append(asked, folder)
		return standing, broken
	}}
	id := ""
	read := func(ctx context.Context, s *troupe.Session, want string) {
		t.Helper()
		got := ""
		for _, name := range []string{"a.txt", "b.txt"} {
			r, err := s.Call(ctx, "read_file", map[string]any{"path": name})
			if err != nil {
				t.Fatal(err)
			}
			if r.GetStatus() == messages.ToolFinished_OK {
				got += name[:1]
			}
		}
		if got != want {
			t.Errorf("with the rules %v it may read %q, want %q", standing, got, want)
		}
	}
	once(t, o, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Rules: []string{"read_file(a.txt)"}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		read(ctx, s, "a")
	})
	for _, turn := range []struct {
		rules []string
		want  string
	}{{[]string{"read_file(b.txt)"}, "ab"}, {[]string{"deny read_file(a.txt)"}, ""}, {nil, "a"}} {
		standing = turn.rules
		once(t, o, func(ctx context.Context, rt *troupe.Runtime) {
			s, err := rt.Open(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			read(ctx, s, turn.want)
		})
	}
	if !slices.Contains(asked, "local:"+dir) {
		t.Errorf("asked for the rules of %q", asked)
	}
	for _, standing = range [][]string{nil, {"no rule ("}} {
		if standing == nil {
			broken = errors.New("the file is broken")
		} else {
			broken = nil
		}
		once(t, o, func(ctx context.Context, rt *troupe.Runtime) {
			if _, err := rt.Open(ctx, id); err == nil || !strings.Contains(err.Error(), "standing rules") {
				t.Errorf("opened although its rules cannot be read: %v", err)
			}
			if _, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "standing rules") {
				t.Errorf("made although its rules cannot be read: %v", err)
			}
		})
	}
}
