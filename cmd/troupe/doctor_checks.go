package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// skipped is the finding of a check that needs the configuration where there is none.
func skipped() finding {
	return finding{Level: levelWarn, Message: "not checked: the configuration cannot be read", Fix: "correct the configuration first"}
}

func checkConfiguration(_ context.Context, p *patient) finding {
	problems, err := allProblems(p.loaded, p.err)
	switch {
	case err != nil:
		return finding{Level: levelFail, Message: err.Error(), Fix: "name a folder that exists with -C"}
	case len(problems) > 0:
		return finding{Level: levelFail, config: true, Message: problems.Error(), Fix: "troupe config validate"}
	case len(p.loaded.Warnings) > 0:
		w := p.loaded.Warnings[0]
		return finding{Level: levelWarn, Message: fmt.Sprintf("%s (%d warnings)", w.Text, len(p.loaded.Warnings)), Fix: w.Fix}
	case len(p.loaded.Files) == 0:
		return finding{Level: levelOK, Message: "no file; the defaults hold"}
	}
	return finding{Level: levelOK, Message: "valid: " + strings.Join(p.loaded.Files, ", ")}
}

func checkData(_ context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	dir := p.loaded.Config.Data.Dir
	from := fmt.Sprintf("(%s)", p.loaded.Origin("data.dir"))
	if p.loaded.Dirs.Temporary && p.loaded.Origin("data.dir").Source == config.FromDefault {
		return finding{Level: levelWarn, Message: dir + " is a folder for temporary files: no home was found", Fix: "set HOME, TROUPE_DATA or --data"}
	}
	there := existing(dir)
	if info, err := os.Stat(there); err != nil || !info.IsDir() {
		return finding{Level: levelFail, Message: fmt.Sprintf("%s %s: %s is no folder", dir, from, there), Fix: "name another data directory with TROUPE_DATA or --data"}
	}
	probe, err := os.MkdirTemp(there, ".troupe-doctor-*")
	if err != nil {
		return finding{Level: levelFail, Message: fmt.Sprintf("%s %s cannot be written: %v", dir, from, err), Fix: "chown or chmod it, or name another one with TROUPE_DATA or --data"}
	}
	if err := os.Remove(probe); err != nil {
		return finding{Level: levelFail, Message: fmt.Sprintf("remove a probe from %s: %v", there, err), Fix: "remove it by hand"}
	}
	if pid := holder(dir); pid != 0 {
		return finding{Level: levelOK, Message: fmt.Sprintf("%s %s is in use by process %d; commands talk to that one", dir, from, pid)}
	}
	if there != dir {
		return finding{Level: levelOK, Message: fmt.Sprintf("%s %s does not exist yet and can be made", dir, from)}
	}
	return finding{Level: levelOK, Message: fmt.Sprintf("%s %s is writable and free", dir, from)}
}

// existing is dir or the nearest folder above it that exists.
func existing(dir string) string {
	for {
		_, err := os.Stat(dir)
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return dir
	}
}

func checkSpace(_ context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	dir, reserve := existing(p.loaded.Config.Data.Dir), p.loaded.Config.Data.Reserve
	free, err := freeSpace(dir)
	if err != nil {
		return finding{Level: levelWarn, Message: fmt.Sprintf("the free space at %s is unknown: %v", dir, err), Fix: "check it by hand"}
	}
	text := fmt.Sprintf("%d MiB free at %s; new turns are refused below %s", free>>20, dir, reserve)
	switch {
	case free < int64(reserve):
		return finding{Level: levelFail, Message: text, Fix: "make room, or name another data directory with TROUPE_DATA or --data"}
	case free < 4*int64(reserve):
		return finding{Level: levelWarn, Message: text, Fix: "make room"}
	}
	return finding{Level: levelOK, Message: text}
}

func checkModel(ctx context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	m, err := p.loaded.Config.Resolve("")
	switch {
	case errors.Is(err, config.ErrNoModel):
		fix := config.NoModelHelp
		if len(p.loaded.Config.Providers) > 0 {
			fix = "name one: TROUPE_MODEL=PROVIDER/NAME, model: in the configuration, or -m"
		}
		return finding{Level: levelWarn, Message: err.Error(), Fix: fix}
	case err != nil:
		return finding{Level: levelFail, config: true, Message: fmt.Sprintf("%v (%s)", err, p.loaded.Origin("model")), Fix: "write PROVIDER/NAME or an alias of models"}
	case m.Offline():
		return finding{Level: levelOK, Message: m.String() + ": no language model is running"}
	}
	if _, err := p.loaded.Key(ctx, m.Provider); err != nil {
		f := finding{Level: levelFail, config: true, Message: fmt.Sprintf("%s: %v", m, err), Fix: "make the key available"}
		var problem *config.Problem
		if errors.As(err, &problem) && problem.Fix != "" {
			f.Message, f.Fix = fmt.Sprintf("%s: %s", m, problem.What), problem.Fix
		}
		return f
	}
	return finding{Level: levelOK, Message: fmt.Sprintf("%s at %s (not called)", m, m.Service.BaseURL)}
}

func checkSandbox(ctx context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	cache, err := os.MkdirTemp("", "troupe-doctor-*")
	if err != nil {
		return finding{Level: levelWarn, Message: "not checked: " + err.Error(), Fix: "make the folder for temporary files writable"}
	}
	defer os.RemoveAll(cache)
	c, o := p.loaded.Config.Sandbox, sandboxOptions(p.loaded, nil)
	o.CacheDir = cache
	box, err := sandbox.Detect(ctx, sandbox.Mode(c.Exec), o)
	var missing *sandbox.Unavailable
	switch {
	case errors.As(err, &missing):
		return finding{Level: levelFail, Message: missing.Error(), Fix: missing.Hint}
	case err != nil:
		return finding{Level: levelFail, config: true, Message: fmt.Sprintf("sandbox.exec: %s (%s): %v", c.Exec, p.loaded.Origin("sandbox.exec"), err), Fix: "set sandbox.exec: auto"}
	case box.Confines():
		return finding{Level: levelOK, Message: box.Name() + " confines commands, shown by a probe: " + sandbox.Describe(box)}
	}
	fix := "set sandbox.exec: auto"
	if _, err := sandbox.Detect(ctx, sandbox.Bwrap, o); errors.As(err, &missing) {
		fix = missing.Reason + ": " + missing.Hint
	}
	return finding{Level: levelWarn, Message: "commands are not confined: they run in trusted folders only", Fix: fix}
}

// checkLimits says what holds the limits of commands. There are limits without control groups, too.
func checkLimits(ctx context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	cache, err := os.MkdirTemp("", "troupe-doctor-*")
	if err != nil {
		return finding{Level: levelWarn, Message: "not checked: " + err.Error(), Fix: "make the folder for temporary files writable"}
	}
	defer os.RemoveAll(cache)
	o := sandboxOptions(p.loaded, nil)
	o.CacheDir = cache
	box, err := sandbox.Detect(ctx, sandbox.Mode(p.loaded.Config.Sandbox.Exec), o)
	if err != nil {
		return finding{Level: levelWarn, Message: "not checked: there is no sandbox", Fix: "see to that first"}
	}
	text, why := sandbox.Bounds(box)
	switch {
	case why == nil:
		return finding{Level: levelOK, Message: text}
	case o.NoGroups && o.Limits.CPUs == 0:
		return finding{Level: levelOK, Message: text + ": sandbox.cgroups is none"}
	}
	return finding{Level: levelWarn, Message: fmt.Sprintf("%s: %s", text, strings.ReplaceAll(why.Error(), "\n", "; ")), Fix: sandbox.GroupsHint}
}

func checkGit(ctx context.Context, p *patient) finding {
	return p.program(ctx, "git", "git tools and git: workspaces do not work without it", "install it, for example: apt-get install git", "--version")
}

func checkGo(ctx context.Context, p *patient) finding {
	return p.program(ctx, "go", "needed only for work on Go code and for troupe tour", "see https://go.dev/dl/", "version")
}

// program looks for a program and asks for its version.
func (p *patient) program(ctx context.Context, name, without, fix string, args ...string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{Level: levelWarn, Message: "not found on PATH: " + without, Fix: fix}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	// Without a home neither of them keeps counters in it, and go fetches no other version of itself.
	cmd.Env = slices.DeleteFunc(p.app.environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "XDG_CONFIG_HOME=")
	})
	cmd.Env = append(cmd.Env, "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if err != nil {
		return finding{Level: levelWarn, Message: fmt.Sprintf("%s does not run: %v", path, err), Fix: fix}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return finding{Level: levelOK, Message: line + " (" + path + ")"}
}
