package troupe_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// environOf is a tool that tells its environment, as a command would see it.
func environOf(t *testing.T) tools.Tool {
	return tool(t, "environ", messages.Effect_PURE, func(tc *tools.Context, _ struct{}) (*tools.Result, error) {
		return &tools.Result{Content: strings.Join(tc.ProcessEnv, "\n")}, nil
	})
}

func set(ctx context.Context, rt *troupe.Runtime, project string, vars ...*messages.Variable) error {
	_, err := rt.Ask(ctx, &messages.SetVariables{Project: project, Set: vars})
	return err
}

// TestAProjectsVariablesAreThoseOfItsSessionsCommandsAndNobodyElses: at the next call of a session at work, after a restart, and no
// more when they were taken back.
func TestAProjectsVariablesAreThoseOfItsSessionsCommandsAndNobodyElses(t *testing.T) {
	t.Setenv("OF_THE_SERVER", "not yours")
	data, dir := t.TempDir(), folder(t, nil)
	key := []byte("0123456789abcdef")
	var id, project string
	in := func(work func(ctx context.Context, rt *troupe.Runtime)) {
		t.Helper()
		rt, err := troupe.New(t.Context(), troupe.Options{DataDir: data, EncryptionKey: key, Model: echo(), Tools: []troupe.Tool{environOf(t)}, Redact: config.NewRedactor()})
		if err != nil {
			t.Fatal(err)
		}
		work(t.Context(), rt)
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(ctx context.Context, s *troupe.Session, doing string, want, not []string) {
		t.Helper()
		r, err := s.Call(ctx, "environ", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains("\n"+r.GetContent()+"\n", "\n"+w+"\n") {
				t.Errorf("%s: %s is not in %q", doing, w, r.GetContent())
			}
		}
		for _, w := range append(not, "OF_THE_SERVER", "s3cr3t-value-1") {
			if strings.Contains(r.GetContent(), w) {
				t.Errorf("%s: %s is in %q", doing, w, r.GetContent())
			}
		}
	}
	in(func(ctx context.Context, rt *troupe.Runtime) {
		p, err := rt.Ask(ctx, &messages.SaveProject{Path: dir, Name: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		project = p.(*messages.Project).GetId()
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Env: map[string]string{"B": "the session's"}})
		if err != nil {
			t.Fatal(err)
		}
		id = s.ID()
		other, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
		if err != nil {
			t.Fatal(err)
		}
		sees(ctx, s, "at first", []string{"TERM=dumb", "B=the session's"}, []string{"A="})
		if err := set(ctx, rt, "mine", &messages.Variable{Name: "A", Value: "1"}, &messages.Variable{Name: "B", Value: "the project's"}, &messages.Variable{Name: "TOKEN", Value: "s3cr3t-value-1", Secret: true}, &messages.Variable{Name: "LANG", Value: "xx"}); err != nil {
			t.Fatal(err)
		}
		sees(ctx, s, "set", []string{"A=1", "B=the session's", "TOKEN=[redacted]", "LANG=xx"}, nil)
		sees(ctx, other, "another session", nil, []string{"A=", "TOKEN"})
		for _, v := range []*messages.Variable{
			{Name: "PATH", Value: "/evil"},
			{Name: "LD_PRELOAD", Value: "x"},
			{Name: "GIT_DIR", Value: "x"},
			{Name: "BASH_ENV", Value: "x"},
			{Name: "ENV", Value: "x"},
			{Name: "ld_preload", Value: "x"},
			{Name: "HOME", Value: "/"},
			{Name: "TROUPE_EXEC_ID", Value: "x"},
			{Name: "", Value: "x"},
			{Name: "A B", Value: "x"},
			{Name: "A\nB", Value: "x"},
			{Name: "X", Value: "a\x00b"},
			{Name: "SHORT", Value: "abc", Secret: true},
			{Name: "WORD", Value: "password", Secret: true},
			{Name: "LATIN", Value: "caf\xe9"},
		} {
			wantCode(t, "set "+v.GetName(), set(ctx, rt, "mine", v), messages.CodeBadRequest)
		}
		wantCode(t, "set too much", set(ctx, rt, "mine", &messages.Variable{Name: "X", Value: strings.Repeat("x", 40<<10)}), messages.CodeTooLarge)
		var many []*messages.Variable
		for i := range 25 {
			many = append(many, &messages.Variable{Name: fmt.Sprintf("V%d", i), Value: strings.Repeat("x", 32<<10)})
		}
		wantCode(t, "set too much in all", set(ctx, rt, "mine", many...), messages.CodeTooLarge)
		wantCode(t, "another project", set(ctx, rt, "nobody's", &messages.Variable{Name: "X", Value: "x"}), messages.CodeNotFound)
		l, err := rt.Ask(ctx, &messages.ListProjects{})
		if err != nil || len(l.(*messages.Projects).GetProjects()) != 1 || strings.Contains(l.(*messages.Projects).String(), "s3cr3t") {
			t.Errorf("listed: %v %v", l, err)
		}
		if _, err := rt.Ask(ctx, &messages.CreateSession{ProjectId: "prj_nobody"}); err == nil {
			t.Error("a session of a project that is not there was made")
		}
		elsewhere, err := rt.Ask(ctx, &messages.CreateSession{ProjectId: project})
		if err != nil || elsewhere.(*messages.SessionView).GetProjectId() != project {
			t.Errorf("a session by the project's id: %v %v", elsewhere, err)
		}
	})
	in(func(ctx context.Context, rt *troupe.Runtime) {
		s, err := rt.Open(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		sees(ctx, s, "after a restart", []string{"A=1", "TOKEN=[redacted]"}, nil)
		if _, err := rt.Ask(ctx, &messages.SetVariables{Project: project, Unset: []string{"A"}}); err != nil {
			t.Fatal(err)
		}
		sees(ctx, s, "unset", []string{"TOKEN=[redacted]"}, []string{"A=1"})
		_, err = rt.Ask(ctx, &messages.SetVariables{Project: project, Unset: []string{"A"}})
		wantCode(t, "unset again", err, messages.CodeNotFound)
		if _, err := rt.Ask(ctx, &messages.RemoveProject{Project: "mine"}); err != nil {
			t.Fatal(err)
		}
		sees(ctx, s, "without its project", []string{"B=the session's"}, []string{"TOKEN"})
	})
	kept := readStore(t, data)
	if strings.Contains(kept, "s3cr3t-value-1") {
		t.Error("the secret stands in the files of an encrypted store")
	}
}

// readStore is every byte of the files of a data directory.
func readStore(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		b.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
