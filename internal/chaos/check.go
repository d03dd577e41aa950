package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Kind says what a violation did to somebody's work.
type Kind string

// The kinds that a summary counts apart.
const (
	Lost       Kind = "lost"       // what was acknowledged or reported is not there
	Duplicated Kind = "duplicated" // what must happen once happened again
	Broken     Kind = "broken"     // any other broken rule
)

// Violation is one breach of one rule, with where to look.
type Violation struct {
	Rule   string `json:"rule"`
	Kind   Kind   `json:"kind"`
	Stream string `json:"stream,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Text   string `json:"text"`
}

// String is the violation as one line for people.
func (v Violation) String() string {
	where := ""
	if v.Stream != "" {
		where = " " + v.Stream
	}
	if v.Seq != 0 {
		where += fmt.Sprintf(" at %d", v.Seq)
	}
	return fmt.Sprintf("%s (%s)%s: %s", v.Rule, v.Kind, where, v.Text)
}

// Rule is one rule of the house.
type Rule struct {
	ID    string
	Says  string
	check func(*view, *report)
}

// Rules are R1 to R13.
func Rules() []Rule {
	return []Rule{
		{"R1", "an acknowledged input is in the journal exactly once and its turn completes", inputsComplete},
		{"R2", "seq and cursor have no gaps, epochs never go back, an activation is written before anything else of its epoch", streamsInOrder},
		{"R3", "an effect happens at most once per exec id, unless it only reads", effectsOnce},
		{"R4", "no effect without an earlier ToolDispatched, unless it only reads", effectsDispatched},
		{"R5", "finished OK means that the effect happened; interrupted is never reported as OK", resultsTrue},
		{"R6", "every request that the model sees is a whole conversation, the one in the journal, and made to the model that stands there", requestsWhole},
		{"R7", "rejected, expired, cancelled or not asked means no effect; approved binds the hash of the arguments; an answer that was acknowledged stays, and is the only one", refusedHasNoEffect},
		{"R8", "what a client saw is a prefix of the journal, without a duplicate", eventsPrefix},
		{"R9", "effects in one workspace do not overlap between lease tokens, and tokens only grow", leasesExclude},
		{"R10", "a snapshot and the tail fold to what the whole journal folds to", foldsAgree},
		{"R11", "timers fire once and never early", timersOnce},
		{"R12", "after draining, goroutines, heap, descriptors and mailboxes are back at the baseline", resourcesBack},
		{"R13", "a refused request leaves nothing behind", refusedLeavesNothing},
	}
}

// Check holds a history to every rule. The violations come in the order of the rules.
func Check(h *History) []Violation {
	v, unreadable := look(h)
	r := &report{rule: "R2", found: unreadable}
	for _, rule := range Rules() {
		r.rule = rule.ID
		rule.check(v, r)
	}
	return r.found
}

// report collects violations of the rule that is being checked.
type report struct {
	rule  string
	found []Violation
}

func (r *report) add(k Kind, stream string, seq uint64, format string, args ...any) {
	r.found = append(r.found, Violation{Rule: r.rule, Kind: k, Stream: stream, Seq: seq, Text: fmt.Sprintf(format, args...)})
}

// view is a history with its facts decoded and its calls put together.
type view struct {
	*History
	streams []*stream          // in order of their names
	inputs  map[string][]*fact // input id -> its InputAccepted
	calls   []*call            // in order of stream and plan
	byExec  map[string]*call
	happens map[string]int  // exec id -> how often the effect log has it
	ends    map[string]bool // exec ids whose effect came to its end
	stands  map[string]int  // mark -> how often the files have it
}

// stream is one journal, decoded.
type stream struct {
	name  string
	facts []*fact
}

// fact is one record, decoded. what is nil when the record may be skipped.
type fact struct {
	stream string
	entry  persistence.Entry
	what   proto.Message
}

func (f *fact) seq() uint64   { return f.entry.Record.GetSeq() }
func (f *fact) epoch() uint64 { return f.entry.Record.GetEpoch() }

// call is one tool call, from its plan to its end.
type call struct {
	plan       *fact
	planned    *messages.ToolPlanned
	arguments  string // as the model, or the program, gave them
	marks      []string
	requested  []*fact
	resolved   []*fact
	dispatched []*fact
	finished   []*fact
}

// result is the first result of the call, nil while it has none.
func (c *call) result() *messages.ToolFinished {
	if len(c.finished) == 0 {
		return nil
	}
	return c.finished[0].what.(*messages.ToolFinished) //nolint:forcetypeassert // put there by its type
}

// dispatchedIn finds the dispatch of a call in one life of the process.
func (c *call) dispatchedIn(boot uint64) *messages.ToolDispatched {
	for _, f := range c.dispatched {
		if f.epoch()>>32 == boot {
			return f.what.(*messages.ToolDispatched) //nolint:forcetypeassert // put there by its type
		}
	}
	return nil
}

// pure says whether the call only reads.
func (c *call) pure() bool { return c.planned.GetEffect() == messages.Effect_PURE }

// look decodes a history. What cannot be decoded is a violation and left out.
func look(h *History) (*view, []Violation) {
	v := &view{
		History: h, inputs: make(map[string][]*fact), byExec: make(map[string]*call),
		happens: make(map[string]int), ends: make(map[string]bool), stands: make(map[string]int),
	}
	r := &report{rule: "R2"}
	for _, e := range h.Effects {
		switch e.Phase {
		case Happened:
			v.happens[e.Exec]++
		case Ended:
			v.ends[e.Exec] = true
		case Begun:
		}
	}
	for _, text := range h.Files {
		for _, mark := range marksIn(text) {
			v.stands[mark]++
		}
	}
	for name, entries := range h.Streams {
		s := &stream{name: name}
		for _, e := range entries {
			what, err := decode(name, e.Record)
			if err != nil {
				r.add(Broken, name, e.Record.GetSeq(), "the record cannot be read: %v", err)
			}
			s.facts = append(s.facts, &fact{stream: name, entry: e, what: what})
		}
		v.streams = append(v.streams, s)
	}
	slices.SortFunc(v.streams, func(a, b *stream) int { return cmp.Compare(a.name, b.name) })
	for _, s := range v.workers() {
		v.gather(s)
	}
	return v, r.found
}

func decode(stream string, r *messages.Record) (proto.Message, error) {
	switch {
	case strings.HasPrefix(stream, "wrk/"):
		return messages.WorkerFactIn(r)
	case strings.HasPrefix(stream, "ses/"):
		return messages.SessionFactIn(r)
	case strings.HasPrefix(stream, "cnv/"):
		return messages.ConversationFactIn(r)
	}
	return nil, nil //nolint:nilnil // a stream of another kind is only checked for its order
}

// workers are the streams that hold conversations.
func (v *view) workers() []*stream {
	var out []*stream
	for _, s := range v.streams {
		if strings.HasPrefix(s.name, "wrk/") {
			out = append(out, s)
		}
	}
	return out
}

// gather puts the calls and inputs of one conversation together.
func (v *view) gather(s *stream) {
	var asked []*messages.ToolCall
	given := make(map[string]*messages.ToolCall) // by programs
	for _, f := range s.facts {
		switch x := f.what.(type) {
		case *messages.InputAccepted:
			v.inputs[x.GetInputId()] = append(v.inputs[x.GetInputId()], f)
			given[x.GetInputId()] = x.GetCall()
		case *messages.TurnStarted:
			asked = nil
			for _, id := range x.GetInputIds() {
				if given[id] != nil {
					asked = append(asked, given[id])
				}
			}
		case *messages.GenerationCompleted:
			asked = x.GetToolCalls()
		case *messages.ToolPlanned:
			c := &call{plan: f, planned: x}
			if int(x.GetOrdinal()) < len(asked) {
				c.arguments = asked[x.GetOrdinal()].GetArguments()
			}
			c.marks = marksOf(c)
			v.calls, v.byExec[x.GetExecId()] = append(v.calls, c), c
		case *messages.ApprovalRequested:
			v.note(x.GetExecId(), func(c *call) { c.requested = append(c.requested, f) })
		case *messages.ApprovalResolved:
			v.note(x.GetExecId(), func(c *call) { c.resolved = append(c.resolved, f) })
		case *messages.ToolDispatched:
			v.note(x.GetExecId(), func(c *call) { c.dispatched = append(c.dispatched, f) })
		case *messages.ToolFinished:
			v.note(x.GetExecId(), func(c *call) { c.finished = append(c.finished, f) })
		}
	}
}

// note passes over a fact about a call that was never planned: the fold finds that (R10).
func (v *view) note(exec string, with func(*call)) {
	if c := v.byExec[exec]; c != nil {
		with(c)
	}
}
