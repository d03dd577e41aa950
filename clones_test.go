package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

// withHost opens a runtime that knows a git host, works in it, and closes it.
func withHost(t *testing.T, h *toolstest.GitHost, data string, work func(ctx context.Context, rt *troupe.Runtime)) {
	t.Helper()
	rt, err := troupe.New(t.Context(), troupe.Options{
		Model: echo(), DataDir: data, Reach: h.Reach(), Clones: troupe.Clones{RootCAs: h.RootCAs, Lookup: h.Lookup},
	})
	if err != nil {
		t.Fatal(err)
	}
	work(t.Context(), rt)
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// copies lists the folders of copies in a data directory.
func copies(t *testing.T, data string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(data, "copies", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func failureCode(err error) string {
	var f *messages.Failure
	if errors.As(err, &f) {
		return f.GetCode()
	}
	return ""
}

func TestARepositoryIsAttachedAsACloneOfTheSessionsOwn(t *testing.T) {
	h, data := toolstest.NewGitHost(t), t.TempDir()
	dir := h.Repo(t, "core", map[string]string{"a": "one", "docs/a": "doc"})
	first := h.Git(t, dir, "rev-parse", "HEAD")
	main := folder(t, map[string]string{"a": "main"})
	uri := h.Address("o/core@trunk")
	var id, other string
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: main, Rules: []string{"read_file", "write_file"}, Workspaces: []troupe.WorkspaceSpec{{URI: h.Address("o/core//docs"), Name: "docs"}}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		events, stop := context.WithCancel(ctx)
		defer stop()
		g, err := s.Attach(events, troupe.WorkspaceSpec{URI: uri})
		if err != nil || g.GetName() != "core" || g.GetKind() != "git" || g.GetTrust() != troupe.Restricted || g.GetCommit() != first || g.GetSource() != uri {
			t.Fatalf("attach: %v %v", g, err)
		}
		for _, where := range []string{"core", uri, g.GetId(), g.GetUri()} {
			if got := reads(ctx, t, s, "a", where); got != "one" {
				t.Errorf("%s: %s", where, got)
			}
		}
		if got := reads(ctx, t, s, "a", "docs"); got != "doc" {
			t.Errorf("docs: %s", got)
		}
		if got := reads(ctx, t, s, "../a", "docs"); got != "invalid_path" {
			t.Errorf("out of the folder: %s", got)
		}
		if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: uri}); failureCode(err) != "already_exists" {
			t.Errorf("twice: %v", err)
		}
		o, err := rt.Session(ctx, troupe.SessionOptions{Dir: main, Rules: []string{"read_file", "write_file"}})
		if err != nil {
			t.Fatal(err)
		}
		other = o.ID()
		if _, err := o.Attach(ctx, troupe.WorkspaceSpec{URI: uri, Name: "core"}); err != nil {
			t.Fatal(err)
		}
		if r, err := o.Call(ctx, "write_file", map[string]any{"path": "b", "content": "b", "workspace_id": "core"}); err != nil || r.GetErrorCode() != "" {
			t.Errorf("write: %v %v", r, err)
		}
		if got := reads(ctx, t, s, "b", "core"); got != "file_not_found" {
			t.Errorf("two sessions share a clone: %s", got)
		}
		if n := len(copies(t, data)); n != 3 {
			t.Errorf("%d copies, want 3", n)
		}
	})
	second := h.Commit(t, dir, map[string]string{"a": "two"})
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := reads(ctx, t, s, "a", "core"); got != "one" {
			t.Errorf("after a restart: %s", got)
		}
		if err := s.Detach(ctx, uri); err != nil {
			t.Fatal(err)
		}
		g, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: uri})
		if err != nil || g.GetCommit() != second {
			t.Fatalf("again: %v %v", g, err)
		}
		if got := reads(ctx, t, s, "a", "core"); got != "two" {
			t.Errorf("attached again: %s", got)
		}
		ask[*messages.Ack](t, rt, forget(other))
	})
	if all := copies(t, data); len(all) != 2 || !strings.Contains(strings.Join(all, " "), id) {
		t.Errorf("left: %v", all)
	}
}

func TestWhatACrashLeavesOfClonesIsRemovedAndLostOnesAreMadeAgain(t *testing.T) {
	h, data := toolstest.NewGitHost(t), t.TempDir()
	dir := h.Repo(t, "core", map[string]string{"a": "one"})
	var id, path string
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"read_file"}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		g, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: h.Address("o/core")})
		if err != nil {
			t.Fatal(err)
		}
		path = g.GetClonePath()
	})
	own, nobodys := filepath.Dir(path), filepath.Join(data, "copies", messages.NewID(messages.SessionPrefix), "cpy_x")
	for _, left := range []string{own + ".part", nobodys} {
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	h.Commit(t, dir, map[string]string{"a": "two"})
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		if all := copies(t, data); len(all) != 0 {
			t.Errorf("left: %v", all)
		}
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		appears(ctx, t, path)
		if got := reads(ctx, t, s, "a", "core"); got != "one" {
			t.Errorf("made again: %s", got)
		}
	})
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	h.Before(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return true })
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := reads(ctx, t, s, "a", "core"); got != "workspace_not_available" {
			t.Errorf("a clone that cannot be made: %s", got)
		}
	})
}

func TestACloneThatIsRefusedLeavesNothing(t *testing.T) {
	h, data := toolstest.NewGitHost(t), t.TempDir()
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for uri, code := range map[string]string{h.Address("o/none"): "not_found", "git:nowhere.example.org/o/r": "network_error", "git:ext::sh": "invalid_uri"} {
			if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: uri}); failureCode(err) != code {
				t.Errorf("%s: %v, want %s", uri, err, code)
			}
			if _, err := rt.Session(ctx, troupe.SessionOptions{Workspaces: []troupe.WorkspaceSpec{{URI: uri}}}); failureCode(err) != code {
				t.Errorf("a session with %s: %v, want %s", uri, err, code)
			}
		}
		if all := copies(t, data); len(all) != 0 {
			t.Errorf("left: %v", all)
		}
	})
}

func TestAttachAttacksEndAsAgreed(t *testing.T) {
	raw, err := os.ReadFile("tools/testdata/attacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Attacks []struct {
			ID, Tool, Code string
			Arguments      json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	h, data, out, seen := toolstest.NewGitHost(t), t.TempDir(), t.TempDir(), 0
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range file.Attacks {
			if a.Tool != "attach_workspace" {
				continue
			}
			seen++
			var args struct{ URI string }
			if err := json.Unmarshal(a.Arguments, &args); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: strings.ReplaceAll(args.URI, "$OUT", out)}); failureCode(err) != a.Code {
				t.Errorf("%s: %v, want %s", a.ID, err, a.Code)
			}
		}
	})
	left, err := os.ReadDir(out)
	if err != nil || len(left) > 0 || seen < 9 || len(copies(t, data)) > 0 || h.Seen() != "" {
		t.Errorf("%d cases; left: %v %v", seen, left, err)
	}
}

func TestAForkHasACloneOfItsOwn(t *testing.T) {
	h, data := toolstest.NewGitHost(t), t.TempDir()
	dir := h.Repo(t, "core", map[string]string{"a": "one"})
	withHost(t, h, data, func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"read_file", "write_file"}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: h.Address("o/core")})
		if err != nil {
			t.Fatal(err)
		}
		h.Commit(t, dir, map[string]string{"a": "two"})
		f := ask[*messages.Forked](t, rt, &messages.ForkSession{SessionId: s.ID()})
		fork, err := rt.Open(ctx, f.GetSession().GetId())
		if err != nil {
			t.Fatal(err)
		}
		all, err := fork.Workspaces(ctx)
		if err != nil || len(all) != 2 || all[0].GetUri() == g.GetUri() || all[0].GetSource() != g.GetSource() {
			t.Fatalf("%v %v", all, err)
		}
		appears(ctx, t, all[0].GetPath())
		if got := reads(ctx, t, fork, "a", "core"); got != "one" {
			t.Errorf("in the fork: %s", got)
		}
		if err := fork.Detach(ctx, "core"); err != nil {
			t.Fatal(err)
		}
		if got := reads(ctx, t, s, "a", "core"); got != "one" {
			t.Errorf("in the original, after the fork has let go: %s", got)
		}
	})
}

// appears waits for a folder that is made off every mailbox, of which nobody is told.
func appears(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not there: %v", path, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
