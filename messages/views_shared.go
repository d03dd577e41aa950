package messages

// ConversationJSON is a conversation that workers of a session share.
type ConversationJSON struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Session  string           `json:"session"`
	Revision uint64           `json:"revision"`           // grows with every change
	Count    int32            `json:"count"`              // of turns, those that were cut off among them
	Speaking string           `json:"speaking,omitempty"` // the worker that has the word
	Members  []MemberJSON     `json:"members,omitempty"`  // as they joined
	Turns    []SharedTurnJSON `json:"turns,omitempty"`    // of one that is read or shown; in a listing none
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
	Turn   string     `json:"turn"`
	Text   string     `json:"text"`
	By     string     `json:"by,omitempty"` // who is outside
	Seq    uint64     `json:"conversation_seq,omitempty"`
	Usage  *UsageJSON `json:"usage,omitempty"`
}

// CutJSON is the end of a turn in which nothing was said.
type CutJSON struct {
	Worker  string     `json:"worker"`
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
	}
}

// Proto is the way back.
func (j ConversationJSON) Proto() *SharedConversation {
	return &SharedConversation{
		ConversationId: j.ID, Name: j.Name, SessionId: j.Session, Seq: j.Revision, Count: j.Count, Speaking: j.Speaking,
		Members: convert(j.Members, MemberJSON.Proto), Turns: convert(j.Turns, SharedTurnJSON.Proto),
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
		j.Said = &SaidJSON{Worker: t.GetWorkerId(), Turn: t.GetTurnId(), Text: t.GetText(), By: t.GetBy(), Seq: t.GetConversationSeq(), Usage: usageOrNone(t.GetUsage())}
	}
	if c := x.GetCut(); c != nil {
		j.Cut = &CutJSON{
			Worker: c.GetWorkerId(), Turn: c.GetTurnId(), Outcome: c.GetOutcome(), Code: c.GetCode(), Reason: c.GetReason(), Heard: c.GetHeard(),
			Seq: c.GetConversationSeq(), Usage: usageOrNone(c.GetUsage()),
		}
	}
	return j
}

// Proto is the way back.
func (j SharedTurnJSON) Proto() *SharedTurn {
	x := &SharedTurn{Seq: j.Seq, Number: j.Number, AtUnixMs: timeRead(j.At), Member: j.Member}
	if s := j.Said; s != nil {
		x.Turn = &TurnSubmitted{WorkerId: s.Worker, TurnId: s.Turn, Text: s.Text, By: s.By, ConversationSeq: s.Seq, Usage: s.Usage.orNone()}
	}
	if c := j.Cut; c != nil {
		x.Cut = &TurnCut{WorkerId: c.Worker, TurnId: c.Turn, Outcome: c.Outcome, Code: c.Code, Reason: c.Reason, Heard: c.Heard, ConversationSeq: c.Seq, Usage: c.Usage.orNone()}
	}
	return x
}
