package conversation_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// FuzzFold applies facts in any order. Whatever the order: no panic, a fact that cannot follow
// is ErrIllegal, and what was accepted leaves a state that holds its invariants.
func FuzzFold(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 0, 4, 1, 1, 5, 1, 0, 6, 1, 0x20, 13, 1, 1})
	f.Add([]byte{0, 0, 0, 2, 1, 0, 4, 1, 1, 5, 1, 0, 6, 1, 0x22, 8, 1, 0, 8, 2, 0x11, 12, 2, 1, 12, 1, 1, 5, 2, 0, 6, 2, 0, 13, 1, 1})
	f.Add([]byte{0, 0, 0, 2, 2, 0x40, 4, 1, 2, 8, 1, 0, 11, 1, 0, 12, 1, 1, 13, 1, 1})
	f.Add([]byte{0, 0, 0, 2, 1, 0, 4, 1, 1, 5, 1, 0, 6, 1, 0x21, 8, 1, 0x40, 9, 1, 1, 10, 1, 1, 11, 1, 0, 14, 1, 0, 12, 1, 3, 13, 1, 7})
	f.Add([]byte{0, 0, 0, 2, 1, 0, 4, 1, 1, 5, 1, 0, 2, 2, 0x20, 6, 1, 0x11, 8, 1, 0, 11, 1, 0, 12, 1, 1, 18, 1, 2, 5, 2, 0, 6, 2, 0, 13, 1, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 3*80 {
			return
		}
		j := newJournal()
		for ; len(ops) >= 3; ops = ops[3:] {
			fact := anyFact(ops[0], ops[1], ops[2])
			if err := j.write(fact); err != nil && !errors.Is(err, conversation.ErrIllegal) {
				t.Fatalf("%T: %v", fact, err)
			}
			if err := consistent(j.s); err != nil {
				t.Fatalf("after %T %v: %v", fact, fact, err)
			}
		}
		again, err := fold(j.records)
		if err != nil {
			t.Fatal(err)
		}
		if fingerprint(again) != fingerprint(j.s) {
			t.Fatalf("folded anew\n%s\nwas\n%s", fingerprint(again), fingerprint(j.s))
		}
	})
}

// anyFact makes a fact of a kind with names from a small set, so that they meet.
func anyFact(kind, name, detail byte) proto.Message {
	id := func(p string) string { return p + string('0'+rune(name%4)) }
	switch kind % 19 {
	case 0:
		f := &messages.WorkerCreated{WorkerId: "wrk_1", Model: "m"}
		if name%4 == 1 {
			f.Copied = []*messages.Turn{{Messages: []*messages.ChatMessage{
				{Role: "user"}, {Role: "assistant", ToolCalls: calls(detail % 3)}, {Role: "tool", ToolCallId: "c", Name: "exec"}, {Role: "assistant"},
			}}}
		}
		return f
	case 1:
		return &messages.Activated{Epoch: uint64(name)}
	case 2:
		f := &messages.InputAccepted{InputId: id("inp")}
		if detail&0x40 != 0 {
			f.Call = &messages.ToolCall{Name: "exec"}
		}
		if detail&0x20 != 0 {
			f.Mode = messages.InputAccepted_STEER
		}
		return f
	case 3:
		return &messages.InputWithdrawn{InputId: id("inp")}
	case 4:
		ids := []string{id("inp"), "inp" + string('0'+rune(detail%4))}
		return &messages.TurnStarted{TurnId: id("trn"), InputIds: ids[:1+detail>>7]}
	case 5:
		return &messages.GenerationStarted{GenId: id("gen")}
	case 6:
		return &messages.GenerationCompleted{GenId: id("gen"), Content: id("text"), ToolCalls: calls(detail >> 4 % 8), FinishReason: "stop"}
	case 7:
		return &messages.GenerationFailed{GenId: id("gen"), RetryAtUnixMs: int64(detail % 2)}
	}
	return anyCallFact(kind%19, id, detail)
}

func calls(n byte) []*messages.ToolCall {
	var out []*messages.ToolCall
	for range n {
		out = append(out, &messages.ToolCall{Id: "c", Name: "exec"})
	}
	return out
}

func anyCallFact(kind byte, id func(string) string, detail byte) proto.Message {
	exec := id("exe")
	switch kind {
	case 8:
		return &messages.ToolPlanned{
			ExecId: exec, Ordinal: uint32(detail >> 4 % 4), Tool: "exec", NeedsApproval: detail&0x40 != 0,
			Effect: messages.Effect_Class(detail % 5), Unknown: messages.UnknownOutcome_Policy(detail % 4),
		}
	case 9:
		return &messages.ApprovalRequested{ExecId: exec, ApprovalId: "apr"}
	case 10:
		return &messages.ApprovalResolved{ExecId: exec, ApprovalId: "apr", Decision: messages.Decision_Value(detail % 6)}
	case 11:
		return &messages.ToolDispatched{ExecId: exec}
	case 12:
		return &messages.ToolFinished{ExecId: exec, Status: messages.ToolFinished_Status(detail % 9), Content: exec}
	case 13:
		return &messages.TurnCompleted{TurnId: id("trn"), Outcome: messages.TurnCompleted_Outcome(detail % 8)}
	case 14:
		return &messages.CancelRequested{By: "user"}
	case 15:
		return &messages.ConfigChanged{Model: id("m")}
	case 16:
		return &messages.Panicked{}
	case 18:
		return &messages.InputJoined{TurnId: id("trn"), InputId: "inp" + string('0'+rune(detail%4))}
	}
	if detail != 0 {
		return &messages.BudgetReserved{GenId: id("gen")}
	}
	return &messages.Closed{}
}

// FuzzRecords folds what a damaged disk may hold: any bytes in place of a record.
func FuzzRecords(f *testing.F) {
	j := newJournal()
	mustWrite(f, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
	writeTurn(f, j, 1)
	for _, b := range j.records {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for cut := range len(j.records) + 1 {
			s, err := fold(j.records[:cut])
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(s, b); err == nil {
				_ = s.Next(conversation.Limits{})
				_ = s.Recover()
				_ = s.History()
			}
		}
	})
}
