package conversation_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// TestACompactionChangesWhatIsSentAndNothingOfWhatWasSaid draws histories with compactions: a worker's state and one that
// keeps everything ask the same, the history is what it would be without compactions, and the sums are right.
func TestACompactionChangesWhatIsSentAndNothingOfWhatWasSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(t)
		d.run(rapid.IntRange(20, 80).Draw(t, "length"))
		live, without := conversation.Live(), &conversation.State{}
		skipped := uint64(0)
		for _, b := range d.records {
			var r messages.Record
			if err := proto.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			if err := live.Apply(&r); err != nil {
				t.Fatal(err)
			}
			f, err := messages.WorkerFactIn(&r)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := f.(*messages.HistoryCompacted); ok {
				skipped++
				continue
			}
			r.Seq -= skipped
			if err := without.Apply(&r); err != nil {
				t.Fatal(err)
			}
		}
		a, b := d.s.History(), without.History()
		for _, turn := range a.GetTurns() {
			turn.Compacted = false
		}
		if a.Summary, a.Seq = "", b.GetSeq(); !proto.Equal(a, b) {
			t.Fatalf("the history is\n%v\nand without compactions\n%v", a, b)
		}
		x, ok := live.Ready()
		if y, same := d.s.Ready(); ok != same || ok && (promptText(x.Render("s")) != promptText(y.Render("s")) || x.Render("s").Hash != y.Render("s").Hash) {
			t.Fatal("who forgets and who does not send different requests")
		}
		if live.Tokens() != conversation.Recounted(live) || live.Tokens() != d.s.Tokens() {
			t.Fatalf("%d tokens, counted again %d, and %d", live.Tokens(), conversation.Recounted(live), d.s.Tokens())
		}
		room := rapid.IntRange(0, 400).Draw(t, "room")
		if n := live.Beyond(room); n < live.Exchanges() && live.Calibrated(live.Tokens()-live.Replaced(n)) > room || n > 0 && live.Calibrated(live.Tokens()-live.Replaced(n-1)) <= room {
			t.Fatalf("%d of %d exchanges are beyond %d tokens", n, live.Exchanges(), room)
		}
	})
}

func TestACompactionIsRefusedWhereACallOrATurnIsOpen(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
	refused := func(when string, turns uint32) {
		t.Helper()
		if err := j.write(&messages.HistoryCompacted{Turns: turns, Summary: "s"}); !errors.Is(err, conversation.ErrIllegal) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("nothing to compact", 1)
	writeTurn(t, j, 1)
	writeTurn(t, j, 2)
	refused("no turn", 0)
	refused("more than there are", 3)
	mustWrite(t, j, &messages.InputAccepted{InputId: "x"}, &messages.TurnStarted{TurnId: "tx", InputIds: []string{"x"}}, &messages.GenerationStarted{GenId: "gx"})
	refused("the model is asked", 1)
	mustWrite(t, j, &messages.GenerationFailed{GenId: "gx", Class: conversation.ContextLength, RetryAtUnixMs: 1}, &messages.HistoryCompacted{Turns: 1, Summary: "s"},
		&messages.GenerationStarted{GenId: "gy"},
		&messages.GenerationCompleted{GenId: "gy", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "f"}}}, &messages.ToolPlanned{ExecId: "e", CallId: "c"})
	refused("a call is open", 1)
	mustWrite(t, j, &messages.ToolFinished{ExecId: "e", CallId: "c"})
	refused("between the steps of a turn", 1)
}

func TestATranscriptIsCutUntilItFitsAndStaysText(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1", Copied: []*messages.Turn{{Messages: []*messages.ChatMessage{
		{Role: "user", Content: strings.Repeat("Bitte lies alles über Äpfel. ", 2000)},
		{Role: "assistant", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "read_file", Arguments: `{"path":"a"}`}}},
		{Role: "tool", ToolCallId: "c", Name: "read_file", Content: strings.Repeat("zeile 👩‍🌾\n", 9000)},
		{Role: "assistant", Content: "the end"},
	}}}})
	whole, ok := j.s.Transcript(1, 0)
	if !ok || !strings.Contains(whole, "[agent calls read_file]\n{\"path\":\"a\"}") || !strings.HasSuffix(whole, "[agent]\nthe end\n\n") {
		t.Errorf("%v %q", ok, whole[len(whole)-100:])
	}
	for _, room := range []int{20_000, 5000, 1000} {
		text, ok := j.s.Transcript(1, room)
		if !ok || conversation.EstimateTokens(text) > room || !utf8.ValidString(text) || !strings.Contains(text, "bytes left out") {
			t.Errorf("%d tokens: %v, %d tokens", room, ok, conversation.EstimateTokens(text))
		}
	}
	if _, ok := j.s.Transcript(1, 50); ok {
		t.Error("it fits into nothing")
	}
}

// TestAnEstimateIsNearWhatVocabulariesCount: the counts are those of o200k_base.
func TestAnEstimateIsNearWhatVocabulariesCount(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		count int
	}{
		"diff":     {strings.Repeat("diff --git a/x.go b/x.go\nindex 3f2f5b8..50d12c1 100644\n--- a/x.go\n+++ b/x.go\n@@ -42,6 +42,7 @@ type State struct {\n \tturns   int\n+\ttimers  map[string]*Timer // every one\n", 60), 4320},
		"a log":    {strings.Repeat("=== RUN   TestALongConversation/one\n--- PASS: TestALongConversation (0.03s)\n    --- PASS: TestALongConversation/one (0.01s)\n2026-01-12T10:11:12.123Z INFO request done path=/api/sessions status=200 took=1.234ms\n", 60), 4320},
		"a table":  {strings.Repeat("-rw-r--r--  1 root root    17790 Nov 21 20:46 acceptance.md\ndrwxr-xr-x 21 root root     4096 Nov 21 21:20 testdata\n", 60), 2940},
		"German":   {strings.Repeat("Der Agent arbeitet in einem Ordner mit Werkzeugen: er liest Dateien, führt Befehle aus und berichtet, was er gesehen hat. ", 60), 1681},
		"Chinese":  {strings.Repeat("人工智能代理在文件夹中工作,它们读取文件、运行命令并报告所看到的内容。每个代理都有自己的对话记录,即使进程被终止也不会丢失。", 60), 2760},
		"Japanese": {strings.Repeat("エージェントはフォルダの中でツールを使って作業し、ファイルを読み、コマンドを実行して、見たことを報告します。", 60), 2460},
	} {
		got := conversation.EstimateTokens(c.text)
		if ratio := float64(got) / float64(c.count); ratio < 0.8 || ratio > 1.2 {
			t.Errorf("%s: %d where %d are counted", name, got, c.count)
		}
	}
	var all strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	whole, parts := conversation.EstimateTokens(all.String()), 0
	for rest := all.String(); rest != ""; rest = rest[min(len(rest), 4<<10):] {
		parts += conversation.EstimateTokens(rest[:min(len(rest), 4<<10)])
	}
	if ratio := float64(whole) / float64(parts); ratio < 0.9 || ratio > 1.1 {
		t.Errorf("of samples: %d, of everything: %d", whole, parts)
	}
	if conversation.EstimateTokens("") != 0 || conversation.EstimateTokens("x") < 1 {
		t.Error("nothing is something")
	}
}

func TestWhatTheProviderCountsCorrectsTheEstimateUnlessItIsAbsurd(t *testing.T) {
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"})
	n := 0
	turn := func(estimated, reported int64) {
		n++
		id := fmt.Sprint(n)
		mustWrite(t, j, &messages.InputAccepted{InputId: "i" + id}, &messages.TurnStarted{TurnId: "t" + id, InputIds: []string{"i" + id}},
			&messages.GenerationStarted{GenId: "g" + id, EstimatedTokens: estimated},
			&messages.GenerationCompleted{GenId: "g" + id, FinishReason: "stop", Usage: &messages.Usage{InputTokens: reported}},
			&messages.TurnCompleted{TurnId: "t" + id, Outcome: messages.TurnCompleted_DONE})
	}
	want := func(when string, tokens int) {
		t.Helper()
		if got := j.s.Calibrated(1000); got != tokens {
			t.Errorf("%s: 1000 tokens are %d, not %d", when, got, tokens)
		}
	}
	want("before any answer", 1000)
	turn(1000, 1300)
	want("the provider counts more", 1300)
	turn(1000, 1)
	want("an absurd report", 1300)
	turn(100, 300)
	want("a small request", 1300)
	turn(0, 5000)
	want("an older record, without an estimate", 1300)
	mustWrite(t, j, &messages.ConfigChanged{Agent: "b"})
	want("another agent", 1300)
	mustWrite(t, j, &messages.ConfigChanged{Model: "other"})
	want("another model", 1000)
}
