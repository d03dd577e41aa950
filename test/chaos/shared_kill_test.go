package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// party is a server of which three workers share a conversation, and a client that watches it over all of its lives.
type party struct {
	*machine
	server *running
	client *client.Client

	session string
	members []string
	cursor  uint64
	facts   map[string][]proto.Message // by stream, as the events tell them
	ended   int
}

// serveParty starts the server, and waits until it answers.
func (p *party) serveParty() {
	p.t.Helper()
	p.server = p.start("serve", "--listen", "127.0.0.1:0")
	p.eventually("the server answers", func() bool {
		c, err := client.Dial(p.t.Context(), p.data())
		p.client = c
		return err == nil
	})
}

func (p *party) ask(m proto.Message) proto.Message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	reply, err := p.client.Ask(ctx, m)
	if err != nil {
		p.t.Fatalf("%T: %v", m, err)
	}
	return reply
}

// follow notes durable events until so many turns have ended, or so many events have come.
func (p *party) follow(turns, events int) {
	p.t.Helper()
	if p.ended >= turns {
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for e, err := range p.client.Events(ctx, p.session, p.cursor) {
		if err != nil {
			p.t.Fatalf("after event %d, with %d turns over: %v", p.cursor, p.ended, err)
		}
		if e.GetSeq() == 0 {
			continue
		}
		if e.GetSeq() <= p.cursor {
			p.t.Errorf("R8: event %d after %d", e.GetSeq(), p.cursor)
		}
		p.cursor = e.GetSeq()
		p.note(e)
		if events--; p.ended >= turns || events == 0 {
			return
		}
	}
}

// note makes of an event the fact that it tells.
func (p *party) note(e *messages.Event) {
	add := func(stream string, f proto.Message) { p.facts[stream] = append(p.facts[stream], f) }
	talk := messages.ConversationStream(e.GetConversation())
	switch e.GetType() {
	case messages.EventConversationJoined:
		add(talk, &messages.MemberJoined{WorkerId: e.GetWorker(), Name: e.GetMember()})
	case messages.EventConversationGiven:
		add(talk, &messages.TurnGiven{TurnId: e.GetInputId(), WorkerId: e.GetWorker()})
	case messages.EventConversationSaid:
		p.ended++
		add(talk, &messages.TurnSubmitted{TurnId: e.GetInputId(), WorkerId: e.GetWorker(), Text: e.GetText()})
	case messages.EventConversationCut:
		p.ended++
		add(talk, &messages.TurnCut{TurnId: e.GetInputId(), Code: e.GetErrorCode(), Reason: e.GetReason()})
	case messages.EventInputAccepted:
		in := &messages.InputAccepted{InputId: e.GetInputId(), From: messages.ConversationPrefix, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: e.GetText()}}}}
		add(messages.WorkerStream(e.GetWorker()), in)
	}
}

// TestASharedConversationOutlivesTheKillsOfItsServer asks for turns that wait for each other, and kills the server in the middle of turns, after numbers of events that are drawn:
// nobody asks again for what was accepted. Each turn ends once, one at a time, and all members were told the same. TROUPE_CHAOS_SEED repeats a run.
func TestASharedConversationOutlivesTheKillsOfItsServer(t *testing.T) {
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	p := &party{machine: newMachine(t), facts: make(map[string][]proto.Message)}
	srv := p.serve("name: talk\nrules: [{match: 'You are (\\w+) in', reply: {text: 'This is ${1}, of ${turn}'}}]\n", script.ServeOptions{Latency: 10 * time.Millisecond})
	p.serveParty()
	created := p.ask(&messages.CreateSession{Model: "openai/scripted"}).(*messages.SessionView) //nolint:forcetypeassert // the reply of CreateSession
	p.session, p.members = created.GetId(), []string{""}
	to := func(m *messages.ToSession) *messages.ToSession {
		m.SessionId = p.session
		return m
	}
	for range 2 {
		w := p.ask(to(&messages.ToSession{Command: &messages.ToSession_SpawnWorker{SpawnWorker: &messages.SpawnWorker{Model: "openai/scripted"}}}))
		p.members = append(p.members, w.(*messages.WorkerView).GetId()) //nolint:forcetypeassert // the reply of SpawnWorker
	}
	p.ask(to(&messages.ToSession{Command: &messages.ToSession_ShareConversation{ShareConversation: &messages.ShareConversation{Name: "talk"}}}))
	const turns, kills = 32, 4
	var want []string
	for i := range turns {
		id := fmt.Sprint("inp_", i)
		want = append(want, id)
		p.ask(to(&messages.ToSession{Command: &messages.ToSession_TakeTurn{TakeTurn: &messages.TakeTurn{
			Name: "talk", TurnId: id, WorkerId: p.members[rng.IntN(3)], Member: fmt.Sprint("m", i), Accept: true,
		}}}))
	}
	read := to(&messages.ToSession{Command: &messages.ToSession_ReadConversation{ReadConversation: &messages.ReadConversation{Name: "talk"}}})
	count := func() int {
		return int(p.ask(read).(*messages.SharedConversation).GetCount()) //nolint:forcetypeassert // its reply
	}
	cut := 0
	for range kills { // each after at least one more turn, somewhere in the next one
		p.follow(min(turns, count()+1+rng.IntN(2)), -1)
		p.follow(turns, 1+rng.IntN(10))
		if left := turns - count(); left > 0 {
			t.Logf("killed with %d turns left", left)
			cut++
		}
		p.server.kill()
		_ = p.client.Close()
		p.serveParty()
	}
	if cut < 2 {
		t.Errorf("all was said before kill %d: this shows too little", cut+1)
	}
	p.follow(turns, -1)
	heldToTalk(t, "killed", p.facts, want)
	v := p.ask(read).(*messages.SharedConversation) //nolint:forcetypeassert // its reply
	var order []string
	for _, turn := range v.GetTurns() {
		order = append(order, turn.GetTurn().GetTurnId())
	}
	if got := strings.Join(order, " "); got != strings.Join(want, " ") || v.GetSpeaking() != "" || v.GetWaiting() != 0 {
		t.Errorf("the turns are %s", got)
	}
	_ = p.client.Close()
	p.server.kill()
	p.sound(p.session)
	if s := p.stats(srv); s.Refused+s.Unmatched > 0 {
		t.Errorf("the model refused requests: %+v", s)
	}
}
