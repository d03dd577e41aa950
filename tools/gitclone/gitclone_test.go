package gitclone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools/gitclone"
	"github.com/troupe-dev/troupe/tools/sandbox"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(h *toolstest.GitHost) gitclone.Options {
	return gitclone.Options{RootCAs: h.RootCAs, Reach: h.Reach(), Lookup: h.Lookup}
}

func codeOf(err error) string {
	var f *messages.Failure
	if !errors.As(err, &f) {
		return fmt.Sprint(err)
	}
	return f.GetCode()
}

func text(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAnAddressIsClonedAtWhatItMeans(t *testing.T) {
	h := toolstest.NewGitHost(t)
	dir := h.Repo(t, "r", map[string]string{"a": "one", "docs/b": "b"})
	first := h.Git(t, dir, "rev-parse", "HEAD")
	h.Git(t, dir, "tag", "-a", "-m", "t", "v1")
	h.Git(t, dir, "checkout", "-q", "-b", "feature/x")
	second := h.Commit(t, dir, map[string]string{"a": "two"})
	h.Git(t, dir, "checkout", "-q", "trunk")
	last := h.Commit(t, dir, map[string]string{"a": "three"})
	c := gitclone.New(options(h))
	for rest, want := range map[string][3]string{ // commit, a, branch
		"o/r": {last, "three", "trunk"}, "o/r@trunk": {last, "three", "trunk"}, "o/r@feature/x": {second, "two", "feature/x"},
		"o/r@v1": {first, "one", "HEAD"}, "o/r@" + first: {first, "one", "HEAD"}, "o/r@feature/x//docs": {second, "two", "feature/x"},
	} {
		at := filepath.Join(t.TempDir(), "c")
		var grown int64
		got, err := c.Clone(t.Context(), h.Address(rest), "", at, func(n int64) { grown = n })
		if err != nil || got != want[0] {
			t.Errorf("%s: %s %v, want %s", rest, got, err, want[0])
			continue
		}
		tree := filepath.Join(at, gitclone.TreeName)
		if a := text(t, tree, "a"); a != want[1] {
			t.Errorf("%s: a is %q", rest, a)
		}
		if b := h.Git(t, tree, "rev-parse", "--abbrev-ref", "HEAD"); b != want[2] {
			t.Errorf("%s: on branch %s", rest, b)
		}
		if s := h.Git(t, tree, "status", "--porcelain"); s != "" || grown < 0 {
			t.Errorf("%s: status %q", rest, s)
		}
		if left, _ := filepath.Glob(at + "*/*"); len(left) != 1 {
			t.Errorf("%s: besides the files there is %v", rest, left)
		}
	}
	// A clone that is made again is of the commit that was written down, whatever the branch is by now.
	at := filepath.Join(t.TempDir(), "c")
	if got, err := c.Clone(t.Context(), h.Address("o/r@trunk"), first, at, nil); err != nil || got != first {
		t.Errorf("again: %s %v", got, err)
	}
}

func TestWhatCannotBeClonedIsNamed(t *testing.T) {
	h := toolstest.NewGitHost(t)
	dir := h.Repo(t, "r", map[string]string{"a": strings.Repeat("a", 10)})
	if err := os.MkdirAll(filepath.Join(h.Root, "o", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.Git(t, filepath.Join(h.Root, "o", "empty"), "init", "-q")
	h.Before(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/o/private"):
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/o/moved"):
			http.Redirect(w, r, "https://"+strings.TrimPrefix(h.URL("", strings.Replace(r.URL.String(), "/o/moved", "o/r", 1)), ":"), http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/o/stray"):
			http.Redirect(w, r, "https://169.254.169.254/", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/o/broken"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, "/o/page"):
			_, _ = w.Write([]byte("<html>"))
		default:
			return false
		}
		return true
	})
	c := gitclone.New(options(h))
	for address, want := range map[string]string{
		"git:nowhere.example.org/o/r": "network_error", "local:/x": "invalid_uri", "git:ext::sh/x/y": "invalid_uri",
		h.Address("o/none"): "not_found", h.Address("o/private"): "permission_denied", h.Address("o/stray"): "network_denied",
		h.Address("o/broken"): "network_error", h.Address("o/page"): "not_found", h.Address("o/empty"): "not_found", h.Address("o/moved"): "<nil>",
		h.Address("o/r@none"): "not_found", h.Address("o/r@" + strings.Repeat("a", 40)): "not_found", h.Address("o/r//none"): "not_found",
		h.Address("o/r//a"): "not_found", h.Address("o/r//.git"): "not_found",
	} {
		at := filepath.Join(t.TempDir(), "c")
		_, err := c.Clone(t.Context(), address, "", at, nil)
		if got := codeOf(err); got != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
		if _, gone := os.Lstat(at + ".part"); gone == nil {
			t.Errorf("%s: something is left", address)
		}
	}
	o := options(h)
	o.Reach = nil
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "network_denied" {
		t.Errorf("an address that is not public: %v", err)
	}
	o = options(h)
	o.RootCAs = ""
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "network_error" {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	was := h.Git(t, dir, "rev-parse", "HEAD")
	h.Git(t, dir, "commit", "-q", "--amend", "-m", "another")
	h.Git(t, dir, "reflog", "expire", "--expire=now", "--all")
	h.Git(t, dir, "gc", "-q", "--prune=now")
	if _, err := c.Clone(t.Context(), h.Address("o/r"), was, filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "not_found" {
		t.Errorf("a commit that is gone: %v", err)
	}
}

func TestACloneIsBoundedInTimeAndSize(t *testing.T) {
	h := toolstest.NewGitHost(t)
	h.Repo(t, "r", map[string]string{"zeros": string(make([]byte, 8<<20))}) // a small pack of a large file
	o := options(h)
	o.MaxBytes = 2 << 20
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "too_large" {
		t.Errorf("too large: %v", err)
	}
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	h.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			<-hold
		}
		return r.Method == http.MethodPost
	})
	o = options(h)
	o.Timeout = time.Second
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "timeout" {
		t.Errorf("a server that says nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gitclone.New(options(h)).Clone(ctx, h.Address("o/r"), "", filepath.Join(t.TempDir(), "c"), nil); codeOf(err) != "unavailable" {
		t.Errorf("ended: %v", err)
	}
}

// rawTree commits a tree that git itself would not make.
func rawTree(t *testing.T, h *toolstest.GitHost, dir, name string) {
	t.Helper()
	blob := h.Git(t, dir, "hash-object", "-w", "-t", "blob", "a")
	raw := append([]byte("100644 "+name+"\x00"), unhex(t, blob)...)
	cmd := exec.Command("git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
	cmd.Dir, cmd.Stdin, cmd.Env = dir, bytes.NewReader(raw), []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	h.Git(t, dir, "update-ref", "refs/heads/trunk", h.Git(t, dir, "commit-tree", "-m", "x", strings.TrimSpace(string(out))))
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	if _, err := fmt.Sscanf(s, "%x", &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAHostileRepositoryDoesNothing(t *testing.T) {
	out, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pwned := filepath.Join(out, "pwned")
	template := filepath.Join(out, "template")
	hook := "#!/bin/sh\ntouch " + pwned + "\n"
	if err := os.MkdirAll(filepath.Join(template, "hooks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "hooks", "post-checkout"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_TEMPLATE_DIR", template)
	t.Setenv("GIT_EXTERNAL_DIFF", "touch "+pwned)
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
	t.Setenv("GIT_CONFIG_VALUE_0", "touch "+pwned)
	h := toolstest.NewGitHost(t)
	c := gitclone.New(options(h))

	dir := h.Repo(t, "plain", map[string]string{"a": "a", ".gitattributes": "* filter=x diff=x\n", "hooks/post-checkout": hook})
	h.Git(t, dir, "config", "filter.x.smudge", "touch "+pwned) // of the server's own: it does not travel
	for _, link := range [][2]string{{"/etc/passwd", "absolute"}, {"../../..", "out"}, {".git/hooks", "hook"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	h.Git(t, dir, "add", "-A")
	h.Git(t, dir, "-c", "filter.x.smudge=", "commit", "-q", "-m", "links")
	at := filepath.Join(out, "c")
	if _, err := c.Clone(t.Context(), h.Address("o/plain"), "", at, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"absolute", "out", "hook"} {
		if info, err := os.Lstat(filepath.Join(at, gitclone.TreeName, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if hooks, _ := os.ReadDir(filepath.Join(at, gitclone.TreeName, ".git", "hooks")); len(hooks) > 0 {
		t.Errorf("hooks came along: %v", hooks)
	}

	for what, name := range map[string]string{"upper": ".GIT", "mixed": ".gIt", "ntfs": "git~1", "hfs": ".g\u200cit", "parent": "..", "plain": ".git"} {
		dir := h.Repo(t, "tree-"+what, map[string]string{"a": hook})
		rawTree(t, h, dir, name)
		if _, err := c.Clone(t.Context(), h.Address("o/tree-"+what), "", filepath.Join(out, what), nil); codeOf(err) != "permission_denied" {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir = h.Repo(t, "modules", map[string]string{"a": "a", ".gitmodules": "[submodule \"s\"]\n\tpath = s\n\turl = --upload-pack=touch " + pwned + "\n\tupdate = !touch " + pwned + "\n"})
	h.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+h.Git(t, dir, "rev-parse", "HEAD")+",s")
	h.Git(t, dir, "commit", "-q", "-m", "module")
	if _, err := c.Clone(t.Context(), h.Address("o/modules"), "", filepath.Join(out, "modules"), nil); codeOf(err) != "permission_denied" {
		t.Errorf("modules: %v", err)
	}
	dir = h.Repo(t, "module", map[string]string{"a": "a", ".gitmodules": "[submodule \"s\"]\n\tpath = s\n\turl = https://" + strings.TrimPrefix(h.URL("", "o/plain"), ":") + "\n"})
	h.Git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+h.Git(t, dir, "rev-parse", "HEAD")+",s")
	h.Git(t, dir, "commit", "-q", "-m", "module")
	h.Seen()
	if _, err := c.Clone(t.Context(), h.Address("o/module"), "", filepath.Join(out, "module"), nil); err != nil {
		t.Error(err)
	}
	if all := h.Seen(); strings.Contains(all, "/o/plain") {
		t.Errorf("a submodule was fetched: %s", all)
	}
	if _, err := os.Stat(pwned); err == nil {
		t.Error("something of the repository ran")
	}
}

func TestGitParsesWhatItGotInTheSandbox(t *testing.T) {
	box, err := sandbox.Detect(t.Context(), sandbox.Bwrap, sandbox.Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Skipf("git runs in no sandbox here: %v", err)
	}
	h := toolstest.NewGitHost(t)
	h.Repo(t, "r", map[string]string{"a": "one"})
	o := options(h)
	o.Sandbox = box
	at := filepath.Join(t.TempDir(), "c")
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", at, nil); err != nil || text(t, at, gitclone.TreeName, "a") != "one" {
		t.Error(err)
	}
	o.MaxBytes = 2_000 // less than a repository without files
	if _, err := gitclone.New(o).Clone(t.Context(), h.Address("o/r"), "", at+"2", nil); codeOf(err) != "too_large" {
		t.Error(err)
	}
}

func TestCloneAttacksEndAsAgreed(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "attacks.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Attacks []struct {
			ID, Name, Tool, Expect, Code string
			Arguments                    json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	h, out := toolstest.NewGitHost(t), t.TempDir()
	h.Repo(t, "plain", map[string]string{"a": "a"})
	hooks := filepath.Join(out, "tmpl", "hooks")
	if err := os.MkdirAll(hooks, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hooks, "post-checkout"), []byte("#!/bin/sh\ntouch "+out+"/pwned\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_TEMPLATE_DIR", filepath.Join(out, "tmpl"))
	t.Chdir(out)
	c, seen := gitclone.New(options(h)), 0
	for _, a := range file.Attacks {
		if a.Tool != "attach_workspace" && a.Tool != "git_clone" {
			continue
		}
		seen++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			var args struct{ URI, URL, Path string }
			if err := json.Unmarshal(a.Arguments, &args); err != nil {
				t.Fatal(err)
			}
			uri, dir := strings.ReplaceAll(args.URI, "$OUT", out), filepath.Join(out, a.ID)
			if u, ok := strings.CutPrefix(args.URL, "https://"); ok {
				uri, dir = "git:"+u, args.Path
			} else if name, ok := strings.CutPrefix(args.URL, "$FIXTURE/"); ok {
				uri = h.Address("o/" + name)
			}
			_, err := c.Clone(t.Context(), uri, "", dir, nil)
			if want := a.Code; a.Expect == "deny" && codeOf(err) != want || a.Expect == "contained" && err != nil {
				t.Errorf("%v, want %s %s", err, a.Expect, want)
			}
			if left, _ := filepath.Glob(filepath.Join(out, "*pwned*")); len(left) > 0 {
				t.Errorf("it ran: %v", left)
			}
		})
	}
	if all := h.Seen(); seen < 11 || !strings.Contains(all, "/o/plain") {
		t.Errorf("%d cases, want 11; the host saw %q", seen, all)
	}
}
