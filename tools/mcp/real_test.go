package mcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/mcp"
)

// installed gives the program of an npm package that `make mcp` has installed.
func installed(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("TROUPE_MCP_SERVERS")
	if dir == "" {
		t.Skip("the servers of npm are not installed: make mcp does that, and runs this")
	}
	return filepath.Join(dir, "node_modules", ".bin", name)
}

func TestTheServerOfEverything(t *testing.T) {
	s := connect(t, mcp.Options{Command: []string{installed(t, "mcp-server-everything")}})
	if r, err := call(t.Context(), t, s, "my_server_echo", `{"message":"hi"}`); err != nil || !strings.Contains(r.Content, "hi") {
		t.Errorf("%v %v", r, err)
	}
	if r, err := call(t.Context(), t, s, "my_server_get_sum", `{"a":2,"b":40}`); err != nil || !strings.Contains(r.Content, "42") {
		t.Errorf("%v %v", r, err)
	}
	if r, err := call(t.Context(), t, s, "my_server_get_tiny_image", ""); err != nil || !strings.Contains(r.Content, "[image, image/png, ") {
		t.Errorf("%v %v", r, err)
	}
	if _, err := call(t.Context(), t, s, "my_server_get_sum", `{"a":"two","b":40}`); code(err) != tools.CodeInvalidArguments {
		t.Errorf("%v", err)
	}
}

// TestTheServerOfFiles: it replaces what it was allowed by the roots that a client advertises; from us it gets none.
func TestTheServerOfFiles(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{inside: "mine", outside: "secret"} {
		if err := os.WriteFile(filepath.Join(dir, "f.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := connect(t, mcp.Options{Command: []string{installed(t, "mcp-server-filesystem"), inside}})
	if r, err := call(t.Context(), t, s, "my_server_read_text_file", `{"path":"`+filepath.Join(inside, "f.txt")+`"}`); err != nil || !strings.Contains(r.Content, "mine") {
		t.Errorf("%v %v", r, err)
	}
	if r, err := call(t.Context(), t, s, "my_server_read_text_file", `{"path":"`+filepath.Join(outside, "f.txt")+`"}`); err == nil {
		t.Errorf("it reads elsewhere: %v", r)
	}
}
