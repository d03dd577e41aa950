package conversation

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// SnapshotSchema is the version of the fold that snapshots keep. It grows with every change of
// what State holds or of what a fact does to it. Snapshots of the versions before stand for what was
// trimmed: the change comes with a reader for them (Readable, Restore).
const SnapshotSchema = 5

// Readable says why Restore takes no snapshot of a schema; nil when it does.
//
// 2 has the fields of 3. What 3 folds in another way, the time that a turn waits for approvals, is in no journal of its
// time: nobody was asked then. 3 has the fields of 4, and no input joined a turn in its time. 4 has the fields of 5 but Tries: of the step
// that was under way, all failed attempts before it count as its own, as they did then after a crash. 1 is of the time before compactions, so that no record that it stands for can be missing.
func Readable(schema uint32) error {
	switch {
	case schema > SnapshotSchema:
		return fmt.Errorf("a snapshot of schema %d was written by a later release, this one reads up to %d", schema, SnapshotSchema)
	case schema < 2:
		return fmt.Errorf("a snapshot of schema %d has no sum to check it by: its journal is whole, and is read instead", schema)
	}
	return nil
}

// large is the size in bytes from which a text is not copied into a snapshot: its record is read
// again when the snapshot is.
const large = 16 << 10

// Frozen is a state as it was at one record. Nothing that is applied later changes it, so that it
// can be encoded in another goroutine.
type Frozen struct{ s State }

// Freeze takes a picture of the state. It copies what changes in place, which is little: the history
// and all facts are shared.
func (s *State) Freeze() *Frozen {
	f := &Frozen{*s}
	f.s.known = make(map[string]*accepted, len(s.known))
	for id, a := range s.known {
		kept := *a
		f.s.known[id] = &kept
	}
	f.s.files = make(map[string]map[string]string, len(s.files))
	for ws, m := range s.files {
		f.s.files[ws] = maps.Clone(m)
	}
	f.s.timers = make(map[string]*Timer, len(s.timers))
	for id, t := range s.timers {
		kept := *t
		f.s.timers[id] = &kept
	}
	if s.usage != nil {
		f.s.usage = proto.CloneOf(s.usage)
	}
	f.s.turn, f.s.last = s.turn.freeze(), s.last.freeze()
	return f
}

func (t *Turn) freeze() *Turn {
	if t == nil {
		return nil
	}
	kept := *t
	if t.Usage != nil {
		kept.Usage = proto.CloneOf(t.Usage)
	}
	kept.AllCalls = make([]*Call, len(t.AllCalls))
	for i, c := range t.AllCalls {
		call := *c
		kept.AllCalls[i] = &call
	}
	kept.Calls = kept.AllCalls[len(kept.AllCalls)-len(t.Calls):]
	return &kept
}

// Seq is the record up to which the picture folds.
func (f *Frozen) Seq() uint64 { return f.s.seq }

// Needs is State.Needs of the picture.
func (f *Frozen) Needs() uint64 { return f.s.Needs() }

// Encode makes the bytes of a snapshot. What is large stands in them as the number of the record
// that holds it already.
func (f *Frozen) Encode() ([]byte, error) {
	s := &f.s
	if s.created == nil || len(s.aside) > 0 { // only a worker's state, which forgets, is kept
		return nil, fmt.Errorf("encode snapshot: %w", ErrIllegal)
	}
	m := &messages.ConversationSnapshot{
		RecordId: s.head, Created: s.created, Agent: s.agent, Model: s.model, System: s.system, Tools: s.tools, NoMcp: s.noMCP, Epoch: s.epoch,
		Closed: s.closed, AtUnixMs: s.atMs, Chain: s.chain[:], Turn: keptTurn(s.turn), Last: keptTurn(s.last), Turns: int32(s.turns),
		Usage: s.usage, Panics: int32(s.panics), Deaths: int32(s.deaths), Fell: s.fell, Quarantined: s.barred,
		Resumed: int32(s.resumed), Inputs: keptInputs(s.inputs), Known: keptAnswers(s.known),
		Files: keptFiles(s.files), Lead: uint32(s.lead), Estimated: s.estimated, Reported: s.reported,
		Spent: s.spent, Reserved: s.reserved,
		Bounds: s.bounds, Handed: s.handed, Outbox: s.outbox, Children: s.children, Unasked: uint32(s.unasked),
	}
	for _, id := range slices.Sorted(maps.Keys(s.timers)) {
		m.Timers = append(m.Timers, &messages.KeptTimer{Fact: s.timers[id].TimerSet, End: s.timers[id].End})
	}
	for i, msg := range s.history.messages {
		m.History = append(m.History, keptMessage(msg, s.sources[i]))
	}
	for _, b := range s.borders {
		m.Borders = append(m.Borders, &messages.KeptBorder{End: uint32(b.end), Outcome: b.outcome, Seq: b.seq})
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot at %d: %w", s.seq, err)
	}
	return binary.BigEndian.AppendUint32(b, sum(b)), nil
}

// sum makes sure that a snapshot is whole: what is cut off where a field ends would decode.
func sum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func keptMessage(m *messages.Message, from source) *messages.KeptMessage {
	k := &messages.KeptMessage{Seq: from.seq, At: uint32(from.at), Tokens: uint32(from.tokens)}
	size := len(m.Text) + len(m.Reasoning)
	for _, c := range m.ToolCalls {
		size += len(c.GetArguments())
	}
	k.Message = &messages.ChatMessage{Role: string(m.Role), ToolCallId: m.ToolCallID, Name: m.ToolName}
	if size >= large {
		k.Large = true
		return k
	}
	k.Message.Content, k.Message.Reasoning, k.Message.ToolCalls = m.Text, m.Reasoning, m.ToolCalls
	return k
}

func keptInputs(all []*Input) []*messages.KeptInput {
	var out []*messages.KeptInput
	for _, in := range all {
		k := &messages.KeptInput{Seq: in.Seq, AtUnixMs: in.AtMs, Late: in.late}
		if proto.Size(in.InputAccepted) < large {
			k.Fact = in.InputAccepted
		}
		out = append(out, k)
	}
	return out
}

func keptAnswers(known map[string]*accepted) []*messages.KeptAnswer {
	out := make([]*messages.KeptAnswer, 0, len(known))
	for id, a := range known {
		out = append(out, &messages.KeptAnswer{InputId: id, Hash: a.hash, Cursor: a.cursor, TurnId: a.turn, Done: a.done})
	}
	slices.SortFunc(out, func(a, b *messages.KeptAnswer) int { return cmp.Compare(a.GetInputId(), b.GetInputId()) })
	return out
}

func keptFiles(files map[string]map[string]string) []*messages.KeptFiles {
	var out []*messages.KeptFiles
	for _, ws := range slices.Sorted(maps.Keys(files)) {
		k := &messages.KeptFiles{Workspace: ws}
		for _, path := range slices.Sorted(maps.Keys(files[ws])) {
			k.Files = append(k.Files, &messages.FileHash{Path: path, Sha256: files[ws][path]})
		}
		out = append(out, k)
	}
	return out
}

func keptTurn(t *Turn) *messages.KeptTurn {
	if t == nil {
		return nil
	}
	k := &messages.KeptTurn{
		TurnId: t.ID, Inputs: keptInputs(t.Inputs), Leases: t.Leases, StartedAtUnixMs: t.StartedMs, Steps: int32(t.Steps),
		Attempts: int32(t.Attempts), Gen: t.Gen, Failed: t.Failed, Failures: int32(t.Failures), NewestCalls: int32(len(t.Calls)),
		FinalSeq: t.FinalSeq, Usage: t.Usage, Scripted: t.Scripted, Cancelled: t.Cancelled, Completed: t.Completed,
		DoneAtUnixMs: t.DoneMs, DoneSeq: t.DoneSeq, Committed: t.heard > 0, Mark: uint32(t.mark), Pending: t.assistant != nil,
		WorkedMs: t.WorkedMs, FailedAtUnixMs: t.FailedMs, Compacted: t.Compacted,
		BilledMs: t.BilledMs, Cut: t.Cut, Tries: keptTries(t.Tries), SuspendedSeq: t.suspendedSeq,
	}
	if t.Suspended != nil && proto.Size(t.Suspended) < large {
		k.Suspended = t.Suspended
	}
	if t.heard > 0 {
		k.Waiting = uint32(len(t.Inputs) - t.heard) //nolint:gosec // a count
	}
	for i, g := range t.Gens {
		kept := &messages.KeptGeneration{Seq: t.genSeqs[i]}
		if proto.Size(g) < large {
			kept.Fact = g
		}
		k.Generations = append(k.Generations, kept)
	}
	asked := t.asked()
	for i, c := range t.AllCalls {
		k.Calls = append(k.Calls, keptCall(c, asked[i]))
	}
	return k
}

// asked are the arguments of all calls of a turn, in order, as they were asked for.
func (t *Turn) asked() []string {
	var out []string
	if t.Program() {
		return []string{t.Inputs[0].GetCall().GetArguments()}
	}
	for _, g := range t.Gens {
		for _, c := range g.GetToolCalls() {
			out = append(out, c.GetArguments())
		}
	}
	return out
}

func keptCall(c *Call, asked string) *messages.KeptCall {
	k := &messages.KeptCall{
		Plan: c.Plan, Name: c.Name, Requested: c.Requested, Resolved: c.Resolved, Dispatched: c.Dispatched,
		FinishedSeq: c.finishedSeq, AtUnixMs: c.AtMs, Answer: c.Answer, Doubted: c.doubted, Redo: c.redo,
	}
	if c.Arguments != asked {
		k.OwnArguments, k.Arguments = true, c.Arguments
	}
	if c.Finished != nil && proto.Size(c.Finished) < large {
		k.Finished = c.Finished
	}
	return k
}
