package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All hooks of one point have a minute together: a longer time for one would be cut without a word.
func TestAHookHasAMinuteAtMost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	for text, refused := range map[string]bool{"1m": false, "61s": true} {
		if err := os.WriteFile(file, []byte("hooks:\n  timeout: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Options{File: file, Cwd: dir})
		if refused != (err != nil && strings.Contains(err.Error(), "hooks.timeout")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
