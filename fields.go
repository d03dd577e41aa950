package troupe

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
)

type (
	// Fields are what a workspace holds besides its files.
	Fields = messages.FieldsView
	// FieldSet is an edit of a field, with what followed from it. Values are JSON, "" for unset.
	FieldSet = messages.FieldSet
	// FieldEffect is a function of the program that edits may set off.
	FieldEffect = actors.FieldEffect
	// FieldChange is an edit, to what it sets off.
	FieldChange = actors.FieldChange
)

// FieldEdit is a wish to set a field.
type FieldEdit struct {
	Workspace string // id, name or address; "" is the primary one
	Field     string
	Value     any    // as encoding/json writes it; nil clears the field
	Rev       uint64 // refused (conflict) if the fields are of another revision; 0: it does not matter
	ID        string // the same id again is the same edit; "" is made
	Owner     bool   // also a field that is not editable: for the program that keeps it
}

// Fields gives the fields of a workspace of the session as they are; "" is the primary one. One that has none is of revision 0.
func (s *Session) Fields(ctx context.Context, workspace string) (*Fields, error) {
	return ask[*messages.FieldsView](ctx, s.rt, s.session, &messages.ReadFields{Workspace: workspace})
}

// SetField sets a field, also while agents work. It is durable when SetField returns, and every model call that begins later shows it.
// A refusal is a *Failure: field_not_found, field_read_only, validation_failed or conflict.
func (s *Session) SetField(ctx context.Context, e FieldEdit) (*FieldSet, error) {
	value, err := json.Marshal(e.Value)
	if err != nil {
		return nil, fmt.Errorf("set field %s: %w", e.Field, err)
	}
	done, err := ask[*messages.FieldUpdated](ctx, s.rt, s.session, &messages.SetField{
		Workspace: e.Workspace, Field: e.Field, Value: string(value), IfRev: e.Rev, ExecId: e.ID, By: "program", Owner: e.Owner,
	})
	if err != nil {
		return nil, err
	}
	return done.GetSet(), nil
}

// DeclareFields says which fields a workspace of the session has, for every session that works there; "" is the primary one. schema is a
// JSON schema of an object. Values that it takes stay.
func (s *Session) DeclareFields(ctx context.Context, workspace, schema string) (*Fields, error) {
	return ask[*messages.FieldsView](ctx, s.rt, s.session, &messages.DeclareFields{Workspace: workspace, Schema: schema, By: "program"})
}
