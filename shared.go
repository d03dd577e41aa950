package troupe

import (
	"context"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

// SharedConversation is a shared conversation as it stands: its members, and its turns in the order in which they came to an end.
type SharedConversation = messages.SharedConversation

// Shared is a conversation that several workers of a session share (acceptance row 97). One member has the word at a time.
type Shared struct {
	rt          *Runtime
	session, id string
}

// Share makes a conversation that workers of the session share, or returns the one of that name.
func (s *Session) Share(ctx context.Context, name string) (*Shared, error) {
	v, err := ask[*messages.SharedConversation](ctx, s.rt, s.session, &messages.ShareConversation{Name: name})
	if err != nil {
		return nil, err
	}
	return &Shared{rt: s.rt, session: s.session, id: v.GetConversationId()}, nil
}

// ID is the conversation's id.
func (x *Shared) ID() string { return x.id }

// Turn gives a worker of the session the word, after those that were given it before, and returns what its turn came to. It is told what
// the others have said since it spoke last, each named, and then the prompt. name is what the others know it by, from its first turn on;
// empty: its agent's. An outcome other than done is no error: the others read that its turn was cut off.
func (x *Shared) Turn(ctx context.Context, w *Worker, name, prompt string) (*Result, error) {
	m := &messages.TakeTurn{Name: x.id, WorkerId: w.id, TurnId: messages.NewID(messages.InputPrefix), Prompt: prompt, Member: name}
	return w.result(ask[*messages.TurnResult](ctx, x.rt, x.session, m))
}

// Say adds a word from outside: the members read that it is by whom it names, and that this is no member.
func (x *Shared) Say(ctx context.Context, by, text string) error {
	_, err := ask[*messages.SharedTurn](ctx, x.rt, x.session, &messages.SubmitTurn{Name: x.id, TurnId: messages.NewID(messages.InputPrefix), Text: text, By: by})
	return err
}

// Read returns a copy of the conversation.
func (x *Shared) Read(ctx context.Context) (*SharedConversation, error) {
	return ask[*messages.SharedConversation](ctx, x.rt, x.session, &messages.ReadConversation{Name: x.id})
}

func (rt *Runtime) listConversations(ctx context.Context, m *messages.ListConversations) (*messages.Conversations, error) {
	all, err := actors.SharedConversations(ctx, rt.svc.Store, m.GetSessionId())
	return &messages.Conversations{Conversations: all}, err
}
