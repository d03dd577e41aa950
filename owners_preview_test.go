package troupe_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools/owner"
)

// older is an owner of before previews.
type older struct{ x *owner.Owner }

func (o older) Deliver(ctx context.Context, m *messages.Execute, p func(*messages.Progress)) (*messages.ToolReply, error) {
	return o.x.Deliver(ctx, m, p)
}
func (o older) Cancel(id string)           { o.x.Cancel(id) }
func (o older) Settle(id string, n uint32) { o.x.Settle(id, n) }

func TestAnApprovalOfACallElsewhereShowsWhatItsOwnerSaysThatItChanges(t *testing.T) {
	ctx, dir := t.Context(), folder(t, map[string]string{"a.txt": "before\n", "unread.txt": "x"})
	shown := make(chan *troupe.Approval, 8)
	var meanwhile func()
	rt, err := troupe.New(ctx, troupe.Options{Model: echo(), Approve: func(_ context.Context, v *troupe.Approval) troupe.Answer {
		shown <- v
		meanwhile()
		return troupe.Answer{Decision: troupe.Approved}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(ctx)) })
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"read_file"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(ctx, troupe.WorkspaceSpec{URI: "macbook-pro:~/dev/monad", Trust: troupe.Restricted}); err != nil {
		t.Fatal(err)
	}
	x := laptop(t, t.TempDir(), dir, nil)
	write := func(text string) (*troupe.Approval, *messages.ToolReply) {
		t.Helper()
		if _, err := s.Call(ctx, "read_file", map[string]any{"path": "a.txt", "workspace_id": "macbook-pro"}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Call(ctx, "write_file", map[string]any{"path": "a.txt", "content": text, "workspace_id": "macbook-pro"})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case v := <-shown:
			return v, r
		default:
			return nil, r
		}
	}
	meanwhile = func() {}
	_, leave := connect(t, rt, s, "macbook-pro:~/dev/monad", older{x})
	if v, r := write("of an older owner\n"); v.GetKind() != "arguments" || !strings.Contains(v.GetPreview(), "of an older owner") || r.GetErrorCode() != "" {
		t.Errorf("an older owner: %v %v", v, r)
	}
	leave(false)
	connect(t, rt, s, "macbook-pro:~/dev/monad", x)
	v, r := write("after\n")
	if v.GetKind() != "diff" || !strings.Contains(v.GetPreview(), "-of an older owner") || !strings.Contains(v.GetPreview(), "+after") || r.GetErrorCode() != "" {
		t.Errorf("shown is %s:\n%s\n%v", v.GetKind(), v.GetPreview(), r)
	}
	if got := content(t, dir, "a.txt"); got != "after\n" {
		t.Errorf("approved, the file holds %q", got)
	}
	meanwhile = func() {
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("somebody else's\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if _, r := write("too late\n"); r.GetErrorCode() != "concurrent_modification" || content(t, dir, "a.txt") != "somebody else's\n" {
		t.Errorf("what was shown has changed: %v", r)
	}
	meanwhile = func() {}
	v, r = func() (*troupe.Approval, *messages.ToolReply) {
		r, err := s.Call(ctx, "write_file", map[string]any{"path": "unread.txt", "content": "y", "workspace_id": "macbook-pro"})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case v := <-shown:
			return v, r
		default:
			return nil, r
		}
	}()
	if v != nil || r.GetErrorCode() != "not_read" {
		t.Errorf("what would fail is asked nevertheless: %v %v", v, r)
	}
}
