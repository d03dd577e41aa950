package chaos

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestEveryCutOfATurnThatSetsFieldsRecovers cuts a turn that sets two fields after each append: of the worker's journal, the session's and
// the workspace's. Each edit is made once and told as it was made, what it sets off runs at most once, and the last prompt shows what stands there.
func TestEveryCutOfATurnThatSetsFieldsRecovers(t *testing.T) {
	whole := newFieldwork(t)
	appends := whole.live(t, &cutStore{Store: memory.New(), limit: 1 << 30})
	whole.check(t, "uncut")
	if whole.ran["done"] != 1 {
		t.Fatalf("%v ran: this is not what the test is about", whole.ran)
	}
	everyCut(t, appends, 10, func(t *testing.T, n int, heard bool) {
		w, first := newFieldwork(t), memory.New()
		w.live(t, &cutStore{Store: first, limit: n, heard: heard})
		after, err := first.Cut(first.Appends()) // fewer, when the turn ends before what the edits set off
		if err != nil {
			t.Fatal(err)
		}
		w.live(t, &cutStore{Store: after, limit: 1 << 30})
		w.check(t, "recovered")
	})
}

// fieldwork is a world whose agent sets fields.
type fieldwork struct {
	*world
	mu     sync.Mutex
	ran    map[string]int // by the value that set it off
	prompt string         // of the newest model call
}

func newFieldwork(t *testing.T) *fieldwork {
	return &fieldwork{world: newWorld(t), ran: make(map[string]int)}
}

func (w *fieldwork) live(t *testing.T, store *cutStore) int {
	t.Helper()
	store.cut = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rt, err := troupe.New(ctx, troupe.Options{
		Model: w, Store: store, DataDir: w.data,
		Agents: []troupe.Agent{{Name: "default", Model: "m", Fields: `{"properties":{
"status":{"enum":["idle","busy","done"],"default":"idle","x-editable":true,"x-effect":"tell"},
"percent":{"x-derive":{"cases":[{"field":"status","equals":"done","value":100}],"else":0}}}}`}},
		FieldEffects: map[string]troupe.FieldEffect{"tell": {Effect: messages.Effect_AT_MOST_ONCE, Run: func(_ context.Context, c troupe.FieldChange) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ran[strings.Trim(c.New, `"`)]++
			return nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.world.prompt(asking, rt) }()
	select {
	case err := <-done:
		if err != nil && store.limit > 1<<20 {
			t.Errorf("prompt: %v", err)
		}
		if store.limit > 1<<20 {
			w.settle(ctx, t, store)
		}
	case <-store.cut:
	}
	stop()
	if err := rt.Close(ctx); err != nil {
		t.Fatalf("close: %v", err)
	}
	w.store = store
	return store.count
}

// settle waits until what the edits set off has ended.
func (w *fieldwork) settle(ctx context.Context, t *testing.T, store persistence.Store) {
	t.Helper()
	for ctx.Err() == nil {
		set, ended := 0, 0
		w.facts(t, store, func(f any) {
			switch f.(type) {
			case *messages.FieldSet:
				set++
			case *messages.FieldEffectEnded:
				ended++
			}
		})
		if set == ended {
			return
		}
	}
	t.Error("what the edits set off does not end")
}

func (w *fieldwork) facts(t *testing.T, store persistence.Store, see func(any)) {
	t.Helper()
	err := store.Streams(context.Background(), "wsp/", func(stream string) error {
		return store.Read(context.Background(), stream, 1, func(e persistence.Entry) error {
			f, err := messages.WorkspaceFactIn(e.Record)
			see(f)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Stream is the model: it sets the field twice.
func (w *fieldwork) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	step := 0
	for _, m := range req.Prompt.Messages {
		if m.Role == messages.Assistant {
			step++
		}
	}
	w.mu.Lock()
	w.prompt = req.Prompt.System
	w.mu.Unlock()
	return func(yield func(model.Event, error) bool) {
		values := []string{"busy", "done"}
		if step >= len(values) {
			_ = yield(model.Event{Kind: model.Text, Text: "all done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		_ = yield(model.Event{Kind: model.CallStart, CallID: "call_0", Name: "update_workspace"}, nil) &&
			yield(model.Event{Kind: model.CallArgs, Text: `{"field_name":"status","value":"` + values[step] + `"}`}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}

func (w *fieldwork) check(t *testing.T, when string) {
	t.Helper()
	if w.result.GetOutcome() != messages.TurnCompleted_DONE || w.result.GetText() != "all done" {
		t.Fatalf("%s: the turn ended as %v", when, w.result)
	}
	want := []string{
		"Successfully updated field 'status':\n- Previous value: \"idle\"\n- New value: \"busy\"",
		"Successfully updated field 'status':\n- Previous value: \"busy\"\n- New value: \"done\"",
	}
	for i, c := range w.result.GetToolCalls() {
		if i >= len(want) || c.GetContent() != want[i] {
			t.Errorf("%s: call %d was told %s %q", when, i, c.GetErrorCode(), c.GetContent())
		}
	}
	rev, made := uint64(0), map[string]int{}
	w.facts(t, w.store, func(f any) {
		switch f := f.(type) {
		case *messages.FieldsDeclared:
			rev++
			if f.GetRev() != rev {
				t.Errorf("%s: revision %d at %d", when, f.GetRev(), rev)
			}
		case *messages.FieldSet:
			rev++
			made[f.GetNew()]++
			if f.GetRev() != rev {
				t.Errorf("%s: revision %d at %d", when, f.GetRev(), rev)
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev != 3 || made[`"busy"`] != 1 || made[`"done"`] != 1 || w.ran["busy"] > 1 || w.ran["done"] > 1 {
		t.Errorf("%s: %d revisions, %v made, %v ran", when, rev, made, w.ran)
	}
	if !strings.Contains(w.prompt, `- status [EDITABLE]: "done"`) || !strings.Contains(w.prompt, "- percent: 100") {
		t.Errorf("%s: the last prompt was\n%s", when, w.prompt)
	}
}
