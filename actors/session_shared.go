package actors

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A session's shared conversations are its children, each from the first time that something is wanted of it, or that its session comes
// into memory while somebody has the word. The session stays in memory until they rest.

// sharing is a shared conversation as its Session sees it.
type sharing struct {
	fact         *messages.ConversationShared
	pid          *actor.PID // nil while it is down, or nobody has wanted anything of it
	sent, rested uint64     // commands, and how many of them it had when it rested
	failures     int
	closing      bool // its session is closed
	falling      bool // it has failed, and answers what it still has
	queue        act.Stash
	timer        act.Timer
}

// reshare starts a conversation anew after its pause.
type reshare struct {
	id  string
	gen uint64
}

// sharedWritten is what the making of a conversation came to.
type sharedWritten struct {
	asker   *actor.PID
	journal *persistence.Journal
	fact    *messages.ConversationShared
	record  *messages.Record
	receipt persistence.Receipt
	view    *messages.SharedConversation
	fail    *messages.Failure
}

// maxShared is how many conversations the workers of a session share.
const maxShared = 1000

// maxTurnPrompt bounds what a member is asked, in bytes: it stands in the conversation's journal, and in its worker's.
const maxTurnPrompt = 1 << 20

// SharedKey is the listing entry of a shared conversation; the value is a SharedConversation without its turns.
func SharedKey(session, id string) string { return "cnv/" + session + "/" + id }

// onShared takes what is asked about shared conversations.
func (s *Session) onShared(c actor.Context, m *messages.ToSession) {
	switch cmd := m.GetCommand().(type) {
	case *messages.ToSession_ShareConversation:
		s.share(c, cmd.ShareConversation)
	case *messages.ToSession_TakeTurn:
		s.takeTurn(c, cmd.TakeTurn)
	case *messages.ToSession_SubmitTurn:
		said := cmd.SubmitTurn
		if err := messages.CheckInputID(said.GetTurnId()); err != nil {
			s.answer(c, asFailure(err))
			return
		}
		if said.GetTurnId() == "" {
			said = proto.CloneOf(said)
			said.TurnId = messages.NewID(messages.InputPrefix)
		}
		s.toShared(c, said.GetName(), said)
	case *messages.ToSession_ReadConversation:
		s.toShared(c, cmd.ReadConversation.GetName(), cmd.ReadConversation)
	case *messages.ToSession_AwaitSharedTurn:
		s.toShared(c, cmd.AwaitSharedTurn.GetName(), cmd.AwaitSharedTurn)
	case *messages.ToSession_WithdrawTurn:
		s.toShared(c, cmd.WithdrawTurn.GetName(), cmd.WithdrawTurn)
	}
}

// ofShared takes what comes from conversations, from the run about them, and from their timers.
func (s *Session) ofShared(c actor.Context) {
	switch m := c.Message().(type) {
	case *conversationRests:
		if x := s.shared[m.id]; x != nil {
			x.rested, x.failures = m.taken, 0
			s.fallSilent(c)
		}
	case *conversationFell:
		if x := s.shared[m.id]; x != nil && x.pid != nil {
			x.falling = true
			c.Poison(x.pid) // behind what it was sent before
		}
	case *messages.ShareConversation:
		s.share(c, m)
	case *messages.TakeTurn:
		s.takeTurn(c, m)
	case *messages.ReadConversation:
		s.toShared(c, m.GetName(), m)
	case *messages.AwaitSharedTurn:
		s.toShared(c, m.GetName(), m)
	case *cancelTalk:
		s.toShared(c, m.id, m)
	case *cancelWorkers:
		s.cancelWorkers(c, m.m)
	case *sharedWritten:
		s.sharedWritten(c, m)
	case *reshare:
		if x := s.shared[m.id]; x != nil && x.timer.Fresh(m.gen) && x.pid == nil {
			x.timer.Stop()
			s.startShared(c, x)
		}
	default:
		act.Unexpected(c, s.log)
	}
}

// openShared knows the conversations again when the session comes into memory.
func (s *Session) openShared(c actor.Context, talking map[string]bool) {
	for _, f := range s.facts.shared {
		x := s.addShared(f)
		if talking[f.GetConversationId()] {
			s.startShared(c, x)
		}
	}
}

func (s *Session) addShared(f *messages.ConversationShared) *sharing {
	if s.shared == nil {
		s.shared = make(map[string]*sharing)
	}
	x := &sharing{fact: f}
	s.shared[f.GetConversationId()] = x
	return x
}

// talking are the conversations in which somebody has the word, as they are listed.
func talking(svc *Services, f *sessionFacts) map[string]bool {
	if len(f.shared) == 0 {
		return nil
	}
	out := make(map[string]bool)
	all, err := SharedConversations(context.Background(), svc.Store, f.created.GetSessionId())
	for _, v := range all {
		out[v.GetConversationId()] = v.GetSpeaking() != "" || v.GetWaiting() > 0
	}
	if err != nil { // whoever reads them says what is wrong
		svc.Log.Warn("shared conversations cannot be listed", "session", f.created.GetSessionId(), "err", err)
	}
	return out
}

// SharedConversations lists those of one session, or of all, without their turns. It wakes nobody.
func SharedConversations(ctx context.Context, store persistence.Store, session string) ([]*messages.SharedConversation, error) {
	prefix := "cnv/"
	if session != "" {
		prefix = SharedKey(session, "")
	}
	out, err := entries[messages.SharedConversation](ctx, store, prefix)
	if err != nil {
		return nil, fmt.Errorf("list shared conversations: %w", err)
	}
	return out, nil
}

// ReadShared folds the journal of a shared conversation. It wakes nobody.
func ReadShared(ctx context.Context, store persistence.Store, id string) (*conversation.Shared, error) {
	state := &conversation.Shared{}
	err := store.Read(ctx, messages.ConversationStream(id), 1, func(e persistence.Entry) error { return foldShared(state, e) })
	if err != nil {
		return nil, fmt.Errorf("read conversation %s: %w", id, err)
	}
	return state, nil
}

func sharedEntry(v *messages.SharedConversation) ([]persistence.IndexOp, error) {
	b, err := proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	return []persistence.IndexOp{{Key: SharedKey(v.GetSessionId(), v.GetConversationId()), Value: b}}, nil
}

// listedAfter is the listing of a conversation with facts that are to follow.
func listedAfter(state *conversation.Shared, facts []proto.Message) *messages.SharedConversation {
	v := state.Listing()
	member := func(worker string) *messages.SharedMember {
		for _, m := range v.GetMembers() {
			if m.GetWorkerId() == worker {
				return m
			}
		}
		return &messages.SharedMember{}
	}
	for _, fact := range facts {
		switch f := fact.(type) {
		case *messages.MemberJoined:
			if m := member(f.GetWorkerId()); m.GetWorkerId() != "" {
				m.Left = ""
				continue
			}
			v.Members = append(v.Members, &messages.SharedMember{WorkerId: f.GetWorkerId(), Name: f.GetName()})
		case *messages.MemberLeft:
			member(f.GetWorkerId()).Left = f.GetReason()
		case *messages.TurnGiven:
			v.Speaking = f.GetWorkerId()
			if state.Waits(f.GetTurnId()) != nil {
				v.Waiting--
			}
		case *messages.TurnAsked:
			v.Waiting++
		case *messages.TurnWithdrawn:
			v.Waiting--
		case *messages.TurnSubmitted:
			v.Count++
			if f.GetWorkerId() != "" {
				m := member(f.GetWorkerId())
				v.Speaking, m.Turns, m.Usage = "", m.GetTurns()+1, sumUsage(m.GetUsage(), f.GetUsage())
			}
		case *messages.TurnCut:
			m := member(f.GetWorkerId())
			v.Speaking, v.Count, m.Usage = "", v.GetCount()+1, sumUsage(m.GetUsage(), f.GetUsage())
		}
	}
	v.Seq += uint64(len(facts))
	return v
}

// share makes a conversation, or finds the one of that name. It is written down in one append over both journals.
func (s *Session) share(c actor.Context, m *messages.ShareConversation) {
	if s.building {
		s.builds.Put(c)
		return
	}
	name := m.GetName()
	if x := s.sharedNamed(name); x != nil {
		s.toShared(c, name, &messages.ReadConversation{Name: name, After: ^uint64(0)})
		return
	}
	switch {
	case name == "" || len(name) > conversation.MaxSharedName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		s.answer(c, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q cannot name a conversation", cutText(name, 80)), fmt.Sprintf("give 1 to %d printable characters", conversation.MaxSharedName)))
		return
	case strings.HasPrefix(name, messages.ConversationPrefix):
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no conversation %s", s.id, name), ""))
		return
	case len(s.facts.shared) >= maxShared:
		s.answer(c, messages.Fail(messages.CodeBusy, fmt.Sprintf("the session has %d shared conversations already", maxShared), "use one of them"))
		return
	}
	s.building = true
	svc, journal, seq, asker := s.svc, s.journal, s.facts.seq, c.Sender()
	fact := &messages.ConversationShared{ConversationId: messages.NewID(messages.ConversationPrefix), Name: s.svc.Redact.String(name)}
	session := s.id
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &sharedWritten{asker: asker, fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		w := &sharedWritten{asker: asker, fact: fact}
		if err := w.write(svc, journal, seq, session); err != nil {
			w.fail = messages.Fail(messages.CodeUnavailable, "share a conversation: "+err.Error(), "try again")
		}
		return w
	})
}

func (w *sharedWritten) write(svc *Services, journal *persistence.Journal, seq uint64, session string) error {
	j, rec, err := oneRecord(svc, journal, seq, w.fact)
	w.journal, w.record = j, rec
	if err != nil {
		return err
	}
	cj, err := persistence.OpenJournal(context.Background(), svc.Store, messages.ConversationStream(w.fact.GetConversationId()), session, svc.Node)
	if err != nil {
		return err
	}
	defer cj.Release() // the Conversation claims its own
	cj.Now = svc.Now
	opened, err := messages.NewConversationRecord(&messages.ConversationOpened{ConversationId: w.fact.GetConversationId(), SessionId: session, Name: w.fact.GetName()})
	if err != nil {
		return err
	}
	w.view = &messages.SharedConversation{ConversationId: w.fact.GetConversationId(), SessionId: session, Name: w.fact.GetName(), Seq: 1}
	index, err := sharedEntry(w.view)
	if err != nil {
		return err
	}
	w.receipt, err = appendAndWait(svc,
		persistence.Part{Journal: j, Draft: persistence.Draft{Records: []*messages.Record{rec}, Index: index}},
		persistence.Part{Journal: cj, Draft: persistence.Draft{Records: []*messages.Record{opened}}})
	return err
}

func (s *Session) sharedWritten(c actor.Context, m *sharedWritten) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	if m.fail != nil {
		s.tell(c, m.asker, m.fail)
	} else {
		s.tell(c, m.asker, m.view)
		if err := s.facts.apply(m.fact, m.record); err != nil {
			s.log.Error("session facts out of order", "err", err)
		}
		s.addShared(m.fact)
		p := &messages.Published{FirstCursor: m.receipt.First, LastCursor: m.receipt.Last}
		var projector conversation.Projector
		p.Events = append(p.Events, projector.Project(s.id, "", m.fact, m.record, m.receipt.First)) // that of the other journal says nothing more
		s.publish(c, p)
	}
	s.goOn(c)
}

// sharedNamed finds a conversation by its name or id.
func (s *Session) sharedNamed(name string) *sharing {
	name = s.svc.Redact.String(name) // as it is written down
	for _, f := range s.facts.shared {
		if f.GetName() == name || f.GetConversationId() == name {
			return s.shared[f.GetConversationId()]
		}
	}
	return nil
}

// takeTurn asks for the word for a worker of the session.
func (s *Session) takeTurn(c actor.Context, m *messages.TakeTurn) {
	id := cmp.Or(m.GetWorkerId(), s.first())
	w := s.workers[id]
	switch {
	case w == nil && s.facts.gone[id] != nil:
		s.answer(c, messages.Fail(messages.CodeClosed, fmt.Sprintf("worker %s was deleted", id), ""))
		return
	case w == nil:
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no worker %q", s.id, id), "see `troupe ls workers`"))
		return
	case len(m.GetPrompt()) > maxTurnPrompt:
		s.answer(c, messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the prompt has %d bytes", len(m.GetPrompt())), fmt.Sprintf("give one of at most %d", maxTurnPrompt)))
		return
	}
	if err := messages.CheckInputID(m.GetTurnId()); err != nil {
		s.answer(c, asFailure(err))
		return
	}
	m = proto.CloneOf(m)
	m.WorkerId, m.TurnId = id, cmp.Or(m.GetTurnId(), messages.NewID(messages.InputPrefix))
	m.Member = cmp.Or(m.GetMember(), w.spawned.GetAgent(), DefaultAgent)
	s.toShared(c, m.GetName(), m)
}

// toShared passes a command to a conversation, which is started if it is not there.
func (s *Session) toShared(c actor.Context, name string, cmd any) {
	x := s.sharedNamed(name)
	switch {
	case x == nil:
		s.answer(c, messages.Fail(messages.CodeNotFound, fmt.Sprintf("session %s has no conversation %q", s.id, cutText(name, 80)), "share it first"))
		return
	case x.closing:
		s.answer(c, sessionClosed(s.id))
		return
	case x.pid == nil && x.failures == 0:
		s.startShared(c, x)
	}
	x.sent++
	if x.pid == nil || x.falling {
		x.queue.PutAs(c, cmd)
		return
	}
	c.RequestWithCustomSender(x.pid, cmd, c.Sender())
}

func (s *Session) startShared(c actor.Context, x *sharing) {
	id := x.fact.GetConversationId()
	pid, err := c.SpawnNamed(s.svc.props.conversation, id)
	if err != nil {
		s.log.Error("conversation cannot be spawned", "conversation", id, "err", err)
		s.laterShared(c, x)
		return
	}
	x.pid, x.sent, x.rested = pid, uint64(x.queue.Len())+1, 0 // it rests when it has read its journal, and not before
	open := &openConversation{id: id, session: s.id}
	for worker := range s.facts.gone {
		open.gone = append(open.gone, worker)
	}
	c.Send(pid, open)
	x.queue.Forward(c, pid)
}

// laterShared starts a conversation anew after a pause.
func (s *Session) laterShared(c actor.Context, x *sharing) {
	id := x.fact.GetConversationId()
	x.failures++
	x.timer.Set(c, restartPause(x.failures), func(gen uint64) any { return &reshare{id, gen} })
}

// sharedEnded says whether it was a conversation that ended, and starts it anew after a pause.
func (s *Session) sharedEnded(c actor.Context, who *actor.PID) bool {
	x := s.shared[filepath.Base(who.GetId())]
	if x == nil || x.pid == nil || x.pid.GetId() != who.GetId() {
		return false
	}
	x.pid, x.falling = nil, false
	defer s.fallSilent(c)
	switch {
	case s.ending:
		s.lastOut(c)
	case x.closing || s.doomed || s.facts.closed:
	case x.failures >= maxRunFailures: // whoever wants something of it next has it tried again
		x.failures = 0
		fail := messages.Fail(messages.CodeUnavailable, fmt.Sprintf("conversation %s failed again and again", x.fact.GetConversationId()), "see the log")
		x.queue.Each(func(_ any, sender *actor.PID) { s.tell(c, sender, fail) })
	default:
		s.laterShared(c, x)
	}
	return true
}

// sharedRest says whether no conversation keeps the session in memory.
func (s *Session) sharedRest() bool {
	for _, x := range s.shared {
		if x.pid != nil && (x.rested != x.sent || x.falling) || x.pid == nil && !x.closing && (x.failures > 0 || x.queue.Len() > 0) {
			return false
		}
	}
	return true
}

// tellShared tells every conversation that is there.
func (s *Session) tellShared(c actor.Context, msg any) {
	for _, x := range s.shared {
		if x.pid != nil {
			x.sent++
			c.Send(x.pid, msg)
		}
	}
}

// closeShared ends the conversations of a session that is closed.
func (s *Session) closeShared(c actor.Context) {
	for _, x := range s.shared {
		x.closing = true
		x.timer.Stop()
		x.queue.Each(func(_ any, sender *actor.PID) { s.tell(c, sender, sessionClosed(s.id)) })
		if x.pid != nil {
			c.Stop(x.pid)
		}
	}
	s.fallSilent(c)
}

// talks are the conversations that are there, for the live tree.
func (s *Session) talks() (out []*messages.ActorView) {
	for _, f := range s.facts.shared {
		x := s.shared[f.GetConversationId()]
		if x.pid == nil && x.failures == 0 {
			continue
		}
		v := &messages.ActorView{Kind: "conversation", Id: f.GetConversationId(), State: stateInactive, Restarts: int32(x.failures), Pending: int32(x.queue.Len())} //nolint:gosec // small counts
		if x.rested != x.sent {
			v.State = running
		}
		out = append(out, v)
	}
	return out
}
