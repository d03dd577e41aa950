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
