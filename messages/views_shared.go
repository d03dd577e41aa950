package messages

// ConversationJSON is a conversation that workers of a session share.
type ConversationJSON struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Session  string           `json:"session"`
	Revision uint64           `json:"revision"`                 // grows with every change
	Count    int32            `json:"count"`                    // of turns, those that were cut off among them
	Speaking string           `json:"speaking,omitempty"`       // the worker that has the word
	Since    string           `json:"speaking_since,omitempty"` // of one that is read or shown: since when; in a listing absent
	Members  []MemberJSON     `json:"members,omitempty"`        // as they joined
	Waiting  int32            `json:"waiting,omitempty"`        // turns that were asked for and wait for the word
	Queue    []QueuedTurnJSON `json:"queue,omitempty"`          // these, the next one first; in a listing none
	Turns    []SharedTurnJSON `json:"turns,omitempty"`          // of one that is read or shown; in a listing none
	Next     uint64           `json:"next,omitempty"`           // of one that is read: the after of the next page of turns; absent: there is none
}

// QueuedTurnJSON is a turn that waits for the word.
type QueuedTurnJSON struct {
	Turn   string `json:"turn"`
	Worker string `json:"worker"`
	At     string `json:"at,omitempty"` // when it was asked for
}

// ShareJSON asks for a shared conversation of a name.
type ShareJSON struct {
	Name string `json:"name"`
}

// TakeTurnJSON asks for the word for a worker.
type TakeTurnJSON struct {
	Worker string `json:"worker,omitempty"` // absent: the session's first
	Turn   string `json:"turn,omitempty"`   // the same id again is the same turn; absent: one is made
	Prompt string `json:"prompt,omitempty"` // what it is told besides what the others said
	Member string `json:"member,omitempty"` // what the others know it by, from when it joins; absent: its agent's name
	By     string `json:"by,omitempty"`     // who asks; with a token, that comes first
}

// TurnAcceptedJSON says that a turn is durable.
type TurnAcceptedJSON struct {
	Session      string `json:"session"`
	Conversation string `json:"conversation"`
	Turn         string `json:"turn"`
	Worker       string `json:"worker"`
}

// WordJSON is a word from outside.
type WordJSON struct {
	Turn string `json:"turn,omitempty"` // the same id again is said once; absent: one is made
	Text string `json:"text"`
	By   string `json:"by,omitempty"` // who says it; with a token, that comes first
}

// MemberJSON is a worker in a shared conversation.
type MemberJSON struct {
	Worker string     `json:"worker"`
	Name   string     `json:"name"`            // what the others know it by
	Turns  int32      `json:"turns"`           // that came to their end
	Left   string     `json:"left,omitempty"`  // why it is no member any more
	Usage  *UsageJSON `json:"usage,omitempty"` // of its turns there
}

// SharedTurnJSON is one turn of a shared conversation: what was said, or why it was cut off.
type SharedTurnJSON struct {
	Seq    uint64    `json:"seq"`
	Number int32     `json:"number"` // from 1
	At     string    `json:"at"`
	Member string    `json:"member,omitempty"` // absent: it is from outside
	Said   *SaidJSON `json:"said,omitempty"`
	Cut    *CutJSON  `json:"cut,omitempty"`
}

// SaidJSON is what was said in a turn.
type SaidJSON struct {
	Worker string     `json:"worker,omitempty"`
	Member string     `json:"member,omitempty"` // its name
	Turn   string     `json:"turn"`
	Text   string     `json:"text"`
	By     string     `json:"by,omitempty"` // who is outside
	Seq    uint64     `json:"conversation_seq,omitempty"`
	Usage  *UsageJSON `json:"usage,omitempty"`
}

// CutJSON is the end of a turn in which nothing was said.
type CutJSON struct {
	Worker  string     `json:"worker"`
	Member  string     `json:"member,omitempty"` // its name
	Turn    string     `json:"turn"`
	Outcome string     `json:"outcome,omitempty"`
	Code    string     `json:"code,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Heard   bool       `json:"heard,omitempty"` // what it was told stands in its own conversation
	Seq     uint64     `json:"conversation_seq,omitempty"`
	Usage   *UsageJSON `json:"usage,omitempty"`
}

func usageOrNone(u *Usage) *UsageJSON {
	if u == nil {
		return nil
	}
	j := u.JSON()
	return &j
}

func (j *UsageJSON) orNone() *Usage {
	if j == nil {
		return nil
	}
	return j.Proto()
}

// JSON is the conversation in its wire form.
func (x *SharedConversation) JSON() ConversationJSON {
	return ConversationJSON{
		ID: x.GetConversationId(), Name: x.GetName(), Session: x.GetSessionId(), Revision: x.GetSeq(), Count: x.GetCount(), Speaking: x.GetSpeaking(),
		Members: convert(x.GetMembers(), (*SharedMember).JSON), Turns: convert(x.GetTurns(), (*SharedTurn).JSON),
		Waiting: x.GetWaiting(), Queue: convert(x.GetQueue(), (*WaitingTurn).JSON), Next: x.GetNext(),
		Since: timeText(x.GetSpeakingSinceUnixMs()),
	}
}

// Proto is the way back.
func (j ConversationJSON) Proto() *SharedConversation {
	return &SharedConversation{
		ConversationId: j.ID, Name: j.Name, SessionId: j.Session, Seq: j.Revision, Count: j.Count, Speaking: j.Speaking,
		Members: convert(j.Members, MemberJSON.Proto), Turns: convert(j.Turns, SharedTurnJSON.Proto),
		Waiting: j.Waiting, Queue: convert(j.Queue, QueuedTurnJSON.Proto), Next: j.Next,
		SpeakingSinceUnixMs: timeRead(j.Since),
	}
}

// JSON is the member in its wire form.
func (x *SharedMember) JSON() MemberJSON {
	return MemberJSON{Worker: x.GetWorkerId(), Name: x.GetName(), Turns: x.GetTurns(), Left: x.GetLeft(), Usage: usageOrNone(x.GetUsage())}
}

// Proto is the way back.
func (j MemberJSON) Proto() *SharedMember {
	return &SharedMember{WorkerId: j.Worker, Name: j.Name, Turns: j.Turns, Left: j.Left, Usage: j.Usage.orNone()}
}

// JSON is the turn in its wire form.
func (x *SharedTurn) JSON() SharedTurnJSON {
	j := SharedTurnJSON{Seq: x.GetSeq(), Number: x.GetNumber(), At: timeText(x.GetAtUnixMs()), Member: x.GetMember()}
	if t := x.GetTurn(); t != nil {
		j.Said = &SaidJSON{Worker: t.GetWorkerId(), Member: t.GetMember(), Turn: t.GetTurnId(), Text: t.GetText(), By: t.GetBy(), Seq: t.GetConversationSeq(), Usage: usageOrNone(t.GetUsage())}
	}
	if c := x.GetCut(); c != nil {
		j.Cut = &CutJSON{
			Worker: c.GetWorkerId(), Member: c.GetMember(), Turn: c.GetTurnId(), Outcome: c.GetOutcome(), Code: c.GetCode(), Reason: c.GetReason(), Heard: c.GetHeard(),
			Seq: c.GetConversationSeq(), Usage: usageOrNone(c.GetUsage()),
		}
	}
	return j
}

// Proto is the way back.
func (j SharedTurnJSON) Proto() *SharedTurn {
	x := &SharedTurn{Seq: j.Seq, Number: j.Number, AtUnixMs: timeRead(j.At), Member: j.Member}
	if s := j.Said; s != nil {
		x.Turn = &TurnSubmitted{WorkerId: s.Worker, Member: s.Member, TurnId: s.Turn, Text: s.Text, By: s.By, ConversationSeq: s.Seq, Usage: s.Usage.orNone()}
	}
	if c := j.Cut; c != nil {
		x.Cut = &TurnCut{WorkerId: c.Worker, Member: c.Member, TurnId: c.Turn, Outcome: c.Outcome, Code: c.Code, Reason: c.Reason, Heard: c.Heard, ConversationSeq: c.Seq, Usage: c.Usage.orNone()}
	}
	return x
}

// JSON is the turn in its wire form.
func (x *WaitingTurn) JSON() QueuedTurnJSON {
	return QueuedTurnJSON{Turn: x.GetTurnId(), Worker: x.GetWorkerId(), At: timeText(x.GetAtUnixMs())}
}

// Proto is the way back.
func (j QueuedTurnJSON) Proto() *WaitingTurn {
	return &WaitingTurn{TurnId: j.Turn, WorkerId: j.Worker, AtUnixMs: timeRead(j.At)}
}

// JSON is the listing in its wire form: never null.
func (x *Conversations) JSON() []ConversationJSON {
	return list(x.GetConversations(), (*SharedConversation).JSON)
}

// TakeTurnFrom is the body of what asks for the word.
func TakeTurnFrom(m *TakeTurn) TakeTurnJSON {
	return TakeTurnJSON{Worker: m.GetWorkerId(), Turn: m.GetTurnId(), Prompt: m.GetPrompt(), Member: m.GetMember(), By: m.GetBy()}
}

// Proto is the way back, in a conversation.
func (j TakeTurnJSON) Proto(conversation string) *TakeTurn {
	return &TakeTurn{Name: conversation, WorkerId: j.Worker, TurnId: j.Turn, Prompt: j.Prompt, Member: j.Member, By: j.By}
}

// JSON is the acceptance in its wire form, without that it was a repetition.
func (x *TurnAccepted) JSON() TurnAcceptedJSON {
	return TurnAcceptedJSON{Session: x.GetSessionId(), Conversation: x.GetConversationId(), Turn: x.GetTurnId(), Worker: x.GetWorkerId()}
}

// Proto is the way back.
func (j TurnAcceptedJSON) Proto() *TurnAccepted {
	return &TurnAccepted{SessionId: j.Session, ConversationId: j.Conversation, TurnId: j.Turn, WorkerId: j.Worker}
}

// WordFrom is the body of a word from outside.
func WordFrom(m *SubmitTurn) WordJSON {
	return WordJSON{Turn: m.GetTurnId(), Text: m.GetText(), By: m.GetBy()}
}

// Proto is the way back, in a conversation.
func (j WordJSON) Proto(conversation string) *SubmitTurn {
	return &SubmitTurn{Name: conversation, TurnId: j.Turn, Text: j.Text, By: j.By}
}
