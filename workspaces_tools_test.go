package troupe_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// overheard is a model that does as it is told, and what it was told of the workspaces by the system prompt last.
func overheard(next func(*model.Request) (string, []*messages.ToolCall)) (m troupe.Model, lines func() string) {
	var mu sync.Mutex
	var heard []string
	m = say(func(req *model.Request) (string, []*messages.ToolCall) {
		mu.Lock()
		heard = nil
		for _, line := range strings.Split(req.Prompt.System, "\n") {
			if strings.HasPrefix(line, "- ") {
				heard = append(heard, line)
			}
		}
		mu.Unlock()
		return next(req)
	})
	return m, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(heard, "\n")
	}
}

// TestAWorkspaceOffersTheToolsThatAreConfiguredForItsAddress: what a session keeps has a list of its own, a folder's holds below it, and whoever attaches may
// leave out some of it and add none.
func TestAWorkspaceOffersTheToolsThatAreConfiguredForItsAddress(t *testing.T) {
	lib, docs := folder(t, map[string]string{"sub/a": "text"}), folder(t, map[string]string{"a": "text"})
	m, prompt := overheard(callOnce())
	rt, ctx := runtimeOf(t, troupe.Options{Model: m, Offers: map[string][]string{
		"troupe:/sessions": {"read_file", "write_file"}, "local:" + lib: {"glob"}, "local:" + lib + "/sub": {"read_file", "grep"}, "laptop:/sub": {"exec"},
	}})
	s, err := rt.Session(ctx, troupe.SessionOptions{Workspaces: []troupe.WorkspaceSpec{
		{URI: lib + "/sub", Name: "lib", Trust: troupe.Full, Tools: []string{"grep", "exec"}}, {URI: docs, Name: "docs", Trust: troupe.Full},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Attach(ctx, troupe.WorkspaceSpec{URI: folder(t, nil), Tools: []string{"no_tool"}})
	wantCode(t, "a tool that there is not", err, messages.CodeBadRequest)
	for _, c := range []struct{ where, tool, code string }{
		{"home", "write_file", ""},
		{"home", "list_files", tools.CodeToolNotFound},
		{"home", "exec", tools.CodeToolNotFound},
		{"lib", "grep", ""},
		{"lib", "read_file", tools.CodeToolNotFound},
		{"lib", "exec", tools.CodeToolNotFound},
		{"lib", "glob", tools.CodeToolNotFound},
		{"docs", "list_files", ""},
		{"", "list_files", ""},
	} {
		args := map[string]any{"path": "n", "content": "x"}
		switch c.tool {
		case "grep":
			args = map[string]any{"pattern": "t"}
		case "glob":
			args = map[string]any{"pattern": "*"}
		case "list_files":
			args = map[string]any{}
		case "exec":
			args = map[string]any{"command": "true"}
		case "read_file":
			args = map[string]any{"path": "n"}
		}
		if c.where != "" {
			args["workspace_id"] = c.where
		}
		if r, err := s.Call(ctx, c.tool, args); err != nil || r.GetErrorCode() != c.code {
			t.Errorf("%s in %q: %v %v, want %q", c.tool, c.where, r, err, c.code)
		}
	}
	if _, err := s.Run(ctx, "look"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- lib: local:" + lib + "/sub (client, full, primary), tools: grep\n", "- docs: local:" + docs + " (client, full)\n", "- home: troupe:/sessions/" + s.ID() + " (server, full), tools: read_file, write_file"} {
		if !strings.Contains(prompt()+"\n", want) {
			t.Errorf("the prompt has not %q:\n%s", want, prompt())
		}
	}
	other, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Attach(ctx, troupe.WorkspaceSpec{URI: lib + "/sub", Tools: []string{"exec"}})
	wantCode(t, "none that is configured", err, messages.CodeBadRequest)
	if g, err := other.Attach(ctx, troupe.WorkspaceSpec{URI: lib}); err != nil || !slices.Equal(g.GetTools(), []string{"glob"}) {
		t.Errorf("the folder around it: %v %v", g, err)
	}
}

// TestThePromptSaysWhichToolsAWorkspaceHasWhereThatIsNotWhatOthersHave: a model cannot know otherwise that a trusted folder has more than one that is not.
func TestThePromptSaysWhichToolsAWorkspaceHasWhereThatIsNotWhatOthersHave(t *testing.T) {
	m, prompt := overheard(callOnce())
	rt, ctx := runtimeOf(t, troupe.Options{Model: m, Agents: []troupe.Agent{{Name: "reader", Tools: []string{"read_file", "grep"}}}})
	looks := func(o troupe.SessionOptions) []string {
		t.Helper()
		s, err := rt.Session(ctx, o)
		if err == nil {
			_, err = s.Run(context.WithoutCancel(ctx), "look")
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(prompt(), "\n")
	}
	trusted := []troupe.WorkspaceSpec{{URI: folder(t, nil), Trust: troupe.Full}}
	alike := looks(troupe.SessionOptions{Dir: folder(t, nil)})
	reader := looks(troupe.SessionOptions{Dir: folder(t, nil), Workspaces: trusted, Agent: "reader"})
	for _, line := range append(alike, reader...) {
		if strings.Contains(line, "tools:") {
			t.Errorf("all have the same tools, and the prompt says: %s", line)
		}
	}
	mixed := looks(troupe.SessionOptions{Dir: folder(t, nil), Workspaces: trusted})
	if len(mixed) != 3 || !strings.Contains(mixed[0], "restricted, primary), tools: create_directory, edit_file, ") || strings.Contains(mixed[0], "exec") || strings.Contains(mixed[1], "tools:") {
		t.Errorf("%q", mixed)
	}
}
