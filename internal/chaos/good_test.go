package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// recorded is what one real run left behind, with kills at random moments: the good history that is damaged.
// What becomes of the calls that a kill hits is a matter of microseconds, so that runs are made until one has all
// that the damage needs.
var recorded = sync.OnceValues(func() (*History, error) {
	for seed := range uint64(20) {
		h, err := recordRun(seed)
		if err != nil || enough(h) {
			return h, err
		}
	}
	return nil, errors.New("no run has all that is to be damaged")
})

func recordRun(seed uint64) (_ *History, err error) {
	dir, err := os.MkdirTemp("", "troupe-chaos-good-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o := Options{Dir: dir, Turns: 20, Mode: Random, Seed: seed, InProcess: true, Parallel: 1}.withDefaults()
	lanes, stop, err := prepare(context.Background(), o)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(lanes[0].run(context.Background()), stop()); err != nil {
		return nil, err
	}
	return lanes[0].history(context.Background(), true)
}

// enough says whether a run has calls of every end.
func enough(h *History) bool {
	_, _, one := neighbours(h, sameToken)
	_, _, two := neighbours(h, otherToken)
	return one && two && len(h.Refused) > 0 && answersOfAllKinds(h) && len(find(h, finished(toolCharge, messages.ToolFinished_INTERRUPTED_UNKNOWN))) > 0 &&
		len(find(h, finished("", messages.ToolFinished_DENIED))) > 0 && len(find(h, finished("write_file", messages.ToolFinished_OK))) > 0
}

// answersOfAllKinds says whether approvals were given, with arguments as they were and others, and refused, some of them twice.
func answersOfAllKinds(h *History) bool {
	kinds := make(map[string]bool)
	for _, a := range h.Answers {
		kinds[a.Told] = true
		if a.Told == Acknowledged {
			kinds[a.Decision.String()] = true
		}
	}
	ran := find(h, func(f *messages.ApprovalResolved) bool {
		return f.GetDecision() == messages.Decision_APPROVED && slices.ContainsFunc(h.Effects, func(e Effect) bool { return e.Exec == f.GetExecId() })
	})
	return kinds["APPROVED"] && kinds["REJECTED"] && kinds[messages.CodeResolved] && len(ran) > 0
}

// good is a copy of the recorded history.
func good(t *testing.T) *History {
	t.Helper()
	h, err := recorded()
	if err != nil {
		t.Fatal(err)
	}
	return clone(h)
}

func clone(h *History) *History {
	c := *h
	c.Streams = make(map[string][]persistence.Entry, len(h.Streams))
	for name, entries := range h.Streams {
		for _, e := range entries {
			e.Record = proto.CloneOf(e.Record)
			c.Streams[name] = append(c.Streams[name], e)
		}
	}
	c.Snapshots = nil
	for _, s := range h.Snapshots {
		c.Snapshots = append(c.Snapshots, proto.CloneOf(s))
	}
	c.Effects, c.Acks, c.Results, c.Refused = slices.Clone(h.Effects), slices.Clone(h.Acks), slices.Clone(h.Results), slices.Clone(h.Refused)
	c.Answers, c.Listed, c.Findings, c.Files = slices.Clone(h.Answers), slices.Clone(h.Listed), slices.Clone(h.Findings), maps.Clone(h.Files)
	c.Requests, c.Seen = nil, nil
	for _, q := range h.Requests {
		q.Messages = slices.Clone(q.Messages)
		c.Requests = append(c.Requests, q)
	}
	for _, s := range h.Seen {
		s.Event = proto.CloneOf(s.Event)
		c.Seen = append(c.Seen, s)
	}
	return &c
}

// place is where a fact stands.
type place struct {
	stream string
	at     int
}

// find returns the places of the facts of one type for which ok holds, in order.
func find[T proto.Message](h *History, ok func(T) bool) []place {
	var out []place
	for _, name := range slices.Sorted(maps.Keys(h.Streams)) {
		for i, e := range h.Streams[name] {
			if what, err := decode(name, e.Record); err == nil {
				if f, is := what.(T); is && (ok == nil || ok(f)) {
					out = append(out, place{name, i})
				}
			}
		}
	}
	return out
}

// one is find for a fact that must be there.
func one[T proto.Message](t *testing.T, h *History, ok func(T) bool) place {
	t.Helper()
	found := find(h, ok)
	if len(found) == 0 {
		t.Fatalf("the recorded run has no such %T: record another one", *new(T))
	}
	return found[0]
}

// change rewrites a fact where it stands.
func change[T proto.Message](t *testing.T, h *History, at place, with func(T)) {
	t.Helper()
	e := h.Streams[at.stream][at.at]
	what, err := decode(at.stream, e.Record)
	if err != nil {
		t.Fatal(err)
	}
	f := proto.CloneOf(what.(T))
	with(f)
	r, err := messages.NewRecord(f, e.Record.GetTurnId())
	if err != nil {
		t.Fatal(err)
	}
	e.Record.Body = r.GetBody()
}

// drop takes a record out and closes the gap, so that order alone does not show it.
func drop(h *History, at place) {
	name := at.stream
	h.Streams[name] = slices.Delete(slices.Clone(h.Streams[name]), at.at, at.at+1)
	for i := range h.Streams[name] {
		h.Streams[name][i].Record.Seq = uint64(i + 1)
	}
}

// dropAll drops from the end, so that places stay right.
func dropAll(h *History, all []place) {
	for _, at := range slices.Backward(all) {
		drop(h, at)
	}
}

// add puts a fact behind a place and makes room for it.
func add(t *testing.T, h *History, at place, fact proto.Message) {
	t.Helper()
	before := h.Streams[at.stream][at.at]
	r, err := messages.NewRecord(fact, before.Record.GetTurnId())
	if err != nil {
		t.Fatal(err)
	}
	r.Epoch, r.AtUnixMs, r.RecordId = before.Record.GetEpoch(), before.Record.GetAtUnixMs(), []byte("added-0123456789")
	e := persistence.Entry{Stream: at.stream, Session: before.Session, Cursor: before.Cursor, Record: r}
	h.Streams[at.stream] = slices.Insert(slices.Clone(h.Streams[at.stream]), at.at+1, e)
	for i := range h.Streams[at.stream] {
		h.Streams[at.stream][i].Record.Seq = uint64(i + 1)
	}
}

// finished finds the result of a call of a tool with a status; "" is any tool.
func finished(tool string, status messages.ToolFinished_Status) func(*messages.ToolFinished) bool {
	return func(f *messages.ToolFinished) bool {
		return (tool == "" || f.GetTool() == tool) && f.GetStatus() == status
	}
}

func factAt[T proto.Message](t *testing.T, h *History, at place) T {
	t.Helper()
	what, err := decode(at.stream, h.Streams[at.stream][at.at].Record)
	if err != nil {
		t.Fatal(err)
	}
	return what.(T)
}

// line finds a line of the effect log.
func line(t *testing.T, h *History, tool string, p Phase) int {
	t.Helper()
	for i, e := range h.Effects {
		if e.Tool == tool && e.Phase == p {
			return i
		}
	}
	t.Fatalf("the recorded run has no %s of %s: record another one", p, tool)
	return 0
}

// written makes a history of one worker from facts alone: what runs cannot make yet. A minute passes between
// two facts.
func written(t *testing.T, facts ...proto.Message) *History {
	t.Helper()
	const name, session = "wrk/wrk_1", "ses_1"
	h := &History{Streams: make(map[string][]persistence.Entry)}
	state := &conversation.State{}
	facts = append([]proto.Message{&messages.WorkerCreated{WorkerId: "wrk_1", SessionId: session, Model: "m"}}, facts...)
	for i, f := range facts {
		r := recordOf(t, f, i)
		probe := proto.CloneOf(r)
		if err := state.Apply(probe); err != nil {
			t.Fatalf("fact %d (%T): %v", i, f, err)
		}
		if g, ok := f.(*messages.GenerationStarted); ok && g.GetRequestHash() == nil {
			ready, _ := state.Ready()
			hash := ready.Render("").Hash
			g.RequestHash = hash[:]
			r = recordOf(t, g, i)
		}
		h.Streams[name] = append(h.Streams[name], persistence.Entry{Stream: name, Session: session, Cursor: uint64(i + 1), Record: r})
	}
	h.EndedMs = int64(len(facts)+1) * 60_000
	return h
}

func recordOf(t *testing.T, f proto.Message, i int) *messages.Record {
	t.Helper()
	r, err := messages.NewRecord(f, "trn_1")
	if err != nil {
		t.Fatal(err)
	}
	r.Seq, r.Epoch, r.AtUnixMs, r.RecordId = uint64(i+1), 1<<32|1, int64(i+1)*60_000, fmt.Appendf(nil, "%016d", i)
	return r
}

// broke says whether a rule is among the violations.
func broke(found []Violation, rule string) bool {
	return slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == rule })
}

func lines(found []Violation) string {
	var b strings.Builder
	for _, v := range found {
		b.WriteString(v.String() + "\n")
	}
	return b.String()
}
