package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestACallThatWaitsIsHeldToWhatItsAgentHasBecome: it was allowed when it was planned, and waits for the end of another one.
func TestACallThatWaitsIsHeldToWhatItsAgentHasBecome(t *testing.T) {
	for agent, want := range map[string]string{
		"mild":   "acted",
		"strict": "Not run: rule deny act, since the call was planned",
		"asking": "Not run: rule ask act, and nobody can be asked, since the call was planned; call it again",
		"fewer":  "Not run: tool act is not in the toolset here, since the call was planned",
	} {
		t.Run(agent, func(t *testing.T) {
			gate, acted := actortest.NewGate(), make(chan string, 1)
			h := actortest.New(t, actortest.Options{
				Tools: []tools.Tool{
					tool(t, "stay", atMostOnce, func(ctx context.Context, _ string) (string, error) { return "stayed", gate.Pass(ctx) }),
					tool(t, "act", atMostOnce, func(_ context.Context, a string) (string, error) { acted <- a; return "acted", nil }),
				},
				Agents: []actors.Agent{{}, {Name: "mild"}, {Name: "strict", Rules: []string{"deny act"}}, {Name: "asking", Rules: []string{"ask act"}}, {Name: "fewer", Tools: []string{"stay"}}},
				Model:  actortest.CallThenSay(actortest.Call("1", "stay", `{"name":"x"}`), actortest.Call("2", "act", `{"name":"y"}`)),
			})
			s, w := h.Create(&messages.CreateSession{})
			submit(h, s, "go")
			actortest.Wait(t, "the first call", gate.Came)
			actortest.Ask[*messages.WorkerView](h, s, &messages.ConfigureWorker{Agent: agent})
			gate.Open()
			actortest.Ask[*messages.Ack](h, s, &messages.WaitIdle{})
			f := map[string]*messages.ToolFinished{}
			for _, one := range finishedCalls(h, w) {
				f[one.GetTool()] = one
			}
			if len(f) != 2 || f["stay"].GetContent() != "stayed" || f["act"].GetContent() != want || (len(acted) == 1) != (want == "acted") {
				t.Errorf("%v, acted %d times", f, len(acted))
			}
		})
	}
}

// TestACallThatIsAskedAboutIsRefusedWhenItIsDenied: at once by what its agent becomes, and by what the next process is configured to whatever is answered.
func TestACallThatIsAskedAboutIsRefusedWhenItIsDenied(t *testing.T) {
	deny := []string{"deny write_file(a)"}
	for _, restart := range []bool{false, true} {
		a := asks(t, 2, actortest.Options{Agents: []actors.Agent{{}, {Name: "strict", Rules: deny}}}, writes("a", "b")...)
		first := a.pending()[0].GetApprovalId()
		if restart {
			a.o.Agents = []actors.Agent{{Name: actors.DefaultAgent, Rules: deny}}
			a.next()
			a.must(a.say(first, messages.Decision_APPROVED, ""))
		} else {
			actortest.Ask[*messages.WorkerView](a.h, a.s, &messages.ConfigureWorker{Agent: "strict"})
			a.waits(1)
			if err := a.say(first, messages.Decision_APPROVED, ""); actortest.Code(err) != messages.CodeResolved {
				t.Errorf("an answer that comes now: %v", err)
			}
		}
		a.waits(1)
		a.must(a.say(a.pending()[0].GetApprovalId(), messages.Decision_APPROVED, ""))
		if r := a.end(); !strings.Contains(r.GetText(), "Not run: rule deny write_file(a), since the call was planned") || a.file("a") != "none" || a.file("b") != "by the agent" {
			t.Errorf("restart %v: %q; a: %s, b: %s", restart, r.GetText(), a.file("a"), a.file("b"))
		}
	}
}
