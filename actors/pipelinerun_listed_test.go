package actors_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// entry reads the entry of a listing.
func entry[T proto.Message](t *testing.T, h *actortest.House, key string, into T) T {
	t.Helper()
	found := false
	err := h.Store.Index(context.Background(), key, func(_ string, value []byte) error {
		found = true
		return proto.Unmarshal(value, into)
	})
	if err != nil || !found {
		t.Fatalf("entry %s: found %t, %v", key, found, err)
	}
	return into
}

// fits says what is wrong with a text that is listed in part.
func fits(t *testing.T, what, listed, whole string, room int) {
	t.Helper()
	if len(whole) <= room {
		t.Errorf("%s: %d bytes need no cut", what, len(whole))
	}
	if len(listed) == 0 || len(listed) > room+100 { // with the words that say so
		t.Errorf("%s: %d bytes are listed, and there is room for %d", what, len(listed), room)
	}
}

func TestALargeRunIsListedInPartAndShownWhole(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	large := strings.Repeat("word ", 40_000)
	m, err := (&messages.StartRunJSON{Pipeline: `version: 1
name: large
inputs: {text: {required: true}}
steps: [{id: a, human: {message: "Is it good? ${{ inputs.text }}"}}]
outputs: {text: "${{ inputs.text }}"}
`, Inputs: json.RawMessage(`{"text": "` + large + `"}`)}).Proto()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := h.Create(m)
	run, id := messages.RunOf(s), ""
	actortest.Until(t, "it asks", func() bool {
		if items := stepOf(h, s, run, "a").GetItemViews(); len(items) == 1 {
			id = items[0].GetApprovalId()
		}
		return id != ""
	})
	q := entry(t, h, actors.ApprovalKey(s, id), &messages.ApprovalView{})
	fits(t, "the question", q.GetPreview(), "Is it good? "+large, 8<<10)
	if !strings.HasPrefix(q.GetPreview(), "Is it good? word ") {
		t.Errorf("the question begins with %.40q", q.GetPreview())
	}
	actortest.Ask[*messages.Ack](h, s, &messages.ResolveApproval{WorkerId: run, ApprovalId: id, Decision: messages.Decision_APPROVED})
	whole := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run})
	if whole.GetState() != pipeline.Succeeded || !strings.Contains(whole.GetInputsJson(), large) || !strings.Contains(whole.GetOutputsJson(), large) {
		t.Errorf("it is shown as %.200s", whole)
	}
	v := entry(t, h, actors.RunKey(run), &messages.RunView{})
	fits(t, "the inputs", v.GetInputsJson(), whole.GetInputsJson(), 32<<10)
	fits(t, "the outputs", v.GetOutputsJson(), whole.GetOutputsJson(), 32<<10)
	if !json.Valid([]byte(v.GetInputsJson())) || !json.Valid([]byte(v.GetOutputsJson())) {
		t.Error("what is listed is no JSON any more")
	}
}

func TestTheErrorOfARunIsListedInPart(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("ok")})
	s, _, run := startRun(t, h, "steps: [{id: a, human: {message: Well?}}]\n")
	why := strings.Repeat("because ", 10_000)
	actortest.Ask[*messages.RunView](h, s, &messages.CancelRun{RunId: run, Reason: why})
	if v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run}); v.GetError() != why {
		t.Errorf("it is shown with %d bytes", len(v.GetError()))
	}
	fits(t, "the error", entry(t, h, actors.RunKey(run), &messages.RunView{}).GetError(), why, 32<<10)
}

func TestWhatItemsHaveSpentIsKnownInTheNextProcess(t *testing.T) {
	store, dir := stored(t), t.TempDir()
	o := actortest.Options{Store: store, DataDir: dir, Model: costing(actortest.Say("ok"), 900, 100)}
	h := actortest.New(t, o)
	s, _, run := startRun(t, h, `budget: {tokens: 100000}
steps:
  - {id: a, foreach: "1..3", agent: default, prompt: "x ${{ item }}"}
  - {id: b, needs: [a], human: {message: Well?}}
`)
	for rev := uint64(0); ; {
		v := actortest.Ask[*messages.RunView](h, s, &messages.AwaitRun{RunId: run, Changes: true, After: rev})
		if rev = v.GetRevision(); v.GetState() == pipeline.Waiting {
			break
		}
	}
	h.Stop()
	h = actortest.New(t, o)
	actortest.Ask[*messages.RunView](h, s, &messages.ShowRun{RunId: run})
	if v := budgetOf(h, s); v.GetSpent().GetTokens() != 3000 || v.GetReserved().GetTokens() != 0 || v.GetMost().GetTokens() != 100_000 {
		t.Errorf("the budget is %v", v)
	}
}
