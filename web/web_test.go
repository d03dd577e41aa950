package web_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/web"
)

// TestTheConsoleIsBuiltOfItsSources: who changes a source and does not build hears of it, also where there is no npm.
func TestTheConsoleIsBuiltOfItsSources(t *testing.T) {
	built := map[string]string{}
	f, err := os.Open(filepath.Join("dist", "sources.sha256"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		sum, name, _ := strings.Cut(s.Text(), "  ")
		built[name] = sum
	}
	names, err := filepath.Glob("src/*")
	if err != nil || len(names) < 10 {
		t.Fatalf("sources: %q, %v", names, err)
	}
	for _, name := range append(names, "build.mjs", "package.json", "package-lock.json", "tsconfig.json") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if name = filepath.ToSlash(name); built[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("dist is older than web/%s: run make web, and commit what it built", name)
		}
		delete(built, name)
	}
	for name := range built {
		t.Errorf("dist was built of web/%s, which is gone: run make web, and commit what it built", name)
	}
}

func TestEveryFileOfThePageIsServed(t *testing.T) {
	page, ok := web.Open(web.Page)
	if !ok || page.Type != "text/html; charset=utf-8" {
		t.Fatalf("%+v %v", page.Type, ok)
	}
	for _, name := range []string{"console.js", "console.css", "icon.svg"} {
		f, ok := web.Open(name)
		if !ok || len(f.Data) == 0 || f.Tag == page.Tag || !strings.Contains(string(page.Data), `"/console/`+name+`"`) {
			t.Errorf("%s: %v, tag %s, %d bytes", name, ok, f.Tag, len(f.Data))
		}
	}
	for _, name := range []string{"sources.sha256", "../web.go", "", "."} {
		if _, ok := web.Open(name); ok {
			t.Errorf("%q is served", name)
		}
	}
}

// The page loads nothing from elsewhere, and has nothing inside that its policy would stop.
func TestThePageKeepsToItsPolicy(t *testing.T) {
	page, _ := web.Open(web.Page)
	for _, bad := range []string{"http:", "https:", "//", "<style", "style=", "onload", "<script>"} {
		if strings.Contains(string(page.Data), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	script, _ := web.Open("console.js")
	if !strings.Contains(string(script.Data[:2000]), "The MIT License") {
		t.Error("the script goes without the licence of what is in it")
	}
	for _, bad := range []string{"eval(", "new Function", "https://"} {
		if strings.Contains(string(script.Data), bad) {
			t.Errorf("the script has %q", bad)
		}
	}
}
