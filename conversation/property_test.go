package conversation_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// fingerprint is everything that a state says of itself.
func fingerprint(s *conversation.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %d %v\n", s.Agent(), s.Model(), s.System(), s.Seq(), s.Closed())
	fmt.Fprintf(&b, "turns %d panics %d deaths %d quarantined %q usage %v\n", s.Turns(), s.Panics(), s.Deaths(), s.Quarantined(), s.Usage().String())
	for _, t := range s.History().GetTurns() {
		fmt.Fprintf(&b, "turn %s\n", t.GetOutcome())
		for _, m := range t.GetMessages() {
			b.WriteString(messageText(m.GetRole(), m.GetContent(), m.GetToolCallId(), m.GetToolCalls()) + "\n")
		}
	}
	for _, f := range s.KnownFiles("home") {
		fmt.Fprintf(&b, "%s=%s\n", f.GetPath(), f.GetSha256())
	}
	for _, in := range s.Staged() {
		fmt.Fprintf(&b, "staged %s at %d\n", in.GetInputId(), in.Seq)
	}
	for _, d := range s.Recover() {
		fmt.Fprintf(&b, "recover %s %s\n", d.GetExecId(), d.GetAction())
	}
	b.WriteString(stepText(s.Next(conversation.Limits{Steps: 3})) + "\n")
	if r, ok := s.Ready(); ok {
		b.WriteString(promptText(r.Render("system")))
	}
	if l := s.Last(); l != nil {
		b.WriteString(l.Result("ses_1", s.ID()).String())
	}
	return b.String()
}

func promptText(p *messages.Prompt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "system %q\n", p.System)
	for _, m := range p.Messages {
		b.WriteString(messageText(string(m.Role), m.Text, m.ToolCallID, m.ToolCalls) + "\n")
	}
	return b.String()
}

// TestEveryHistoryFoldsTheSameWayFromEveryCut draws legal histories and cuts them after every record.
func TestEveryHistoryFoldsTheSameWayFromEveryCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.run(rapid.IntRange(5, 60).Draw(t, "length"))
		whole := fingerprint(d.s)
		for cut := range len(d.records) + 1 {
			s, err := fold(d.records[:cut])
			if err != nil {
				t.Fatalf("cut after %d: %v", cut, err)
			}
			if err := consistent(s); err != nil {
				t.Fatalf("cut after %d: %v", cut, err)
			}
			if cut > 0 && fingerprint(s) != d.prints[cut-1] {
				t.Fatalf("cut after %d: folded\n%s\nwhere the worker had\n%s", cut, fingerprint(s), d.prints[cut-1])
			}
			for _, b := range d.records[cut:] {
				if err := apply(s, b); err != nil {
					t.Fatalf("rest after a cut at %d: %v", cut, err)
				}
			}
			if got := fingerprint(s); got != whole {
				t.Fatalf("cut at %d and the rest: \n%s\nwhole:\n%s", cut, got, whole)
			}
		}
		d.checkHandedOut()
	})
}

// TestEveryCutIsRecoveredToTheEnd cuts a history anywhere, recovers and drives on: no accepted
// input is lost, no effect is repeated, every prompt is well formed.
func TestEveryCutIsRecoveredToTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.run(rapid.IntRange(5, 60).Draw(t, "length"))
		cut := rapid.IntRange(1, len(d.records)).Draw(t, "cut")
		d.cut(cut)
		d.recover()
		for n := 0; ; n++ {
			if n > 2000 {
				t.Fatalf("no end after %d steps: %s", n, stepText(d.s.Next(conversation.Limits{})))
			}
			if _, rest := d.s.Next(conversation.Limits{Steps: 5}).(conversation.Rest); rest {
				break
			}
			d.orderly()
		}
		d.checkInputs()
		d.checkEffects()
		d.checkHandedOut()
	})
}

// checkInputs: R1, what was accepted was answered or taken back.
func (d *driver) checkInputs() {
	withdrawn, begun, completed := map[string]bool{}, map[string]string{}, map[string]bool{}
	var accepted []string
	d.each(func(f proto.Message) {
		switch f := f.(type) {
		case *messages.InputAccepted:
			accepted = append(accepted, f.GetInputId())
		case *messages.InputWithdrawn:
			withdrawn[f.GetInputId()] = true
		case *messages.TurnStarted:
			for _, id := range f.GetInputIds() {
				if begun[id] != "" {
					d.t.Fatalf("input %s begins two turns", id)
				}
				begun[id] = f.GetTurnId()
			}
		case *messages.InputJoined:
			if begun[f.GetInputId()] != "" {
				d.t.Fatalf("input %s joins a turn and has one", f.GetInputId())
			}
			begun[f.GetInputId()] = f.GetTurnId()
		case *messages.TurnCompleted:
			completed[f.GetTurnId()] = true
		}
	})
	for _, id := range accepted {
		turn, done, known := d.s.TurnOf(id)
		switch {
		case !known || !done || turn != begun[id]:
			d.t.Fatalf("input %s: turn %q, done %v, known %v at the end", id, turn, done, known)
		case withdrawn[id] == completed[begun[id]]:
			d.t.Fatalf("input %s: withdrawn %v, and its turn %q completed %v", id, withdrawn[id], turn, completed[begun[id]])
		}
	}
}

// checkEffects holds the whole journal to the rules of effects.
func (d *driver) checkEffects() {
	e := newEffects()
	d.each(func(f proto.Message) {
		if err := e.see(f); err != nil {
			d.t.Fatal(err)
		}
	})
}

func TestHistoryIsAValue(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
	writeTurn(t, j, 1)
	before := j.s.History()
	kept := proto.Clone(before)
	for i := 2; i < 10; i++ {
		writeTurn(t, j, i)
	}
	if !proto.Equal(before, kept) {
		t.Error("a history that was handed out changed")
	}
	if len(before.GetTurns()) != 1 || len(j.s.History().GetTurns()) != 9 {
		t.Errorf("%d turns, then %d", len(before.GetTurns()), len(j.s.History().GetTurns()))
	}
}
