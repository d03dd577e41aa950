package chaos

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// damage is one way to break one rule.
type damage struct {
	rule, what string
	do         func(t *testing.T, h *History)
}

func TestARecordedRunBreaksNoRule(t *testing.T) {
	if found := Check(good(t)); len(found) > 0 {
		t.Errorf("%s", lines(found))
	}
}

func TestEveryDamageToAHistoryIsFoundByItsRule(t *testing.T) {
	counted := make(map[string]int)
	for _, d := range slices.Concat(inputDamage(), orderDamage(), effectDamage(), resultDamage(), answerDamage(), requestDamage(), eventDamage(), leaseDamage(), otherDamage()) {
		counted[d.rule]++
		t.Run(d.rule+" "+d.what, func(t *testing.T) {
			h := good(t)
			d.do(t, h)
			found := Check(h)
			_, says, _ := strings.Cut(d.what, ": ") // what is to be said of it, where several things could be
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == d.rule && strings.Contains(v.Text, says) }) {
				t.Errorf("it is not found; what is found:\n%s", lines(found))
			}
		})
	}
	for _, r := range Rules() {
		if n := counted[r.ID]; n < 2 && r.ID != "R11" { // it has a test of its own
			t.Errorf("%s is broken in %d ways only", r.ID, n)
		}
	}
}

// TestATokenIsGivenToOneWorkerOnly: two workers that take turns in one folder never hold the same lease.
func TestATokenIsGivenToOneWorkerOnly(t *testing.T) {
	h := good(t)
	first := map[string]lease{} // of a workspace: what one worker was given
	from := map[string]string{}
	for _, at := range find[*messages.TurnStarted](h, nil) {
		for i, l := range factAt[*messages.TurnStarted](t, h, at).GetLeases() {
			other, known := first[l.GetWorkspace()]
			if !known {
				first[l.GetWorkspace()], from[l.GetWorkspace()] = lease{l.GetWorkspace(), l.GetToken(), l.GetChild()}, at.stream
			}
			if !known || from[l.GetWorkspace()] == at.stream {
				continue
			}
			change(t, h, at, func(f *messages.TurnStarted) { f.Leases[i].Token = other.token })
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == "R9" && strings.Contains(v.Text, "was given to") }) {
				t.Errorf("it is not found; what is found:\n%s", lines(found))
			}
			return
		}
	}
	t.Fatal("the recorded run has no folder of two workers: record another one")
}

// later is where a later epoch of a worker begins.
func later(t *testing.T, h *History) place {
	return one(t, h, func(f *messages.Activated) bool { return f.GetRecoveredSeq() > 5 })
}

// TestAQuarantineAndItsEndMayBeginAnEpoch: they come before an activation.
func TestAQuarantineAndItsEndMayBeginAnEpoch(t *testing.T) {
	for _, fact := range []proto.Message{&messages.Panicked{Quarantined: true}, &messages.Released{}, &messages.Panicked{}} {
		h := good(t)
		at := later(t, h)
		r, err := messages.NewRecord(fact, "")
		if err != nil {
			t.Fatal(err)
		}
		h.Streams[at.stream][at.at].Record.Body = r.GetBody()
		found := slices.ContainsFunc(Check(h), func(v Violation) bool { return strings.Contains(v.Text, "instead of an activation") })
		p, panicked := fact.(*messages.Panicked)
		if found != (panicked && !p.GetQuarantined()) {
			t.Errorf("%v: found %v", fact, found)
		}
	}
}

func inputDamage() []damage {
	accepted := func(t *testing.T, h *History) place { return one[*messages.InputAccepted](t, h, nil) }
	return []damage{
		{"R1", "the journal of an acknowledged input is gone", func(t *testing.T, h *History) { delete(h.Streams, accepted(t, h).stream) }},
		{"R1", "an input is accepted twice", func(t *testing.T, h *History) {
			at := accepted(t, h)
			add(t, h, at, factAt[*messages.InputAccepted](t, h, at))
		}},
		{"R1", "an input is acknowledged at another place", func(_ *testing.T, h *History) { h.Acks[2].Seq++ }},
		{"R1", "an input is acknowledged with other words", func(_ *testing.T, h *History) { h.Acks[3].Text += "!" }},
		{"R1", "an acknowledgement is of nothing", func(_ *testing.T, h *History) { h.Acks = append(h.Acks, Ack{Session: "ses_x", Input: "inp_x"}) }},
		{"R1", "the last turn does not end", func(t *testing.T, h *History) {
			last := h.Results[len(h.Results)-1] // of an input that a client sent: those of timers are nobody's
			h.Results = h.Results[:len(h.Results)-1]
			drop(h, one(t, h, func(f *messages.TurnCompleted) bool { return f.GetTurnId() == last.Turn }))
		}},
		{"R1", "a turn ends in another way than it should", func(t *testing.T, h *History) {
			change(t, h, one(t, h, func(f *messages.TurnCompleted) bool { return f.GetOutcome() == messages.TurnCompleted_DONE }),
				func(f *messages.TurnCompleted) { f.Outcome = messages.TurnCompleted_ERROR })
		}},
		{"R1", "a result is told that is not the turn's", func(_ *testing.T, h *History) {
			at := slices.IndexFunc(h.Results, func(r Result) bool { return r.Outcome == "done" }) // an aborted turn has no last word
			h.Results[at].Text = "something else"
		}},
		{"R1", "the result of another turn is told", func(_ *testing.T, h *History) { h.Results[0].Turn = h.Results[1].Turn }},
		{"R13", "a refused input is in a journal", func(t *testing.T, h *History) {
			change(t, h, accepted(t, h), func(f *messages.InputAccepted) { f.From = h.Refused[0].Marker })
		}},
		{"R13", "a refused session has a journal", func(t *testing.T, h *History) {
			h.Streams["ses/"+h.Refused[1].Marker] = []persistence.Entry{{Record: &messages.Record{Seq: 1, Epoch: 1, Ignorable: true}}}
		}},
		{"R13", "a request is not refused", func(_ *testing.T, h *History) { h.Refused[0].Code = "" }},
		{"R13", "a refused request has an effect", func(_ *testing.T, h *History) {
			h.Effects = append(h.Effects, Effect{Phase: Begun, Exec: "exe_x", Session: h.Refused[0].Marker})
		}},
	}
}

func orderDamage() []damage {
	return []damage{
		{"R2", "a record is missing", func(t *testing.T, h *History) {
			at := one[*messages.GenerationStarted](t, h, nil)
			h.Streams[at.stream] = slices.Delete(h.Streams[at.stream], at.at, at.at+1)
		}},
		{"R2", "a record stands twice", func(t *testing.T, h *History) {
			at := one[*messages.GenerationStarted](t, h, nil)
			h.Streams[at.stream] = slices.Insert(h.Streams[at.stream], at.at, h.Streams[at.stream][at.at])
		}},
		{"R2", "an epoch goes back", func(t *testing.T, h *History) {
			at := later(t, h)
			h.Streams[at.stream][at.at+1].Record.Epoch = 1
		}},
		{"R2", "a cursor is given twice", func(t *testing.T, h *History) {
			at := one[*messages.TurnStarted](t, h, nil)
			h.Streams[at.stream][at.at].Cursor--
		}},
		{"R2", "a cursor is missing", func(t *testing.T, h *History) {
			at := one[*messages.TurnStarted](t, h, nil)
			for i := range h.Streams[at.stream][at.at:] {
				h.Streams[at.stream][at.at+i].Cursor++
			}
		}},
		{"R2", "an activation does not know all before it", func(t *testing.T, h *History) {
			change(t, h, later(t, h), func(f *messages.Activated) { f.RecoveredSeq-- })
		}},
		{"R2", "a later epoch has no activation", func(t *testing.T, h *History) { drop(h, later(t, h)) }},
		{"R2", "a record cannot be read", func(t *testing.T, h *History) {
			at := later(t, h)
			h.Streams[at.stream][at.at].Record.Body = []byte{0xff}
		}},
		{"R2", "the store finds damage", func(_ *testing.T, h *History) {
			h.Findings = []persistence.Finding{{Stream: "wrk/1", Seq: 1, Problem: "checksum"}}
		}},
		{"R10", "a journal does not fold", func(t *testing.T, h *History) {
			at := one(t, h, finished("", messages.ToolFinished_OK))
			change(t, h, at, func(f *messages.ToolFinished) { f.ExecId = "exe_unknown" })
		}},
		{"R10", "a snapshot is damaged", func(t *testing.T, h *History) {
			s := snapshotOf(t, h)
			s.State = s.State[:len(s.State)/2]
			h.Snapshots = append(h.Snapshots, s)
		}},
		{"R10", "a snapshot is of another record", func(t *testing.T, h *History) {
			s := snapshotOf(t, h)
			s.Seq -= 3
			h.Snapshots = append(h.Snapshots, s)
		}},
		{"R10", "a snapshot is of a longer journal", func(t *testing.T, h *History) {
			s := snapshotOf(t, h)
			s.Seq = 1 << 20
			h.Snapshots = append(h.Snapshots, s)
		}},
		{"R10", "a snapshot is of another journal", func(t *testing.T, h *History) {
			v, _ := look(h)
			all := v.workers()
			slices.SortFunc(all, func(a, b *stream) int { return len(a.facts) - len(b.facts) })
			snaps, _, err := all[0].fold(newState())
			if err != nil || len(all) < 2 {
				t.Fatal("the recorded run has no two journals", err)
			}
			snaps[len(snaps)/2].Stream = all[1].name
			h.Snapshots = append(h.Snapshots, snaps[len(snaps)/2])
		}},
	}
}

// snapshotOf takes a good snapshot, late in a journal.
func snapshotOf(t *testing.T, h *History) *messages.Snapshot {
	t.Helper()
	v, _ := look(h)
	h.Snapshots = nil
	for _, s := range v.workers() {
		snaps, _, err := s.fold(newState())
		if err == nil && len(snaps) > 2 {
			return snaps[len(snaps)/2]
		}
	}
	t.Fatal("the recorded run has no journal that is long enough")
	return nil
}

func effectDamage() []damage {
	again := func(tool string) func(*testing.T, *History) {
		return func(t *testing.T, h *History) {
			at := line(t, h, tool, Happened)
			h.Effects = slices.Insert(h.Effects, at, h.Effects[at])
		}
	}
	return []damage{
		{"R3", "a command ran twice", again(toolCharge)},
		{"R3", "a call that is sent again happens again", again(toolPut)},
		{"R3", "a call that can be asked about happens again", again(toolPost)},
		{"R3", "an edit is applied twice", func(t *testing.T, h *History) {
			for name, text := range h.Files {
				if m := marksIn(text); len(m) > 0 {
					h.Files[name] = text + m[0] + "\n"
					return
				}
			}
			t.Fatal("the recorded run has written no file")
		}},
		{"R4", "an effect belongs to no call", func(_ *testing.T, h *History) {
			h.Effects = append(h.Effects, Effect{Phase: Begun, Exec: "exe_x", Tool: toolCharge})
		}},
		{"R4", "a dispatch is not in the journal", func(t *testing.T, h *History) {
			exec := h.Effects[line(t, h, toolCharge, Begun)].Exec
			dropAll(h, find(h, func(f *messages.ToolDispatched) bool { return f.GetExecId() == exec }))
		}},
		{"R4", "an effect began before its dispatch was durable", func(t *testing.T, h *History) { h.Effects[line(t, h, toolCharge, Begun)].Dispatch = 0 }},
		{"R4", "an effect began in a life that did not dispatch it", func(t *testing.T, h *History) { h.Effects[line(t, h, toolPut, Begun)].Boot += 100 }},
		{"R4", "a file was written without a dispatch", func(t *testing.T, h *History) {
			call := factAt[*messages.ToolFinished](t, h, one(t, h, finished("write_file", messages.ToolFinished_OK)))
			dropAll(h, find(h, func(f *messages.ToolDispatched) bool { return f.GetExecId() == call.GetExecId() }))
		}},
	}
}

func resultDamage() []damage {
	ok := messages.ToolFinished_OK
	lost := messages.ToolFinished_INTERRUPTED_UNKNOWN
	return []damage{
		{"R5", "what is OK never happened", func(t *testing.T, h *History) {
			exec := factAt[*messages.ToolFinished](t, h, one(t, h, finished(toolCharge, ok))).GetExecId()
			h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Exec == exec })
		}},
		{"R5", "what was interrupted is reported as OK", func(t *testing.T, h *History) {
			change(t, h, one(t, h, finished("", lost)), func(f *messages.ToolFinished) { f.Status = ok })
		}},
		{"R5", "what was interrupted is reported as a result", func(t *testing.T, h *History) {
			change(t, h, one(t, h, finished("", lost)), func(f *messages.ToolFinished) { f.Content = "it went well" })
		}},
		{"R5", "a lost outcome is guessed to be a success", func(t *testing.T, h *History) {
			at := one(t, h, finished(toolCharge, lost))
			exec := factAt[*messages.ToolFinished](t, h, at).GetExecId()
			change(t, h, at, func(f *messages.ToolFinished) { f.Status, f.Content = ok, "charge did it as "+exec })
			h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Exec == exec && e.Phase == Ended })
			h.Effects = append(h.Effects, Effect{Phase: Happened, Exec: exec, Tool: toolCharge})
		}},
		{"R5", "a call has two results", func(t *testing.T, h *History) {
			at := one(t, h, finished("", ok))
			add(t, h, at, factAt[*messages.ToolFinished](t, h, at))
		}},
		{"R5", "a call has the result of another", func(t *testing.T, h *History) {
			change(t, h, one(t, h, finished(toolLook, ok)), func(f *messages.ToolFinished) { f.Content = "look did it as exe_another" })
		}},
		{"R5", "a written line is not there", func(t *testing.T, h *History) {
			one(t, h, finished("write_file", ok))
			for name, text := range h.Files {
				for _, mark := range marksIn(text) {
					text = strings.ReplaceAll(text, mark, "")
				}
				h.Files[name] = text
			}
		}},
		{"R5", "a call has no result", func(t *testing.T, h *History) { drop(h, one(t, h, finished("", ok))) }},
		{"R7", "a denied call had an effect", func(t *testing.T, h *History) {
			exec := factAt[*messages.ToolFinished](t, h, one(t, h, finished("", messages.ToolFinished_DENIED))).GetExecId()
			h.Effects = append(h.Effects, Effect{Phase: Happened, Exec: exec, Tool: toolCharge})
		}},
		{"R7", "a denied call is dispatched", func(t *testing.T, h *History) {
			at := one(t, h, finished("", messages.ToolFinished_DENIED))
			exec := factAt[*messages.ToolFinished](t, h, at).GetExecId()
			add(t, h, place{at.stream, at.at - 1}, &messages.ToolDispatched{ExecId: exec})
		}},
		{"R7", "a call runs where nobody can be asked", func(t *testing.T, h *History) {
			f := factAt[*messages.ToolFinished](t, h, one(t, h, finished("", messages.ToolFinished_DENIED)))
			change(t, h, one(t, h, func(x *messages.ToolFinished) bool { return x.GetExecId() == f.GetExecId() }),
				func(x *messages.ToolFinished) { x.Status = ok })
		}},
		{"R7", "a call was decided on by other arguments", func(t *testing.T, h *History) {
			at := one(t, h, func(f *messages.ToolPlanned) bool { return f.GetTool() == toolCharge && len(f.GetArgsHash()) > 0 })
			change(t, h, at, func(f *messages.ToolPlanned) { f.ArgsHash = bytes.Repeat([]byte{1}, 32) })
		}},
	}
}

func requestDamage() []damage {
	// withCalls is a request in which an assistant has made calls, and where in it.
	withCalls := func(t *testing.T, h *History, n int) (int, int) {
		t.Helper()
		for i, q := range h.Requests {
			for j, m := range q.Messages {
				if len(m.Calls) >= n {
					return i, j
				}
			}
		}
		t.Fatal("the recorded run has no such request")
		return 0, 0
	}
	return []damage{
		{"R6", "another model than the journal has: it was made to", func(_ *testing.T, h *History) { h.Requests[len(h.Requests)-1].Model = otherModel + "s" }},
		{"R6", "a result is missing", func(t *testing.T, h *History) {
			i, j := withCalls(t, h, 1)
			h.Requests[i].Messages = slices.Delete(h.Requests[i].Messages, j+1, j+2)
		}},
		{"R6", "results are out of order", func(t *testing.T, h *History) {
			i, j := withCalls(t, h, 2)
			ms := h.Requests[i].Messages
			ms[j+1], ms[j+2] = ms[j+2], ms[j+1]
		}},
		{"R6", "a result has other words", func(t *testing.T, h *History) {
			i, j := withCalls(t, h, 1)
			h.Requests[i].Messages[j+1].Content += " or so"
		}},
		{"R6", "somebody speaks between call and result", func(t *testing.T, h *History) {
			i, j := withCalls(t, h, 1)
			h.Requests[i].Messages = slices.Insert(h.Requests[i].Messages, j+1, Message{Role: "user", Content: "go on"})
		}},
		{"R6", "an earlier turn is forgotten", func(t *testing.T, h *History) {
			for i, q := range h.Requests {
				for j, m := range q.Messages {
					if m.Role == "user" && j > 2 {
						h.Requests[i].Messages = q.Messages[j:]
						return
					}
				}
			}
			t.Fatal("the recorded run has no second turn")
		}},
		{"R6", "nobody asked for a request", func(_ *testing.T, h *History) {
			h.Requests = append(h.Requests, Request{Messages: []Message{{Role: "user", Content: "a nudge"}}})
		}},
		{"R6", "a request was written down as another", func(t *testing.T, h *History) {
			change(t, h, one[*messages.GenerationStarted](t, h, nil), func(f *messages.GenerationStarted) { f.RequestHash[0] ^= 1 })
		}},
	}
}

func eventDamage() []damage {
	durable := func(h *History, n int) int {
		for i, s := range h.Seen {
			if s.Event.GetSeq() != 0 {
				if n--; n < 0 {
					return i
				}
			}
		}
		return 0
	}
	return []damage{
		{"R8", "an event is shown twice", func(_ *testing.T, h *History) {
			i := durable(h, 3)
			h.Seen = slices.Insert(h.Seen, i+1, h.Seen[i])
		}},
		{"R8", "an event is passed over", func(_ *testing.T, h *History) {
			i := durable(h, 3)
			h.Seen = slices.Delete(h.Seen, i, i+1)
		}},
		{"R8", "an event says something else", func(_ *testing.T, h *History) { h.Seen[durable(h, 4)].Event.Text += "?" }},
		{"R8", "an event is not in the journal", func(_ *testing.T, h *History) {
			last := h.Seen[len(h.Seen)-1]
			last.Event = proto.CloneOf(last.Event)
			last.Event.Seq = 1 << 30
			h.Seen = append(h.Seen, last)
		}},
	}
}

func leaseDamage() []damage {
	return []damage{
		{"R9", "a lease has an older token", func(t *testing.T, h *History) {
			all := find(h, func(f *messages.TurnStarted) bool { return len(f.GetLeases()) > 0 })
			change(t, h, all[len(all)-1], func(f *messages.TurnStarted) { f.Leases[0].Token = 1 })
		}},
		{"R9", "a call runs under a lease that its turn does not hold", func(t *testing.T, h *History) {
			change(t, h, one(t, h, func(f *messages.ToolDispatched) bool { return f.GetLease() != nil }),
				func(f *messages.ToolDispatched) { f.Lease.Token-- })
		}},
		{"R9", "effects of two leases overlap", func(t *testing.T, h *History) {
			swapEffects(t, h, otherToken)
		}},
		{"R9", "effects of one lease overlap", func(t *testing.T, h *History) {
			swapEffects(t, h, sameToken)
		}},
	}
}

// swapEffects moves the begin of an effect before the end of the one before it in the same workspace.
func swapEffects(t *testing.T, h *History, wanted func(a, b uint64) bool) {
	t.Helper()
	i, j, ok := neighbours(h, wanted)
	if !ok {
		t.Fatal("the recorded run has no two such effects: record another one")
	}
	b := h.Effects[j]
	h.Effects = slices.Insert(slices.Delete(h.Effects, j, j+1), i, b)
}

// neighbours finds the end of an effect and the next begin in the same workspace and life, under tokens that are wanted.
func neighbours(h *History, wanted func(a, b uint64) bool) (i, j int, ok bool) {
	v, _ := look(h)
	lease := func(e Effect) *messages.LeaseToken {
		if c := v.byExec[e.Exec]; c != nil && !c.pure() {
			return c.dispatchedIn(e.Boot).GetLease()
		}
		return nil
	}
	for i, e := range h.Effects {
		if e.Phase != Ended || lease(e) == nil {
			continue
		}
		for j := i + 1; j < len(h.Effects) && h.Effects[j].Boot == e.Boot; j++ {
			b := h.Effects[j]
			if l := lease(b); b.Phase == Begun && l.GetWorkspace() == lease(e).GetWorkspace() {
				if wanted(lease(e).GetToken(), l.GetToken()) {
					return i, j, true
				}
				break
			}
		}
	}
	return 0, 0, false
}

func sameToken(a, b uint64) bool { return a == b }

func otherToken(a, b uint64) bool { return a != b }

func otherDamage() []damage {
	after := func(with func(*Counts)) func(*testing.T, *History) {
		return func(_ *testing.T, h *History) {
			h.Before = &Counts{Goroutines: 10, Files: 8, HeapBytes: 1 << 20}
			now := *h.Before
			with(&now)
			h.After = &now
		}
	}
	return []damage{
		{"R12", "goroutines stay", after(func(c *Counts) { c.Goroutines += 20 })},
		{"R12", "files stay open", after(func(c *Counts) { c.Files += 20 })},
		{"R12", "memory stays", after(func(c *Counts) { c.HeapBytes += 100 << 20 })},
		{"R12", "messages wait in a mailbox", after(func(c *Counts) { c.Pending++ })},
	}
}

func TestEveryRuleHasItsSentence(t *testing.T) {
	for i, r := range Rules() {
		if r.ID != fmt.Sprintf("R%d", i+1) || r.Says == "" {
			t.Errorf("rule %d is %s: %q", i+1, r.ID, r.Says)
		}
	}
}
