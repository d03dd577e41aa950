package troupe_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// changed lists what was changed in a session's copy, as state:path, conflicts with a mark.
func changed(ctx context.Context, t *testing.T, s *troupe.Session) string {
	t.Helper()
	x, err := s.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range x.GetFiles() {
		mark := ""
		if f.GetConflict() != "" {
			mark = "!"
		}
		out = append(out, f.GetState()+":"+f.GetPath()+mark)
	}
	return strings.Join(out, " ")
}

func writes(ctx context.Context, t *testing.T, s *troupe.Session, path, content string) {
	t.Helper()
	if r, err := s.Call(ctx, "write_file", map[string]any{"path": path, "content": content}); err != nil || r.GetErrorCode() != "" {
		t.Fatalf("write %s: %v %v", path, r, err)
	}
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestIsolatedSessionsWorkSideBySideAndBringTheirChangesBack(t *testing.T) {
	data := t.TempDir()
	dir := folder(t, map[string]string{"a": "1\n2\n3\n4\n5\n", "b": "b", ".git/HEAD": "ref: refs/heads/main\n", "sub/c": "c"})
	var info *messages.WorkspaceInfo
	look := tool(t, "look", messages.Effect_PURE, func(c *tools.Context, _ struct{}) (*tools.Result, error) {
		info = c.WorkspaceInfo
		return &tools.Result{Content: "ok"}, nil
	})
	open := func() *troupe.Runtime {
		rt, err := troupe.New(t.Context(), troupe.Options{Model: echo(), DataDir: data, Tools: []troupe.Tool{look}})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	ctx, rt := t.Context(), open()
	isolated := func() *troupe.Session {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Isolate: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := isolated(), isolated()
	all, err := one.Workspaces(ctx)
	if err != nil || all[0].GetSource() == "" || all[0].GetProjectDir() != strings.TrimPrefix(all[0].GetSource(), "local:") || !all[0].GetPrimary() {
		t.Fatalf("%v %v", all, err)
	}
	if r, err := one.Call(ctx, "look", nil); err != nil || r.GetErrorCode() != "" {
		t.Fatalf("%v %v", r, err)
	}
	if info.GetProjectDir() != all[0].GetProjectDir() || info.GetClonePath() != all[0].GetPath() || info.GetWorkingDirectory() != all[0].GetPath() || info.GetProjectDir() == info.GetClonePath() {
		t.Errorf("%v", info)
	}
	if v := ask[*messages.SessionView](t, rt, &messages.ToSession{SessionId: one.ID(), Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}}); v.GetFolder() != all[0].GetSource() {
		t.Errorf("it is found by %s", v.GetFolder())
	}
	if got := changed(ctx, t, one); got != "" {
		t.Errorf("untouched: %s", got)
	}
	writes(ctx, t, one, "new/n", "n")
	if r, err := one.Call(ctx, "read_file", map[string]any{"path": "a"}); err != nil || r.GetErrorCode() != "" {
		t.Fatalf("%v %v", r, err)
	}
	writes(ctx, t, one, "a", "one\n2\n3\n4\n5\n")
	if r, err := one.Call(ctx, "delete_file", map[string]any{"path": "sub/c"}); err != nil || r.GetErrorCode() != "" {
		t.Fatalf("%v %v", r, err)
	}
	if r, err := two.Call(ctx, "read_file", map[string]any{"path": "a"}); err != nil || !strings.Contains(r.GetContent(), "1\t1") {
		t.Fatalf("the other copy: %v %v", r, err)
	}
	writes(ctx, t, two, "a", "uno\n2\n3\n4\nfive\n")
	if got, want := changed(ctx, t, one), "changed:a added:new/n deleted:sub/c"; got != want {
		t.Errorf("%s instead of %s", got, want)
	}
	if got := content(t, dir, "a"); got != "1\n2\n3\n4\n5\n" {
		t.Errorf("the folder was touched: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("1\n2\n3\n4\nV\n"), 0o600); err != nil { // the owner works, too
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt = open()
	if one, err = rt.Open(ctx, one.ID()); err != nil {
		t.Fatal(err)
	}
	if two, err = rt.Open(ctx, two.ID()); err != nil {
		t.Fatal(err)
	}
	x, err := one.Apply(ctx)
	if err != nil || len(x.GetFiles()) != 3 || !x.GetFiles()[0].GetMerged() {
		t.Fatalf("%v %v", x, err)
	}
	if got := content(t, dir, "a") + content(t, dir, "new", "n"); got != "one\n2\n3\n4\nV\nn" {
		t.Errorf("applied: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub")); err == nil {
		t.Error("what was deleted is still there")
	}
	if got := changed(ctx, t, one); got != "" {
		t.Errorf("after it was applied: %s", got)
	}
	if got := changed(ctx, t, two); got != "changed:a!" {
		t.Errorf("the other: %s", got)
	}
	if _, err := two.Apply(ctx); failureCode(err) != "conflict" || !strings.Contains(err.Error(), "a: ") {
		t.Errorf("a conflict: %v", err)
	}
	ask[*messages.Ack](t, rt, forget(one.ID()))
	ask[*messages.Ack](t, rt, forget(two.ID()))
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if left := copies(t, data); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got := content(t, dir, ".git", "HEAD"); got != "ref: refs/heads/main\n" {
		t.Errorf(".git: %q", got)
	}
}

func TestNothingIsAppliedWhileAnAgentWorksInTheFolder(t *testing.T) {
	ctx, dir := t.Context(), folder(t, map[string]string{"a": "a"})
	began, goOn := make(chan struct{}), make(chan struct{})
	hold := tool(t, "hold", messages.Effect_AT_MOST_ONCE, func(*tools.Context, struct{}) (*tools.Result, error) {
		close(began)
		<-goOn
		return &tools.Result{Content: "ok"}, nil
	})
	rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Tools: []troupe.Tool{hold}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	own, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Isolate: true})
	if err != nil {
		t.Fatal(err)
	}
	writes(ctx, t, own, "b", "b")
	other, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	called, applied := make(chan error, 1), make(chan error, 1)
	go func() { _, err := other.Call(ctx, "hold", nil); called <- err }()
	<-began
	go func() { _, err := own.Apply(ctx); applied <- err }()
	if got := changed(ctx, t, own); got != "added:b" { // answered after the other was heard
		t.Errorf("meanwhile: %s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("it was applied under the hands of an agent")
	}
	close(goOn)
	if err := <-called; err != nil {
		t.Error(err)
	}
	if err := <-applied; err != nil || content(t, dir, "b") != "b" {
		t.Errorf("afterwards: %v", err)
	}
}
