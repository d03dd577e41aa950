package gitclone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// settings go before everything that a repository or a user configures. There is one transport, nothing that could be started, and
// what comes is checked before it is unpacked.
var settings = []string{ //nolint:gochecknoglobals // a constant list
	"protocol.allow=never", "protocol.https.allow=always", "http.followRedirects=false", "http.sslVerify=true", "http.emptyAuth=false", "http.proxy=",
	"http.lowSpeedLimit=1", "http.lowSpeedTime=60", "credential.helper=", "core.askPass=false", "core.hooksPath=/dev/null", "core.fsmonitor=false",
	"core.symlinks=false", "core.protectHFS=true", "core.protectNTFS=true", "core.attributesFile=/dev/null", "core.sshCommand=false", "core.gitProxy=",
	"core.bigFileThreshold=16m", "pack.threads=1", "transfer.fsckObjects=true", "fetch.fsckObjects=true", "transfer.bundleURI=false",
	"fetch.uriProtocols=", "submodule.recurse=false", "fetch.recurseSubmodules=false", "safe.bareRepository=explicit", "safe.directory=*",
	"gc.auto=0", "maintenance.auto=false", "init.templateDir=", "advice.detachedHead=false", "protocol.version=2",
}

// environment is the whole of git's.
var environment = []string{ //nolint:gochecknoglobals // a constant list
	"LANG=C", "LC_ALL=C", "TERM=dumb", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_ATTR_NOSYSTEM=1",
	"GIT_ALLOW_PROTOCOL=https", "GIT_PROTOCOL_FROM_USER=0", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=false", "SSH_ASKPASS=false", "GIT_SSH_COMMAND=false",
	"GIT_NO_LAZY_FETCH=1", "GIT_PAGER=cat", "GIT_EDITOR=:", "GIT_ADVICE=0",
}

const (
	caFile    = "ca.pem"
	maxOutput = 1 << 20
)

// errGit is a run of git that failed, with what it said.
type errGit struct{ said string }

func (e *errGit) Error() string { return e.said }

func (w *cloning) inTree(ctx context.Context, args ...string) (string, error) {
	return w.git(ctx, filepath.Join(w.part, TreeName), args...)
}

// git runs git in a folder below the clone's, to the end of all that it starts.
func (w *cloning) git(ctx context.Context, dir string, args ...string) (string, error) {
	argv := []string{"git"}
	for _, s := range settings {
		argv = append(argv, "-c", s)
	}
	for _, pin := range w.pins {
		argv = append(argv, "-c", "http.curloptResolve="+pin)
	}
	if w.o.RootCAs != "" {
		argv = append(argv, "-c", "http.sslCAInfo="+filepath.Join(w.part, caFile))
	}
	argv = append(argv, args...)
	env := append([]string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=" + w.part}, environment...)
	out := &bytes.Buffer{}
	code, err := w.run(ctx, argv, dir, env, out)
	switch {
	case context.Cause(ctx) != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", err
	case code != 0:
		return "", w.said(out.String(), code)
	}
	return out.String(), nil
}

func (w *cloning) run(ctx context.Context, argv []string, dir string, env []string, out *bytes.Buffer) (code int, err error) {
	if w.o.Sandbox != nil && w.o.Sandbox.Confines() {
		e, err := w.o.Sandbox.Run(ctx, tools.Command{Argv: argv, Workspace: w.part, Dir: dir, Env: env, Network: true, MaxOutput: maxOutput, Output: out})
		if err == nil && e.Limit != "" {
			err = messages.Fail(messages.CodeTooLarge, fmt.Sprintf("git was ended: it used too much %s", e.Limit), "")
		}
		return e.Code, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(env, "HOME="+w.part), time.Second
	bounded := &capped{to: out}
	cmd.Stdout, cmd.Stderr = bounded, bounded
	ownGroup(cmd)
	err = cmd.Run()
	var failed *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return 0, messages.Fail(messages.CodeUnavailable, "git is not installed", "install git")
	case errors.As(err, &failed):
		return max(failed.ExitCode(), 1), nil
	}
	return 0, err
}

// capped keeps the beginning of an output.
type capped struct{ to *bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.to.Write(p[:min(len(p), max(0, maxOutput-c.to.Len()))])
	return len(p), nil
}

// said makes of git's words what went wrong.
func (w *cloning) said(text string, code int) error {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "?"))
	has := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(text, word) {
				return true
			}
		}
		return false
	}
	switch {
	case has("not our ref", "no such remote ref", "couldn't find remote ref", "upload-pack: not our"):
		return messages.Fail(messages.CodeNotFound, fmt.Sprintf("the repository git:%s/%s does not give out that commit, or no longer has it", w.addr.Host, w.addr.Path), "name a branch or a tag")
	case has("could not read Username", "Authentication failed", "terminal prompts disabled"):
		return w.private()
	case has("fsck error", "hasDotgit", "hasDotdot", "gitmodules", "invalid path", "is not a commit", "bad object"):
		return messages.Fail(messages.CodeDenied, fmt.Sprintf("the repository %s is not in order, and was not taken: %s", w.addr.Canonical, lastLine(text)), "")
	case code == 127:
		return messages.Fail(messages.CodeUnavailable, "git is not installed, or not where commands may read", "install git")
	}
	return &errGit{lastLine(text)}
}

// lastLine is the line that tells most: git ends with what was fatal.
func lastLine(text string) string {
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "error: ") {
			text = line
			break
		}
		text = line
	}
	if r := []rune(text); len(r) > 300 {
		text = string(r[:300]) + "..."
	}
	return strings.TrimSpace(text)
}
