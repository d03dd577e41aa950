package troupe_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// speaking is a sandbox that says which one it is instead of running anything.
type speaking struct{ name string }

func (s speaking) Name() string   { return s.name }
func (s speaking) Confines() bool { return true }

func (s speaking) Run(_ context.Context, c tools.Command) (tools.Exit, error) {
	_, err := io.WriteString(c.Output, "ran in "+s.name)
	return tools.Exit{}, err
}

// boxed is one whose commands see the workspace at /inside.
type boxed struct{ speaking }

func (boxed) Inside(workspace, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, workspace)
	return "/inside" + rest, ok
}

func (boxed) Outside(workspace, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/inside")
	return workspace + rest, ok
}

func (boxed) ContainerID(exec string) string { return "box-" + exec }

func TestEachWorkspaceHasItsOwnModeAndKeepsIt(t *testing.T) {
	data, dir, lib, docs := t.TempDir(), folder(t, nil), folder(t, map[string]string{"a": "lib"}), folder(t, nil)
	var id string
	var engine error
	in := func(work func(ctx context.Context, rt *troupe.Runtime)) {
		ctx := t.Context()
		rt, err := troupe.New(ctx, troupe.Options{
			Model: echo(), DataDir: data, Sandbox: speaking{"local"}, Modes: map[string]string{"local:" + docs: "container"},
			Containers: func(context.Context) (tools.Sandbox, error) { return boxed{speaking{"container"}}, engine },
		})
		if err != nil {
			t.Fatal(err)
		}
		work(ctx, rt)
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ran := func(ctx context.Context, s *troupe.Session, where string) string {
		r, err := s.Call(ctx, "exec", map[string]any{"command": "true", "workspace_id": where})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetContent() + r.GetErrorCode()
	}
	in(func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		for _, spec := range []troupe.WorkspaceSpec{{URI: lib, Name: "lib", Trust: troupe.Full, Mode: "container"}, {URI: docs, Name: "docs", Trust: troupe.Full}} {
			if g, err := s.Attach(ctx, spec); err != nil || g.GetMode() != "container" {
				t.Errorf("%s: %v %v", spec.Name, g, err)
			}
		}
		for mode, want := range map[string]string{"vm": messages.CodeBadRequest} {
			_, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: folder(t, nil), Mode: mode})
			wantCode(t, "mode "+mode, err, want)
		}
		_, err = s.Attach(ctx, troupe.WorkspaceSpec{URI: "laptop:/code", Mode: "container"})
		wantCode(t, "another machine's", err, messages.CodeBadRequest)
		engine = errors.New("neither podman nor docker answers")
		_, err = s.Attach(ctx, troupe.WorkspaceSpec{URI: folder(t, nil), Mode: "container"})
		wantCode(t, "without an engine", err, messages.CodeSandbox)
		engine = nil
	})
	in(func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Workspaces(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			want := "local"
			if w.GetName() == "lib" || w.GetName() == "docs" {
				want = "container"
			}
			if got := ran(ctx, s, w.GetName()); w.GetMode() != want || got != "ran in "+want {
				t.Errorf("%s: mode %s, %s", w.GetName(), w.GetMode(), got)
			}
		}
		if got := reads(ctx, t, s, "/inside/a", "lib"); got != "lib" {
			t.Errorf("by its path in the container: %s", got)
		}
		engine = errors.New("gone") // nothing is run elsewhere instead
		if got := ran(ctx, s, "lib"); got != tools.CodeSandboxUnavailable && !strings.HasSuffix(got, tools.CodeSandboxUnavailable) {
			t.Errorf("without its engine: %s", got)
		}
	})
}

// TestAnImportRunsNoCommandLessConfinedThanIsConfiguredHere: whoever wrote the file has no say in that, and who keeps what it says is told.
func TestAnImportRunsNoCommandLessConfinedThanIsConfiguredHere(t *testing.T) {
	dir, lib := folder(t, nil), folder(t, nil)
	options := func(modes map[string]string) troupe.Options {
		return troupe.Options{
			Model: echo(), Sandbox: speaking{"local"}, Modes: modes,
			Containers: func(context.Context) (tools.Sandbox, error) { return boxed{speaking{"container"}}, nil },
		}
	}
	a := newPlaceWith(t, options(map[string]string{"local:" + lib: "container"}))
	s, err := a.Session(t.Context(), troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err == nil {
		_, err = s.Attach(t.Context(), troupe.WorkspaceSpec{URI: lib, Name: "lib", Trust: troupe.Full})
	}
	if err != nil {
		t.Fatal(err)
	}
	file := export(t, a, s.ID())
	odd := forge(t, file, func(_ int, line string) string { return strings.ReplaceAll(line, `"mode":"local"`, `"mode":"none"`) })
	for what, c := range map[string]struct {
		file  string
		keep  bool
		modes string // of dir, lib and home
		told  string
	}{
		"as configured":   {file, false, "container container container", "container/local"},
		"what is kept":    {file, true, "local container local", "local/container"},
		"none that is so": {odd, true, "container container container", "container/none local/none"},
	} {
		b := newPlaceWith(t, options(map[string]string{"local:" + dir: "container", "local:" + lib: "container"}))
		in := load(t, b, c.file, &messages.ImportSession{KeepTrust: c.keep})
		if again := load(t, b, c.file, &messages.ImportSession{KeepTrust: c.keep}); !again.GetIdentical() {
			t.Errorf("%s: again it is another one", what)
		}
		i, err := b.Open(t.Context(), in.GetSession().GetId())
		if err != nil {
			t.Fatal(err)
		}
		all, err := i.Workspaces(t.Context())
		if err != nil || len(all) != 3 {
			t.Fatal(all, err)
		}
		modes, told := []string{}, []string{}
		for _, w := range all {
			modes = append(modes, w.GetMode())
			r, err := i.Call(t.Context(), "exec", map[string]any{"command": "true", "workspace_id": w.GetName()})
			if trusted := c.keep || w.GetName() == "home"; err != nil || trusted && r.GetContent() != "ran in "+w.GetMode() {
				t.Errorf("%s: in %s: %v %v", what, w.GetName(), r, err)
			}
		}
		for _, m := range in.GetModes() {
			told = append(told, m.GetMode()+"/"+m.GetInsteadOf())
		}
		if got := strings.Join(modes, " "); got != c.modes {
			t.Errorf("%s: modes %s, want %s", what, got, c.modes)
		}
		if got := strings.Join(told, " "); got != c.told {
			t.Errorf("%s: told %q, want %q", what, got, c.told)
		}
	}
}

// TestHomeFollowsThePrimaryWorkspace: its commands run in a container for as long as those of the primary workspace do.
func TestHomeFollowsThePrimaryWorkspace(t *testing.T) {
	p := newPlaceWith(t, troupe.Options{
		Model: echo(), Sandbox: speaking{"local"},
		Containers: func(context.Context) (tools.Sandbox, error) { return boxed{speaking{"container"}}, nil },
	})
	s, err := p.Session(t.Context(), troupe.SessionOptions{Workspaces: []troupe.WorkspaceSpec{{URI: folder(t, nil), Name: "first", Trust: troupe.Full, Mode: "container"}}})
	if err != nil {
		t.Fatal(err)
	}
	ran := func(want string) {
		t.Helper()
		if r, err := s.Call(t.Context(), "exec", map[string]any{"command": "true", "workspace_id": "home"}); err != nil || r.GetContent() != "ran in "+want {
			t.Errorf("%v %v, want %s", r, err, want)
		}
	}
	ran("container")
	if err := s.Detach(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	ran("local")
}
