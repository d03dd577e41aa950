package chaos

import (
	"bytes"
	"strings"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// inputsComplete is R1.
func inputsComplete(v *view, r *report) {
	for id, found := range v.inputs {
		if len(found) > 1 {
			r.add(Duplicated, found[1].stream, found[1].seq(), "input %s was accepted %d times", id, len(found))
		}
	}
	seqs := make(map[string]uint64)
	for _, a := range v.Acks {
		if old, again := seqs[a.Input]; again && old != a.Seq {
			r.add(Broken, messages.SessionStream(a.Session), a.Seq, "input %s was acknowledged at %d and at %d", a.Input, old, a.Seq)
		} else if again {
			continue
		}
		seqs[a.Input] = a.Seq
		v.acknowledged(a, r)
	}
	for _, a := range v.Results {
		v.toldResult(a, r)
	}
}

// acknowledged follows one input from its acknowledgement to the end of its turn.
func (v *view) acknowledged(a Ack, r *report) {
	found := v.inputs[a.Input]
	if len(found) == 0 {
		r.add(Lost, messages.SessionStream(a.Session), a.Seq, "input %s was acknowledged and is in no journal", a.Input)
		return
	}
	in := found[0]
	text := conversation.InputText(in.what.(*messages.InputAccepted).GetParts()) //nolint:forcetypeassert // put there by its type
	switch {
	case in.entry.Session != a.Session:
		r.add(Broken, in.stream, in.seq(), "input %s of %s is counted by %s", a.Input, a.Session, in.entry.Session)
	case in.entry.Cursor != a.Seq && a.Seq != 0: // a program's call is acknowledged by its result alone
		r.add(Broken, in.stream, in.seq(), "input %s was acknowledged at %d and lies at %d", a.Input, a.Seq, in.entry.Cursor)
	case text != a.Text:
		r.add(Lost, in.stream, in.seq(), "input %s was sent as %.80q and kept as %.80q", a.Input, a.Text, text)
	}
	if !v.Whole {
		return
	}
	started, done := v.turnOf(in.stream, a.Input)
	switch {
	case v.withdrawn(in.stream, a.Input):
	case started == nil:
		r.add(Lost, in.stream, in.seq(), "the turn of input %s never began", a.Input)
	case done == nil:
		r.add(Lost, in.stream, started.seq(), "the turn of input %s did not complete", a.Input)
	default:
		end := done.what.(*messages.TurnCompleted) //nolint:forcetypeassert // put there by its type
		if outcome := conversation.OutcomeName(end.GetOutcome()); a.Outcome != "" && outcome != a.Outcome {
			r.add(Broken, in.stream, done.seq(), "the turn of input %s came to %s instead of %s: %s", a.Input, outcome, a.Outcome, end.GetReason())
		}
	}
}

// turnOf finds the turn of an input: the facts of its start and its end.
func (v *view) turnOf(stream, input string) (started, done *fact) {
	turn := ""
	for _, f := range v.facts(stream) {
		switch x := f.what.(type) {
		case *messages.TurnStarted:
			for _, id := range x.GetInputIds() {
				if id == input && started == nil {
					started, turn = f, x.GetTurnId()
				}
			}
		case *messages.InputJoined:
			if x.GetInputId() == input && started == nil {
				started, turn = f, x.GetTurnId()
			}
		case *messages.TurnCompleted:
			if turn != "" && x.GetTurnId() == turn {
				return started, f
			}
		}
	}
	return started, nil
}

func (v *view) withdrawn(stream, input string) bool {
	for _, f := range v.facts(stream) {
		if x, ok := f.what.(*messages.InputWithdrawn); ok && x.GetInputId() == input {
			return true
		}
	}
	return false
}

func (v *view) facts(stream string) []*fact {
	for _, s := range v.streams {
		if s.name == stream {
			return s.facts
		}
	}
	return nil
}

// toldResult compares what a client was told of a turn's end with the journal.
func (v *view) toldResult(a Result, r *report) {
	found := v.inputs[a.Input]
	if len(found) == 0 {
		r.add(Lost, messages.SessionStream(a.Session), 0, "the result of input %s was told and the input is in no journal", a.Input)
		return
	}
	started, done := v.turnOf(found[0].stream, a.Input)
	if done == nil {
		r.add(Lost, found[0].stream, found[0].seq(), "the end of input %s was told and is not in the journal", a.Input)
		return
	}
	if id := started.what.(interface{ GetTurnId() string }).GetTurnId(); id != a.Turn { //nolint:forcetypeassert // put there by its type
		r.add(Broken, found[0].stream, started.seq(), "the turn of input %s was told as %s and is %s", a.Input, a.Turn, id)
	}
	end := done.what.(*messages.TurnCompleted) //nolint:forcetypeassert // put there by its type
	if name := conversation.OutcomeName(end.GetOutcome()); name != a.Outcome {
		r.add(Broken, found[0].stream, done.seq(), "the outcome of input %s was told as %s and is %s", a.Input, a.Outcome, name)
	}
	for _, f := range v.facts(found[0].stream) {
		if g, ok := f.what.(*messages.GenerationCompleted); ok && f.seq() == end.GetFinalSeq() && g.GetContent() != a.Text {
			r.add(Broken, found[0].stream, f.seq(), "the answer to input %s was told as %.80q and is %.80q", a.Input, a.Text, g.GetContent())
		}
	}
}

// refusedLeavesNothing is R13.
func refusedLeavesNothing(v *view, r *report) {
	for _, refused := range v.Refused {
		if refused.Code == "" {
			r.add(Broken, "", 0, "%s was not refused (%s)", refused.What, refused.Marker)
			continue
		}
		for _, s := range v.streams {
			if strings.Contains(s.name, refused.Marker) {
				r.add(Broken, s.name, 0, "%s was refused (%s) and left a journal", refused.What, refused.Code)
			}
			for _, f := range s.facts {
				if bytes.Contains(f.entry.Record.GetBody(), []byte(refused.Marker)) {
					r.add(Broken, s.name, f.seq(), "%s was refused (%s) and left a record", refused.What, refused.Code)
				}
			}
		}
		for _, e := range v.Effects {
			if strings.Contains(e.Session, refused.Marker) || strings.Contains(e.Exec, refused.Marker) {
				r.add(Broken, "", 0, "%s was refused (%s) and had an effect", refused.What, refused.Code)
			}
		}
	}
}
