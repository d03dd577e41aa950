package conversation_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// goldenSnapshot is where a release keeps a journal, the snapshot that it made in the middle of it, and what it was made of.
func goldenSnapshot(schema int, what string) string {
	return filepath.Join("testdata", "golden", fmt.Sprintf("snapshot_%d%s", schema, what))
}

// TestSnapshotsOfEarlierReleasesAreRead: a trimmed journal has nothing but its snapshots, so that a new schema brings a reader
// for those before it. Run with -update, the test writes what is missing for a new schema; what is there is never
// written again: the snapshots that are out there cannot be either.
func TestSnapshotsOfEarlierReleasesAreRead(t *testing.T) {
	const now = conversation.SnapshotSchema
	if _, err := os.Stat(goldenSnapshot(now, ".bin")); errors.Is(err, fs.ErrNotExist) && *update {
		writeGoldenSnapshot(t, goldenSnapshot(now, ".bin"), goldenSnapshot(now, "_journal.bin"))
	}
	for schema := 2; schema <= now; schema++ {
		if err := conversation.Readable(uint32(schema)); err != nil {
			t.Errorf("schema %d: %v", schema, err)
		}
		seq, state, records := readGoldenSnapshot(t, schema)
		whole, err := foldLive(records)
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		s, err := conversation.Restore(seq, state, reader(records, &read))
		if err != nil {
			t.Fatalf("schema %d: %v", schema, err)
		}
		if err := checkGolden(records[:seq], s); err != nil {
			t.Errorf("schema %d: as it was kept, %v", schema, err)
		}
		if _, err := foldOn(s, records[seq:]); err != nil {
			t.Fatalf("schema %d: %v", schema, err)
		}
		if d := conversation.Difference(whole, s); d != "" || read == 0 {
			t.Errorf("schema %d: with what follows it comes to another state, after %d records were read: %s", schema, read, d)
		}
	}
}

// checkGolden compares a restored state with the fold of the same records.
func checkGolden(records [][]byte, s *conversation.State) error {
	whole, err := foldLive(records)
	if err != nil {
		return err
	}
	if d := conversation.Difference(whole, s); d != "" {
		return fmt.Errorf("it is another state: %s", d)
	}
	return nil
}

func TestSnapshotsThatCannotBeReadAreRefusedByTheirSchema(t *testing.T) {
	for schema, why := range map[uint32]string{0: "no sum", 1: "no sum", conversation.SnapshotSchema + 1: "later release"} {
		if err := conversation.Readable(schema); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("schema %d: %v", schema, err)
		}
	}
}

// TestWhatStateIsMadeOfIsThatOfItsSchema: a field that State gains, or that means something else, is in no snapshot that is out there.
func TestWhatStateIsMadeOfIsThatOfItsSchema(t *testing.T) {
	file := goldenSnapshot(conversation.SnapshotSchema, "_fields.txt")
	want, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && *update {
		want, err = []byte(conversation.Fields()), os.WriteFile(file, []byte(conversation.Fields()), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := conversation.Fields(); got != string(want) {
		t.Errorf("State is made of\n%s\nand was made of\n%s\n"+
			"Is a snapshot that was kept before wrong without the difference, or folded in another way: raise SnapshotSchema, let Readable and Restore take the schema before, "+
			"and go test ./conversation -run 'Snapshots|State' -update. Is it right, because no fact that it folds could have set what is new: remove %s, and do the same", got, want, file)
	}
}

// TestGoldenSnapshotsAreWhatTheFoldKeeps: a change of what is written wants a new schema.
func TestGoldenSnapshotsAreWhatTheFoldKeeps(t *testing.T) {
	seq, state, records := readGoldenSnapshot(t, conversation.SnapshotSchema)
	s, err := foldLive(records[:seq])
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Freeze().Encode()
	if err != nil {
		t.Fatal(err)
	}
	var now, then messages.ConversationSnapshot
	if err := errors.Join(proto.Unmarshal(b[:len(b)-4], &now), proto.Unmarshal(state[:len(state)-4], &then)); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&now, &then) {
		t.Errorf("kept is\n%v\nand was\n%v", &now, &then)
	}
}

// readGoldenSnapshot reads a snapshot, with its seq ahead of it, and its journal.
func readGoldenSnapshot(t *testing.T, schema int) (seq uint64, state []byte, records [][]byte) {
	t.Helper()
	state, err := os.ReadFile(goldenSnapshot(schema, ".bin"))
	j, jerr := os.ReadFile(goldenSnapshot(schema, "_journal.bin"))
	var c messages.Commit
	if err := errors.Join(err, jerr, proto.Unmarshal(j, &c)); err != nil {
		t.Fatalf("%v (a new schema: go test ./conversation -run Snapshots -update, and commit)", err)
	}
	for _, r := range c.GetRecords() {
		b, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, b)
	}
	return binary.BigEndian.Uint64(state), state[8:], records
}

func writeGoldenSnapshot(t *testing.T, snapshot, journal string) {
	t.Helper()
	j := newJournal()
	j.s = conversation.Live()
	mustWrite(t, j, goldenHead()...)
	b, err := j.s.Freeze().Encode()
	if err != nil {
		t.Fatal(err)
	}
	state := append(binary.BigEndian.AppendUint64(nil, j.s.Seq()), b...)
	j.epoch++
	mustWrite(t, j, goldenTail()...)
	c := &messages.Commit{FirstCursor: 1, Session: "ses_1"}
	for _, b := range j.records {
		r := &messages.Record{}
		if err := proto.Unmarshal(b, r); err != nil {
			t.Fatal(err)
		}
		c.Records = append(c.Records, r)
	}
	all, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err := errors.Join(err, os.WriteFile(snapshot, state, 0o644), os.WriteFile(journal, all, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// goldenHead leads to a state with something in each of its fields: in the middle of a turn with calls of every kind, behind a compaction.
func goldenHead() []proto.Message {
	text := func(s string) []*messages.Part { return []*messages.Part{{Kind: &messages.Part_Text{Text: s}}} }
	usage := &messages.Usage{InputTokens: 120, OutputTokens: 8}
	call := func(id, tool, args string) *messages.ToolCall {
		return &messages.ToolCall{Id: id, Name: tool, Arguments: args}
	}
	facts := []proto.Message{
		&messages.WorkerCreated{WorkerId: "wrk_1", SessionId: "ses_1", Agent: "default", Model: "m", System: "be brief", Copied: []*messages.Turn{
			{Messages: []*messages.ChatMessage{{Role: "user", Content: "copied"}, {Role: "assistant", Content: "copied answer"}}, Outcome: "done"},
		}},
		&messages.Activated{Epoch: 1},
		&messages.ConfigChanged{Tools: []string{"read_file", "write_file", "charge"}, System: "be briefer"},
		&messages.TimerSet{TimerId: "tim_1", DueUnixMs: 1_800_000_000_000, Parts: text("wake up")},
		&messages.TimerSet{TimerId: "tim_2", DueUnixMs: 1_800_000_000_000, Parts: text("wake up, too")},
		&messages.TimerCancelled{TimerId: "tim_2"},
	}
	for i := range 3 {
		id := fmt.Sprint(i + 1)
		facts = append(facts, &messages.InputAccepted{InputId: "inp_" + id, Parts: text("say " + id), ContentHash: []byte("hash " + id)},
			&messages.TurnStarted{TurnId: "trn_" + id, InputIds: []string{"inp_" + id}},
			&messages.GenerationStarted{GenId: "gen_" + id, Step: 1, Attempt: 1},
			&messages.GenerationCompleted{GenId: "gen_" + id, Content: "said " + id, Reasoning: "why not", FinishReason: "stop", Usage: usage},
			&messages.TurnCompleted{TurnId: "trn_" + id, Outcome: messages.TurnCompleted_DONE})
	}
	return append(facts,
		&messages.HistoryCompacted{Turns: 2, Summary: "it said one", Usage: usage},
		&messages.InputAccepted{InputId: "inp_4", Parts: text("work " + strings.Repeat("0123456789abcdef", 1<<10)), ContentHash: []byte("hash 4")},
		&messages.TurnStarted{TurnId: "trn_4", InputIds: []string{"inp_4"}, Leases: []*messages.LeaseToken{{Workspace: "local:/w", Token: 7}}},
		&messages.GenerationStarted{GenId: "gen_4", Step: 1, Attempt: 1},
		&messages.GenerationFailed{GenId: "gen_4", Class: "rate_limited", RetryAtUnixMs: 1_700_000_000_500},
		&messages.GenerationStarted{GenId: "gen_5", Step: 1, Attempt: 2},
		&messages.GenerationCompleted{GenId: "gen_5", Content: "I work.", FinishReason: "tool_calls", Usage: usage, ToolCalls: []*messages.ToolCall{
			call("c1", "write_file", `{"path":"a","content":"x"}`), call("c2", "charge", `{"name":"two"}`), call("c3", "charge", `{"name":"three"}`), call("c4", "charge", `{"name":"four"}`),
		}},
		&messages.ToolPlanned{ExecId: "exe_1", CallId: "c1", Tool: "write_file", Ordinal: 0, Workspace: "local:/w", Effect: messages.Effect_RECONCILABLE},
		&messages.ToolPlanned{ExecId: "exe_2", CallId: "c2", Tool: "charge", Ordinal: 1, Effect: messages.Effect_AT_MOST_ONCE},
		&messages.ToolPlanned{ExecId: "exe_3", CallId: "c3", Tool: "charge", Ordinal: 2, Effect: messages.Effect_AT_MOST_ONCE, NeedsApproval: true},
		&messages.ToolPlanned{ExecId: "exe_4", CallId: "c4", Tool: "charge", Ordinal: 3, Effect: messages.Effect_AT_MOST_ONCE, NeedsApproval: true},
		&messages.ToolDispatched{ExecId: "exe_1", Attempt: 1, Lease: &messages.LeaseToken{Workspace: "local:/w", Token: 7}},
		&messages.ToolFinished{
			ExecId: "exe_1", CallId: "c1", Tool: "write_file", Status: messages.ToolFinished_OK, Content: strings.Repeat("done ", 4<<10),
			PostconditionHashes: []*messages.FileHash{{Path: "a", Sha256: "aa"}},
		},
		&messages.ToolDispatched{ExecId: "exe_2", Attempt: 1},
		&messages.CallDoubted{ExecId: "exe_2", CallId: "c2", Tool: "charge"},
		&messages.ApprovalRequested{ApprovalId: "apr_3", ExecId: "exe_3", CallId: "c3", ArgsHash: []byte("hash"), Preview: "three", AskedAtUnixMs: 1_700_000_000_000},
		&messages.ApprovalRequested{ApprovalId: "apr_4", ExecId: "exe_4", CallId: "c4", ArgsHash: []byte("hash"), Preview: "four"},
		&messages.ApprovalResolved{ApprovalId: "apr_4", ExecId: "exe_4", Decision: messages.Decision_APPROVED, By: "user", ModifiedArgs: `{"name":"4"}`},
		&messages.InputAccepted{InputId: "inp_5", Parts: text("and then"), ContentHash: []byte("hash 5")},
		&messages.InputAccepted{InputId: "inp_6", Parts: text("or not"), ContentHash: []byte("hash 6")},
		&messages.InputWithdrawn{InputId: "inp_6"},
		&messages.InputAccepted{InputId: "inp_7", Mode: messages.InputAccepted_STEER, Parts: text("rather so"), ContentHash: []byte("hash 7")},
		&messages.Panicked{Reason: "as it happens", Quarantined: true},
	)
}

// goldenTail is what follows the snapshot.
func goldenTail() []proto.Message {
	return []proto.Message{
		&messages.Released{By: "user"},
		&messages.Activated{Epoch: 2},
		&messages.CallResolved{ExecId: "exe_2", Resolution: messages.CallResolved_RETRY, By: "user"},
		&messages.ToolDispatched{ExecId: "exe_2", Attempt: 2},
		&messages.ToolFinished{ExecId: "exe_2", CallId: "c2", Tool: "charge", Status: messages.ToolFinished_OK, Content: "charged"},
		&messages.ApprovalResolved{ApprovalId: "apr_3", ExecId: "exe_3", Decision: messages.Decision_REJECTED, By: "user"},
		&messages.ToolFinished{ExecId: "exe_3", CallId: "c3", Tool: "charge", Status: messages.ToolFinished_DENIED, Content: "no"},
		&messages.ToolDispatched{ExecId: "exe_4", Attempt: 1},
		&messages.ToolFinished{ExecId: "exe_4", CallId: "c4", Tool: "charge", Status: messages.ToolFinished_OK, Content: "charged"},
		&messages.InputJoined{TurnId: "trn_4", InputId: "inp_7"},
		&messages.GenerationStarted{GenId: "gen_6", Step: 2, Attempt: 1},
		&messages.GenerationCompleted{GenId: "gen_6", Content: "done", FinishReason: "stop"},
		&messages.TurnCompleted{TurnId: "trn_4", Outcome: messages.TurnCompleted_DONE, FinalSeq: 60},
		&messages.TimerFired{TimerId: "tim_1", Skipped: true},
	}
}
