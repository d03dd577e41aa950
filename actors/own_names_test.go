package actors_test

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// TestWhatAsksIsDecidedByWhatAToolIsAndNotByItsName: what is known of a built-in tool is not known of a program's own one of its name.
func TestWhatAsksIsDecidedByWhatAToolIsAndNotByItsName(t *testing.T) {
	did := func(context.Context, string) (string, error) { return "done", nil }
	for _, b := range tools.Builtin() {
		name := b.Spec().Name
		own := tool(t, name, atMostOnce, did).Spec()
		q := actors.Question(own, map[string]any{"name": "x"})
		if q.NeverAsks || q.Kind == policy.Read || !q.Unseen {
			t.Errorf("a program's own %s: %+v", name, q)
		}
		if builtin := actors.Question(b.Spec(), nil); builtin.Unseen {
			t.Errorf("the built-in %s: %+v", name, builtin)
		}
	}
	for _, name := range []string{"todo", "update_workspace", "job_output", "job_list", "job_kill"} {
		registry, err := tools.NewRegistry(tool(t, name, atMostOnce, did))
		if err != nil {
			t.Fatal(err)
		}
		h := actortest.New(t, actortest.Options{
			Agents: []actors.Agent{{Tools: []string{name}}}, // as the trust alone offers some of them only
			Model:  actortest.CallThenSay(actortest.Call("1", name, `{"name":"x"}`)),
		})
		h.Svc.Tools = registry
		s, w := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_RESTRICTED}}})
		h.Run(s, "go")
		ended := actortest.Of[*messages.ToolFinished](h.Facts(w))
		if len(ended) != 1 || ended[0].GetStatus() != messages.ToolFinished_DENIED {
			t.Errorf("%s, with nobody to ask: %v", name, ended)
		}
	}
}
