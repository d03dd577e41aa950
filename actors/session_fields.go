package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// fieldNoted is the end of the append of a note.
type fieldNoted struct {
	journal *persistence.Journal
	note    *messages.FieldNoted
	record  *messages.Record
	receipt persistence.Receipt
	err     error
}

// giveFields declares the fields of a session's primary workspace, before anybody works there: those that it was made with, else those
// of its agent's profile. Off the mailbox.
func giveFields(svc *Services, sys *actor.ActorSystem, o *sessionOpened, schema string) *messages.Failure {
	agent, _ := svc.agent(o.facts.created.GetAgent())
	g := primaryOf(o.grant)
	if schema == "" && agent.Fields == "" || g == nil {
		return nil
	}
	m := &messages.DeclareFields{Schema: schema, By: "session " + o.facts.created.GetSessionId()}
	if schema == "" {
		m = &messages.DeclareFields{Schema: agent.Fields, By: "agent " + agent.Name, Weak: true}
	}
	if _, err := askFields[*messages.FieldsView](context.Background(), sys, g.GetId(), m); err != nil {
		return failureOf(err)
	}
	return nil
}

// checkFields refuses a schema before anything is made.
func (s *Services) checkFields(schema string) *messages.Failure {
	if schema == "" {
		return nil
	}
	if err := s.knowsEffects(schema); err != nil {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the fields of the primary workspace: %v", err), "correct the schema")
	}
	if s.Redact.String(schema) != schema {
		return messages.Fail(messages.CodeBadRequest, "there is a secret in the schema of the fields, and it is written down", "leave it out")
	}
	return nil
}

// CheckFields says what is wrong with the fields of an agent's profile.
func CheckFields(agent Agent, effects map[string]FieldEffect) error {
	if agent.Fields == "" {
		return nil
	}
	if err := (&Services{FieldEffects: effects}).knowsEffects(agent.Fields); err != nil {
		return fmt.Errorf("the fields of agent %s: %w", agent.Name, err)
	}
	return nil
}

// onFields passes a question or a wish about fields to the Workspace that it names; none: the primary one. It needs no lease, so that
// people may set fields while an agent works.
func (s *Session) onFields(c actor.Context, m *messages.ToSession) {
	var ask proto.Message
	var word string
	switch cmd := m.GetCommand().(type) {
	case *messages.ToSession_ReadFields:
		word, ask = cmd.ReadFields.GetWorkspace(), &messages.ReadFields{}
	case *messages.ToSession_DeclareFields:
		word, ask = cmd.DeclareFields.GetWorkspace(), &messages.DeclareFields{Schema: cmd.DeclareFields.GetSchema(), By: cmd.DeclareFields.GetBy()}
	case *messages.ToSession_SetField:
		set := proto.CloneOf(cmd.SetField)
		if set.GetExecId() == "" {
			set.ExecId = messages.NewID(messages.ExecPrefix)
		}
		set.SessionId = s.id
		word, ask = set.GetWorkspace(), set
	}
	g := primaryOf(s.grant)
	if word != "" {
		g = named(s.grant.GetWorkspaces(), word)
	}
	if g == nil {
		s.answer(c, messages.Fail(messages.CodeNoWorkspace, noWorkspaceNamed(s.grant.GetWorkspaces(), word).Message, ""))
		return
	}
	if text := spoken(ask); s.svc.Redact.String(text) != text {
		s.answer(c, messages.Fail(messages.CodeBadRequest, "there is a secret in it, and fields are written down and shown to agents", "leave it out"))
		return
	}
	sys, away := c.ActorSystem(), &s.rest.away
	away.Add(1)
	s.svc.spawn(sys, c.Sender(), func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		defer away.Add(-1)
		r, err := askFields[proto.Message](context.Background(), sys, g.GetId(), ask)
		if err != nil {
			return failureOf(err)
		}
		return r
	})
}

// failureOf is the refusal that an error is to who asked.
func failureOf(err error) *messages.Failure {
	var fail *messages.Failure
	if errors.As(err, &fail) {
		return fail
	}
	return messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
}

// spoken is what of a wish is written down.
func spoken(m proto.Message) string {
	switch x := m.(type) {
	case *messages.SetField:
		return x.GetValue()
	case *messages.DeclareFields:
		return x.GetSchema()
	}
	return ""
}

// noteField writes into the session's journal that a field of one of its workspaces was set, so that who watches it learns of it. A
// crash before that is one event less: the value is with the workspace, and its revision shows the gap.
func (s *Session) noteField(c actor.Context, m *messages.FieldChanged) {
	switch {
	case s.doomed || named(s.grant.GetWorkspaces(), m.GetId()) == nil:
		return // one whose folder overlaps one of the session's is none of its own
	case s.building:
		s.builds.Put(c)
		return
	}
	s.building = true
	svc, journal, seq := s.svc, s.journal, s.facts.seq
	n := &fieldNoted{note: m.GetNoted()}
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		n.err = p
		return n
	}, func() any {
		n.err = n.write(svc, journal, seq)
		return n
	})
}

func (n *fieldNoted) write(svc *Services, journal *persistence.Journal, seq uint64) error {
	var err error
	if n.journal, n.record, err = oneRecord(svc, journal, seq, n.note); err != nil {
		return err
	}
	n.receipt, err = appendAndWait(svc, persistence.Part{Journal: n.journal, Draft: persistence.Draft{Records: []*messages.Record{n.record}}})
	return err
}

func (s *Session) fieldNoted(c actor.Context, m *fieldNoted) {
	s.building = false
	if m.journal != nil {
		s.journal = m.journal
	}
	if m.err != nil {
		s.log.Warn("an edit of a field is not in the session's journal", "workspace", m.note.GetWorkspace(), "err", m.err)
	} else {
		s.written(c, []proto.Message{m.note}, []*messages.Record{m.record}, m.receipt)
	}
	s.goOn(c)
}
