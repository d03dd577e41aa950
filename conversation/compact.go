package conversation

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
)

// SummaryRequest is what stands, as the user's word, before the summary of what a compaction replaced.
// The pair stands at a turn's border and nowhere else, and the summary is the agent's own word: it was made
// of tool outputs, too, and must not gain the weight of the system prompt.
const SummaryRequest = "Before we go on: what has happened in this conversation so far?"

// leading is how many messages stand for what was compacted.
const leading = 2

// Live returns a state that forgets the messages that a compaction replaced: for a worker, which sends
// them no more. The zero State keeps them, for those who read the history.
func Live() *State { return &State{forgets: true} }

// Remember makes a state that forgets one that keeps what is compacted from now on.
func (s *State) Remember() { s.forgets = false }

// Compacted is the record that ended the newest exchange which a summary stands for, as far as the state keeps it.
func (s *State) Compacted() uint64 {
	if n := len(s.asideBorders); n > 0 {
		return s.asideBorders[n-1].seq
	}
	return 0
}

// Needs is the oldest record that the conversation as it goes on is made of: a message that is still sent, an input that
// waits, the open and the newest turn. What is older, a compaction has left behind. It is 1 when there was none.
func (s *State) Needs() uint64 {
	if s.lead == 0 {
		return 1
	}
	low := s.seq
	for _, from := range s.sources {
		low = min(low, from.seq)
	}
	inputs := s.inputs
	for _, t := range []*Turn{s.turn, s.last} {
		if t == nil {
			continue
		}
		inputs = append(inputs[:len(inputs):len(inputs)], t.Inputs...)
		for _, seq := range t.genSeqs {
			low = min(low, seq)
		}
		for _, c := range t.AllCalls {
			if c.finishedSeq != 0 {
				low = min(low, c.finishedSeq)
			}
		}
	}
	for _, in := range inputs {
		low = min(low, in.Seq)
	}
	return low
}

// Forgot says whether there are messages that only the journal has.
func (s *State) Forgot() bool { return s.forgets && s.lead > 0 }

// Exchanges counts the finished exchanges that are still sent as they were: the ones that can be compacted.
func (s *State) Exchanges() int { return len(s.borders) }

// Beyond says how many of the oldest exchanges must go so that the others are at most so many tokens, as
// Calibrated counts them.
func (s *State) Beyond(tokens int) int {
	left, from := s.tokens-s.before(0), s.lead
	for n, b := range s.borders {
		if s.Calibrated(left) <= tokens {
			return n
		}
		for _, m := range s.sources[from:b.end] {
			left -= m.tokens
		}
		from = b.end
	}
	return len(s.borders)
}

// before is what the history up to the first n exchanges is in tokens, with what stands for older ones.
func (s *State) before(n int) int {
	sum, end := 0, s.lead
	if n > 0 {
		end = s.borders[n-1].end
	}
	for _, from := range s.sources[:end] {
		sum += from.tokens
	}
	return sum
}

// Compaction makes the fact that replaces the n oldest exchanges by a text.
func (s *State) Compaction(n int, text string) *messages.HistoryCompacted {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	f := &messages.HistoryCompacted{Summary: text, Turns: uint32(n)}
	if n > 0 {
		f.UptoSeq = s.borders[n-1].seq
	}
	f.TokensBefore = int64(s.Calibrated(s.tokens))
	f.TokensAfter = int64(s.Calibrated(s.tokens - s.before(n) + s.Standing(text)))
	return f
}

// Standing estimates, in tokens, what a text costs that stands for older exchanges.
func (s *State) Standing(text string) int {
	return 2*messageCost + EstimateTokens(SummaryRequest) + EstimateTokens(text)
}

// Replaced estimates, in tokens, the n oldest exchanges and what stands for older ones.
func (s *State) Replaced(n int) int { return s.before(n) }

// Summary is what is sent in place of the exchanges that were compacted, "" when there are none.
func (s *State) Summary() string {
	if s.lead == 0 {
		return ""
	}
	return s.history.messages[leading-1].Text
}

// applyCompacted replaces the oldest exchanges. It happens at a turn's border, which is also where a turn is
// whose first request was refused: nothing of it stands in the history, and no call is open.
func (s *State) applyCompacted(f *messages.HistoryCompacted, r *messages.Record) error {
	n, t := int(f.GetTurns()), s.turn
	if n < 1 || n > len(s.borders) || t != nil && (t.Steps > 0 || t.Gen != nil || t.heard > 0 || t.Program()) {
		return fmt.Errorf("compaction of %d exchanges: %w", n, ErrIllegal)
	}
	old, from, borders := s.history.messages, s.sources, s.borders
	cut := borders[n-1].end
	if !s.forgets {
		s.keepAside(n, cut)
	}
	s.history, s.sources, s.borders, s.tokens, s.chain = kept{}, nil, nil, 0, [sha256.Size]byte{}
	s.push(&messages.Message{Role: messages.User, Text: SummaryRequest}, source{seq: r.GetSeq()})
	s.push(&messages.Message{Role: messages.Assistant, Text: f.GetSummary()}, source{seq: r.GetSeq(), at: 1})
	s.lead = leading
	for i := cut; i < len(old); i++ {
		s.again(old[i], from[i])
	}
	for _, b := range borders[n:] {
		b.end += leading - cut
		s.borders = append(s.borders, b)
	}
	s.usage = addUsage(s.usage, f.GetUsage())
	if t != nil {
		t.mark, t.Compacted = len(s.history.messages), true
	}
	return nil
}

// keepAside keeps what is no longer sent, for History.
func (s *State) keepAside(n, cut int) {
	base := len(s.aside)
	s.aside = append(s.aside, s.history.messages[s.lead:cut]...)
	for _, b := range s.borders[:n] {
		b.end += base - s.lead
		s.asideBorders = append(s.asideBorders, b)
	}
}

// The sizes in bytes to which tool results, and other texts, are cut for a summary: the first that fits is taken.
func excerpts() [][2]int { return [][2]int{{4 << 10, 32 << 10}, {1 << 10, 8 << 10}, {256, 1 << 10}} }

// Transcript writes the n oldest exchanges down as one text, with what stands for older ones: for the model that
// summarises them. It is at most so many tokens, as Calibrated counts them; long texts are cut for that. ok is
// false when it cannot be made so short. tokens 0 is no limit.
func (s *State) Transcript(n, tokens int) (text string, ok bool) {
	if n < 1 || n > len(s.borders) {
		return "", false
	}
	for _, size := range excerpts() {
		var b strings.Builder
		for _, m := range s.history.messages[:s.borders[n-1].end] {
			writeMessage(&b, m, size[0], size[1])
		}
		if text = b.String(); tokens == 0 || s.Calibrated(EstimateTokens(text)) <= tokens {
			return text, true
		}
	}
	return "", false
}

func writeMessage(b *strings.Builder, m *messages.Message, result, other int) {
	switch m.Role {
	case messages.ToolRole:
		fmt.Fprintf(b, "[result of %s]\n%s\n\n", m.ToolName, excerpt(m.Text, result))
		return
	case messages.User:
		fmt.Fprintf(b, "[user]\n%s\n\n", excerpt(m.Text, other))
	case messages.Assistant:
		if m.Text != "" {
			fmt.Fprintf(b, "[agent]\n%s\n\n", excerpt(m.Text, other))
		}
	}
	for _, c := range m.ToolCalls {
		fmt.Fprintf(b, "[agent calls %s]\n%s\n\n", c.GetName(), excerpt(c.GetArguments(), result))
	}
}

// excerpt keeps the beginning and the end of a long text.
func excerpt(text string, size int) string {
	if len(text) <= size {
		return text
	}
	head, tail := size/2, len(text)-size/2
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", text[:head], tail-head, text[tail:])
}
