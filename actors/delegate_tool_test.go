package actors_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

func TestDelegateKeepsTheContractOfTools(t *testing.T) {
	toolstest.Run(t, actors.NewDelegate(nil))
	toolstest.Run(t, actors.NewDelegate([]string{"reviewer", "default", `odd "name"`}))
}

func TestDelegateNamesTheAgentsThatThereAre(t *testing.T) {
	schema := string(actors.NewDelegate([]string{"tester", "default", "reviewer"}).Spec().Schema)
	if !strings.Contains(schema, "reviewer, tester; left out") {
		t.Errorf("%s", schema)
	}
	_, err := actors.NewDelegate(nil).Run(&tools.Context{}, json.RawMessage(`{"task":"x"}`))
	if err == nil || !strings.Contains(err.Error(), "in the turn of an agent alone") {
		t.Errorf("a lone caller is told %v", err)
	}
}

// TestADelegatingCallMayBeAPrograms: then its child is one of the worker whose turn that is.
func TestADelegatingCallMayBeAPrograms(t *testing.T) {
	h := actortest.New(t, actortest.Options{Model: actortest.Say("well done")})
	s, w := h.Create(&messages.CreateSession{})
	r := actortest.Ask[*messages.ToolReply](h, s, &messages.CallTool{CallId: "c", Tool: "delegate", Arguments: `{"task":"x"}`})
	if r.GetStatus() != messages.ToolFinished_OK || r.GetContent() != "well done" {
		t.Errorf("%v", r)
	}
	if all := workers(h, s); len(all) != 2 || all[1].GetParent() != w {
		t.Errorf("%v", all)
	}
}
