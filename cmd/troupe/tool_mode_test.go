package main

import (
	"os"
	"strings"
	"testing"
)

// TestAToolRunAloneStaysWhereTheConfigurationConfinesIt: without an engine it runs nowhere, by whichever way it comes to the folder.
func TestAToolRunAloneStaysWhereTheConfigurationConfinesIt(t *testing.T) {
	m := newMachine(t)
	if err := os.Symlink(m.folder("a"), m.folder("link")); err != nil {
		t.Fatal(err)
	}
	config := m.write("boxed.yaml", "sandbox: {image: localhost/none}\nworkspaces: {proj: {uri: \"local:"+m.folder("link")+"\", mode: container}}\n")
	m.env = []string{"PATH=" + m.folder("b")} // no engine is found
	for dir, confined := range map[string]bool{"a": true, "link": true, "b": false} {
		_, out, stderr := m.run("tool", "run", "exec", "--args", `{"command":"echo ran in it"}`, "-C", dir, "--trust", "full", "--config", config)
		if strings.Contains(out, "No container can be made") != confined || strings.Contains(out, "ran in it\\n") && confined {
			t.Errorf("%s: %s%s", dir, out, stderr)
		}
	}
}

// TestAToolRunAloneIsOneOfThoseThatTheFolderOffers: another is refused as a session does, in the folder and in those below it, by whichever way it comes there.
func TestAToolRunAloneIsOneOfThoseThatTheFolderOffers(t *testing.T) {
	m := newMachine(t)
	if err := os.Symlink(m.folder("a"), m.folder("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.folder("a/below"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := m.write("few.yaml", "workspaces: {proj: {uri: \"local:"+m.folder("link")+"\", tools: [list_files]}}\n")
	for dir, few := range map[string]bool{"a": true, "a/below": true, "link": true, "b": false} {
		_, out, stderr := m.run("tool", "run", "write_file", "--args", `{"path":"new.txt","content":"x"}`, "-C", dir, "--trust", "full", "--config", config)
		if refused := strings.Contains(out, `"tool_not_found"`) && strings.Contains(out, "Tool 'write_file' not found") && strings.Contains(out, "Error: Tool Not Found"); refused != few {
			t.Errorf("%s: %s%s", dir, out, stderr)
		}
		if _, err := os.Stat(m.folder(dir + "/new.txt")); (err != nil) != few {
			t.Errorf("%s: %v", dir, err)
		}
		if code, out, stderr := m.run("tool", "run", "list_files", "--args", "{}", "-C", dir, "--trust", "full", "--config", config); code != 0 {
			t.Errorf("%s: %d %s%s", dir, code, out, stderr)
		}
		if err := os.RemoveAll(m.folder(dir + "/new.txt")); err != nil {
			t.Error(err)
		}
	}
}
