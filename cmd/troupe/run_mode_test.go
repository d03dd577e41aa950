package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

// TestWhatServersEndedOfIsSentToNoOther: a command goes on with the next one when its server is gone, and not when that ended of what it was sent.
func TestWhatServersEndedOfIsSentToNoOther(t *testing.T) {
	h := &house{client: &client.Client{}}
	for err, gone := range map[error]bool{
		errors.New("the connection broke"):                         true,
		messages.Fail(messages.CodeUnavailable, "it stops", ""):    true,
		messages.Fail(messages.CodeNotFound, "no session", ""):     false,
		fmt.Errorf("follow the turn: %w, 5 times", client.ErrEnds): false,
	} {
		if h.gone(err) != gone {
			t.Errorf("%v: it is sent to another one: %v", err, !gone)
		}
	}
}

// committedOf is a node whose session has committed every input, and no more; asked is what it was told.
type committedOf struct {
	node
	asked []string
}

func (n *committedOf) Ask(_ context.Context, m proto.Message) (proto.Message, error) {
	to, _ := m.(*messages.ToSession)
	switch to.GetCommand().(type) {
	case *messages.ToSession_WithdrawInput:
		n.asked = append(n.asked, "withdraw")
		return nil, messages.Fail(messages.CodeCommitted, "input inp_1 has joined the open turn", "")
	case *messages.ToSession_Cancel:
		n.asked = append(n.asked, "cancel")
	}
	return &messages.Cancelled{}, nil
}

// A prompt that was to steer may have joined a turn of others before its runner has seen that.
func TestAPromptThatMayHaveJoinedATurnOfOthersEndsNone(t *testing.T) {
	for mode, want := range map[messages.InputAccepted_Mode][]string{
		messages.InputAccepted_QUEUE: {"withdraw", "cancel"},
		messages.InputAccepted_STEER: {"withdraw"},
	} {
		var said bytes.Buffer
		n := &committedOf{}
		r := &runner{a: &app{err: &said}, session: "ses_1", input: "inp_1", mode: mode, parts: []*messages.Part{{}}}
		goOn := r.forsake(t.Context(), n)
		if steers := mode == messages.InputAccepted_STEER; !slices.Equal(n.asked, want) || strings.Contains(goOn, "cancelled") == steers || strings.Contains(said.String(), "has joined") != steers {
			t.Errorf("%v: asked was %v; it goes on with %q, and it says %q", mode, n.asked, goOn, said.String())
		}
	}
}

// A run without a prompt shows another's turn: who stops it has asked for nothing that could be taken back. At a question it is as with any run.
func TestARunThatOnlyWatchesEndsNoTurn(t *testing.T) {
	for unanswered, want := range map[bool][]string{false: nil, true: {"cancel"}} {
		n := &committedOf{}
		r := &runner{a: &app{err: &bytes.Buffer{}}, session: "ses_1", input: "inp_1", turn: "trn_1", unanswered: unanswered}
		if r.forsake(t.Context(), n); !slices.Equal(n.asked, want) {
			t.Errorf("unanswered %v: asked was %v", unanswered, n.asked)
		}
	}
}
