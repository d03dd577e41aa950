package tools

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMoveDeleteAndCreateSayWhatTheyDid(t *testing.T) {
	b := newBench(t)
	b.put("f", "x")
	b.put("g", "y")
	b.put("d/in", "z")
	noError(t, os.Symlink("g", filepath.Join(b.root, "l")))
	for _, c := range []struct {
		tool Tool
		args m
		want string
	}{
		{CreateDirectory(), m{"path": "n/m/"}, "Created directory n/m"},
		{CreateDirectory(), m{"path": "n"}, "Directory n is already there"},
		{MoveFile(), m{"source": "f", "destination": "p/q/f"}, "Moved f to p/q/f"},
		{MoveFile(), m{"source": "p/q/f", "destination": "g", "overwrite": true}, "Moved p/q/f to g"},
		{MoveFile(), m{"source": "d", "destination": "e"}, "Moved d to e"},
		{DeleteFile(), m{"path": "l"}, "Deleted l"},
		{DeleteFile(), m{"path": "n/m"}, "Deleted n/m"},
		{DeleteFile(), m{"path": "e", "recursive": true}, "Deleted e"},
	} {
		if r := b.ok(c.tool, c.args); r.Content != c.want {
			t.Errorf("%v: got %q, want %q", c.args, r.Content, c.want)
		}
	}
	if b.get("g") != "x" || b.exists("e") || b.exists("n/m") {
		t.Error("the folder is not as the results say")
	}
	b.put("h", "h")
	b.put("full/x", "x")
	b.put("repo/.git/config", "x")
	b.fails(MoveFile(), m{"source": "h", "destination": "g"}, CodeInvalidArguments, "overwrite")
	b.fails(MoveFile(), m{"source": "none", "destination": "g"}, CodeFileNotFound, "File not found: none")
	b.fails(MoveFile(), m{"source": "h", "destination": "../h"}, CodeInvalidPath, "../h:")
	b.fails(MoveFile(), m{"source": "h", "destination": ".git/hooks/h"}, CodePermissionDenied, ".git/hooks/h:")
	b.fails(MoveFile(), m{"source": "h", "destination": "a\u200bb"}, CodeInvalidPath, "a?b:")
	b.fails(MoveFile(), m{"source": "repo", "destination": "r"}, CodePermissionDenied, "repo: ")
	b.fails(MoveFile(), m{"source": "repo/.git", "destination": "r"}, CodePermissionDenied, "repo/.git: ")
	b.fails(MoveFile(), m{"source": ".", "destination": "r"}, CodeInvalidPath, ".: the workspace itself")
	b.fails(MoveFile(), m{"source": "../h", "destination": "r"}, CodeInvalidPath, "../h:")
	b.fails(DeleteFile(), m{"path": "full"}, CodeInvalidArguments, "set recursive")
	b.fails(DeleteFile(), m{"path": "none"}, CodeFileNotFound)
	b.fails(DeleteFile(), m{"path": ".", "recursive": true}, CodeInvalidPath)
	b.fails(DeleteFile(), m{"path": "repo", "recursive": true}, CodePermissionDenied)
	b.fails(CreateDirectory(), m{"path": "g"}, CodeInvalidArguments)
	b.fails(CreateDirectory(), m{"path": "g/x"}, CodeInvalidPath)
}

func TestAFileThatWasReadCountsAsReadAfterItsMove(t *testing.T) {
	b := newBench(t)
	b.put("read", "a")
	b.put("unread", "a")
	b.ok(ReadFile(), m{"path": "read"})
	b.ok(MoveFile(), m{"source": "read", "destination": "r2"})
	b.ok(MoveFile(), m{"source": "unread", "destination": "u2"})
	b.ok(EditFile(), m{"path": "r2", "edits": []m{{"old_string": "a", "new_string": "b"}}})
	b.fails(EditFile(), m{"path": "u2", "edits": []m{{"old_string": "a", "new_string": "b"}}}, CodeNotRead)
}
