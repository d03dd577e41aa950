package config

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Env is an environment: variables and their values. A nil Env is an empty one.
type Env map[string]string

// Environ makes an Env of NAME=VALUE pairs as os.Environ gives them; of a repeated name the last counts.
func Environ(pairs []string) Env {
	env := make(Env, len(pairs))
	for _, p := range pairs {
		if name, value, ok := strings.Cut(p, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

// Folders are troupe's folders on this machine by the XDG base directory specification, each
// already with the last element "troupe". Nothing is created.
type Folders struct {
	Home      string // the user's home, never empty
	Config    string // the user's configuration
	Data      string // what must not be lost: journals, trust
	State     string // logs, history of the terminal
	Cache     string // what can be made again
	Runtime   string // sockets; below XDG_RUNTIME_DIR, else in State, never a folder of all users
	Temporary bool   // no home was found: everything is below the folder for temporary files
}

// Dirs finds the folders. It works with an empty environment: without HOME the user database is
// asked, and without an entry there everything goes below the folder for temporary files.
// XDG variables that hold a relative path are ignored, as the specification demands.
func Dirs(env Env) Folders {
	var f Folders
	f.Home, f.Temporary = home(env)
	base := func(name string, fallback ...string) string {
		if v := env[name]; filepath.IsAbs(v) {
			return filepath.Join(v, "troupe")
		}
		return filepath.Join(append(append([]string{f.Home}, fallback...), "troupe")...)
	}
	if local := env["LOCALAPPDATA"]; runtime.GOOS == "windows" && filepath.IsAbs(local) {
		f.Home = local
	}
	f.Config = base("XDG_CONFIG_HOME", ".config")
	f.Data = base("XDG_DATA_HOME", ".local", "share")
	f.State = base("XDG_STATE_HOME", ".local", "state")
	f.Cache = base("XDG_CACHE_HOME", ".cache")
	f.Runtime = filepath.Join(f.State, "run")
	if v := env["XDG_RUNTIME_DIR"]; filepath.IsAbs(v) {
		f.Runtime = filepath.Join(v, "troupe")
	}
	return f
}

// home is the user's home and whether it had to be made up.
func home(env Env) (string, bool) {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if v := env[name]; filepath.IsAbs(v) {
			return v, false
		}
	}
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir, false
	}
	return filepath.Join(os.TempDir(), "troupe-"+strconv.Itoa(os.Getuid())), true
}
