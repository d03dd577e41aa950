package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// home returns the private home folder of a workspace, and creates it. It is kept from call to
// call: with a cold build cache each `go test` takes seconds instead of a fraction of one.
func (o *Options) home(workspace string) (string, error) {
	sum := sha256.Sum256([]byte(workspace))
	dir := filepath.Join(o.CacheDir, "homes", hex.EncodeToString(sum[:12]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the private home of %s: %w", workspace, err)
	}
	return dir, nil
}

// notesFolder is where, below the cache directory, it is noted which folders in workspaces are ours.
const notesFolder = "masks"

// resolve follows the links in what is to be hidden, so that it is recognised inside of
// workspaces, and hides the private homes of other workspaces too, and the notes by which we take
// back folders: who writes one has us remove a folder.
func (o *Options) resolve() error {
	homes, notes := filepath.Join(o.CacheDir, "homes"), filepath.Join(o.CacheDir, notesFolder)
	if err := errors.Join(os.MkdirAll(homes, 0o700), os.MkdirAll(notes, 0o700)); err != nil {
		return fmt.Errorf("create the folders of private homes and of notes: %w", err)
	}
	hide := make([]string, 0, len(o.Hide)+2)
	for _, dir := range append(o.Hide[:len(o.Hide):len(o.Hide)], homes, notes) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		hide = append(hide, dir)
	}
	o.Hide = hide
	real, err := filepath.EvalSymlinks(o.CacheDir)
	if err != nil {
		return fmt.Errorf("follow the cache directory: %w", err)
	}
	o.CacheDir = real
	return nil
}

// toolchains is what language tools need to find outside a private home: where this process's
// user keeps programs and downloaded modules.
type toolchains struct {
	goRoot, goModCache, goCache string
	cargoHome, npmHome          string
	managers                    []string // NAME=folder of version managers
}

// managers are the version managers whose programs need to find their own folder: the variable
// by which they do, and where it is below the user's home. None of them keeps credentials there.
var managers = map[string]string{ //nolint:gochecknoglobals // a constant table
	"RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv", "RBENV_ROOT": ".rbenv", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta",
	"ASDF_DATA_DIR": ".asdf", "FNM_DIR": ".local/share/fnm", "MISE_DATA_DIR": ".local/share/mise",
}

func findToolchains() toolchains {
	var t toolchains
	user, err := os.UserHomeDir()
	if err != nil {
		user = ""
	}
	t.goRoot = goRoot()
	t.goModCache = existing(os.Getenv("GOMODCACHE"))
	if t.goModCache == "" {
		gopath, _, _ := strings.Cut(os.Getenv("GOPATH"), string(os.PathListSeparator))
		t.goModCache = existing(below(gopath, "pkg/mod"), below(user, "go/pkg/mod"))
	}
	t.goCache = existing(os.Getenv("GOCACHE"), below(user, ".cache/go-build"))
	t.cargoHome = existing(os.Getenv("CARGO_HOME"), below(user, ".cargo"))
	t.npmHome = existing(os.Getenv("npm_config_cache"), below(user, ".npm"))
	for name, dir := range managers {
		if dir = existing(os.Getenv(name), below(user, dir)); dir != "" {
			t.managers = append(t.managers, name+"="+dir)
		}
	}
	slices.Sort(t.managers)
	return t
}

// goRoot is the tree that the `go` on PATH belongs to.
func goRoot() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		real, err := filepath.EvalSymlinks(filepath.Join(dir, "go"))
		if err != nil || !filepath.IsAbs(real) {
			continue
		}
		root := filepath.Dir(filepath.Dir(real))
		if existing(filepath.Join(root, "src", "runtime")) != "" {
			return root
		}
	}
	return ""
}

// read are the folders of the toolchains that a confined command may read. Credentials of
// cargo and npm lie beside them and are not among them.
func (t *toolchains) read() []string {
	dirs := []string{
		t.goRoot, t.goModCache, below(t.npmHome, "_cacache"),
		below(t.cargoHome, "bin"), below(t.cargoHome, "registry"), below(t.cargoHome, "git"),
	}
	for _, m := range t.managers {
		_, dir, _ := strings.Cut(m, "=")
		dirs = append(dirs, dir)
	}
	return dirs
}

// confined are the variables by which toolchains work in a private home with read-only caches.
// With the network, modules may be added: then they are kept in the home, and the read-only
// cache serves as the first proxy, before the origins of the modules. npm writes into its cache even offline, hence it has one of
// its own in the home, which a call with the network fills.
func (t *toolchains) confined(network bool) []string {
	env := []string{"GOTOOLCHAIN=local"}
	switch {
	case !network:
		env = append(env, "GOPROXY=off", "CARGO_NET_OFFLINE=true", "npm_config_offline=true")
		env = append(env, set("GOMODCACHE", t.goModCache)...)
		env = append(env, set("CARGO_HOME", t.cargoHome)...)
	case t.goModCache != "":
		env = append(env, "GOPROXY=file://"+filepath.ToSlash(t.goModCache)+"/cache/download,direct")
	}
	return append(env, t.managers...)
}

// unconfined are the same for commands that run as the user does.
func (t *toolchains) unconfined() []string {
	var env []string
	env = append(env, set("GOMODCACHE", t.goModCache)...)
	env = append(env, set("GOCACHE", t.goCache)...)
	env = append(env, set("CARGO_HOME", t.cargoHome)...)
	env = append(env, set("npm_config_cache", t.npmHome)...)
	return append(env, t.managers...)
}

func set(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{name + "=" + value}
}

// environment is the command's, completed by what it does not set itself; HOME and TMPDIR are
// not its to choose.
func environment(cmd []string, home, temp string, more []string) []string {
	env := make([]string, 0, len(cmd)+len(more)+3)
	seen := map[string]bool{"HOME": true, "TMPDIR": true}
	env = append(env, "HOME="+home, "TMPDIR="+temp)
	for _, kv := range append(append([]string(nil), cmd...), append(more, "PATH=/usr/local/bin:/usr/bin:/bin")...) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || seen[name] || strings.ContainsRune(kv, 0) {
			continue
		}
		seen[name] = true
		env = append(env, kv)
	}
	return env
}

// below joins when there is something to join to.
func below(dir, rel string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, rel)
}

// existing returns the first absolute path that is there.
func existing(paths ...string) string {
	for _, p := range paths {
		if p == "" || !filepath.IsAbs(p) {
			continue
		}
		if _, err := os.Stat(p); err == nil {
			return filepath.Clean(p)
		}
	}
	return ""
}
