package tools

import (
	"errors"
	"path"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// changeCase is one call of a tool that can be recognised afterwards.
type changeCase struct {
	name string
	tool Tool
	args m
}

func changeCases() []changeCase {
	return []changeCase{
		{"write new", WriteFile(), m{"path": "new/file", "content": "n"}},
		{"write over", WriteFile(), m{"path": "f", "content": "n"}},
		{"edit", EditFile(), m{"path": "f", "edits": []m{{"old_string": "old", "new_string": "new"}}}},
		{"delete file", DeleteFile(), m{"path": "f"}},
		{"delete tree", DeleteFile(), m{"path": "d", "recursive": true}},
		{"move file", MoveFile(), m{"source": "f", "destination": "x/y"}},
		{"move tree", MoveFile(), m{"source": "d", "destination": "e"}},
		{"move over", MoveFile(), m{"source": "f", "destination": "g", "overwrite": true}},
		{"create directory", CreateDirectory(), m{"path": "c/d"}},
	}
}

// prepared is a folder with a call that is about to be made.
func prepared(t *testing.T, c changeCase) (*bench, []*messages.FileHash) {
	t.Helper()
	b := newBench(t)
	b.put("f", "old text\n")
	b.put("g", "g")
	b.put("d/a", "1")
	b.put("d/b/c", "2")
	b.ok(ReadFile(), m{"path": "f"})
	pre, err := c.tool.(Preparer).Prepare(b.tc, encoded(t, c.args))
	noError(t, err)
	return b, pre
}

func TestAfterACrashACallIsRecognisedAsDoneOrNot(t *testing.T) {
	for _, c := range changeCases() {
		t.Run(c.name, func(t *testing.T) {
			b, pre := prepared(t, c)
			again := c.tool.(Reconciler)
			if r, err := again.Reconcile(b.tc, encoded(t, c.args), pre); !errors.Is(err, ErrNotDone) {
				t.Errorf("before the call: got %+v, %v, want ErrNotDone", r, err)
			}
			done := b.ok(c.tool, c.args)
			r, err := again.Reconcile(b.tc, encoded(t, c.args), pre)
			if err != nil || r.Content != done.Content {
				t.Errorf("after the call: got %+v, %v, want %q", r, err, done.Content)
			}
			if r != nil && len(r.Files) > 0 && r.Files[0].Sha256 != done.Files[0].Sha256 {
				t.Error("the recognised result names another hash")
			}
		})
	}
}

func TestAfterACrashAStrangersChangeCannotBeTold(t *testing.T) {
	for _, c := range changeCases() {
		t.Run(c.name, func(t *testing.T) {
			b, pre := prepared(t, c)
			for _, name := range []string{"f", "new/file", "d/a", "x/y", "e/z", "c/d"} {
				b.put(name, "by a stranger, longer")
			}
			if r, err := c.tool.(Reconciler).Reconcile(b.tc, encoded(t, c.args), pre); !isCode(err, CodeInterrupted) {
				t.Errorf("got %+v, %v, want %s", r, err, CodeInterrupted)
			}
			if _, err := c.tool.(Reconciler).Reconcile(b.tc, encoded(t, c.args), nil); !isCode(err, CodeInterrupted) {
				t.Errorf("without a state before: got %v", err)
			}
		})
	}
}

func TestPrepareFailsAsTheCallWould(t *testing.T) {
	b := newBench(t)
	b.put("unread", "x")
	for _, c := range []struct {
		tool Tool
		args m
		code string
	}{
		{WriteFile(), m{"path": "unread", "content": "y"}, CodeNotRead},
		{WriteFile(), m{"path": "../x", "content": "y"}, CodeInvalidPath},
		{EditFile(), m{"path": "unread", "edits": []m{{"old_string": "x", "new_string": "y"}}}, CodeNotRead},
		{EditFile(), m{"path": "none", "edits": []m{{"old_string": "x", "new_string": "y"}}}, CodeFileNotFound},
		{DeleteFile(), m{"path": "none"}, CodeFileNotFound},
		{MoveFile(), m{"source": "none", "destination": "y"}, CodeFileNotFound},
		{CreateDirectory(), m{"path": "../y"}, CodeInvalidPath},
	} {
		_, err := c.tool.(Preparer).Prepare(b.tc, encoded(t, c.args))
		wantRefusal(t, "prepare "+c.tool.Spec().Name, err, c.code)
		b.fails(c.tool, c.args, c.code)
	}
	pre, err := EditFile().(Preparer).Prepare(&Context{Workspace: b.tc.Workspace, Fresh: true}, encoded(t, m{"path": "unread", "edits": []m{{"old_string": "x", "new_string": "y"}}}))
	noError(t, err)
	if pre[0].Sha256 != workspace.Sum([]byte("x")) || pre[0].PlannedSha256 != workspace.Sum([]byte("y")) || b.get("unread") != "x" {
		t.Errorf("prepared %v", pre)
	}
}

func TestAfterACrashHalfAFileIsRemoved(t *testing.T) {
	for _, c := range changeCases()[:3] {
		t.Run(c.name, func(t *testing.T) {
			b, pre := prepared(t, c)
			b.tc.ExecID = "exe_1"
			left := path.Join(path.Dir(pre[0].GetPath()), workspace.TempPrefix+workspace.Sum([]byte("exe_1"))[:16])
			for _, over := range []bool{false, true} {
				b.put(left, "hal")
				if over {
					b.ok(c.tool, c.args)
				}
				_, err := c.tool.(Reconciler).Reconcile(b.tc, encoded(t, c.args), pre)
				if over != (err == nil) || b.exists(left) {
					t.Errorf("over: %v; %v; the rest is there: %v", over, err, b.exists(left))
				}
			}
		})
	}
}
