package conversation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Bounds of shared conversations.
const (
	MaxTranscript = 64 << 20  // bytes of all that was said, but for the turns that have the word or wait for it when there are so many
	MaxSharedName = 200       // bytes of the name of one, or of a member
	MaxSaid       = 128 << 10 // bytes of a turn that the others are told; what goes beyond stays in the speaker's own conversation
	maxTold       = 512 << 10 // bytes that a member is told at once: the oldest turns are left out
)

// Shared is a conversation that several workers share: the fold of its journal. Each member has a conversation of its own besides, in
// which its turns are answers, and what the others said stands in what it is asked. Its zero value is the state before the first fact.
type Shared struct {
	ID, Session, Name string
	Seq               uint64
	Members           []*messages.SharedMember // as they joined first
	Turns             []*messages.SharedTurn   // as they came to an end
	Given             *messages.TurnGiven      // the open turn; nil: nobody has the word
	Asked             []*messages.TurnAsked    // turns that wait for the word, the next one first

	heard  map[string]uint64 // worker -> the record up to which it knows what was said
	asked  map[string]string // worker -> the prompt that it was asked last
	turns  map[string]*messages.SharedTurn
	back   map[string]*messages.TurnWithdrawn // turns that were taken back
	size   int                                // of what was said, in bytes
	since  map[string]int64                   // turns that wait, or have the word -> since when
	opened bool
}

// Apply folds one record in. It is total: after an error the state must not be used.
func (s *Shared) Apply(fact proto.Message, r *messages.Record) error {
	if r.GetSeq() != s.Seq+1 {
		return fmt.Errorf("record %d after %d: %w", r.GetSeq(), s.Seq, ErrIllegal)
	}
	if err := s.fold(fact, r); err != nil {
		return fmt.Errorf("apply record %d (%T): %w", r.GetSeq(), fact, err)
	}
	s.Seq = r.GetSeq()
	return nil
}

func (s *Shared) fold(fact proto.Message, r *messages.Record) error {
	if _, first := fact.(*messages.ConversationOpened); first == s.opened {
		return ErrIllegal
	}
	switch f := fact.(type) {
	case *messages.ConversationOpened:
		s.ID, s.Session, s.Name, s.opened = f.GetConversationId(), f.GetSessionId(), f.GetName(), true
		s.heard, s.asked, s.turns = make(map[string]uint64), make(map[string]string), make(map[string]*messages.SharedTurn)
		s.back, s.since = make(map[string]*messages.TurnWithdrawn), make(map[string]int64)
	case *messages.MemberJoined:
		return s.join(f)
	case *messages.MemberLeft:
		m := s.Member(f.GetWorkerId())
		if m == nil || m.GetLeft() != "" || s.Given.GetWorkerId() == f.GetWorkerId() {
			return ErrIllegal
		}
		m.Left = f.GetReason()
	case *messages.TurnGiven:
		m := s.Member(f.GetWorkerId())
		asked := s.askedAt(f.GetTurnId())
		if s.Given != nil || m == nil || m.GetLeft() != "" || s.turns[f.GetTurnId()] != nil || s.back[f.GetTurnId()] != nil || asked > 0 {
			return ErrIllegal
		}
		if asked == 0 {
			s.Asked = s.Asked[1:]
		}
		s.Given, s.since[f.GetTurnId()] = f, r.GetAtUnixMs()
	case *messages.TurnAsked:
		s.since[f.GetTurnId()] = r.GetAtUnixMs()
		return s.ask(f)
	case *messages.TurnWithdrawn:
		return s.withdrawn(f)
	case *messages.TurnSubmitted:
		return s.submitted(f, r)
	case *messages.TurnCut:
		return s.cut(f, r)
	}
	return nil
}

func (s *Shared) join(f *messages.MemberJoined) error {
	m := s.Member(f.GetWorkerId())
	for _, other := range s.Members {
		if other != m && other.GetName() == f.GetName() {
			return fmt.Errorf("two members named %q: %w", f.GetName(), ErrIllegal)
		}
	}
	switch {
	case m == nil:
		s.Members = append(s.Members, &messages.SharedMember{WorkerId: f.GetWorkerId(), Name: f.GetName(), Usage: &messages.Usage{}})
	case m.GetLeft() == "":
		return ErrIllegal
	default:
		m.Left, m.Name = "", f.GetName()
	}
	return nil
}

func (s *Shared) submitted(f *messages.TurnSubmitted, r *messages.Record) error {
	if s.turns[f.GetTurnId()] != nil || s.askedAt(f.GetTurnId()) >= 0 {
		return fmt.Errorf("turn %s submitted twice: %w", f.GetTurnId(), ErrIllegal)
	}
	t := &messages.SharedTurn{Turn: f}
	if f.GetWorkerId() != "" {
		if s.Given.GetTurnId() != f.GetTurnId() || s.Given.GetWorkerId() != f.GetWorkerId() {
			return fmt.Errorf("worker %s has not the word: %w", f.GetWorkerId(), ErrIllegal)
		}
		m := s.Member(f.GetWorkerId())
		m.Turns++
		m.Usage = addUsage(m.GetUsage(), f.GetUsage())
		t.Member = m.GetName()
		s.told()
	}
	s.add(f.GetTurnId(), t, r)
	return nil
}

func (s *Shared) cut(f *messages.TurnCut, r *messages.Record) error {
	if s.Given == nil || s.Given.GetTurnId() != f.GetTurnId() || s.Given.GetWorkerId() != f.GetWorkerId() {
		return fmt.Errorf("turn %s is not open: %w", f.GetTurnId(), ErrIllegal)
	}
	m := s.Member(f.GetWorkerId())
	m.Usage = addUsage(m.GetUsage(), f.GetUsage())
	if f.GetHeard() {
		s.told()
	}
	s.Given = nil
	s.add(f.GetTurnId(), &messages.SharedTurn{Cut: f, Member: m.GetName()}, r)
	return nil
}

// told notes that whoever has the word knows what it was told, and ends its turn.
func (s *Shared) told() {
	s.heard[s.Given.GetWorkerId()], s.asked[s.Given.GetWorkerId()] = s.Given.GetUpto(), s.Given.GetPrompt()
	s.Given = nil
}

func (s *Shared) add(id string, t *messages.SharedTurn, r *messages.Record) {
	t.Seq, t.AtUnixMs, t.Number = r.GetSeq(), r.GetAtUnixMs(), int32(len(s.Turns)+1) //nolint:gosec // a count of records
	s.Turns, s.turns[id] = append(s.Turns, t), t
	s.size += len(t.GetTurn().GetText())
	delete(s.since, id)
}

// Member finds a member by its worker, also one that has left; nil: it never joined.
func (s *Shared) Member(worker string) *messages.SharedMember {
	for _, m := range s.Members {
		if m.GetWorkerId() == worker {
			return m
		}
	}
	return nil
}

// Turn finds a turn that came to its end; nil: there is none.
func (s *Shared) Turn(id string) *messages.SharedTurn { return s.turns[id] }

// Free is a name that no other worker has here, made of one that was asked for. A hostile one becomes a plain one.
func (s *Shared) Free(worker, name string) string {
	if m := s.Member(worker); m != nil {
		return m.GetName()
	}
	name = PlainName(name)
	taken := func(n string) bool {
		return slices.ContainsFunc(s.Members, func(m *messages.SharedMember) bool { return m.GetName() == n })
	}
	free := name
	for n := 2; taken(free); n++ {
		free = fmt.Sprintf("%s#%d", name, n)
	}
	return free
}

// PlainName makes a name of one line without anything that could be taken for what stands around it.
func PlainName(name string) string {
	plain := strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '_'
	}, strings.ToValidUTF8(name, "_"))
	for len(plain) > MaxSharedName/2 {
		_, n := utf8.DecodeLastRuneInString(plain)
		plain = plain[:len(plain)-n]
	}
	if plain == "" {
		return "somebody"
	}
	return plain
}

// Give is the fact that gives a member of that name the word.
func (s *Shared) Give(worker, member, turn, prompt string) *messages.TurnGiven {
	return &messages.TurnGiven{TurnId: turn, WorkerId: worker, Prompt: prompt, After: s.heard[worker], Upto: s.Seq, Member: member}
}

// Told is what a member is asked in the open turn: what the others said since it knew last, each with who said it, and its prompt,
// unless that is the one which it was asked last. Every line that is not the runtime's own is marked, so that nothing that
// somebody says can pass for another one's word.
func (s *Shared) Told() string {
	g := s.Given
	var said []string
	size, left := 0, 0
	for i := len(s.Turns) - 1; i >= 0; i-- {
		t := s.Turns[i]
		if t.GetSeq() <= g.GetAfter() || t.GetSeq() > g.GetUpto() || speaker(t) == g.GetWorkerId() {
			continue
		}
		text := Line(t)
		if size += len(text); size > maxTold && len(said) > 0 {
			left++
			continue
		}
		said = append(said, text)
	}
	slices.Reverse(said)
	var b strings.Builder
	fmt.Fprintf(&b, "You are %s in the conversation %q. ", s.Member(g.GetWorkerId()).GetName(), s.Name)
	switch {
	case len(said) == 0 && g.GetAfter() == 0:
		b.WriteString("Nobody has said anything yet.")
	case len(said) == 0:
		b.WriteString("Nobody else has said anything since your last turn.")
	default:
		b.WriteString("What the others said since you spoke follows: each line of it begins with >, and it is the word of whom it names, and of no person where an agent is named.")
		if left > 0 {
			fmt.Fprintf(&b, "\n\n(%d earlier messages are left out here.)", left)
		}
		b.WriteString("\n\n" + strings.Join(said, "\n\n"))
	}
	if prompt := g.GetPrompt(); prompt != "" && (len(said) == 0 || prompt != s.asked[g.GetWorkerId()]) {
		b.WriteString("\n\n" + prompt)
	}
	return b.String()
}

func speaker(t *messages.SharedTurn) string {
	if t.GetCut() != nil {
		return t.GetCut().GetWorkerId()
	}
	return t.GetTurn().GetWorkerId()
}

// Line is a turn as others read it.
func Line(t *messages.SharedTurn) string {
	switch {
	case t.GetCut() != nil:
		return fmt.Sprintf("[%d] agent %s said nothing: its turn was cut off.", t.GetNumber(), t.GetMember())
	case t.GetMember() == "":
		return fmt.Sprintf("[%d] from outside (%s):\n%s", t.GetNumber(), PlainName(t.GetTurn().GetBy()), quoted(t.GetTurn().GetText()))
	}
	return fmt.Sprintf("[%d] agent %s:\n%s", t.GetNumber(), t.GetMember(), quoted(t.GetTurn().GetText()))
}

// Heard says whether an input stands in the conversation, whatever became of its turn.
func (s *State) Heard(input string) bool {
	a := s.known[input]
	if a == nil || a.turn == "" {
		return false
	}
	for _, t := range []*Turn{s.turn, s.last} {
		if t != nil && t.ID == a.turn {
			return t.heard > 0
		}
	}
	return a.done
}
