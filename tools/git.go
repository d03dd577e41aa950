package tools

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/workspace"
)

// maxGitOutput is where git is killed, in bytes.
const maxGitOutput = 2 << 20

// gitSettings are put over what a repository configures: its configuration is a program of whoever made it. What can
// not be named here (filters, whose names are the repository's) runs in the sandbox like all the rest.
var gitSettings = []string{ //nolint:gochecknoglobals // a constant list
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.editor=:", "core.askPass=", "core.sshCommand=false", "core.gitProxy=",
	"core.attributesFile=/dev/null", "credential.helper=", "diff.external=", "diff.ignoreSubmodules=dirty", "diff.submodule=short", "status.submoduleSummary=false",
	"submodule.recurse=false", "commit.gpgSign=false", "log.showSignature=false", "gpg.program=false", "gpg.ssh.program=false", "gpg.x509.program=false",
	"protocol.allow=never", "gc.auto=0", "maintenance.auto=false", "safe.bareRepository=explicit", "safe.directory=*", "core.quotePath=false",
	"commit.template=", "trailer.ifexists=doNothing", "color.ui=false",
}

// gitEnv is the whole environment of git but PATH: nothing of the user's own configuration, nobody to ask, no transport.
var gitEnv = []string{ //nolint:gochecknoglobals // a constant list
	"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TERM=dumb", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_ATTR_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_PAGER=cat", "GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:",
	"GIT_ASKPASS=false", "SSH_ASKPASS=false", "GIT_SSH_COMMAND=false", "GIT_ADVICE=0",
}

// gitCall is one run of git.
type gitCall struct {
	dir   string // of the host; "": where the call starts
	args  []string
	write bool // it changes the repository: else the workspace is mounted read-only and no lock is taken
}

// gitOutput is what came of it.
type gitOutput struct {
	text  string
	exit  Exit
	reads bool // it changed nothing, so that what it said may be cut off
}

// gitSpecs limit a run to one path, taken as it is; "" is everything. What no tool may touch is left out: the sandbox hides it, so that
// git would take it for deleted.
func gitSpecs(name string) []string {
	if name == "" {
		name = "."
	}
	return []string{"--", ":(literal)" + name, ":(exclude,icase,glob)**/.troupe", ":(exclude,icase,glob)**/.troupe/**"}
}

// git runs git in the call's sandbox, whatever the trust: a repository's configuration is code.
func (c *fileCall) git(g gitCall) (*gitOutput, error) {
	if err := mayRun(c); err != nil {
		return nil, err
	}
	if g.dir == "" {
		var err error
		if g.dir, err = startFolder(c, ""); err != nil {
			return nil, err
		}
	}
	argv := []string{"git", "--no-pager"}
	env := append([]string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(c.ws.HostDir())}, gitEnv...)
	if !g.write {
		argv = append(argv, "--no-optional-locks")
		env = append(env, "GIT_OPTIONAL_LOCKS=0")
	}
	for _, s := range gitSettings {
		argv = append(argv, "-c", s)
	}
	for _, kv := range c.ProcessEnv {
		if strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "TZ=") {
			env = append(env, kv)
		}
	}
	out := &collector{since: time.Now()}
	exit, err := c.Sandbox.Run(c.ctx, Command{
		Argv: append(argv, g.args...), Workspace: c.ws.HostDir(), Dir: g.dir, Env: env, ReadOnly: !g.write, MaxOutput: maxGitOutput, Output: out,
	})
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, stopped(c.ctx.Err())
	case err != nil:
		return nil, Errorf(CodeSandboxUnavailable, "the sandbox %s could not run git: %v", c.Sandbox.Name(), err)
	}
	return &gitOutput{c.clean(printable(out.data)), exit, !g.write}, nil
}

// repository refuses one whose folders are not all in the workspace: a configuration may name any folder as its own.
func (c *fileCall) repository(dir string) error {
	out, err := c.git(gitCall{dir: dir, args: []string{"rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"}})
	if err != nil {
		return err
	}
	if err := out.failed(); err != nil {
		return err
	}
	for folder := range strings.Lines(out.text) {
		folder = strings.TrimSuffix(folder, "\n")
		if c.inContainer() {
			var err error
			if folder, err = c.HostPath(folder); err != nil {
				return Errorf(CodePermissionDenied, "Access denied: not all of this git repository is in the workspace")
			}
		}
		below, err := filepath.Rel(c.ws.HostDir(), folder)
		if err != nil || !filepath.IsLocal(below) {
			return Errorf(CodePermissionDenied, "Access denied: not all of this git repository is in the workspace")
		}
	}
	return nil
}

// failed is what git says when it does not do what it was asked; nil: it did.
func (o *gitOutput) failed() error {
	switch {
	case o.exit.Limit == "output" && o.reads, o.exit.Code == 0 && o.exit.Limit == "":
		return nil
	case o.exit.Limit != "":
		return Errorf(CodeSandboxUnavailable, "git was ended: it used too much %s", o.exit.Limit)
	case strings.Contains(o.text, "not a git repository"):
		return Errorf(CodeFileNotFound, "There is no git repository here, or not all of it is in the workspace")
	case o.exit.Code == 127 || strings.Contains(o.text, "execvp git"):
		return Errorf(CodeSandboxUnavailable, "git is not installed, or not where commands may read")
	}
	said, _ := shorten(strings.TrimSpace(o.text))
	return Errorf(CodeValidationFailed, "git failed (exit code %d): %s", o.exit.Code, said).With("exit_code", o.exit.Code)
}

// gitResult is what the model gets of a run that went well.
func (c *fileCall) gitResult(o *gitOutput, empty string) (*Result, error) {
	if err := o.failed(); err != nil {
		return nil, err
	}
	content, cut := shorten(o.text)
	if cut {
		if note := spill(c.Home, c.ExecID, o.text); note != "" {
			content = strings.TrimSuffix(content, "\n") + "\n" + note
		}
	}
	if o.exit.Limit != "" {
		content = strings.TrimSuffix(content, "\n") + fmt.Sprintf("\n[cut: git printed more than %d MiB; name a path]", maxGitOutput>>20)
	}
	if o.text == "" {
		content = empty
	}
	return &Result{Content: content, Truncated: cut || o.exit.Limit != "", Meta: map[string]any{
		"sandbox": c.Sandbox.Name(), "bounds": o.exit.Bounds, "duration_ms": o.exit.Duration.Milliseconds(), "output_bytes": len(o.text),
	}}, nil
}

// gitPath is where git runs for a path of the call, and how the path is called there; "" is the whole folder. A path that
// is not there (any more) is git's to know.
func (c *fileCall) gitPath(name string) (dir, spec string, err error) {
	if name == "" {
		dir, err = startFolder(c, "")
		return dir, "", err
	}
	info, err := c.ws.Stat(c.at(name))
	if err == nil && info.IsDir() {
		return filepath.Join(c.ws.HostDir(), filepath.FromSlash(info.Path)), ".", nil
	}
	info, err = c.ws.Lstat(c.at(name))
	var w *workspace.Error
	switch {
	case err == nil:
		return filepath.Join(c.ws.HostDir(), filepath.FromSlash(path.Dir(info.Path))), path.Base(info.Path), nil
	case errors.As(err, &w) && w.Code == workspace.CodeNotFound && filepath.IsLocal(name):
		dir, err := startFolder(c, "")
		return dir, name, err
	}
	return "", "", c.fail(name, err)
}
