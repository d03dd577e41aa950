package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

// The fields of a workspace are the Workspace actor's, in a journal of their own (wsp/ID). An edit needs no lease: it is decided
// in the mailbox, one at a time, whoever makes it, and is durable before it counts or is answered (I1, I3).

// fieldBook is what a Workspace holds of its fields.
type fieldBook struct {
	fields  *workspace.Fields    // nil: not read yet
	journal *persistence.Journal // nil until it is read
	snaps   *snapshots           // of the journal
	busy    bool                 // it is read, or written to
	asker   *actor.PID           // of what is written
	stash   act.Stash            // what came meanwhile
	effect  context.CancelFunc   // ends what an edit set off; nil: nothing runs
}

// fieldsOpened is what the goroutine that read the journal found.
type fieldsOpened struct {
	fields  *workspace.Fields
	journal *persistence.Journal
	snaps   *snapshots
	fail    *messages.Failure
}

// fieldsWritten is the end of an append.
type fieldsWritten struct {
	facts []proto.Message
	reply func() any // made once the facts are applied
	then  func(actor.Context)
	lost  func() // when they were not written; may be nil
	fail  *messages.Failure
}

// working says that somebody waits for the fields, or for what an edit set off.
func (b *fieldBook) working() bool { return b.busy || b.stash.Len() > 0 || b.effect != nil }

func (w *Workspace) id(c actor.Context) string {
	return strings.TrimPrefix(nameOf(c.Self()), workspaceName(""))
}

// onFields serves a question or a wish about the fields. What is there is shown at once, also while something is written.
func (w *Workspace) onFields(c actor.Context) {
	_, declares := c.Message().(*messages.DeclareFields)
	_, reads := c.Message().(*messages.ReadFields)
	switch {
	case w.book.fields == nil && !declares && !w.svc.fields.has(w.id(c)):
		w.answerFields(c, &workspace.Fields{}) // none were ever declared: there is no journal, and none is begun
	case reads && w.book.fields != nil:
		w.answerFields(c, w.book.fields)
	case w.book.busy:
		w.book.stash.Put(c)
	case w.book.fields == nil:
		w.book.stash.Put(c)
		w.openFields(c)
	default:
		w.answerFields(c, w.book.fields)
	}
}

func (w *Workspace) answerFields(c actor.Context, f *workspace.Fields) {
	switch m := c.Message().(type) {
	case *messages.ReadFields:
		c.Respond(f.View(w.uri))
	case *messages.SetField:
		w.setField(c, f, m)
	case *messages.DeclareFields:
		w.declareFields(c, f, m)
	}
}

// setField decides about an edit.
func (w *Workspace) setField(c actor.Context, f *workspace.Fields, m *messages.SetField) {
	fact, duplicate, err := f.Edit(workspace.FieldEdit{
		Field: m.GetField(), Value: m.GetValue(), IfRev: m.GetIfRev(), ExecID: m.GetExecId(), By: m.GetBy(), Session: m.GetSessionId(), Owner: m.GetOwner(),
	})
	switch refused := workspace.AsFieldError(err); {
	case refused != nil:
		c.Respond(messages.Fail(refused.Code, refused.Message, ""))
	case err != nil:
		c.Respond(messages.Fail(messages.CodeInternal, err.Error(), ""))
	case duplicate:
		c.Respond(&messages.FieldUpdated{Workspace: w.uri, Set: fact, Duplicate: true})
	default:
		w.writeFields(c, &fieldsWritten{
			facts: []proto.Message{fact},
			reply: func() any { return &messages.FieldUpdated{Workspace: w.uri, Set: fact} },
			then: func(c actor.Context) {
				c.Send(c.Parent(), &messages.FieldChanged{Id: w.id(c), Noted: &messages.FieldNoted{Workspace: w.uri, Set: fact}})
			},
		})
	}
}

// declareFields decides about a schema.
func (w *Workspace) declareFields(c actor.Context, f *workspace.Fields, m *messages.DeclareFields) {
	if v := f.View(w.uri); m.GetWeak() && v.GetRev() > 0 && f.DeclaredBy() != m.GetBy() {
		c.Respond(v)
		return
	}
	fact, err := f.Declare(m.GetSchema(), m.GetBy())
	if err == nil && fact != nil {
		err = w.svc.knowsEffects(m.GetSchema())
	}
	switch {
	case err != nil:
		c.Respond(messages.Fail(messages.CodeBadRequest, fmt.Sprintf("declare the fields of %s: %v", w.uri, err), "correct the schema"))
	case fact == nil:
		c.Respond(f.View(w.uri))
	default:
		facts := []proto.Message{fact}
		if w.book.journal.Next() == 1 {
			facts = []proto.Message{&messages.WorkspaceOpened{Uri: w.uri}, fact}
		}
		w.writeFields(c, &fieldsWritten{facts: facts, reply: func() any { return w.book.fields.View(w.uri) }, then: func(c actor.Context) { w.svc.fields.add(w.id(c)) }})
	}
}

// openFields reads the journal, off the mailbox.
func (w *Workspace) openFields(c actor.Context) {
	w.book.busy = true
	svc, id := w.svc, w.id(c)
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		return &fieldsOpened{fail: messages.Fail(messages.CodeInternal, p.Error(), "")}
	}, func() any {
		o := &fieldsOpened{}
		ctx := context.Background()
		j, err := persistence.OpenJournal(ctx, svc.Store, messages.WorkspaceStream(id), "", svc.Node)
		if err == nil {
			j.Now = svc.Now
			o.journal = j
			o.fields, o.snaps, err = recoverFields(ctx, j)
		}
		if err != nil {
			o.fail = messages.Fail(unreadable(err), "read the fields of the workspace: "+err.Error(), "run `troupe verify`")
		}
		return o
	})
}

// fieldsOpened goes on with what waited for the fields.
func (w *Workspace) fieldsOpened(c actor.Context, m *fieldsOpened) {
	w.book.busy = false
	if m.fail != nil {
		w.log.Error("fields of a workspace cannot be read", "workspace", w.uri, "err", m.fail)
		if m.journal != nil {
			m.journal.Release()
		}
		w.refuseFields(c, m.fail)
		w.grant(c)
		return
	}
	w.book.fields, w.book.journal, w.book.snaps = m.fields, m.journal, m.snaps
	w.resumeFields(c)
}

// resumeFields goes on when nothing is written any more: first with what edits set off, whose beginning and end are
// written, too.
func (w *Workspace) resumeFields(c actor.Context) {
	w.nextEffect(c)
	w.book.stash.Replay(c, w.serve, func() bool { return !w.book.busy })
	w.grant(c)
}

// writeFields appends facts, off the mailbox.
func (w *Workspace) writeFields(c actor.Context, m *fieldsWritten) {
	w.book.busy, w.book.asker = true, c.Sender()
	svc, journal, what := w.svc, w.book.journal, w.uri
	svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any {
		m.fail = messages.Fail(messages.CodeInternal, p.Error(), "")
		return m
	}, func() any {
		err := appendFields(svc, journal, m.facts)
		if err != nil {
			m.fail = messages.Fail(messages.CodeUnavailable, fmt.Sprintf("write the fields of %s: %v", what, err), "try again")
		}
		return m
	})
}

func appendFields(svc *Services, j *persistence.Journal, facts []proto.Message) error {
	var recs []*messages.Record
	for _, f := range facts {
		r, err := messages.NewWorkspaceRecord(f)
		if err != nil {
			return err
		}
		recs = append(recs, r)
	}
	_, err := appendAndWait(svc, persistence.Part{Journal: j, Draft: persistence.Draft{Records: recs}})
	return err
}

// fieldsWritten applies what is durable, answers, and tells the sessions. After an append that failed, or of which nobody knows
// whether it was made, the journal is read anew: the same edit made again finds out.
func (w *Workspace) fieldsWritten(c actor.Context, m *fieldsWritten) {
	asker := w.book.asker
	w.book.busy, w.book.asker = false, nil
	if m.fail != nil {
		w.book.journal.Release()
		w.book.fields, w.book.journal = nil, nil
		if asker != nil {
			c.Send(asker, m.fail)
		}
		if m.lost != nil {
			m.lost()
		}
		w.book.stash.Replay(c, w.serve, func() bool { return !w.book.busy })
		w.grant(c)
		return
	}
	for _, f := range m.facts {
		w.book.fields.Apply(f)
		w.book.snaps.records++
		w.book.snaps.bytes += proto.Size(f)
	}
	w.sumFields(false, func() {})
	if m.then != nil {
		m.then(c)
	}
	if asker != nil && m.reply != nil {
		c.Send(asker, m.reply())
	}
	w.resumeFields(c)
}

// refuseFields answers everybody who waits.
func (w *Workspace) refuseFields(c actor.Context, fail *messages.Failure) {
	w.book.stash.Each(func(_ any, sender *actor.PID) {
		if sender != nil {
			c.Send(sender, fail)
		}
	})
	w.book.stash = act.Stash{}
	if w.book.asker != nil {
		c.Send(w.book.asker, fail)
		w.book.asker = nil
	}
}

// closeFields ends what runs. An edit that is being written is made or not: who waits asks the next one.
func (w *Workspace) closeFields(c actor.Context) {
	if w.book.effect != nil {
		w.book.effect()
	}
	w.refuseFields(c, messages.Fail(messages.CodeUnavailable, "the workspace "+w.uri+" is stopping", "try again"))
	if journal, snaps := w.book.journal, w.book.snaps; journal != nil {
		w.sumFields(true, func() { snaps.whenWritten(journal.Release) }) // one may be under way that needs the journal
	}
}

// fielded are the workspaces that have fields, by id, so that the others cost nothing.
type fielded struct {
	ids    sync.Map
	unread bool // the store could not say which: any may
}

func (f *fielded) has(id string) bool {
	_, ok := f.ids.Load(id)
	return ok || f.unread
}

func (f *fielded) add(id string) { f.ids.Store(id, true) }

// FieldStreams is the journal of the fields of what a session keeps, which goes with it; none if there are no fields.
func (s *Services) FieldStreams(session string) []string {
	id := (&workspace.Address{Canonical: s.ServerName + ":/sessions/" + session}).ID()
	if !s.fields.has(id) {
		return nil
	}
	return []string{messages.WorkspaceStream(id)}
}

// loadFielded asks the store which workspaces have fields.
func (s *Services) loadFielded(ctx context.Context) {
	err := s.Store.Streams(ctx, messages.WorkspaceStream(""), func(stream string) error {
		s.fields.add(strings.TrimPrefix(stream, messages.WorkspaceStream("")))
		return nil
	})
	if err != nil {
		s.fields.unread = true
		s.Log.Error("which workspaces have fields cannot be read: each is asked", "err", err)
	}
}

// fieldsWait bounds the wait for a Workspace's word about its fields.
const fieldsWait = 10 * time.Second

// askFields asks a Workspace about its fields, or its successor when it is being replaced. An edit has an id, so that it is made
// once however often it is asked for.
func askFields[T any](ctx context.Context, sys *actor.ActorSystem, id string, m proto.Message) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, fieldsWait)
	defer cancel()
	for try := 0; ; try++ {
		r, err := act.AskSoon[T](ctx, sys, workspacePID(sys, id), m)
		var fail *messages.Failure
		stopping := errors.As(err, &fail) && fail.GetCode() == messages.CodeUnavailable && try < 3
		if !errors.Is(err, act.ErrGone) && !stopping {
			return r, err
		}
		there, lost := act.Ask[*messages.Replaced](ctx, sys, sys.NewLocalPID(root), &messages.FindActor{Name: workspaceName(id)})
		switch {
		case lost != nil:
			return r, lost
		case there.GetReason() != "":
			return r, messages.Fail(messages.CodeNotAvailable, "Error: Workspace not available: "+there.GetReason(), "")
		}
	}
}

// fieldsText is what a model reads of the fields of its workspaces, as they are at this moment.
func fieldsText(ctx context.Context, svc *Services, sys *actor.ActorSystem, grant *messages.Grant) string {
	text := ""
	for _, g := range grant.GetWorkspaces() {
		if !svc.fields.has(g.GetId()) {
			continue
		}
		v, err := askFields[*messages.FieldsView](ctx, sys, g.GetId(), &messages.ReadFields{})
		if err != nil {
			text += fmt.Sprintf("\n# Fields of workspace %s\nThey cannot be read now: %v\n", g.GetName(), err)
			continue
		}
		text += workspace.RenderFields(g.GetName(), v)
	}
	return text
}
