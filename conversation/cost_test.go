package conversation_test

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// turnFacts are the facts of one turn with one tool call.
func turnFacts(i int) []proto.Message {
	id := func(p string) string { return p + strconv.Itoa(i) }
	return []proto.Message{
		&messages.InputAccepted{InputId: id("inp"), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "do it"}}}},
		&messages.TurnStarted{TurnId: id("trn"), InputIds: []string{id("inp")}},
		&messages.GenerationStarted{GenId: id("gen_a")},
		&messages.GenerationCompleted{GenId: id("gen_a"), FinishReason: "tool_calls", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "exec", Arguments: "{}"}}},
		&messages.ToolPlanned{ExecId: id("exe"), CallId: "c", Tool: "exec"},
		&messages.ToolDispatched{ExecId: id("exe")},
		&messages.ToolFinished{ExecId: id("exe"), CallId: "c", Status: messages.ToolFinished_OK, Content: "done"},
		&messages.GenerationStarted{GenId: id("gen_b")},
		&messages.GenerationCompleted{GenId: id("gen_b"), Content: "did it", FinishReason: "stop"},
		&messages.TurnCompleted{TurnId: id("trn"), Outcome: messages.TurnCompleted_DONE},
	}
}

func writeTurn(t testing.TB, j *journal, i int) {
	t.Helper()
	mustWrite(t, j, turnFacts(i)...)
}

// bench is a state that turns are applied to as a Worker does: decoded, rendered before each generation.
type bench struct {
	s   *conversation.State
	seq uint64
	n   int
}

func newBench(tb testing.TB, turns int) *bench {
	b := &bench{s: &conversation.State{}}
	b.apply(tb, &messages.WorkerCreated{WorkerId: "wrk_1"})
	b.n = 10_000 // names of one length cost the same
	for range turns {
		b.turn(tb)
	}
	return b
}

func (b *bench) apply(tb testing.TB, f proto.Message) {
	b.seq++
	if err := b.s.ApplyFact(f, &messages.Record{Seq: b.seq}); err != nil {
		tb.Fatal(err)
	}
}

func (b *bench) turn(tb testing.TB) {
	b.n++
	for _, f := range turnFacts(b.n) {
		if _, ok := f.(*messages.GenerationStarted); ok {
			g, ok := b.s.Next(conversation.Limits{}).(conversation.Generate)
			if !ok || len(g.Ready.Render("").Messages) == 0 {
				tb.Fatal("nothing to render")
			}
		}
		b.apply(tb, f)
	}
}

// TestTurnCostsTheSameAtAnyLengthOfHistory counts allocations: copying the history's pointers is
// one of them, whatever its length. Slices and maps that double now and then are averaged out.
func TestTurnCostsTheSameAtAnyLengthOfHistory(t *testing.T) {
	short, long := newBench(t, 10), newBench(t, 1000)
	const runs = 200
	few := testing.AllocsPerRun(runs, func() { short.turn(t) })
	many := testing.AllocsPerRun(runs, func() { long.turn(t) })
	if few == 0 || many > few+2 {
		t.Errorf("%v allocations per turn after 10 turns, %v after 1,000", few, many)
	}
}

func BenchmarkTurnAt10(b *testing.B)   { benchmarkTurn(b, 10) }
func BenchmarkTurnAt100(b *testing.B)  { benchmarkTurn(b, 100) }
func BenchmarkTurnAt1000(b *testing.B) { benchmarkTurn(b, 1000) }

// benchmarkTurn begins anew before the history has doubled.
func benchmarkTurn(b *testing.B, turns int) {
	b.ReportAllocs()
	st := newBench(b, turns)
	for i := 0; b.Loop(); i++ {
		if i%max(turns, 1) == turns-1 {
			b.StopTimer()
			st = newBench(b, turns)
			b.StartTimer()
		}
		st.turn(b)
	}
}

// BenchmarkEstimateTokens: what a message of 4 KiB adds to a turn.
func BenchmarkEstimateTokens(b *testing.B) {
	text := strings.Repeat("func (w *Worker) window() int { return w.sizes.window } // 12 tokens\n", 60)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		conversation.EstimateTokens(text)
	}
}
