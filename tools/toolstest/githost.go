package toolstest

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// GitHost is a git server on loopback that speaks git's own protocol over https, as example.com.
type GitHost struct {
	Root    string // folder of its repositories
	RootCAs string // file of its certificate

	port   string
	mu     sync.Mutex
	before func(http.ResponseWriter, *http.Request) bool
	seen   []string
}

// NewGitHost starts one for a test, which is skipped where there is no git.
func NewGitHost(t testing.TB) *GitHost {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("there is no git here")
	}
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("there is no git-http-backend here")
	}
	h := &GitHost{Root: t.TempDir()}
	serve := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + h.Root, "GIT_HTTP_EXPORT_ALL=1"}, InheritEnv: []string{"PATH"}, Stderr: io.Discard}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.seen = append(h.seen, r.Method+" "+r.URL.Path)
		before := h.before
		h.mu.Unlock()
		if before == nil || !before(w, r) {
			serve.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	h.port = u.Port()
	h.RootCAs = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(h.RootCAs, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// Lookup finds the host's name, and no other.
func (h *GitHost) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	if name != "example.com" {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// Reach are the addresses that may be reached for it.
func (h *GitHost) Reach() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// Address is the workspace address of a repository of the host: owner/name, and what may follow it.
func (h *GitHost) Address(rest string) string { return h.URL("git", rest) }

// URL is an address of the host with another scheme.
func (h *GitHost) URL(scheme, rest string) string {
	return scheme + ":example.com:" + h.port + "/" + rest
}

// Before sees every request first, and answers it when it returns true.
func (h *GitHost) Before(do func(http.ResponseWriter, *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = do
}

// Seen are the requests since it was asked last.
func (h *GitHost) Seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := strings.Join(h.seen, "\n")
	h.seen = nil
	return all
}

// Git runs git as the owner of a repository does.
func (h *GitHost) Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=o", "GIT_AUTHOR_EMAIL=o@x",
		"GIT_COMMITTER_NAME=o", "GIT_COMMITTER_EMAIL=o@x",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Repo makes o/NAME with one commit of the files on the branch trunk, and returns its folder.
func (h *GitHost) Repo(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(h.Root, "o", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Git(t, dir, "init", "-q", "--initial-branch=trunk")
	h.Commit(t, dir, files)
	return dir
}

// Commit writes files into a repository and commits them. It returns the commit.
func (h *GitHost) Commit(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Git(t, dir, "add", "-A")
	h.Git(t, dir, "commit", "-q", "--allow-empty", "-m", "c")
	return h.Git(t, dir, "rev-parse", "HEAD")
}
