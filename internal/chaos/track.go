package chaos

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// tracker names appends by what they say, without ids and numbers of attempts, so that the same append of
// the same turn has the same name in every life and every repetition of a run.
type tracker struct {
	streams map[string]*track
	names   map[string]string // exec id -> step.ordinal
	seqs    map[string]uint64 // exec id -> seq of its newest durable dispatch
}

// track is how far one conversation is.
type track struct {
	session    string
	turn, step int
}

func newTracker() *tracker {
	return &tracker{streams: make(map[string]*track), names: make(map[string]string), seqs: make(map[string]uint64)}
}

// replay takes note of a record that is in the store.
func (t *tracker) replay(e persistence.Entry) {
	if what, err := decode(e.Stream, e.Record); err == nil && what != nil {
		t.name(e.Stream, e.Session, what)
		t.durable(what, e.Record.GetSeq())
	}
}

// durable takes note of what a durable record allows.
func (t *tracker) durable(what proto.Message, seq uint64) {
	if d, ok := what.(*messages.ToolDispatched); ok {
		t.seqs[d.GetExecId()] = seq
	}
}

// appendName is the name of one append, and the exec ids that it dispatches.
type appendName struct {
	session string
	text    string
	starts  []string
}

// batch names an append.
func (t *tracker) batch(all []persistence.Batch) appendName {
	var n appendName
	var words []string
	turn := 0
	for _, b := range all {
		n.session = b.Session
		for _, r := range b.Records {
			what, err := decode(b.Lease.Stream, r)
			if err != nil || what == nil {
				continue
			}
			if w := t.name(b.Lease.Stream, b.Session, what); w != "" {
				words = append(words, w)
			}
			if d, ok := what.(*messages.ToolDispatched); ok {
				n.starts = append(n.starts, d.GetExecId())
			}
		}
		if s := t.streams[b.Lease.Stream]; s != nil {
			turn = max(turn, s.turn)
		}
	}
	slices.Sort(words)
	n.text = fmt.Sprintf("%s/%d %s", n.session, turn, strings.Join(words, " "))
	return n
}

// name is one word for one fact, "" for what says nothing.
func (t *tracker) name(stream, session string, what proto.Message) string {
	s := t.streams[stream]
	if s == nil {
		s = &track{session: session}
		t.streams[stream] = s
	}
	switch x := what.(type) {
	case *messages.TurnStarted:
		s.turn++
		return "turn"
	case *messages.GenerationStarted:
		s.step = int(x.GetStep())
		return fmt.Sprintf("ask%d", s.step)
	case *messages.GenerationCompleted:
		return fmt.Sprintf("answer%d", s.step)
	case *messages.GenerationFailed:
		return fmt.Sprintf("failed%d", s.step)
	case *messages.ToolPlanned:
		t.names[x.GetExecId()] = fmt.Sprintf("%d.%d", s.step, x.GetOrdinal())
		return "plan" + t.names[x.GetExecId()]
	case *messages.ApprovalRequested:
		return "question" + t.names[x.GetExecId()]
	case *messages.ApprovalResolved:
		return conversation.DecisionName(x.GetDecision()) + t.names[x.GetExecId()]
	case *messages.ToolDispatched:
		return "start" + t.names[x.GetExecId()]
	case *messages.ToolFinished:
		return "end" + t.names[x.GetExecId()] + ":" + conversation.StatusName(x.GetStatus())
	case *messages.TurnCompleted:
		return "done"
	case *messages.Activated:
		return t.activated(x)
	case *messages.InputAccepted:
		return "input" + x.GetInputId()
	}
	return string(what.ProtoReflect().Descriptor().Name())
}

// activated names an activation by its decisions.
func (t *tracker) activated(a *messages.Activated) string {
	var words []string
	for _, d := range a.GetDecisions() {
		words = append(words, t.names[d.GetExecId()]+":"+strings.ToLower(d.GetAction().String()))
	}
	slices.Sort(words)
	return "wake[" + strings.Join(words, ",") + "]"
}
