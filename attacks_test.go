package troupe_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/attacks"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// attacker is a model that makes the call that it is told to, word for word, and repeats what came of it.
func attacker() say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		if last.Role != messages.User {
			return last.Text, nil
		}
		var c struct{ ID, Name, Args string }
		if err := json.Unmarshal([]byte(last.Text), &c); err != nil {
			panic(err)
		}
		return "", []*messages.ToolCall{{Id: c.ID, Name: c.Name, Arguments: c.Args}}
	}
}

// strikes has the agent make a call in a turn, and returns the end of the call and what the model was told.
func strikes(ctx context.Context, t *testing.T, s *troupe.Session, id, tool, args string) (end *troupe.Event, told string) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"ID": id, "Name": tool, "Args": args})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range s.Stream(ctx, string(text)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case ev.GetType() == messages.EventToolFinished && end != nil:
			t.Errorf("the call ended twice: %v, %v", end, ev)
		case ev.GetType() == messages.EventToolFinished:
			end = ev
		case ev.GetType() == messages.EventTurnCompleted:
			told = ev.GetText()
		}
	}
	if end == nil {
		t.Fatal("the call has no end")
	}
	return end, told
}

// TestEveryAttackEndsAsAgreedInATurnOfAnAgent: those on files, rules and the way of a call, made by a model.
func TestEveryAttackEndsAsAgreedInATurnOfAnAgent(t *testing.T) {
	asked := make(chan *troupe.Approval, 1)
	var answer func(*troupe.Approval) troupe.Answer
	data := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: attacker(), DataDir: data, Store: memoryOf(t), Approve: func(_ context.Context, a *troupe.Approval) troupe.Answer {
		asked <- a
		return answer(a)
	}})
	other, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Workspaces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"read_file", "write_file", "edit_file", "list_files", "delete_file", "grep", "glob"}
	ran := 0
	for _, a := range attacks.Load(t, "tools/testdata/attacks.json") {
		switch {
		case a.Platform != "" && a.Platform != runtime.GOOS || a.Wire != nil: // package workspace; TestAClientThatAnnouncesNothingGetsTheOldForm
			continue
		case !slices.Contains(files, a.Tool) && a.Category != "rule":
			continue
		}
		ran++
		t.Run(a.ID+" "+a.Name, func(t *testing.T) {
			r := attacks.New(t, attacks.Attack{Setup: slices.DeleteFunc(slices.Clone(a.Setup), func(s attacks.Setup) bool { return s.Op == "modify_after_approval_request" })})
			o := troupe.SessionOptions{Dir: r.Root, Trust: troupe.Full}
			if asks := a.Expect == "ask" || a.Code == tools.CodeConcurrentModification; asks || a.Trust == "Restricted" {
				o.Trust = troupe.Restricted
				for _, rule := range a.Rules {
					what, pattern, _ := strings.Cut(strings.TrimPrefix(rule, "allow "), " ")
					o.Rules = append(o.Rules, what+"("+pattern+")")
				}
				switch {
				case !asks:
					o.Rules = []string{a.Tool}
				case a.Category != "rule":
					o.Rules = []string{"read_file"}
				}
			}
			answer = func(*troupe.Approval) troupe.Answer {
				if a.Code == tools.CodeConcurrentModification { // what was shown is not there any more
					if err := os.WriteFile(r.Host("a"), []byte("2"), 0o600); err != nil {
						t.Error(err)
					}
					return troupe.Answer{Decision: troupe.Approved}
				}
				return troupe.Answer{Decision: troupe.Rejected}
			}
			s, err := rt.Session(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			before := r.Outside(t)
			strike(ctx, t, s, a, r, theirs[0].GetId())
			if !maps.Equal(before, r.Outside(t)) {
				t.Errorf("something outside the root changed: %v", r.Outside(t))
			}
			if must := a.Expect == "ask" || a.Code == tools.CodeConcurrentModification; must != (len(asked) > 0) {
				t.Errorf("somebody was asked: %v", !must)
			}
			for len(asked) > 0 {
				<-asked
			}
			if _, err := rt.Ask(ctx, forget(s.ID())); err != nil {
				t.Error(err)
			}
		})
	}
	if ran < 50 {
		t.Errorf("only %d attacks were made in a turn", ran)
	}
	err = filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "pwn") {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// strike makes an attack's call, behind a look at the file that it is about: who has not read it is refused for that.
func strike(ctx context.Context, t *testing.T, s *troupe.Session, a attacks.Attack, r *attacks.Arena, theirs string) {
	t.Helper()
	args := strings.ReplaceAll(r.Arguments(a), "<id of session B>", theirs)
	var on struct{ Path string }
	if json.Unmarshal([]byte(args), &on) == nil && on.Path != "" && a.Tool != "read_file" {
		look, err := json.Marshal(map[string]string{"path": on.Path})
		if err != nil {
			t.Fatal(err)
		}
		if a.Expect != "ask" && a.Trust != "Restricted" {
			strikes(ctx, t, s, "look", "read_file", string(look))
		}
	}
	for range min(r.Repeat, 5) {
		end, told := strikes(ctx, t, s, cmp.Or(a.CallID, "call"), a.Tool, args)
		if (a.Category == "path" || strings.Contains(a.Invariant, "must not appear")) && strings.Contains(told+end.String(), "TOPSECRET") {
			t.Errorf("the secret came out: %q", told)
		}
		switch code := end.GetErrorCode(); {
		case r.Repeat > 1 || a.Expect == "contained":
			if code == "internal_error" {
				t.Errorf("a defect instead of a refusal: %v", end)
			}
		case a.Expect == "ask":
			if code != "user_rejected" {
				t.Errorf("came to %q, and its person said no", code)
			}
		case code != a.Code:
			t.Errorf("came to %q, want %q: %s", code, a.Code, told)
		}
	}
}

// TestEveryAttackOnTheWireIsMadeThere: what a turn cannot make is made by clients, in tests of their own.
func TestEveryAttackOnTheWireIsMadeThere(t *testing.T) {
	made := map[string][2]string{
		"protocol-003": {"test/e2e/ws_test.go", "TestAResultIsTakenOnceAndFromTheConnectionThatHasTheCall"},
		"protocol-005": {"test/e2e/ws_test.go", "TestAResultIsTakenOnceAndFromTheConnectionThatHasTheCall"},
		"protocol-007": {"test/e2e/ws_test.go", "TestFramesThatAreNoneAreRefusedAndTheConnectionGoesOn"},
		"protocol-009": {"test/e2e/ws_test.go", "TestAClientThatAnnouncesNothingGetsTheOldForm"},
		"protocol-011": {"test/e2e/ws_test.go", "TestApprovalsArePushedToEverybodyAndTheFirstAnswerCounts"},
		"protocol-013": {"test/e2e/ws_hostile_test.go", "TestAnApprovalOfACancelledTurnIsTooLate"},
		"protocol-015": {"test/e2e/ws_test.go", "TestApprovalsArePushedToEverybodyAndTheFirstAnswerCounts"},
		"protocol-019": {"test/e2e/ws_hostile_test.go", "TestAHostNameBelongsToTheTokenThatCameWithItFirst"},
	}
	for _, a := range attacks.Load(t, "tools/testdata/attacks.json") {
		wire := slices.Contains([]string{"tool_result", "approve", "register_client"}, a.Tool) || a.Wire != nil
		where, ok := made[a.ID]
		if ok != wire {
			t.Errorf("%s: its test is %v", a.ID, where)
		}
		if !ok {
			continue
		}
		src, err := os.ReadFile(where[0])
		if err != nil {
			t.Fatal(err)
		}
		_, rest, found := strings.Cut(string(src), "func "+where[1]+"(")
		body, _, _ := strings.Cut(rest, "\n}\n")
		if !found || a.Code != "" && !strings.Contains(body, `"`+a.Code+`"`) {
			t.Errorf("%s: %s does not look for %s", a.ID, where[1], a.Code)
		}
	}
}

// TestEveryAttackByAnUploadIsRefused: nothing here unpacks an archive; what people put into a session's files by a name of an archive's entry is.
func TestEveryAttackByAnUploadIsRefused(t *testing.T) {
	data := t.TempDir()
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), DataDir: data, Store: memoryOf(t)})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string) (*messages.Files, error) {
		m, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Action: messages.UseFile_PUT, Path: path, Data: []byte("evil")}}})
		if err != nil {
			return nil, err
		}
		return m.(*messages.Files), nil
	}
	if _, err := put("kept"); err != nil {
		t.Fatal(err)
	}
	home, out, ran := filepath.Join(data, "homes", s.ID()), t.TempDir(), 0
	for _, a := range attacks.Load(t, "tools/testdata/attacks.json") {
		if a.Category != "archive" {
			continue
		}
		ran++
		var args struct{ Entry string }
		if err := json.Unmarshal(a.Arguments, &args); err != nil {
			t.Fatal(err)
		}
		entry := args.Entry
		if link := regexp.MustCompile(`^(\w+) -> \$OUT ; (.*)$`).FindStringSubmatch(entry); link != nil {
			if err := os.Symlink(out, filepath.Join(home, link[1])); err != nil {
				t.Fatal(err)
			}
			entry = link[2]
		}
		if strings.HasPrefix(entry, "mode ") { // an upload names no mode, and what is put gets none but its own
			info, err := os.Stat(filepath.Join(home, "kept"))
			if err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|0o111) != 0 {
				t.Errorf("%s: %v %v", a.ID, info.Mode(), err)
			}
			continue
		}
		if _, err := put(entry); failureCode(err) != a.Code {
			t.Errorf("%s: %v, want %s", a.ID, err, a.Code)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 || ran < 4 {
		t.Errorf("%d cases; outside: %v %v", ran, left, err)
	}
}
