package tools_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// hostile are repositories whose configuration is a program. Each leaves a mark outside the workspace, when it can, and
// one inside.
func hostile(t *testing.T, b *box) map[string]func() {
	t.Helper()
	in, out := filepath.Join(b.root, "ran"), filepath.Join(b.out, "pwned")
	program := filepath.Join(b.root, ".git", "evil")
	write(t, program, "#!/bin/sh\ntouch "+in+" "+out+"\ncat /dev/null\n")
	set := func(kv ...string) func() {
		return func() {
			for i := 0; i < len(kv); i += 2 {
				host(t, b.root, "config", kv[i], kv[i+1])
			}
		}
	}
	attributes := func(text string) { write(t, filepath.Join(b.root, ".git", "info", "attributes"), text) }
	return map[string]func(){
		"core.fsmonitor": set("core.fsmonitor", program, "core.fsmonitorHookVersion", "2"),
		"core.hooksPath": func() {
			for _, hook := range []string{"pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-index-change", "reference-transaction"} {
				write(t, filepath.Join(b.root, "hooks", hook), "#!/bin/sh\ntouch "+in+" "+out+"\n")
				write(t, filepath.Join(b.root, ".git", "hooks", hook), "#!/bin/sh\ntouch "+in+" "+out+"\n")
			}
			host(t, b.root, "config", "core.hooksPath", "hooks")
		},
		"diff.external": set("diff.external", program),
		"textconv": func() {
			attributes("* diff=x\n")
			set("diff.x.textconv", program, "diff.x.command", program)()
		},
		"gpg":        set("gpg.program", program, "commit.gpgSign", "true", "log.showSignature", "true", "gpg.format", "openpgp"),
		"sshCommand": set("core.sshCommand", program, "core.gitProxy", program, "remote.origin.url", "ssh://x/y"),
		"pager":      set("core.pager", program, "pager.log", program, "pager.diff", program, "pager.status", program, "core.editor", program, "sequence.editor", program),
		"ask":        set("core.askPass", program, "credential.helper", "!"+program),
		"alias":      set("alias.status", "!"+program, "alias.log", "!"+program, "alias.diff", "!"+program, "alias.commit", "!"+program),
		"include": func() {
			write(t, filepath.Join(b.root, "inc"), "[core]\n\tfsmonitor = "+program+"\n")
			set("include.path", "../inc")()
		},
		"partial clone": func() {
			set("extensions.partialClone", "origin", "core.repositoryFormatVersion", "1", "remote.origin.url", "ext::"+program, "remote.origin.promisor", "true", "protocol.ext.allow", "always")()
			removeObject(t, b)
		},
		"submodule": func() {
			inner := filepath.Join(b.root, "module")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			host(t, inner, "init", "-q")
			host(t, inner, "commit", "-q", "--allow-empty", "-m", "x")
			host(t, b.root, "add", "module")
			host(t, inner, "config", "core.fsmonitor", program)
			host(t, inner, "config", "diff.external", program)
			set("status.submoduleSummary", "true", "diff.submodule", "diff", "submodule.recurse", "true", "diff.ignoreSubmodules", "none")()
		},
	}
}

// removeObject loses the content of a file, so that git would fetch it.
func removeObject(t *testing.T, b *box) {
	t.Helper()
	id := strings.TrimSpace(host(t, b.root, "rev-parse", "HEAD:a.txt"))
	if err := os.Remove(filepath.Join(b.root, ".git", "objects", id[:2], id[2:])); err != nil {
		t.Fatal(err)
	}
}

// What can be switched off is never run, even where no sandbox would hold it.
func TestNothingThatARepositoryConfiguresIsRun(t *testing.T) {
	attack := func(t *testing.T, mode sandbox.Mode, names ...string) {
		t.Helper()
		b := newRepo(t, mode, messages.Trust_FULL)
		for _, name := range names {
			hostile(t, b)[name]()
		}
		b.tools(t)
		for _, mark := range []string{filepath.Join(b.root, "ran"), filepath.Join(b.out, "pwned")} {
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("%s ran: %s", names, mark)
			}
		}
	}
	names := slices.Sorted(maps.Keys(hostile(t, newRepo(t, sandbox.None, messages.Trust_FULL))))
	for _, name := range names {
		t.Run(name, func(t *testing.T) { attack(t, sandbox.None, name) })
	}
	for _, mode := range []sandbox.Mode{sandbox.Bwrap, sandbox.Landlock, bareLandlock} { // the image for tests has no git
		t.Run("several in "+string(mode), func(t *testing.T) { attack(t, mode, "core.fsmonitor", "core.hooksPath", "textconv") })
	}
}

// tools calls every git tool.
func (b *box) tools(t *testing.T) map[string]*tools.Envelope {
	t.Helper()
	return map[string]*tools.Envelope{
		"git_status": b.git(t, "git_status", `{}`), "git_diff": b.git(t, "git_diff", `{}`), "git_log": b.git(t, "git_log", `{}`),
		"git_commit": b.git(t, "git_commit", `{"message":"m"}`),
	}
}

// A filter has a name of the repository's choice and is a part of what git does: it runs, but in the sandbox, and when
// git only reads it can change nothing at all.
func TestFiltersOfARepositoryAreConfined(t *testing.T) {
	for _, mode := range []sandbox.Mode{sandbox.Bwrap, sandbox.Landlock} {
		t.Run(string(mode), func(t *testing.T) { filtersAreConfined(t, newRepo(t, mode, messages.Trust_RESTRICTED)) })
	}
}

func filtersAreConfined(t *testing.T, b *box) {
	t.Helper()
	in, out, stolen := filepath.Join(b.root, "ran"), filepath.Join(b.out, "pwned"), filepath.Join(b.root, "stolen")
	write(t, filepath.Join(b.root, ".gitattributes"), "*.txt filter=x\n")
	host(t, b.root, "config", "filter.x.clean", "touch "+out+" "+in+" ~/ran; cat "+b.out+"/secret > "+stolen+"; cat")
	for _, name := range []string{"git_status", "git_diff", "git_log"} {
		if e := b.git(t, name, `{}`); !e.OK {
			t.Errorf("%s: %+v", name, e)
		}
		for _, mark := range []string{in, out, stolen} {
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("%s let a filter write %s", name, mark)
			}
		}
	}
	if e := b.sh(t, "ls ~"); strings.Contains(e.Content, "ran") {
		t.Errorf("a filter wrote into the home of later commands: %s", e.Content)
	}
	if e := b.git(t, "git_commit", `{"message":"m"}`); !e.OK {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(in); err != nil {
		t.Errorf("the filter of this test does nothing: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a filter wrote outside the workspace")
	}
	if data, err := os.ReadFile(stolen); err != nil || len(data) > 0 {
		t.Errorf("a filter read outside the workspace: %q, %v", data, err)
	}
}

// Folders that a repository names outside of its own are not used.
func TestARepositoryThatLeadsOutsideIsRefused(t *testing.T) {
	for what, prepare := range map[string]func(t *testing.T, b *box){
		"a .git file": func(t *testing.T, b *box) {
			host(t, b.out, "init", "-q")
			write(t, filepath.Join(b.root, ".git"), "gitdir: "+b.out+"/.git\n")
		},
		"a link .git": func(t *testing.T, b *box) {
			host(t, b.out, "init", "-q")
			if err := os.Symlink(filepath.Join(b.out, ".git"), filepath.Join(b.root, ".git")); err != nil {
				t.Fatal(err)
			}
		},
		"core.worktree": func(t *testing.T, b *box) {
			host(t, b.root, "init", "-q")
			host(t, b.root, "config", "core.worktree", b.out)
		},
		"core.worktree of the system": func(t *testing.T, b *box) {
			host(t, b.root, "init", "-q")
			host(t, b.root, "config", "core.worktree", "/etc")
		},
		"commondir": func(t *testing.T, b *box) {
			host(t, b.out, "init", "-q")
			host(t, b.root, "init", "-q")
			write(t, filepath.Join(b.root, ".git", "commondir"), b.out+"/.git\n")
		},
	} {
		for _, mode := range []sandbox.Mode{sandbox.Bwrap, sandbox.None} {
			t.Run(what+" "+string(mode), func(t *testing.T) {
				b := newRepo(t, mode, messages.Trust_FULL)
				if err := os.RemoveAll(filepath.Join(b.root, ".git")); err != nil {
					t.Fatal(err)
				}
				prepare(t, b)
				for name, e := range b.tools(t) {
					if e.OK || e.ErrorCode != tools.CodePermissionDenied && e.ErrorCode != tools.CodeFileNotFound && e.ErrorCode != tools.CodeValidationFailed {
						t.Errorf("%s: %+v", name, e)
					}
					if strings.Contains(e.Content, "TOPSECRET") || strings.Contains(e.Content, "passwd") {
						t.Errorf("%s told: %s", name, e.Content)
					}
				}
			})
		}
	}
}

// Objects that lie outside are not read, though a repository may name their folder.
func TestObjectsOfOthersAreNotRead(t *testing.T) {
	b := newRepo(t, sandbox.Bwrap, messages.Trust_RESTRICTED)
	host(t, b.out, "init", "-q")
	host(t, b.out, "add", "secret")
	host(t, b.out, "commit", "-q", "-m", "TOPSECRET")
	id := strings.TrimSpace(host(t, b.out, "rev-parse", "HEAD"))
	write(t, filepath.Join(b.root, ".git", "objects", "info", "alternates"), b.out+"/.git/objects\n")
	write(t, filepath.Join(b.root, ".git", "refs", "heads", "main"), id+"\n")
	for name, e := range b.tools(t) {
		if strings.Contains(e.Content, "TOPSECRET") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if log := host(t, b.root, "log"); !strings.Contains(log, "TOPSECRET") {
		t.Errorf("the repository of this test leads nowhere: %s", log)
	}
}

// A repository inside another's files is not taken for one.
func TestABareRepositoryAmongTheFilesIsNotUsed(t *testing.T) {
	for _, mode := range []sandbox.Mode{sandbox.Bwrap, sandbox.None} {
		b := newRepo(t, mode, messages.Trust_FULL)
		host(t, b.root, "init", "-q", "--bare", "trap")
		mark := filepath.Join(b.root, "ran")
		host(t, filepath.Join(b.root, "trap"), "config", "core.fsmonitor", "touch "+mark+" "+b.out+"/pwned")
		host(t, filepath.Join(b.root, "trap"), "config", "core.worktree", b.root)
		host(t, filepath.Join(b.root, "trap"), "config", "core.bare", "false")
		e := b.git(t, "git_status", `{"path":"trap"}`)
		if _, err := os.Stat(mark); err == nil || e.OK {
			t.Errorf("%s: %+v", mode, e)
		}
	}
}

func TestGitAttacksEndAsAgreed(t *testing.T) {
	data, err := os.ReadFile("testdata/attacks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Attacks []struct {
			ID, Name, Tool string
			Arguments      json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	prepare := map[string]func(t *testing.T, b *box){
		"git-023": func(t *testing.T, b *box) { host(t, b.root, "config", "core.fsmonitor", "touch "+b.out+"/pwned") },
		"git-025": func(t *testing.T, b *box) {
			write(t, filepath.Join(b.root, ".gitattributes"), "* filter=x\n")
			host(t, b.root, "config", "filter.x.clean", "touch "+b.out+"/pwned")
		},
		"git-027": func(t *testing.T, b *box) {
			write(t, filepath.Join(b.out, "gpgx"), "#!/bin/sh\ntouch "+b.out+"/pwned\n")
			host(t, b.root, "config", "gpg.program", filepath.Join(b.out, "gpgx"))
			host(t, b.root, "config", "log.showSignature", "true")
		},
		"git-029": func(t *testing.T, b *box) { host(t, b.root, "config", "core.sshCommand", "touch "+b.out+"/pwned") },
		"git-031": func(t *testing.T, b *box) {
			write(t, filepath.Join(b.root, ".gitattributes"), "* diff=x\n")
			host(t, b.root, "config", "diff.x.textconv", "touch "+b.out+"/pwned")
		},
		"git-033": func(t *testing.T, b *box) {
			if err := os.RemoveAll(filepath.Join(b.root, "sub")); err != nil {
				t.Fatal(err)
			}
			host(t, b.root, "init", "-q", "--bare", "sub")
			host(t, filepath.Join(b.root, "sub"), "config", "core.fsmonitor", "touch "+b.out+"/pwned")
		},
	}
	seen := 0
	for _, a := range file.Attacks {
		if !strings.HasPrefix(a.Tool, "git_status") {
			continue
		}
		seen++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			if prepare[a.ID] == nil {
				t.Fatal("no test knows this case")
			}
			b := newRepo(t, sandbox.Bwrap, messages.Trust_RESTRICTED)
			prepare[a.ID](t, b)
			for name := range strings.SplitSeq(a.Tool, "|") {
				args := string(a.Arguments)
				if name == "git_commit" {
					args = `{"message":"m"}`
				}
				b.git(t, name, args)
			}
			if _, err := os.Stat(filepath.Join(b.out, "pwned")); err == nil {
				t.Error("it ran outside the sandbox")
			}
		})
	}
	if seen < 6 {
		t.Errorf("%d cases, want 6", seen)
	}
}
