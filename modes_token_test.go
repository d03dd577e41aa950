package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestNoTokenGetsLessConfinementThanIsConfigured: by whichever name it asks for the folder, by one above it or in it, or by the workspace beside it.
func TestNoTokenGetsLessConfinementThanIsConfigured(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "top", "proj", "sub"), 0o700), os.MkdirAll(filepath.Join(root, "free"), 0o700), os.Mkdir(filepath.Join(root, "top", "project"), 0o700),
		os.Symlink(filepath.Join(root, "top", "proj"), filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	o := officeIn(t, root, troupe.Options{
		Model: echo(), Sandbox: speaking{"local"}, Modes: map[string]string{"local:" + root + "/top/proj": "container"},
		Containers: func(context.Context) (tools.Sandbox, error) { return boxed{speaking{"container"}}, nil },
	})
	o.token("ann", "", "read", "prompt", "approve")
	o.token("eve", "", allScopes()...)
	begin := func(token, dir, mode string) (int, string, []messages.WorkspaceJSON) {
		body, err := json.Marshal(map[string]any{"workspaces": []map[string]string{{"uri": "local:" + filepath.Join(root, dir), "mode": mode}}})
		if err != nil {
			t.Fatal(err)
		}
		status, text := o.do(token, "POST", "/api/sessions", string(body))
		var v messages.SessionJSON
		_ = json.Unmarshal([]byte(text), &v) // of an error there are none
		return status, text, v.Workspaces
	}
	for dir, confined := range map[string]bool{"top/proj": true, "top/proj/sub": true, "link": true, "link/sub": true, "top": true, "top/project": false, "free": false} {
		want, mode := 201, "local"
		if confined {
			want, mode = 403, "container"
		}
		if status, text, _ := begin("ann", dir, "local"); status != want {
			t.Errorf("%s, mode local: %d %s", dir, status, text)
		}
		for _, token := range []string{"ann", "eve"} {
			status, text, all := begin(token, dir, "")
			if status != 201 || len(all) != 2 || all[0].Mode != mode || all[1].Mode != mode { // the folder, and home
				t.Errorf("%s by %s, no mode: %d %s", dir, token, status, text)
			}
		}
		if status, text, all := begin("eve", dir, "local"); status != 201 || all[0].Mode != "local" {
			t.Errorf("%s, by scope admin: %d %s", dir, status, text)
		}
	}
	for _, mode := range []string{"LOCAL", " local", "local\u0000", "none"} {
		if status, text, _ := begin("ann", "top/proj", mode); status != 400 {
			t.Errorf("mode %q: %d %s", mode, status, text)
		}
	}
	status, text := o.do("ann", "POST", "/api/sessions", "{}")
	var v messages.SessionJSON
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
		t.Fatal(status, text, err)
	}
	body := `{"uri":"local:` + root + `/link/sub","mode":"local"}`
	if status, text := o.do("ann", "POST", "/api/sessions/"+v.ID+"/workspaces", body); status != 403 {
		t.Errorf("attached: %d %s", status, text)
	}
}

func TestWhereTheConfigurationSaysContainerTheSessionsOwnWorkspaceHasOne(t *testing.T) {
	ctx, dir := t.Context(), folder(t, nil)
	var engine error
	rt, err := troupe.New(ctx, troupe.Options{
		Model: echo(), Sandbox: speaking{"local"}, Modes: map[string]string{"troupe:/sessions": "container"},
		Containers: func(context.Context) (tools.Sandbox, error) { return boxed{speaking{"container"}}, engine },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{"home": "ran in container", filepath.Base(dir): "ran in local"} {
		r, err := s.Call(ctx, "exec", map[string]any{"command": "true", "workspace_id": where})
		if err != nil || r.GetContent() != want {
			t.Errorf("%s: %v %v", where, r, err)
		}
	}
	engine = errors.New("no engine")
	_, err = rt.Session(ctx, troupe.SessionOptions{})
	wantCode(t, "without an engine", err, messages.CodeSandbox)
}
