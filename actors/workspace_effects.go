package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// FieldEffect is a function of the host program that edits of fields may set off (row 58). It runs off the mailbox once the edit is
// durable, those of one workspace one after the other in the order of the edits. Its beginning and its end are written down, so that
// it runs once: after a crash in between, again if Effect is PURE or IDEMPOTENT, else its outcome stays unknown.
type FieldEffect struct {
	Effect messages.Effect_Class
	Run    func(ctx context.Context, c FieldChange) error // bounded to a minute; a panic is an error
}

// FieldChange is an edit, to what it sets off. Values are JSON, "" for unset.
type FieldChange struct {
	Workspace       string // canonical address
	Field, Old, New string
	Rev             uint64
	By, Session     string
	ID              string // the same whenever it runs again
}

// fieldEffectDone is the end of an effect.
type fieldEffectDone struct {
	ended *messages.FieldEffectEnded
}

// The ways in which an effect ends.
const (
	effectOK      = "ok"
	effectFailed  = "failed"
	effectUnknown = "unknown"
)

// knowsEffects refuses a schema whose effects the program does not have.
func (s *Services) knowsEffects(schema string) error {
	parsed, err := workspace.ParseFieldSchema(schema)
	if err != nil {
		return err
	}
	var have []string
	for name := range s.FieldEffects {
		have = append(have, name)
	}
	slices.Sort(have)
	for _, name := range parsed.Effects() {
		if !slices.Contains(have, name) {
			return fmt.Errorf("x-effect %q is none of the program's; there are: %s", name, strings.Join(have, ", "))
		}
	}
	return nil
}

// nextEffect takes the next step of the oldest effect that has not ended: one step at a time, when nothing is written. One that
// this program does not have waits for one that has.
func (w *Workspace) nextEffect(c actor.Context) {
	if w.book.busy || w.book.effect != nil || w.book.fields == nil {
		return
	}
	for _, e := range w.book.fields.Pending() {
		known, ok := w.svc.FieldEffects[e.Name]
		if !ok {
			continue
		}
		again := known.Effect == messages.Effect_PURE || known.Effect == messages.Effect_IDEMPOTENT
		if e.Attempts > 0 && !again {
			w.log.Error("what a field's edit set off was cut off: its outcome is unknown", "workspace", w.uri, "effect", e.Name, "field", e.Set.GetField())
			w.writeEffect(c, &fieldsWritten{facts: []proto.Message{&messages.FieldEffectEnded{Rev: e.Set.GetRev(), Effect: e.Name, Status: effectUnknown}}})
			return
		}
		started := &messages.FieldEffectStarted{Rev: e.Set.GetRev(), Effect: e.Name, Attempt: e.Attempts + 1}
		ctx, cancel := context.WithTimeout(context.Background(), hookTime)
		w.book.effect = cancel
		w.writeEffect(c, &fieldsWritten{
			facts: []proto.Message{started},
			then:  func(c actor.Context) { w.runEffect(ctx, c, known, e) },
			lost:  func() { cancel(); w.book.effect = nil },
		})
		return
	}
}

// writeEffect writes down a step that nobody waits for.
func (w *Workspace) writeEffect(c actor.Context, m *fieldsWritten) {
	w.writeFields(c, m)
	w.book.asker = nil // whose message it is that is handled does not wait for it
}

// runEffect runs it, once its beginning is durable.
func (w *Workspace) runEffect(ctx context.Context, c actor.Context, known FieldEffect, e *workspace.FieldEffect) {
	set := e.Set
	change := FieldChange{
		Workspace: w.uri, Field: set.GetField(), Old: set.GetOld(), New: set.GetNew(), Rev: set.GetRev(), By: set.GetBy(), Session: set.GetSessionId(),
		ID: fmt.Sprintf("%s/%d", w.id(c), set.GetRev()),
	}
	ended := func(err error) *fieldEffectDone {
		d := &messages.FieldEffectEnded{Rev: change.Rev, Effect: e.Name, Status: effectOK}
		if err != nil {
			d.Status, d.Error = effectFailed, err.Error()
		}
		return &fieldEffectDone{d}
	}
	w.svc.spawn(c.ActorSystem(), c.Self(), func(p *act.Panic) any { return ended(p) }, func() any {
		var err error
		if p := act.Guard(func() { err = known.Run(ctx, change) }); p != nil {
			err = p
		}
		return ended(err)
	})
}

// fieldEffectDone writes the end down, when nothing else is written.
func (w *Workspace) fieldEffectDone(c actor.Context, m *fieldEffectDone) {
	if w.book.busy {
		w.book.stash.Put(c)
		return
	}
	if w.book.fields == nil { // an append failed meanwhile: they are read anew
		w.book.stash.Put(c)
		w.openFields(c)
		return
	}
	if w.book.effect != nil {
		w.book.effect()
	}
	w.book.effect = nil
	if m.ended.GetStatus() == effectFailed {
		w.log.Error("what a field's edit set off failed", "workspace", w.uri, "effect", m.ended.GetEffect(), "err", m.ended.GetError())
	}
	w.writeEffect(c, &fieldsWritten{facts: []proto.Message{m.ended}})
}
