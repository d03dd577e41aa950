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

func useFile(ctx context.Context, rt *troupe.Runtime, session string, m *messages.UseFile) (*messages.Files, error) {
	r, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_UseFile{UseFile: m}})
	if err != nil {
		return nil, err
	}
	return r.(*messages.Files), nil
}

func keeps(ctx context.Context, t *testing.T, rt *troupe.Runtime, session string) string {
	t.Helper()
	f, err := useFile(ctx, rt, session, &messages.UseFile{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range f.GetEntries() {
		out = append(out, e.GetPath())
	}
	return strings.Join(out, " ")
}

// TestWhatASessionKeepsIsMadeAtFirstUseSeenByPeopleAndByLaterTurnsAndGoesWithIt is the life of a session's own workspace.
func TestWhatASessionKeepsIsMadeAtFirstUseSeenByPeopleAndByLaterTurnsAndGoesWithIt(t *testing.T) {
	data := t.TempDir()
	var id string
	in := func(work func(ctx context.Context, rt *troupe.Runtime)) {
		t.Helper()
		rt, err := troupe.New(t.Context(), troupe.Options{DataDir: data, Model: callOnce(
			call("write_file", `{"path":"notes/a.md","content":"remember\n","workspace_id":"home"}`), call("read_file", `{"path":"from people","workspace_id":"home"}`),
		)})
		if err != nil {
			t.Fatal(err)
		}
		work(t.Context(), rt)
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	binary := "\x00\xff" + strings.Repeat("x", 1<<20)
	in(func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		if got := keeps(ctx, t, rt, id); got != "" {
			t.Errorf("at first it keeps %s", got)
		}
		if _, err := os.Stat(filepath.Join(data, "homes", id)); err == nil {
			t.Error("the folder was made before its first use")
		}
		if _, err := useFile(ctx, rt, id, &messages.UseFile{Action: messages.UseFile_PUT, Path: "from people", Data: []byte("a hint")}); err != nil {
			t.Fatal(err)
		}
		if _, err := useFile(ctx, rt, id, &messages.UseFile{Action: messages.UseFile_PUT, Path: "deep/er/bin", Data: []byte(binary)}); err != nil {
			t.Fatal(err)
		}
		res, err := s.Run(ctx, "go")
		if err != nil || !strings.Contains(res.Text, "a hint") {
			t.Errorf("the turn: %v %v", res, err)
		}
	})
	in(func(ctx context.Context, rt *troupe.Runtime) {
		if got, want := keeps(ctx, t, rt, id), "deep deep/er deep/er/bin from people notes notes/a.md"; got != want {
			t.Errorf("it keeps %s instead of %s", got, want)
		}
		for name, want := range map[string]string{"notes/a.md": "remember\n", "deep/er/bin": binary} {
			f, err := useFile(ctx, rt, id, &messages.UseFile{Action: messages.UseFile_READ, Path: name})
			if err != nil || string(f.GetData()) != want {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := useFile(ctx, rt, id, &messages.UseFile{Action: messages.UseFile_DELETE, Path: "notes/a.md"}); err != nil {
			t.Error(err)
		}
		_, err := useFile(ctx, rt, id, &messages.UseFile{Action: messages.UseFile_READ, Path: "notes/a.md"})
		wantCode(t, "a deleted file", err, messages.CodeNotFound)
		if _, err := rt.Ask(ctx, forget(id)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(data, "homes", id)); err == nil {
			t.Error("the folder outlives its session")
		}
		_, err = useFile(ctx, rt, id, &messages.UseFile{})
		wantCode(t, "a deleted session", err, messages.CodeNotFound)
	})
}

func TestPeopleGetNoFurtherThanWhatTheSessionKeeps(t *testing.T) {
	data := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Store: memoryOf(t), DataDir: data})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) error {
		_, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_PUT, Path: name, Data: []byte("x")})
		return err
	}
	if err := put("ok"); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(data, "homes", s.ID())
	secret := filepath.Join(data, "secret")
	if err := os.WriteFile(secret, []byte("keep out"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"link": "../../secret", "absolute": secret, "up": "../.."} {
		if err := os.Symlink(to, filepath.Join(home, from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"../../secret", "link", "absolute", "up/secret", secret, "a/../../../secret", "..", "", ".", "/", "a\x00b", "a\nb", ".git/hooks/x", ".troupe/x", "ok/x", "up"} {
		for _, action := range []messages.UseFile_Action{messages.UseFile_READ, messages.UseFile_PUT, messages.UseFile_DELETE, messages.UseFile_LIST} {
			if action == messages.UseFile_LIST && (name == "" || name == "." || name == "/") || action == messages.UseFile_DELETE && (name == "link" || name == "absolute" || name == "up") {
				continue // of the root, or of the link itself
			}
			f, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: action, Path: name, Data: []byte("taken over")})
			if err == nil || strings.Contains(string(f.GetData()), "keep out") {
				t.Errorf("%v %q: %v", action, name, f)
			}
			if err != nil && strings.Contains(err.Error(), data) && name != secret {
				t.Errorf("%v %q tells where the data lies: %v", action, name, err)
			}
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "keep out" {
		t.Errorf("%q %v", b, err)
	}
	_, err = useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_PUT, Path: "big", Data: make([]byte, 10<<20+1)})
	wantCode(t, "too large", err, messages.CodeTooLarge)
}

// TestAFileIsPutWhenNoAgentWorks: a person's change waits as a turn does; looking does not.
func TestAFileIsPutWhenNoAgentWorks(t *testing.T) {
	running, door := make(chan struct{}), make(chan struct{})
	hold := tool(t, "hold", messages.Effect_AT_MOST_ONCE, func(*tools.Context, struct{}) (*tools.Result, error) {
		close(running)
		<-door
		return &tools.Result{Content: "held"}, nil
	})
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce(call("hold", `{}`)), Tools: []troupe.Tool{hold}})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_PUT, Path: "a", Data: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, "go")
		ended <- err
	}()
	<-running
	put := make(chan error, 1)
	go func() {
		_, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_PUT, Path: "a", Data: []byte("after")})
		put <- err
	}()
	for range 20 { // reading goes on, and finds what was there
		f, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_READ, Path: "a"})
		if err != nil || string(f.GetData()) != "before" {
			t.Fatalf("while an agent works: %v %v", f, err)
		}
	}
	select {
	case err := <-put:
		t.Errorf("it was put while an agent worked: %v", err)
	default:
	}
	close(door)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-put; err != nil {
		t.Error(err)
	}
	f, err := useFile(ctx, rt, s.ID(), &messages.UseFile{Action: messages.UseFile_READ, Path: "a"})
	if err != nil || string(f.GetData()) != "after" {
		t.Errorf("afterwards: %v %v", f, err)
	}
}
