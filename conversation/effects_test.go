package conversation_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
)

// effects checks R3, R4 and R7 over the facts of a journal, one by one. A person's word to run a call
// again makes it one that has not been dispatched.
type effects struct {
	plans           map[string]*messages.ToolPlanned
	runs            map[string]int
	approved, asked map[string]bool
}

func newEffects() *effects {
	return &effects{map[string]*messages.ToolPlanned{}, map[string]int{}, map[string]bool{}, map[string]bool{}}
}

func (e *effects) see(f proto.Message) error {
	switch f := f.(type) {
	case *messages.ToolPlanned:
		e.plans[f.GetExecId()] = f
	case *messages.ApprovalResolved:
		e.approved[f.GetExecId()] = f.GetDecision() == messages.Decision_APPROVED
	case *messages.CallDoubted:
		e.asked[f.GetExecId()] = true
	case *messages.CallResolved:
		delete(e.asked, f.GetExecId())
		if f.GetResolution() == messages.CallResolved_RETRY {
			e.runs[f.GetExecId()] = 0
		}
	case *messages.ToolDispatched:
		return e.dispatched(f.GetExecId())
	case *messages.ToolFinished:
		if f.GetStatus() == messages.ToolFinished_OK && e.plans[f.GetExecId()].GetEffect() != messages.Effect_PURE && e.runs[f.GetExecId()] == 0 {
			return fmt.Errorf("call %s has an effect and was never dispatched", f.GetExecId())
		}
	}
	return nil
}

func (e *effects) dispatched(exec string) error {
	p := e.plans[exec]
	e.runs[exec]++
	once := p.GetEffect() == messages.Effect_AT_MOST_ONCE || p.GetEffect() == messages.Effect_UNSPECIFIED
	switch {
	case e.asked[exec]:
		return fmt.Errorf("call %s was dispatched while a person was asked about it", exec)
	case p.GetNeedsApproval() && !e.approved[exec]:
		return fmt.Errorf("call %s was dispatched and not approved", exec)
	case once && p.GetUnknown() != messages.UnknownOutcome_RETRY && e.runs[exec] > 1:
		return fmt.Errorf("call %s, at most once, was dispatched twice", exec)
	}
	return nil
}

// toBeRunAgain is a call that a person said to run again, and that nobody has started since.
func toBeRunAgain() []proto.Message {
	return []proto.Message{
		&messages.WorkerCreated{WorkerId: "wrk_1"},
		&messages.InputAccepted{InputId: "i1", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "go"}}}},
		&messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}},
		&messages.GenerationStarted{GenId: "g1"},
		&messages.GenerationCompleted{GenId: "g1", FinishReason: "tool_calls", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "exec", Arguments: "{}"}}},
		&messages.ToolPlanned{ExecId: "e1", CallId: "c", Tool: "exec", Workspace: "home"},
		&messages.ToolDispatched{ExecId: "e1", Attempt: 1},
		&messages.CallDoubted{ExecId: "e1"},
		&messages.CallResolved{ExecId: "e1", Resolution: messages.CallResolved_RETRY},
	}
}

// The driver once ended such a call with OK, which no worker does: what it closes without running, it does not know.
func TestACallThatIsToBeRunAgainIsNotOKBeforeItRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &driver{journal: newJournal(), t: t, hashes: map[[32]byte]string{}, texts: map[string][32]byte{}}
		for _, f := range toBeRunAgain() {
			d.put(f)
		}
		d.finishAll(d.s.Turn().OpenCalls())
		if st := d.s.Turn().AllCalls[0].Finished.GetStatus(); st != messages.ToolFinished_INTERRUPTED_UNKNOWN {
			t.Fatalf("it is closed as %v", st)
		}
		d.checkEffects()
	})
}

func TestEffectsThatBreakARuleAreSeen(t *testing.T) {
	again := toBeRunAgain()
	ok := &messages.ToolFinished{ExecId: "e1", Status: messages.ToolFinished_OK}
	run := &messages.ToolDispatched{ExecId: "e1", Attempt: 2}
	for name, c := range map[string]struct {
		facts []proto.Message
		fine  bool
	}{
		"ran":                       {append(again[:7:7], ok), true},
		"never ran":                 {append(again[:6:6], ok), false},
		"to run again, and did not": {append(again[:9:9], ok), false},
		"to run again, and did":     {append(again[:9:9], run, ok), true},
		"twice":                     {append(again[:7:7], run), false},
		"while a person is asked":   {append(again[:8:8], run), false},
	} {
		e := newEffects()
		var err error
		for _, f := range c.facts {
			if err == nil {
				err = e.see(f)
			}
		}
		if (err == nil) != c.fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}
