package conversation_test

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// driver writes a random legal history: it asks Next what may come, and does some of it, while
// users, crashes and settings come in between as they like.
type driver struct {
	*journal
	t      *rapid.T
	ids    int
	limits conversation.Limits
	large  bool     // some texts are
	prints []string // of the state after each record

	prompts   []handedOut
	histories []*messages.History
	clones    []proto.Message
	hashes    map[[32]byte]string // every request hash seen, and what was asked
	texts     map[string][32]byte
}

// handedOut is a prompt that was given away, and what it said then.
type handedOut struct {
	p    *messages.Prompt
	text string
}

func newDriver(t *rapid.T) *driver {
	d := &driver{journal: newJournal(), t: t, hashes: map[[32]byte]string{}, texts: map[string][32]byte{}}
	d.limits.Steps = rapid.IntRange(0, 4).Draw(t, "step limit")
	if window := rapid.IntRange(0, 300).Draw(t, "window"); window > 0 {
		d.limits.Fits = func(tokens int) bool { return tokens <= window }
	}
	var copied []*messages.Turn
	if rapid.Bool().Draw(t, "copied") {
		copied = []*messages.Turn{{Outcome: "done", Messages: []*messages.ChatMessage{
			{Role: "user", Content: "before"},
			{Role: "assistant", ToolCalls: []*messages.ToolCall{{Id: "c", Name: "f"}, {Id: "c", Name: "g"}}},
			{Role: "tool", ToolCallId: "c", Name: "f", Content: "1"},
			{Role: "tool", ToolCallId: "c", Name: "g", Content: "2"},
			{Role: "assistant", Content: "then"},
		}}}
	}
	d.put(&messages.WorkerCreated{WorkerId: "wrk_1", SessionId: "ses_1", Agent: "a", Model: "m", Copied: copied})
	return d
}

func (d *driver) run(length int) {
	for len(d.records) < length {
		if !d.outside() {
			d.step(d.s.Next(d.limits))
		}
	}
}

// put writes a fact and looks at everything that came of it.
func (d *driver) put(f proto.Message) {
	if err := d.write(f); err != nil {
		d.t.Fatalf("write %T %v: %v", f, f, err)
	}
	if err := consistent(d.s); err != nil {
		d.t.Fatalf("after %T: %v", f, err)
	}
	d.prints = append(d.prints, fingerprint(d.s))
	h := d.s.History()
	d.histories, d.clones = append(d.histories, h), append(d.clones, proto.Clone(h))
	if r, ok := d.s.Ready(); ok {
		d.seen(r.Render("s"))
	}
}

// seen keeps a prompt and checks that equal hashes and equal requests go together.
func (d *driver) seen(p *messages.Prompt) {
	text := promptText(p)
	d.prompts = append(d.prompts, handedOut{p, text})
	if was, ok := d.hashes[p.Hash]; ok && was != text {
		d.t.Fatalf("one hash for\n%s\nand\n%s", was, text)
	}
	if was, ok := d.texts[text]; ok && was != p.Hash {
		d.t.Fatalf("two hashes for\n%s", text)
	}
	d.hashes[p.Hash], d.texts[text] = text, p.Hash
}

func (d *driver) checkHandedOut() {
	for _, h := range d.prompts {
		if got := promptText(h.p); got != h.text {
			d.t.Fatalf("a prompt changed after it was handed out:\n%s\nwas\n%s", got, h.text)
		}
	}
	for i, h := range d.histories {
		if !proto.Equal(h, d.clones[i]) {
			d.t.Fatalf("the history of record %d changed", i+1)
		}
	}
}

func (d *driver) each(look func(proto.Message)) {
	for _, b := range d.records {
		var r messages.Record
		if err := proto.Unmarshal(b, &r); err != nil {
			d.t.Fatal(err)
		}
		f, err := messages.WorkerFactIn(&r)
		if err != nil {
			d.t.Fatal(err)
		}
		look(f)
	}
}

func (d *driver) id(prefix string) string {
	d.ids++
	return fmt.Sprintf("%s%d", prefix, d.ids)
}

func (d *driver) pick(what string, of ...string) string {
	return rapid.SampledFrom(of).Draw(d.t, what)
}

// bulk makes some texts as large as what a snapshot does not copy.
func (d *driver) bulk(text string) string {
	if d.large && text != "" && rapid.IntRange(0, 3).Draw(d.t, "bulk") == 0 {
		return text + strings.Repeat(".", 16<<10)
	}
	return text
}

// outside lets something happen that no step asks for; false when nothing did.
func (d *driver) outside() bool {
	switch d.pick("event", "", "", "", "", "", "input", "withdraw", "cancel", "config", "panic", "stop", "crash", "other", "compact") {
	case "input":
		d.put(d.input())
	case "withdraw":
		if st := d.s.Staged(); len(st) > 0 {
			d.put(&messages.InputWithdrawn{InputId: rapid.SampledFrom(st).Draw(d.t, "which").GetInputId()})
		}
	case "cancel":
		d.put(&messages.CancelRequested{By: d.pick("by", "user", conversation.ByLimit), Reason: "enough"})
	case "config":
		d.put(&messages.ConfigChanged{Model: d.pick("model", "", "m1", "m2"), Agent: d.pick("agent", "", "b")})
	case "compact":
		t := d.s.Turn()
		if n := d.s.Exchanges(); n > 0 && (t == nil || t.Steps == 0 && t.Gen == nil && !t.Program()) {
			f := d.s.Compaction(rapid.IntRange(1, n).Draw(d.t, "turns"), d.bulk("a summary "+d.id("sum")))
			f.Usage = &messages.Usage{InputTokens: 3}
			d.put(f)
		}
	case "panic":
		d.put(&messages.Panicked{Reason: "boom"})
	case "stop":
		d.put(&messages.Suspended{Text: d.bulk(d.pick("arrived", "", "half an answer"))})
	case "crash":
		d.cut(len(d.records))
		d.put(&messages.Activated{Epoch: d.epoch, RecoveredSeq: d.s.Seq(), Decisions: d.s.Recover()})
	case "other":
		open := d.s.Timers()
		switch d.pick("timer", "set", "fire", "cancel") {
		case "fire":
			if len(open) > 0 {
				d.put(&messages.TimerFired{TimerId: open[0].GetTimerId(), Skipped: rapid.Bool().Draw(d.t, "skipped")})
			}
		case "cancel":
			if len(open) > 0 {
				d.put(&messages.TimerCancelled{TimerId: open[0].GetTimerId()})
			}
		default:
			d.put(&messages.TimerSet{TimerId: d.id("tmr"), DueUnixMs: int64(d.ids)})
		}
	default:
		return false
	}
	return true
}

// cut forgets what came after the first n records, as a crash would.
func (d *driver) cut(n int) {
	s, err := fold(d.records[:n])
	if err != nil {
		d.t.Fatal(err)
	}
	d.records, d.prints = d.records[:n:n], d.prints[:n:n]
	d.s, d.epoch = s, d.epoch+1
}

func (d *driver) input() *messages.InputAccepted {
	f := &messages.InputAccepted{InputId: d.id("inp"), Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: d.bulk(d.pick("text", "hello", "again", ""))}}}}
	switch d.pick("input", "text", "text", "text", "file", "call") {
	case "file":
		f.Parts = append(f.Parts, &messages.Part{Kind: &messages.Part_File{File: &messages.FilePart{Name: "a.txt", Text: "A"}}})
	case "call":
		f.Parts, f.Call = nil, &messages.ToolCall{Name: "exec", Arguments: "{}"}
	}
	f.Mode = rapid.SampledFrom([]messages.InputAccepted_Mode{messages.InputAccepted_QUEUE, messages.InputAccepted_STEER}).Draw(d.t, "mode")
	f.ContentHash = conversation.ContentHash(f.GetParts(), f.GetCall())
	return f
}

// step does some of what may come next.
func (d *driver) step(n conversation.Step) {
	switch n := n.(type) {
	case conversation.Rest:
		d.put(d.input())
	case conversation.Begin:
		d.begin(n)
	case conversation.Join:
		for _, in := range n.Inputs[:rapid.IntRange(1, len(n.Inputs)).Draw(d.t, "joined")] {
			d.put(&messages.InputJoined{TurnId: d.s.Turn().ID, InputId: in.GetInputId()})
		}
	case conversation.Generate:
		d.generate(n)
	case conversation.Plan:
		for i, c := range n.Calls[:rapid.IntRange(1, len(n.Calls)).Draw(d.t, "planned")] {
			d.plan(c, n.From+i)
		}
	case conversation.Settle:
		if rapid.IntRange(0, 3).Draw(d.t, "all at once") == 0 {
			d.finishAll(n.Calls)
			return
		}
		d.settle(rapid.SampledFrom(n.Calls).Draw(d.t, "call"))
	case conversation.Complete:
		d.put(&messages.TurnCompleted{TurnId: d.s.Turn().ID, Outcome: n.Outcome, Reason: n.Reason, ErrorCode: n.Code})
	}
}

func (d *driver) begin(n conversation.Begin) {
	before := d.s.Preview(n.Input.InputAccepted, "s")
	text := promptText(before)
	d.put(&messages.TurnStarted{TurnId: d.id("trn"), InputIds: []string{n.Input.GetInputId()}})
	if r, ok := d.s.Ready(); ok {
		if p := r.Render("s"); p.Hash != before.Hash || promptText(p) != text {
			d.t.Fatalf("preview\n%s\nis not what is sent\n%s", text, promptText(p))
		}
	} else if !d.s.Turn().Program() {
		d.t.Fatal("a turn that began is not ready")
	}
}

func (d *driver) generate(n conversation.Generate) {
	gen := d.s.Turn().Gen
	if gen == nil || rapid.IntRange(0, 9).Draw(d.t, "start again") == 0 {
		h := n.Ready.Render("s").Hash
		d.put(&messages.GenerationStarted{GenId: d.id("gen"), Step: uint32(n.Number), Attempt: uint32(n.Attempt), Model: d.s.Model(), InsteadOf: d.pick("instead of", "", "another"), RequestHash: h[:], EstimatedTokens: 300})
		return
	}
	switch d.pick("answer", "stop", "calls", "calls", "length", "retry", "fail") {
	case "calls":
		d.answer(gen.GetGenId(), rapid.IntRange(1, 8).Draw(d.t, "calls"), "tool_calls")
	case "length":
		d.answer(gen.GetGenId(), 0, "length")
	case "retry":
		d.put(&messages.GenerationFailed{GenId: gen.GetGenId(), Class: d.pick("class", "overloaded", "rate_limited"), NotMade: rapid.Bool().Draw(d.t, "not made"), Unanswered: rapid.Bool().Draw(d.t, "unanswered"), RetryAtUnixMs: 1})
	case "fail":
		d.put(&messages.GenerationFailed{GenId: gen.GetGenId(), Class: "auth", Message: "no"})
	default:
		d.answer(gen.GetGenId(), 0, "stop")
	}
}

func (d *driver) answer(gen string, calls int, finish string) {
	f := &messages.GenerationCompleted{
		GenId: gen, Content: d.bulk(d.pick("content", "", "an answer", "another")), FinishReason: finish,
		Usage: &messages.Usage{InputTokens: int64(rapid.IntRange(0, 900).Draw(d.t, "tokens")), OutputTokens: 2}, Model: d.s.Model(),
	}
	for range calls {
		f.ToolCalls = append(f.ToolCalls, &messages.ToolCall{
			Id: d.pick("call id", "", "c0", "c1"), Name: d.pick("tool", "exec", "read_file"), Arguments: d.pick("args", "{}", `{"a":1}`),
		})
	}
	d.put(f)
}

func (d *driver) plan(c *messages.ToolCall, n int) {
	d.put(&messages.ToolPlanned{
		CallId: c.GetId(), ExecId: d.id("exe"), Ordinal: uint32(n), Tool: c.GetName(), Workspace: "home",
		Effect:        messages.Effect_Class(rapid.IntRange(0, 4).Draw(d.t, "effect")),
		Unknown:       messages.UnknownOutcome_Policy(rapid.IntRange(0, 3).Draw(d.t, "unknown")),
		NeedsApproval: rapid.IntRange(0, 3).Draw(d.t, "approval") == 0,
	})
}
