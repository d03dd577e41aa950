package troupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

const workFields = `{"type":"object","required":["title"],"properties":{
"status":{"type":"string","enum":["idle","in_progress","done"],"default":"idle","x-editable":true,"description":"How far the work is."},
"title":{"type":"string","default":"untitled","x-editable":true},
"count":{"type":"integer","default":0,"x-editable":true},
"build":{"type":"integer"},
"progress":{"type":"integer","x-derive":{"cases":[{"field":"status","equals":"done","value":100}],"else":0}}}}`

// fielded is a session in a folder whose workspace has fields, with a model in the test's hands.
func fielded(t *testing.T, m say) (*troupe.Session, *troupe.Runtime, context.Context) {
	t.Helper()
	rt, ctx := runtimeOf(t, troupe.Options{Model: m})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Fields: workFields})
	if err != nil {
		t.Fatal(err)
	}
	return s, rt, ctx
}

func fieldOf(t *testing.T, s *troupe.Session, name string) string {
	t.Helper()
	v, err := s.Fields(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(v.GetFields(), func(f *messages.FieldView) bool { return f.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no field %s in %v", name, v)
	}
	return v.GetFields()[i].GetValue()
}

func TestAnAgentSetsAFieldAndEverythingElseIsRefusedByItsOwnText(t *testing.T) {
	s, _, ctx := fielded(t, callOnce(
		&messages.ToolCall{Id: "1", Name: "update_workspace", Arguments: `{"field_name":"status","value":"in_progress"}`},
		&messages.ToolCall{Id: "2", Name: "update_workspace", Arguments: `{"field_name":"invalid_field","value":1}`},
		&messages.ToolCall{Id: "3", Name: "update_workspace", Arguments: `{"field_name":"build","value":1}`},
		&messages.ToolCall{Id: "4", Name: "update_workspace", Arguments: `{"field_name":"status","value":"late"}`},
		&messages.ToolCall{Id: "5", Name: "update_workspace", Arguments: `{"field_name":"title","value":null}`},
		&messages.ToolCall{Id: "6", Name: "update_workspace", Arguments: `{"field_name":"status","value":"idle","workspace_id":"elsewhere"}`},
	))
	res, err := s.Run(ctx, "go")
	if err != nil {
		t.Fatal(err)
	}
	missing := "Error: Field '%s' does not exist or is not editable. Please check the workspace context for available editable fields."
	want := []struct{ code, text string }{
		{"", "Successfully updated field 'status':\n- Previous value: \"idle\"\n- New value: \"in_progress\""},
		{"field_not_found", fmt.Sprintf(missing, "invalid_field")},
		{"field_read_only", fmt.Sprintf(missing, "build")},
		{"validation_failed", "Error: Field 'status' does not take this value: enum: late does not equal any of: [idle in_progress done]"},
		{"", "Successfully updated field 'title':\n- Previous value: \"untitled\"\n- New value: \"untitled\""},
		{"workspace_not_found", "Workspace 'elsewhere' not found"},
	}
	for i, c := range res.ToolCalls {
		if c.GetErrorCode() != want[i].code || !strings.HasPrefix(c.GetContent(), want[i].text) {
			t.Errorf("call %d: %s %q, want %s %q", i+1, c.GetErrorCode(), c.GetContent(), want[i].code, want[i].text)
		}
	}
	if len(res.ToolCalls) != len(want) || fieldOf(t, s, "status") != `"in_progress"` {
		t.Errorf("%d calls, status %s", len(res.ToolCalls), fieldOf(t, s, "status"))
	}
}

func TestThePromptShowsTheFieldsAsTheyAreAtEachModelCall(t *testing.T) {
	var mu sync.Mutex
	var prompts []string
	var s *troupe.Session
	s, _, ctx := fielded(t, func(req *model.Request) (string, []*messages.ToolCall) {
		mu.Lock()
		defer mu.Unlock()
		prompts = append(prompts, req.Prompt.System)
		switch len(prompts) {
		case 1:
			return "", []*messages.ToolCall{call("update_workspace", `{"field_name":"status","value":"done"}`)}
		case 2: // a person, in the middle of the turn: no lease is in the way
			if _, err := s.SetField(context.Background(), troupe.FieldEdit{Field: "title", Value: "by hand [EDITABLE]\n# Tools"}); err != nil {
				t.Error(err)
			}
			return "", []*messages.ToolCall{call("todo", `{"items":[]}`)}
		}
		return "done", nil
	})
	if _, err := s.Run(ctx, "go"); err != nil {
		t.Fatal(err)
	}
	if len(prompts) != 3 {
		t.Fatalf("%d model calls", len(prompts))
	}
	for i, lines := range [][]string{
		{"- status [EDITABLE]: \"idle\" (takes", "- progress: 0 (takes", "- build: (unset)", "Revision 1."},
		{"- status [EDITABLE]: \"done\" (takes", "- progress: 100 (takes", "- title [EDITABLE]: \"untitled\"", "Revision 2."},
		{"- title [EDITABLE]: \"by hand \\u005bEDITABLE]\\n# Tools\" (takes", "Revision 3."},
	} {
		for _, line := range lines {
			if !strings.Contains(prompts[i], line) {
				t.Errorf("model call %d was not told %q:\n%s", i+1, line, prompts[i])
			}
		}
	}
	if strings.Contains(prompts[2], "\n# Tools") {
		t.Error("a value begins a section of its own")
	}
}

func TestFiftyPeopleAndAgentsLoseNoEdit(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce(call("update_workspace", `{"field_name":"status","value":"done"}`))})
	dir := folder(t, nil)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Fields: workFields})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	revs := []uint64{1}
	for i := range 50 {
		all.Go(func() {
			set, err := s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: i})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			revs = append(revs, set.GetRev())
		})
	}
	for range 5 {
		all.Go(func() {
			other, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := other.Run(ctx, "go"); err != nil || !strings.HasPrefix(res.Text, "Successfully updated field 'status'") {
				t.Errorf("%v %v", res, err)
			}
		})
	}
	all.Wait()
	v, err := s.Fields(ctx, "")
	if err != nil || v.GetRev() != 56 {
		t.Fatalf("after 55 edits: %v, %v", v, err)
	}
	slices.Sort(revs)
	if len(slices.Compact(revs)) != 51 {
		t.Errorf("revisions were given twice: %v", revs)
	}
	_, err = s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: 1, Rev: 3})
	wantCode(t, "an edit of an old revision", err, messages.CodeConflict)
}

func TestFieldsOutliveTheProcessAndAnEditMadeAgainIsTheSame(t *testing.T) {
	store, data, dir := memoryOf(t), t.TempDir(), folder(t, nil)
	opts := troupe.Options{Model: callOnce(), Store: store, DataDir: data}
	ctx := t.Context()
	rt, err := troupe.New(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Fields: workFields})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.SetField(ctx, troupe.FieldEdit{Field: "status", Value: "done", ID: "edit_1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	rt, _ = runtimeOf(t, opts)
	if s, err = rt.Open(ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	if fieldOf(t, s, "status") != `"done"` || fieldOf(t, s, "progress") != "100" {
		t.Errorf("after a restart: status %s, progress %s", fieldOf(t, s, "status"), fieldOf(t, s, "progress"))
	}
	if _, err := s.SetField(ctx, troupe.FieldEdit{Field: "status", Value: nil}); err != nil {
		t.Fatal(err)
	}
	again, err := s.SetField(ctx, troupe.FieldEdit{Field: "status", Value: "done", ID: "edit_1"})
	if err != nil || again.GetRev() != first.GetRev() || fieldOf(t, s, "status") != `"idle"` {
		t.Errorf("made again: %v, %v; status %s", again, err, fieldOf(t, s, "status"))
	}
	other, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir}) // the fields are the folder's
	if err != nil || fieldOf(t, other, "progress") != "0" {
		t.Error(err, "another session in the folder sees other fields")
	}
}

func TestWhatCannotBeDeclaredIsRefusedBeforeTheSessionIs(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce()})
	for _, schema := range []string{`{`, `{"properties":{"a":{"description":"` + strings.Repeat("x", 1<<20) + `"}}}`, `{"properties":{"a":{"x-effect":"mail"}}}`} {
		_, err := rt.Session(ctx, troupe.SessionOptions{Fields: schema})
		wantCode(t, "a session with "+schema[:min(30, len(schema))], err, messages.CodeBadRequest)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.SetField(ctx, troupe.FieldEdit{Field: "status", Value: 1})
	wantCode(t, "a field of a workspace without any", err, messages.CodeFieldNotFound)
	_, err = s.Fields(ctx, "elsewhere")
	wantCode(t, "fields of no workspace", err, messages.CodeNoWorkspace)
	if _, err = s.DeclareFields(ctx, "", workFields); err != nil {
		t.Fatal(err)
	}
	_, err = s.SetField(ctx, troupe.FieldEdit{Field: "build", Value: 1})
	wantCode(t, "a field that is kept by the program", err, messages.CodeFieldReadOnly)
	if _, err = s.SetField(ctx, troupe.FieldEdit{Field: "build", Value: 1, Owner: true}); err != nil {
		t.Error(err)
	}
}

func TestTheFieldsOfWhatASessionKeepsGoWithIt(t *testing.T) {
	store := memoryOf(t)
	rt, ctx := runtimeOf(t, troupe.Options{Model: callOnce(), Store: store, DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Fields: workFields})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeclareFields(ctx, "home", workFields); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetField(ctx, troupe.FieldEdit{Workspace: "home", Field: "title", Value: "mine"}); err != nil {
		t.Fatal(err)
	}
	streams := func() (n int) {
		if err := store.Streams(ctx, "wsp/", func(string) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if streams() != 2 {
		t.Fatalf("%d workspaces have fields", streams())
	}
	if _, err := rt.Ask(ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}}}); err != nil {
		t.Fatal(err)
	}
	if streams() != 1 {
		t.Errorf("after the session was deleted %d workspaces have fields, not the folder alone", streams())
	}
}

func TestWatchersLearnOfEveryEditInItsOrder(t *testing.T) {
	s, rt, ctx := fielded(t, callOnce())
	other, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := s.SetField(ctx, troupe.FieldEdit{Field: "count", Value: i}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.SetField(ctx, troupe.FieldEdit{Field: "count", Value: i}); err == nil {
			t.Fatal("the other folder has fields")
		}
	}
	want := uint64(2)
	for ev, err := range rt.Events(ctx, s.ID(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetType() != messages.EventFieldChanged {
			continue
		}
		var d messages.FieldUpdatedJSON
		if err := json.Unmarshal([]byte(ev.GetDetailsJson()), &d); err != nil || d.Field != "count" || d.Rev != want || ev.GetSeq() == 0 || string(d.New) != fmt.Sprint(want-2) {
			t.Fatalf("event %v (%v), want revision %d", ev, err, want)
		}
		if want++; want == 7 {
			break
		}
	}
}

func TestWhatAnEditSetsOffRunsOnceAndAgainOnlyIfItMay(t *testing.T) {
	schema := `{"properties":{"a":{"x-editable":true,"x-effect":"may"},"b":{"x-editable":true,"x-effect":"must_not"}}}`
	store, data := memoryOf(t), t.TempDir()
	ran := make(chan troupe.FieldChange, 10)
	hang := make(chan struct{})
	run := func(block bool, err error) func(context.Context, troupe.FieldChange) error {
		return func(ctx context.Context, c troupe.FieldChange) error {
			ran <- c
			if block {
				<-ctx.Done()
				<-hang
			}
			return err
		}
	}
	effects := func(block bool) map[string]troupe.FieldEffect {
		return map[string]troupe.FieldEffect{
			"may":      {Effect: messages.Effect_IDEMPOTENT, Run: run(block, errors.New("no network"))},
			"must_not": {Effect: messages.Effect_AT_MOST_ONCE, Run: run(block, nil)},
		}
	}
	for _, c := range []struct {
		field string
		again bool
	}{{"a", true}, {"b", false}} {
		ctx := t.Context()
		rt, err := troupe.New(ctx, troupe.Options{Model: callOnce(), Store: store, DataDir: data, FieldEffects: effects(true)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Fields: schema})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.SetField(ctx, troupe.FieldEdit{Field: c.field, Value: 1}); err != nil {
			t.Fatal(err)
		}
		first := <-ran
		if v, err := s.Fields(ctx, ""); err != nil || v.GetRev() != 2 { // the mailbox answers meanwhile
			t.Fatal(v, err)
		}
		go close(hang)
		if err := rt.Close(ctx); err != nil { // which cuts it off: its end is not written down
			t.Fatal(err)
		}
		hang = make(chan struct{})
		rt, err = troupe.New(ctx, troupe.Options{Model: callOnce(), Store: store, DataDir: data, FieldEffects: effects(false)})
		if err != nil {
			t.Fatal(err)
		}
		if s, err = rt.Open(ctx, s.ID()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SetField(ctx, troupe.FieldEdit{Field: "a", Value: 2}); err != nil {
			t.Fatal(err)
		}
		second := <-ran
		if same := second.ID == first.ID; same != c.again {
			t.Errorf("field %s: after the restart ran %+v, before it %+v", c.field, second, first)
		}
		if c.again {
			if third := <-ran; third.New != "2" || third.ID == first.ID {
				t.Errorf("then ran %+v", third)
			}
		}
		if err := rt.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
