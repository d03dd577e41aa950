package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// A session can be written down a second time, record by record: as a fork that goes on from one of its
// records, or from an exported file. A copy has the cursors and the sequence numbers of its source, so that whatever
// refers to a record by its number refers to the same one in both.

// Source gives out the records of one session in order of its cursor, from the first one on. It is read more than once.
type Source func(ctx context.Context, fn func(persistence.Entry) error) error

// Stored is the source of a session in a store. It wakes nobody.
func Stored(store persistence.Store, session string) Source {
	return func(ctx context.Context, fn func(persistence.Entry) error) error {
		return store.ReadSession(ctx, session, 0, fn)
	}
}

// Survey is what the records of a session come to.
type Survey struct {
	Session string
	Cursor  uint64 // of the last record that counts
	Damage  error  // why no later one does; nil: there is none, or it was not asked for

	facts   sessionFacts
	workers map[string]*conversation.State
	order   []string // of workers, as they were spawned
	streams map[string]bool
	placed  map[string]uint64 // address of a workspace -> record that attached it
	owners  []string          // workers that have copies of their own
	shared  map[string]*conversation.Shared
}

// errSurveyed ends the reading.
var errSurveyed = errors.New("surveyed")

// NewSurvey reads a source up to a cursor, 0 for its end. It goes on behind the cursor while a worker that was spawned
// has not begun: a session without its worker is none. What cannot be read or folded ends the survey
// there; the error is about the reader alone.
func NewSurvey(ctx context.Context, src Source, upto uint64) (*Survey, error) {
	v, err := survey(ctx, src, upto)
	if err != nil || v.Damage == nil || v.Cursor == 0 {
		return v, err
	}
	good, err := survey(ctx, src, v.Cursor) // anew: a fold is of no use after an error
	if err == nil && good.Damage == nil {
		good.Damage = v.Damage
		return good, nil
	}
	return v, err
}

func survey(ctx context.Context, src Source, upto uint64) (*Survey, error) {
	v := &Survey{workers: make(map[string]*conversation.State), streams: make(map[string]bool), placed: make(map[string]uint64)}
	err := src(ctx, func(e persistence.Entry) error {
		if upto != 0 && e.Cursor > upto && v.begun() {
			return errSurveyed
		}
		if err := v.add(e); err != nil {
			v.Damage = err
			return errSurveyed
		}
		v.Cursor = e.Cursor
		return nil
	})
	switch {
	case err == nil, errors.Is(err, errSurveyed):
	case ctx.Err() != nil || !damaged(err):
		return nil, fmt.Errorf("read the records to be copied: %w", err)
	default:
		v.Damage = err
	}
	if v.Damage == nil && !v.begun() {
		v.Damage = fmt.Errorf("the session has no worker: %w", persistence.ErrCorrupt)
	}
	return v, nil
}

// begun says whether every worker that was spawned has its beginning, and there is one.
func (v *Survey) begun() bool {
	for _, id := range v.order {
		if v.workers[id] == nil {
			return false
		}
	}
	for _, f := range v.facts.shared {
		if v.shared[f.GetConversationId()] == nil {
			return false
		}
	}
	for _, id := range v.owners { // whose copies stand before them
		if !slices.Contains(v.order, id) {
			return false
		}
	}
	return len(v.order) > 0
}

func (v *Survey) add(e persistence.Entry) error {
	if e.Cursor != v.Cursor+1 {
		return fmt.Errorf("cursor %d after %d: %w", e.Cursor, v.Cursor, persistence.ErrCorrupt)
	}
	kind, id, _ := strings.Cut(e.Stream, "/")
	v.streams[e.Stream] = true
	switch kind {
	case "ses":
		return v.addSession(id, e.Record)
	case "wrk":
		return v.addWorker(id, e.Record)
	case "cnv":
		return v.addShared(id, e)
	}
	return fmt.Errorf("cursor %d is of stream %s, which cannot be copied: %w", e.Cursor, e.Stream, persistence.ErrCorrupt)
}

func (v *Survey) addSession(id string, r *messages.Record) error {
	f, err := messages.SessionFactIn(r)
	if err != nil {
		return err
	}
	switch x := f.(type) {
	case *messages.SessionCreated:
		if v.Session != "" || x.GetSessionId() != id || !messages.ValidID(messages.SessionPrefix, id) {
			return fmt.Errorf("the record that makes session %q: %w", x.GetSessionId(), persistence.ErrCorrupt)
		}
		v.Session = id
	case *messages.WorkerSpawned:
		if !messages.ValidID(messages.WorkerPrefix, x.GetWorkerId()) {
			return fmt.Errorf("worker %q is no id: %w", x.GetWorkerId(), persistence.ErrCorrupt)
		}
		v.order = append(v.order, x.GetWorkerId())
	case *messages.WorkspaceAttached:
		v.placed[x.GetUri()] = v.Cursor + 1
		if x.GetWorker() != "" {
			v.owners = append(v.owners, x.GetWorker())
		}
	case *messages.SessionClosed:
		return fmt.Errorf("the session was closed by record %d: %w", v.Cursor+1, errClosed)
	}
	if id != v.Session {
		return fmt.Errorf("a record of session %q in session %q: %w", id, v.Session, persistence.ErrCorrupt)
	}
	return v.facts.apply(f, r)
}

// errClosed: what was closed cannot go on.
var errClosed = errors.New("it cannot go on from there")

func (v *Survey) addWorker(id string, r *messages.Record) error {
	s := v.workers[id]
	if s == nil {
		s = &conversation.State{}
	}
	if err := s.Apply(r); err != nil {
		v.workers[id] = nil // an error spoils it
		return fmt.Errorf("conversation %s: %w", id, err)
	}
	if s.ID() != id || s.Session() != v.Session || v.Session == "" {
		return fmt.Errorf("stream of worker %q holds worker %q of session %q: %w", id, s.ID(), s.Session(), persistence.ErrCorrupt)
	}
	for _, known := range v.order {
		if known == id {
			v.workers[id] = s
			return nil
		}
	}
	return fmt.Errorf("worker %s was never spawned: %w", id, persistence.ErrCorrupt)
}

// factIn decodes a record of any journal of a session; nil for one that may be skipped.
func factIn(stream string, r *messages.Record) (proto.Message, error) {
	switch kind, _, _ := strings.Cut(stream, "/"); kind {
	case "ses":
		return messages.SessionFactIn(r)
	case "cnv":
		return messages.ConversationFactIn(r)
	}
	return messages.WorkerFactIn(r)
}

// Marks of copies in the secondary index. A session that is being written has one, and so has one that came from
// a file and is not trusted as it was where it comes from.
const (
	markUnfinished = "unfinished"
	markDoomed     = "doomed" // it is being deleted
	markRestricted = "restricted"
)

func markKey(session string) string { return "cpy/" + session }

// marked returns the mark of a session, "" when it has none.
func marked(ctx context.Context, store persistence.Store, session string) (mark string, err error) {
	err = store.Index(ctx, markKey(session), func(key string, value []byte) error {
		if key == markKey(session) {
			mark = string(value)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("look for the mark of %s: %w", session, err)
	}
	return mark, nil
}

// restrict takes back what a file claims for itself: trust in folders, rules that allow, and the variables of a project. Of a
// workspace whose trust was changed, the journal says how it is: an import takes back what the file says, and what people here
// have raised since counts.
func (f *sessionFacts) restrict() {
	f.created = proto.CloneOf(f.created)
	f.created.Rules, f.created.ProjectId = nil, ""
	for i, a := range f.attached {
		if !IsHome(a) && a.GetTrust() != messages.Trust_RESTRICTED && !slices.Contains(f.judged, a.GetUri()) {
			f.attached[i] = proto.CloneOf(a)
			f.attached[i].Trust = messages.Trust_RESTRICTED
		}
	}
}

// Whole makes sure that every record of a session is there still; what is wanted of it says the refusal.
func Whole(ctx context.Context, store persistence.Store, session, wanted string) error {
	err := store.ReadSession(ctx, session, 0, func(persistence.Entry) error { return errSurveyed })
	if err == nil || errors.Is(err, errSurveyed) || damaged(err) { // of damage the reading itself says more
		return nil
	}
	return trimmed(session, wanted, err)
}

// trimmed makes the error of a reader that begins before what was left of a session a refusal. Any other stays as it is.
func trimmed(session, wanted string, err error) error {
	var left *persistence.TrimmedError
	if !errors.As(err, &left) {
		return err
	}
	return messages.Fail(messages.CodeTrimmed,
		fmt.Sprintf("session %s cannot be %s: what was before its record %d was trimmed away, and of a session that is not whole no other can be made", session, wanted, left.First),
		"`troupe backup` copies the whole store with what is left of it; a new session can begin with its conversation")
}
