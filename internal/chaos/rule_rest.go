package chaos

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// foldsAgree is R10. Every journal of a worker must fold. A snapshot that was kept, and one taken here of any
// record, must fold together with what follows it to what the whole journal folds to.
func foldsAgree(v *view, r *report) {
	for _, s := range v.workers() {
		want := &conversation.State{}
		snaps, at, err := s.fold(want)
		if err != nil {
			r.add(Broken, s.name, at, "the journal does not fold: %v", err)
			continue
		}
		for _, snap := range v.Snapshots {
			if snap.GetStream() == s.name {
				snaps = append(snaps, snap)
			}
		}
		for _, snap := range snaps {
			if why := s.resumes(snap, want); why != "" {
				r.add(Broken, s.name, snap.GetSeq(), "%s", why)
			}
		}
	}
}

// samples is at how many records of a journal a snapshot is taken.
const samples = 8

// fold folds a whole journal, and takes snapshots on the way.
func (s *stream) fold(state *conversation.State) (snaps []*messages.Snapshot, at uint64, err error) {
	every := len(s.facts)/samples + 1
	for i, f := range s.facts {
		if err := state.Apply(f.entry.Record); err != nil {
			return nil, f.seq(), err
		}
		if i%every != every-1 {
			continue
		}
		b, err := state.Freeze().Encode()
		if err != nil {
			return nil, f.seq(), fmt.Errorf("take a snapshot: %w", err)
		}
		snaps = append(snaps, &messages.Snapshot{Stream: s.name, Seq: f.seq(), Schema: conversation.SnapshotSchema, State: b})
	}
	return snaps, 0, nil
}

// resumes says what is wrong with going on from a snapshot, "" when nothing is.
func (s *stream) resumes(snap *messages.Snapshot, want *conversation.State) string {
	if snap.GetSchema() != conversation.SnapshotSchema {
		return fmt.Sprintf("a snapshot of schema %d was kept", snap.GetSchema())
	}
	if snap.GetSeq() == 0 || snap.GetSeq() > uint64(len(s.facts)) {
		return fmt.Sprintf("a snapshot of record %d was kept, the journal has %d", snap.GetSeq(), len(s.facts))
	}
	state, err := conversation.Restore(snap.GetSeq(), snap.GetState(), func(seq uint64) (proto.Message, error) {
		if seq == 0 || seq > uint64(len(s.facts)) {
			return nil, fmt.Errorf("record %d is not there", seq)
		}
		return s.facts[seq-1].what, nil
	})
	if err != nil {
		return fmt.Sprintf("the snapshot cannot be read: %v", err)
	}
	if !bytes.Equal(state.Head(), s.facts[snap.GetSeq()-1].entry.Record.GetRecordId()) {
		return "the snapshot is of another journal"
	}
	for _, f := range s.facts[snap.GetSeq():] {
		if err := state.Apply(f.entry.Record); err != nil {
			return fmt.Sprintf("record %d does not fold onto the snapshot: %v", f.seq(), err)
		}
	}
	if got, want := describe(state), describe(want); got != want {
		return fmt.Sprintf("snapshot and tail fold to another state than the whole: %s", firstDifference(got, want))
	}
	return ""
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%.200q instead of %.200q", a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(a), len(b))
}

// describe writes down all that can be asked of a state, so that two can be compared.
func describe(s *conversation.State) string {
	var b strings.Builder
	write := func(name string, value any) { fmt.Fprintf(&b, "%s=%v\n", name, value) }
	write("worker", s.ID()+" "+s.Session())
	write("config", strings.Join([]string{s.Agent(), s.Model(), s.System(), fmt.Sprint(s.Tools())}, "|"))
	write("seq", fmt.Sprint(s.Seq(), s.At(), s.Closed(), s.Turns(), s.Panics()))
	write("usage", stable(s.Usage()))
	write("history", stable(s.History()))
	for _, in := range s.Staged() {
		write("staged", in.GetInputId())
		_, _, known := s.TurnOf(in.GetInputId())
		write("known", known)
	}
	if t := s.Turn(); t != nil {
		write("turn", fmt.Sprint(t.ID, t.Steps, t.Attempts, t.Failures, t.StartedMs, t.Text, t.Finish, t.FinalSeq, len(t.AllCalls)))
		for _, c := range t.AllCalls {
			write("call", c.Plan.GetExecId()+" "+c.Status())
		}
	}
	if t := s.Last(); t != nil {
		write("last", fmt.Sprint(t.ID, t.DoneSeq, t.Text, conversation.OutcomeName(t.Completed.GetOutcome())))
	}
	if ready, ok := s.Ready(); ok {
		hash := ready.Render("").Hash
		write("prompt", hex.EncodeToString(hash[:]))
	}
	write("next", fmt.Sprintf("%T", s.Next(conversation.Limits{})))
	return b.String()
}

// stable writes a message in one form: that of protojson varies on purpose.
func stable(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return hex.EncodeToString(b)
}

// timer is what a journal says of one timer.
type timer struct {
	set       *messages.TimerSet
	fired     int
	cancelled bool
}

// timersOnce is R11.
func timersOnce(v *view, r *report) {
	for _, s := range v.workers() {
		timers := make(map[string]*timer)
		var order []string
		for _, f := range s.facts {
			switch x := f.what.(type) {
			case *messages.TimerSet:
				if timers[x.GetTimerId()] != nil {
					r.add(Duplicated, s.name, f.seq(), "timer %s was set twice", x.GetTimerId())
					continue
				}
				timers[x.GetTimerId()] = &timer{set: x}
				order = append(order, x.GetTimerId())
			case *messages.TimerCancelled:
				if t := timers[x.GetTimerId()]; t != nil {
					t.cancelled = true
				}
			case *messages.TimerFired:
				v.timerFired(f, x, timers[x.GetTimerId()], r)
			}
		}
		for _, id := range order {
			if t := timers[id]; v.Whole && t.fired == 0 && !t.cancelled && t.set.GetDueUnixMs() < v.EndedMs {
				r.add(Lost, s.name, 0, "timer %s was due %d ms before the end and never fired", id, v.EndedMs-t.set.GetDueUnixMs())
			}
		}
	}
}

func (v *view) timerFired(f *fact, x *messages.TimerFired, t *timer, r *report) {
	if t == nil {
		r.add(Broken, f.stream, f.seq(), "timer %s fired and was never set", x.GetTimerId())
		return
	}
	t.fired++
	early := t.set.GetDueUnixMs() - f.entry.Record.GetAtUnixMs()
	switch {
	case t.fired > 1:
		r.add(Duplicated, f.stream, f.seq(), "timer %s fired %d times", x.GetTimerId(), t.fired)
	case t.cancelled:
		r.add(Broken, f.stream, f.seq(), "timer %s fired after it was cancelled", x.GetTimerId())
	case early > 0:
		r.add(Broken, f.stream, f.seq(), "timer %s fired %d ms early", x.GetTimerId(), early)
	case x.GetInputId() != "" && !x.GetSkipped() && len(v.inputs[x.GetInputId()]) != 1:
		r.add(Lost, f.stream, f.seq(), "timer %s fired and its input %s was accepted %d times", x.GetTimerId(), x.GetInputId(), len(v.inputs[x.GetInputId()]))
	}
}

// Slack of R12: what a process may have more than before without anybody having lost anything.
const (
	slackGoroutines = 4 // of the Go runtime and of connections that are just being closed
	slackFiles      = 4
	slackHeap       = 16 << 20
)

// resourcesBack is R12.
func resourcesBack(v *view, r *report) {
	a, b := v.Before, v.After
	if a == nil || b == nil {
		return
	}
	if b.Goroutines > a.Goroutines+slackGoroutines {
		r.add(Broken, "", 0, "%d goroutines after the end, %d before", b.Goroutines, a.Goroutines)
	}
	if b.Files > a.Files+slackFiles {
		r.add(Broken, "", 0, "%d open files after the end, %d before", b.Files, a.Files)
	}
	if b.HeapBytes > a.HeapBytes+slackHeap {
		r.add(Broken, "", 0, "%d bytes of heap after the end, %d before", b.HeapBytes, a.HeapBytes)
	}
	if b.Pending > a.Pending {
		r.add(Broken, "", 0, "%d messages wait in mailboxes after the end", b.Pending)
	}
}
