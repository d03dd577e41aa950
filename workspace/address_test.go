package workspace_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

type uriCase struct {
	URI, Kind, Host, Path, Canonical, Reason string
	Valid                                    bool
	Port                                     *int
	Ref, Subdir                              *string
}

func uriCases(t testing.TB) []uriCase {
	t.Helper()
	data, err := os.ReadFile("testdata/uris.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []uriCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 50 {
		t.Fatalf("only %d cases: the file is not the one that was agreed on", len(file.Cases))
	}
	return file.Cases
}

func TestEveryAgreedAddressParsesOrIsRefusedForItsReason(t *testing.T) {
	for _, c := range uriCases(t) {
		a, err := workspace.Parse(c.URI, "monad-server")
		if !c.Valid {
			var bad *workspace.AddressError
			if !errors.As(err, &bad) {
				t.Errorf("%q: got %v, want an AddressError", c.URI, err)
			} else if bad.Reason != c.Reason {
				t.Errorf("%q: reason %q, want %q", c.URI, bad.Reason, c.Reason)
			} else if bad.Position < 0 || bad.Position > len(c.URI) {
				t.Errorf("%q: position %d is not in the text", c.URI, bad.Position)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.URI, err)
			continue
		}
		got := []string{string(a.Kind), a.Host, a.Path, a.Canonical, a.Ref, a.Subdir}
		want := []string{c.Kind, c.Host, c.Path, c.Canonical, orEmpty(c.Ref), orEmpty(c.Subdir)}
		if strings.Join(got, "|") != strings.Join(want, "|") || (c.Port == nil) != (a.Port == 0) {
			t.Errorf("%q: got %q port %d, want %q", c.URI, got, a.Port, want)
		}
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestAddressesOutsideTheAgreedCases(t *testing.T) {
	valid := map[string]string{
		"git:github.com:8443/o/r":         "git:github.com:8443/o/r",
		"git:github.com/o/r/":             "git:github.com/o/r",
		"git:github.com/o/r///docs/":      "git:github.com/o/r//docs",
		"git:github.com/o/r/@v1//a@b":     "git:github.com/o/r@v1//a@b",
		"git:github.com/a/b/c.git@x":      "git:github.com/a/b/c@x",
		"TROUPE:/sessions/x":              "troupe:/sessions/x",
		"h1:/" + strings.Repeat("n", 255): "h1:/" + strings.Repeat("n", 255),
	}
	for uri, want := range valid {
		if a, err := workspace.Parse(uri, ""); err != nil || a.Canonical != want {
			t.Errorf("%q: got %v, %v, want %q", uri, a, err, want)
		}
	}
	for _, uri := range []string{
		"", ":", "git:", "git:/", "git:github.com/o/r//", "git:github.com/o/r////x", "git:github.com/o/r@", "git:github.com:65536/o/r",
		"git:github.com:080/o/r", "git:github.com/o/r@x.lock", "git:github.com/o/r@a@{1}", "git:1.2.3.4/o/r", "git:a..com/o/r", "git:-a.com/o/r",
		"h1:/" + strings.Repeat("n", 256), "h1:/" + strings.Repeat("n/", 2100), "h1:/a\xffb", "h1:/a\u200bb", "h..1:/x", "docker:/x", "h1:/a//b",
		"h1:", "h1:x", "h1:/a/.", "h1:~//a",
	} {
		if a, err := workspace.Parse(uri, ""); err == nil {
			t.Errorf("%q: parsed as %v, want a refusal", uri, a)
		}
	}
}

func TestLocalAddressFollowsLinksOnceAndWantsADirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	must(t, os.Mkdir(real, 0o755), os.Symlink(real, link), os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	a, path, err := workspace.Local(link)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := workspace.Local(real)
	if err != nil {
		t.Fatal(err)
	}
	if a.Canonical != "local:"+filepath.ToSlash(real) || path != real || a.ID() != b.ID() || a.Kind != workspace.KindClient {
		t.Errorf("got %v (%s), want one address for the folder and the link to it", a, path)
	}
	if len(a.ID()) != 64 || strings.Contains(a.ID(), "/") {
		t.Errorf("id %q is no hex hash", a.ID())
	}
	for _, bad := range []string{"", filepath.Join(dir, "f"), filepath.Join(dir, "missing")} {
		if _, _, err := workspace.Local(bad); err == nil {
			t.Errorf("Local(%q) gave no error", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range uriCases(f) {
		f.Add(c.URI)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		a, err := workspace.Parse(uri, "monad-server")
		if err != nil {
			return
		}
		again, err := workspace.Parse(a.Canonical, "monad-server")
		if err != nil || *again != *a {
			t.Fatalf("%q: canonical %q parses as %v, %v", uri, a.Canonical, again, err)
		}
		for _, part := range strings.Split(a.Path+"/"+a.Subdir, "/") {
			if part == ".." || part == "." {
				t.Fatalf("%q: dot segment in %q", uri, a.Canonical)
			}
		}
		if a.Kind == workspace.KindGit && (strings.HasPrefix(a.Ref, "-") || strings.ContainsAny(a.Host+a.Path, " @\\:")) {
			t.Fatalf("%q: %+v could be read as an option or a credential", uri, a)
		}
	})
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
