package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// oversized is more than a request may hold, in bytes.
const oversized = 17 << 20

// refusals sends what must be refused, every few turns. busy says that more turns wait behind this one.
func (s *session) refusals(ctx context.Context, t turn, busy bool) error {
	if t.n%5 == 0 {
		for what, m := range s.wrong(t) {
			if err := s.refused(ctx, what, marker(what, t), m); err != nil {
				return err
			}
		}
	}
	if busy {
		return s.whenBusy(ctx, t)
	}
	return nil
}

// marker stands in every part of a request that could leave a trace.
func marker(what string, t turn) string {
	return fmt.Sprintf("refused-%s-%d", strings.ReplaceAll(what, " ", "-"), t.n)
}

// wrong are requests with one thing wrong in each.
func (s *session) wrong(t turn) map[string]proto.Message {
	in := func(what string) *messages.SubmitInput {
		return submitText(marker(what, t), "text of "+marker(what, t))
	}
	long := in("long id")
	long.InputId = marker("long id", t) + strings.Repeat("x", 200)
	empty := in("empty input")
	empty.Parts[0].Kind = &messages.Part_Text{Text: "  \n"}
	stranger := in("unknown worker")
	stranger.WorkerId = "wrk_nobody"
	other := in("other content")
	other.InputId = t.input
	out := map[string]proto.Message{
		"long id":         s.to(long),
		"empty input":     s.to(empty),
		"unknown worker":  s.to(stranger),
		"other content":   s.to(other),
		"unknown session": address(messages.SessionPrefix+marker("unknown session", t), in("unknown session")),
		"bad session id":  &messages.CreateSession{SessionId: "../" + marker("bad session id", t), First: in("bad session id")},
		"bad rule":        &messages.CreateSession{SessionId: messages.SessionPrefix + marker("bad rule", t), Rules: []string{"((("}, First: in("bad rule")},
		"no tool":         s.to(&messages.CallTool{CallId: marker("no tool", t), Arguments: `{}`}),
	}
	if t.call { // it is not there yet
		delete(out, "other content")
	}
	if !s.lane.opts.InProcess && t.n%50 == 0 {
		big := in("oversized")
		big.Parts[0].Kind = &messages.Part_Text{Text: marker("oversized", t) + strings.Repeat("x", oversized)}
		out["oversized"] = s.to(big)
	}
	return out
}

// refused sends one of them, and keeps what was answered.
func (s *session) refused(ctx context.Context, what, mark string, m proto.Message) error {
	_, err := s.lane.ask(ctx, m)
	var f *messages.Failure
	if err != nil && !errors.As(err, &f) {
		return fmt.Errorf("send a request with %s: %w", what, err)
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.refused = append(s.lane.refused, Refusal{What: what, Marker: mark, Code: f.GetCode()})
	return nil
}

// whenBusy asks for a turn only if the session is idle. Should it have become so, that is no refusal but an input.
func (s *session) whenBusy(ctx context.Context, t turn) error {
	mark := marker("busy", t)
	text := prompt(kindIdle, t.n) + mark
	in := submitText(mark, text)
	in.Mode = messages.InputAccepted_REJECT
	reply, err := s.lane.ask(ctx, s.to(in))
	var f *messages.Failure
	if err != nil && !errors.As(err, &f) {
		return fmt.Errorf("send an input that wants to be alone: %w", err)
	}
	if r, ok := reply.(*messages.InputReply); ok && err == nil {
		t := turn{input: mark, text: text}
		s.acknowledged(t, r)
		_, err := s.await(ctx, t)
		return err
	}
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.refused = append(s.lane.refused, Refusal{What: "busy", Marker: mark, Code: f.GetCode()})
	return nil
}
