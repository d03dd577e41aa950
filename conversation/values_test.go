package conversation_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

func record(t *testing.T, seq, epoch uint64, fact proto.Message) *messages.Record {
	t.Helper()
	r, err := messages.NewRecord(fact, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Seq, r.Epoch = seq, epoch
	return r
}

// R2: seq without gaps, epochs never go back, an unknown fact is skipped only when it may be.
func TestRecordsFollowEachOtherWithoutGapsAndEpochsNeverGoBack(t *testing.T) {
	begin := func() *conversation.State {
		s := &conversation.State{}
		if err := s.Apply(record(t, 1, 5, &messages.WorkerCreated{WorkerId: "wrk_1", SessionId: "ses_1"})); err != nil {
			t.Fatal(err)
		}
		return s
	}
	unknown := &messages.Record{Seq: 2, Epoch: 5, Type: 999, Body: []byte{0xfa, 0x3e, 0}} // field 999, empty
	skipped, _ := proto.Clone(unknown).(*messages.Record)
	skipped.Ignorable = true
	for name, c := range map[string]struct {
		r    *messages.Record
		want error
	}{
		"next":           {record(t, 2, 5, &messages.Panicked{}), nil},
		"next epoch":     {record(t, 2, 6, &messages.Panicked{}), nil},
		"gap":            {record(t, 3, 5, &messages.Panicked{}), conversation.ErrIllegal},
		"twice":          {record(t, 1, 5, &messages.Panicked{}), conversation.ErrIllegal},
		"older epoch":    {record(t, 2, 4, &messages.Panicked{}), conversation.ErrIllegal},
		"second worker":  {record(t, 2, 5, &messages.WorkerCreated{}), conversation.ErrIllegal},
		"unknown":        {unknown, messages.ErrUnknownFact},
		"may be skipped": {skipped, nil},
	} {
		s := begin()
		if err := s.Apply(c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if err == nil && s.Seq() != 2 {
			t.Errorf("%s: seq %d after it", name, s.Seq())
		}
	}
	if s := begin(); s.Session() != "ses_1" || s.ID() != "wrk_1" {
		t.Errorf("worker %q of session %q", s.ID(), s.Session())
	}
	if err := (&conversation.State{}).Apply(&messages.Record{Seq: 1, Body: []byte{0xff}}); err == nil {
		t.Error("a body that is no fact was applied")
	}
}

func TestSameInputIsKnownAgainByItsContent(t *testing.T) {
	text := func(s string) []*messages.Part {
		return []*messages.Part{{Kind: &messages.Part_Text{Text: s}}}
	}
	hash := conversation.ContentHash(text("hello"), nil)
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"},
		&messages.InputAccepted{InputId: "i1", Parts: text("hello"), ContentHash: hash})
	j.s.SetCursor("i1", 42)
	j.s.SetCursor("i9", 43)
	if cursor, same, known := j.s.Answer("i1", conversation.ContentHash(text("hello"), nil)); cursor != 42 || !same || !known {
		t.Errorf("sent again: cursor %d, same %v, known %v", cursor, same, known)
	}
	if _, _, known := j.s.Answer("i9", hash); known {
		t.Error("an input that was never accepted is known")
	}
	call := &messages.ToolCall{Name: "exec", Arguments: "{}"}
	others := [][]byte{
		conversation.ContentHash(text("hello "), nil), conversation.ContentHash(append(text("hel"), text("lo")...), nil),
		conversation.ContentHash(nil, nil), conversation.ContentHash(nil, call), conversation.ContentHash(text("hello"), call),
		conversation.ContentHash([]*messages.Part{{Kind: &messages.Part_File{File: &messages.FilePart{Text: "hello"}}}}, nil),
		conversation.ContentHash(text("\xff"), nil),
	}
	for i, o := range others {
		if _, same, _ := j.s.Answer("i1", o); same {
			t.Errorf("other content %d is taken for the same", i)
		}
	}
	if turn, done, known := j.s.TurnOf("i1"); turn != "" || done || !known {
		t.Errorf("staged: turn %q, done %v, known %v", turn, done, known)
	}
	mustWrite(t, j, &messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}})
	if turn, done, known := j.s.TurnOf("i1"); turn != "t1" || done || !known {
		t.Errorf("begun: turn %q, done %v, known %v", turn, done, known)
	}
	if _, _, known := j.s.TurnOf("i9"); known {
		t.Error("an input that was never accepted has a turn")
	}
}

func TestSettingsChangeOneByOne(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1", Agent: "a", Model: "m", System: "be brief"},
		&messages.ConfigChanged{Tools: []string{"grep"}}, &messages.ConfigChanged{System: "be long"}, &messages.ConfigChanged{Model: "n"})
	if s := j.s; s.Agent() != "a" || s.Model() != "n" || s.System() != "be long" || len(s.Tools()) != 1 {
		t.Errorf("agent %q, model %q, system %q, tools %q", s.Agent(), s.Model(), s.System(), s.Tools())
	}
}

func TestResultOfATurnShowsItsCalls(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
	facts := turnFacts(1)
	want := map[int]string{4: "planned", 5: "executing", 6: "ok"}
	for i, f := range facts {
		mustWrite(t, j, f)
		if st := want[i]; st != "" && j.s.Turn().AllCalls[0].Status() != st {
			t.Errorf("after %T the call is %s, want %s", f, j.s.Turn().AllCalls[0].Status(), st)
		}
		if i < len(facts)-1 && j.s.Turn().Result("ses_1", "wrk_1") != nil {
			t.Fatalf("after %T the open turn has a result", f)
		}
	}
	r := j.s.Last().Result("ses_1", "wrk_1")
	if r.GetText() != "did it" || r.GetOutcome() != messages.TurnCompleted_DONE || r.GetConversationSeq() != j.s.Seq() ||
		len(r.GetToolCalls()) != 1 || r.GetToolCalls()[0].GetContent() != "done" || r.GetToolCalls()[0].GetArguments() != "{}" {
		t.Errorf("%v", r)
	}
}

func TestEventsSayWhatHappenedAndNothingInternal(t *testing.T) {
	var p conversation.Projector
	types := map[string]string{}
	for _, g := range goldenFacts() {
		fact := newMessage(g.field.Message())
		fill(fact, 0)
		e := p.Project("ses_1", "wrk_1", fact.Interface(), &messages.Record{Seq: 3, AtUnixMs: 1000, TurnId: "trn_1"}, 9)
		if e == nil {
			continue
		}
		types[string(g.field.Name())] = e.Type
		if e.Session != "ses_1" || e.Worker == "" || e.Turn == "" || e.AtUnixMs != 1000 {
			t.Errorf("%s: session %q, worker %q, turn %q, at %d", g.name, e.Session, e.Worker, e.Turn, e.AtUnixMs)
		}
		if void := e.Type == messages.EventGenerationDiscarded; void != (e.Seq == 0) {
			t.Errorf("%s: cursor %d", g.name, e.Seq)
		}
		if e.Type == messages.EventApprovalResolved && e.Decision != "not_asked" {
			t.Errorf("decision %q is not in the one vocabulary", e.Decision)
		}
	}
	want := map[string]string{
		"session_created": messages.EventSessionCreated, "session_closed": messages.EventSessionClosed,
		"worker_spawned": messages.EventWorkerSpawned, "worker_ended": messages.EventWorkerEnded,
		"input_accepted": messages.EventInputAccepted, "input_withdrawn": messages.EventInputWithdrawn, "input_joined": messages.EventInputJoined, "turn_started": messages.EventTurnStarted, "turn_completed": messages.EventTurnCompleted,
		"generation_started": messages.EventGenerationStarted, "generation_completed": messages.EventGenerationCompleted,
		"generation_failed": messages.EventGenerationDiscarded, "suspended": messages.EventGenerationSuspended, "tool_planned": messages.EventToolPlanned,
		"approval_requested": messages.EventApprovalRequested, "approval_resolved": messages.EventApprovalResolved,
		"tool_dispatched": messages.EventToolDispatched, "tool_finished": messages.EventToolFinished,
		"handed_over": messages.EventWorkerHandedOver, "outbox_enqueued": messages.EventMessageSent,
		"panicked": messages.EventWorkerEnded, "released": messages.EventWorkerSpawned, // of a quarantine: the fact is filled in
	}
	for f, e := range want {
		if types[f] != e {
			t.Errorf("%s gives event %q, want %q", f, types[f], e)
		}
	}
	for _, f := range []string{"budget_reserved", "child_spawned", "timer_set", "activated", "policy_changed"} {
		if types[f] != "" {
			t.Errorf("%s, which is nobody's business outside, gives event %q", f, types[f])
		}
	}
}

// TestNobodyOutsidePassesForAWorkerOrAConversation: whom an input comes from, its sender does not choose.
func TestNobodyOutsidePassesForAWorkerOrAConversation(t *testing.T) {
	for _, c := range []struct {
		want string
		f    *messages.InputAccepted
	}{
		{"", &messages.InputAccepted{From: "cnv_1"}},
		{"", &messages.InputAccepted{From: "wrk_1", Origin: messages.InputAccepted_TIMER}},
		{"cnv_1", &messages.InputAccepted{From: "cnv_1", Origin: messages.InputAccepted_SYSTEM}},
		{"run_1", &messages.InputAccepted{From: "run_1", Origin: messages.InputAccepted_SYSTEM}},
		{"wrk_1", &messages.InputAccepted{From: "x", Origin: messages.InputAccepted_WORKER, Mail: &messages.Mail{WorkerId: "wrk_1"}}},
	} {
		var p conversation.Projector
		if e := p.Project("ses_1", "wrk_2", c.f, &messages.Record{}, 1); e.GetFrom() != c.want {
			t.Errorf("%v is from %q", c.f, e.GetFrom())
		}
	}
	var p conversation.Projector
	if e := p.Project("ses_1", "wrk_1", &messages.Suspended{}, &messages.Record{}, 1); e != nil {
		t.Errorf("a stop that cut off nothing gives %v", e)
	}
}

func TestEndOfATurnCarriesTheAnswerLiveAndFromTheJournal(t *testing.T) {
	facts := []proto.Message{
		&messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}},
		&messages.GenerationCompleted{Content: "the answer", ToolCalls: []*messages.ToolCall{{Name: "f", Arguments: `{"a":1}`}}},
		&messages.ToolPlanned{Ordinal: 0}, &messages.ToolPlanned{Ordinal: 1},
		&messages.TurnCompleted{TurnId: "t1", FinalSeq: 2, Outcome: messages.TurnCompleted_DONE},
	}
	var live conversation.Projector
	var events []*messages.Event
	for i, f := range facts {
		events = append(events, live.Project("s", "w", f, &messages.Record{}, uint64(i)))
	}
	if events[0].InputId != "i1" || events[2].Arguments != `{"a":1}` || events[3].Arguments != "" || events[4].Text != "the answer" || events[4].Outcome != "done" {
		t.Errorf("%+v\n%+v\n%+v", events[2], events[3], events[4])
	}
	late := conversation.Projector{Lookup: func(w string, seq uint64) *messages.GenerationCompleted {
		if w != "w" || seq != 2 {
			t.Errorf("looked up record %d of %s", seq, w)
		}
		return &messages.GenerationCompleted{Content: "from the journal"}
	}}
	if e := late.Project("s", "w", facts[4], &messages.Record{}, 9); e.Text != "from the journal" {
		t.Errorf("text %q", e.Text)
	}
	var blind conversation.Projector
	if e := blind.Project("s", "w", facts[4], &messages.Record{}, 9); e.Text != "" {
		t.Errorf("text %q out of nowhere", e.Text)
	}
	none := &messages.TurnCompleted{TurnId: "t1"}
	if e := live.Project("s", "w", none, &messages.Record{}, 9); e.Text != "" {
		t.Errorf("a turn without an answer ends with %q", e.Text)
	}
}

func TestAProgramsCallIsShownWithItsOwnArgumentsLiveAndFromTheJournal(t *testing.T) {
	call := &messages.ToolCall{Id: "i2", Name: "f", Arguments: `{"of":"program"}`}
	facts := []proto.Message{
		&messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}},
		&messages.GenerationCompleted{ToolCalls: []*messages.ToolCall{{Name: "f", Arguments: `{"of":"model"}`}}},
		&messages.InputAccepted{InputId: "i2", Call: call}, // queued behind the open turn
		&messages.ToolPlanned{CallId: "c"},
		&messages.TurnCompleted{TurnId: "t1"},
		&messages.TurnStarted{TurnId: "t2", InputIds: []string{"i2"}},
		&messages.ToolPlanned{CallId: "i2"},
	}
	var live conversation.Projector
	var planned []string
	for i, f := range facts {
		if e := live.Project("s", "w", f, &messages.Record{Seq: uint64(i + 1)}, uint64(i+1)); e.GetType() == messages.EventToolPlanned {
			planned = append(planned, e.GetArguments())
		}
	}
	if len(planned) != 2 || planned[0] != `{"of":"model"}` || planned[1] != `{"of":"program"}` {
		t.Errorf("the calls are shown with %q", planned)
	}
	late := conversation.Projector{
		Lookup: func(string, uint64) *messages.GenerationCompleted { return nil },
		Called: func(worker, input string) *messages.ToolCall {
			if worker != "w" || input != "i2" {
				t.Errorf("looked for input %s of %s", input, worker)
			}
			return call
		},
	}
	if e := late.Project("s", "w", facts[6], &messages.Record{Seq: 7}, 7); e.GetArguments() != call.GetArguments() {
		t.Errorf("after a restart it is shown with %q", e.GetArguments())
	}
	var withdrawn conversation.Projector
	for _, f := range []proto.Message{facts[2], &messages.InputWithdrawn{InputId: "i2"}, facts[5]} {
		withdrawn.See("w", f)
	}
	if e := withdrawn.Project("s", "w", &messages.ToolPlanned{CallId: "c"}, &messages.Record{}, 1); e.GetArguments() != "" {
		t.Errorf("a call that was taken back is shown: %q", e.GetArguments())
	}
}

func TestAppendingToAPromptDisturbsNobody(t *testing.T) {
	b := newBench(t, 3)
	b.n++
	facts := turnFacts(b.n)
	for _, f := range facts[:7] { // up to the result of the call: the inputs are committed
		b.apply(t, f)
	}
	r, ok := b.s.Ready()
	if !ok {
		t.Fatal("not ready")
	}
	p := r.Render("")
	text := promptText(p)
	_ = append(p.Messages, &messages.Message{Role: messages.User, Text: "smuggled in"})
	other := r.Render("")
	mine := append(other.Messages, &messages.Message{Role: messages.User, Text: "mine"})
	for _, f := range facts[7:] {
		b.apply(t, f)
	}
	b.turn(t)
	if mine[len(mine)-1].Text != "mine" || promptText(p) != text {
		t.Error("a prompt and the history share what comes behind the prompt")
	}
	for _, turn := range b.s.History().GetTurns() {
		for _, m := range turn.GetMessages() {
			if m.GetContent() == "smuggled in" || m.GetContent() == "mine" {
				t.Error("what a reader appended stands in the history")
			}
		}
	}
}

func TestHashOfATurnWithSeveralInputsHoldsThemAll(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, inputs := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "b"}, {"ab"}, {"b", "a"}, {"a", "b", ""}} {
		j := newJournal()
		mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
		begin := &messages.TurnStarted{TurnId: "t1"}
		for i, text := range inputs {
			in := &messages.InputAccepted{InputId: string('a' + rune(i)), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}}
			mustWrite(t, j, in)
			begin.InputIds = append(begin.InputIds, in.GetInputId())
		}
		mustWrite(t, j, begin)
		r, ok := j.s.Ready()
		if !ok {
			t.Fatal("not ready")
		}
		p := r.Render("")
		if was, ok := seen[p.Hash]; ok {
			t.Errorf("one hash for\n%s\nand\n%s", was, promptText(p))
		}
		seen[p.Hash] = promptText(p)
		call := []*messages.ToolCall{{Id: "c", Name: "f"}}
		mustWrite(t, j, &messages.GenerationStarted{GenId: "g1"}, &messages.GenerationCompleted{GenId: "g1", ToolCalls: call}, &messages.ToolPlanned{ExecId: "x"})
		done := &messages.ToolFinished{ExecId: "x"}
		h := j.s.NextHash(done)
		mustWrite(t, j, done)
		if r, ok := j.s.Ready(); !ok || r.Render("").Hash != h {
			t.Error("the hash that follows was foretold wrongly")
		}
	}
}
