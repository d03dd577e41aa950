package tools

import (
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// baseNames are what commands get of this process's environment: enough to find programs and
// to write text, and nothing that could be a secret. HOME is not among them: the sandbox gives
// every workspace a private one.
var baseNames = []string{"PATH", "LANG", "LC_ALL", "TZ"} //nolint:gochecknoglobals // a constant list

// BaseEnv picks from an environment (NAME=value, as os.Environ gives it) what every command may
// see, and besides it the names that a trusted folder's `env.inherit` lists. The result is
// sorted. It never holds anything else of the server's.
func BaseEnv(environ, inherit []string) []string {
	env := map[string]string{"TERM": "dumb"}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && (slices.Contains(baseNames, name) || slices.Contains(inherit, name)) {
			env[name] = value
		}
	}
	return pairs(env)
}

// MergeEnv puts a project's variables over a base (the project wins, acceptance row 8). A
// variable that changes what programs are run, or how, is only taken from a folder of trust
// Full, and refused with validation_failed otherwise; the result is sorted.
func MergeEnv(base []string, project []*messages.EnvVar, trust messages.Trust_Level) ([]string, error) {
	env := make(map[string]string, len(base)+len(project))
	for _, kv := range base {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	for _, v := range project {
		if err := CheckVariable(v.GetName(), v.GetValue(), trust); err != nil {
			return nil, err
		}
		env[v.GetName()] = v.GetValue()
	}
	return pairs(env), nil
}

// CheckVariable tells whether commands may be given a variable: its name must be one, and
// those that steer the loader, shells or git (`LD_*`, `BASH_ENV`, `ENV`, `GIT_*`, `PATH`) are
// only for trust Full. `HOME`, `TMPDIR` and `TROUPE_*` are ours.
func CheckVariable(name, value string, trust messages.Trust_Level) error {
	upper := strings.ToUpper(name)
	switch {
	case !validVariable(name):
		return Errorf(CodeValidationFailed, "%q is no name of an environment variable: use letters, digits and _, not first a digit", clip(name))
	case strings.ContainsRune(value, 0):
		return Errorf(CodeValidationFailed, "the value of the variable %s holds a NUL", name)
	case upper == "HOME" || upper == "TMPDIR" || strings.HasPrefix(upper, "TROUPE_"):
		return Errorf(CodeValidationFailed, "the variable %s is set by troupe itself", name)
	case trust != messages.Trust_FULL && steers(upper):
		return Errorf(CodeValidationFailed, "the variable %s changes which programs run, or how: only a trusted folder may set it", name)
	}
	return nil
}

func steers(name string) bool {
	return name == "PATH" || name == "ENV" || name == "BASH_ENV" || name == "SHELLOPTS" || name == "BASHOPTS" ||
		strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "GIT_") ||
		strings.HasPrefix(name, "BASH_FUNC_")
}

func validVariable(name string) bool {
	if name == "" || len(name) > 200 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for _, c := range []byte(name) {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range sortedKeys(env) {
		list = append(list, name+"="+env[name])
	}
	return list
}
