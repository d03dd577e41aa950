package workspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// Fields are the values that a workspace has besides its files: a fold of its journal. The zero value has none. It belongs
// to one goroutine, the Workspace actor's.
type Fields struct {
	schema  *FieldSchema      // nil: none were declared
	by      string            // who declared it
	set     map[string]string // by somebody, canonical JSON; also of fields that an earlier schema had
	derived map[string]string
	rev     uint64
	edits   map[string]*messages.FieldSet // by exec id, the newest
	ids     []string                      // of edits, the oldest first
	effects map[uint64]*FieldEffect       // that have not ended, by revision
}

// FieldEffect is what an edit set off.
type FieldEffect struct {
	Name     string
	Set      *messages.FieldSet
	Attempts uint32 // that began
}

// Bounds of what is remembered.
const (
	keptEdits  = 4096 // by whose ids an edit that is made again is known
	keptValues = 256  // with those of fields that are no more
)

// FieldEdit is a wish to set a field.
type FieldEdit struct {
	Field, Value string // JSON; "" or null: cleared
	IfRev        uint64 // 0: whatever it is
	ExecID       string
	By, Session  string
	Owner        bool // also a field that is not editable
}

// FieldError refuses an edit.
type FieldError struct{ Code, Message string }

func (e *FieldError) Error() string { return e.Message }

// noField is the text for a field that is not there and for one that may not be set (acceptance row 56).
func noField(code, name string) *FieldError {
	return &FieldError{code, fmt.Sprintf("Error: Field '%s' does not exist or is not editable. Please check the workspace context for available editable fields.", clipped(name))}
}

func invalid(name string, err error) *FieldError {
	return &FieldError{messages.CodeValidationFailed, fmt.Sprintf("Error: Field '%s' does not take this value: %s", clipped(name), err)}
}

// Edit decides about a wish. The fact is of an earlier time when the same edit was made before: duplicate.
func (f *Fields) Edit(e FieldEdit) (fact *messages.FieldSet, duplicate bool, err error) {
	if before := f.edits[e.ExecID]; before != nil && e.ExecID != "" {
		return again(before, e)
	}
	var own *field
	if f.schema != nil {
		own = f.schema.fields[e.Field]
	}
	switch {
	case own == nil:
		return nil, false, noField(messages.CodeFieldNotFound, e.Field)
	case own.derive != nil || !own.editable && !e.Owner:
		return nil, false, noField(messages.CodeFieldReadOnly, e.Field)
	case e.IfRev != 0 && e.IfRev != f.rev:
		return nil, false, &FieldError{messages.CodeConflict, fmt.Sprintf("Error: Field '%s' was to be set at revision %d, and the fields are at revision %d", clipped(e.Field), e.IfRev, f.rev)}
	}
	value := ""
	if e.Value != "" {
		if value, err = CanonicalField(e.Value); err != nil {
			return nil, false, invalid(e.Field, err)
		}
	}
	if value == "null" {
		value = ""
	}
	if value != "" {
		if err := own.takes(value); err != nil {
			return nil, false, invalid(e.Field, err)
		}
	}
	fact = &messages.FieldSet{
		Field: e.Field, Old: f.value(e.Field), New: value, Rev: f.rev + 1, ExecId: e.ExecID, By: e.By, SessionId: e.Session,
		Cleared: value == "", Effect: own.effect,
	}
	return fact, false, f.follow(fact)
}

// again answers an edit whose id was used before: as then, if it is the same one.
func again(before *messages.FieldSet, e FieldEdit) (*messages.FieldSet, bool, error) {
	value, err := CanonicalField(e.Value)
	cleared := e.Value == "" || err == nil && value == "null"
	if before.GetField() != e.Field || before.GetCleared() != cleared || !cleared && before.GetNew() != value {
		return nil, false, &FieldError{messages.CodeConflict, fmt.Sprintf("Error: Field '%s' cannot be set by this edit: its id was used for another one", clipped(e.Field))}
	}
	return before, true, nil
}

// follow works out what an edit leads to, and refuses it when that cannot be.
func (f *Fields) follow(fact *messages.FieldSet) error {
	next := Fields{schema: f.schema, set: maps.Clone(f.set), derived: f.derived}
	next.put(fact.GetField(), fact.GetNew())
	if fact.GetCleared() {
		fact.New = next.value(fact.GetField())
		if err := next.whole(fact.GetField()); err != nil {
			return invalid(fact.GetField(), err)
		}
	}
	derived, err := next.derive()
	if err != nil {
		return invalid(fact.GetField(), err)
	}
	fact.Derived = derived
	return nil
}

// whole says what the schema says when a field that is needed is cleared.
func (f *Fields) whole(name string) error {
	if !f.schema.needs[name] || f.value(name) != "" {
		return nil
	}
	there := make(map[string]any)
	for other := range f.schema.needs {
		if other != name { // that others are unset is not this edit's doing
			there[other] = true
		}
	}
	return guardField(func() error { return f.schema.required.Validate(there) })
}

// derive works out every derived field, and returns those that change.
func (f *Fields) derive() ([]*messages.FieldChange, error) {
	var out []*messages.FieldChange
	now := Fields{schema: f.schema, set: f.set, derived: maps.Clone(f.derived)}
	for _, name := range f.schema.derived {
		own := f.schema.fields[name]
		v, err := own.derive.value(now.value)
		if err == nil && v != "" {
			err = own.takes(v)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s, which follows from it: %w", name, err)
		}
		before := now.value(name)
		if now.derived == nil {
			now.derived = make(map[string]string)
		}
		if v == "" {
			delete(now.derived, name)
		} else {
			now.derived[name] = v
		}
		if v != f.derived[name] {
			out = append(out, &messages.FieldChange{Field: name, Old: before, New: v})
		}
	}
	return out, nil
}

// Declare decides about a schema; nil when it is the one that counts. Values that it does not take are dropped.
func (f *Fields) Declare(text, by string) (*messages.FieldsDeclared, error) {
	if f.schema != nil && f.schema.Text == text {
		return nil, nil //nolint:nilnil // nothing changes
	}
	s, err := ParseFieldSchema(text)
	if err != nil {
		return nil, err
	}
	if err := s.ownNames(); err != nil {
		return nil, err
	}
	fact := &messages.FieldsDeclared{Schema: text, By: by, Rev: f.rev + 1}
	next := Fields{schema: s, set: maps.Clone(f.set)}
	for _, name := range slices.Sorted(maps.Keys(f.set)) {
		own := s.fields[name]
		gone := own == nil && len(f.set) > keptValues
		if gone || own != nil && (own.derive != nil || own.takes(f.set[name]) != nil) {
			fact.Dropped = append(fact.Dropped, name)
			delete(next.set, name)
		}
	}
	if fact.Derived, err = next.derive(); err != nil {
		return nil, err
	}
	return fact, nil
}

// DeclaredBy is who declared the fields; "" also when nobody did.
func (f *Fields) DeclaredBy() string { return f.by }

// Effects names those of the program that the declared fields set off, sorted.
func (s *FieldSchema) Effects() []string {
	var out []string
	for _, f := range s.fields {
		if f.effect != "" {
			out = append(out, f.effect)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Apply folds one fact of the workspace's journal. It is total: what it does not know changes nothing.
func (f *Fields) Apply(fact proto.Message) {
	switch x := fact.(type) {
	case *messages.FieldsDeclared:
		s, err := ParseFieldSchema(x.GetSchema())
		if err != nil { // of another release: no field of it is editable here
			s = &FieldSchema{Text: x.GetSchema()}
		}
		f.schema, f.by, f.rev, f.derived = s, x.GetBy(), x.GetRev(), nil
		for _, name := range x.GetDropped() {
			delete(f.set, name)
		}
		f.changed(x.GetDerived())
	case *messages.FieldSet:
		f.rev = x.GetRev()
		value := x.GetNew()
		if x.GetCleared() {
			value = ""
		}
		f.put(x.GetField(), value)
		f.changed(x.GetDerived())
		f.remember(x)
	case *messages.FieldEffectStarted:
		if e := f.effects[x.GetRev()]; e != nil {
			e.Attempts = x.GetAttempt()
		}
	case *messages.FieldEffectEnded:
		delete(f.effects, x.GetRev())
	}
}

func (f *Fields) put(name, value string) {
	if value == "" {
		delete(f.set, name)
		return
	}
	if f.set == nil {
		f.set = make(map[string]string)
	}
	f.set[name] = value
}

func (f *Fields) changed(derived []*messages.FieldChange) {
	for _, d := range derived {
		if d.GetNew() == "" {
			delete(f.derived, d.GetField())
			continue
		}
		if f.derived == nil {
			f.derived = make(map[string]string)
		}
		f.derived[d.GetField()] = d.GetNew()
	}
}

func (f *Fields) remember(x *messages.FieldSet) {
	if x.GetEffect() != "" {
		if f.effects == nil {
			f.effects = make(map[uint64]*FieldEffect)
		}
		f.effects[x.GetRev()] = &FieldEffect{Name: x.GetEffect(), Set: x}
	}
	if x.GetExecId() == "" || f.edits[x.GetExecId()] != nil {
		return
	}
	if f.edits == nil {
		f.edits = make(map[string]*messages.FieldSet)
	}
	f.edits[x.GetExecId()] = x
	if f.ids = append(f.ids, x.GetExecId()); len(f.ids) > keptEdits {
		delete(f.edits, f.ids[0])
		f.ids = f.ids[1:]
	}
}

// value is what counts for a field: as it was set, or follows, or the schema's default; "" when it is unset.
func (f *Fields) value(name string) string {
	if f.schema == nil || f.schema.fields[name] == nil {
		return ""
	}
	own := f.schema.fields[name]
	if own.derive != nil {
		if v, ok := f.derived[name]; ok {
			return v
		}
		return own.fallback
	}
	if v, ok := f.set[name]; ok {
		return v
	}
	return own.fallback
}

// Pending lists what edits set off and has not ended, the oldest first.
func (f *Fields) Pending() []*FieldEffect {
	var out []*FieldEffect
	for _, rev := range slices.Sorted(maps.Keys(f.effects)) {
		out = append(out, f.effects[rev])
	}
	return out
}

// View shows the fields of a workspace as they are. Nothing of it is written to later.
func (f *Fields) View(uri string) *messages.FieldsView {
	v := &messages.FieldsView{Workspace: uri, Rev: f.rev}
	if f.schema == nil {
		return v
	}
	v.Schema = f.schema.Text
	for _, name := range f.schema.names {
		own := f.schema.fields[name]
		_, set := f.set[name]
		v.Fields = append(v.Fields, &messages.FieldView{
			Name: name, Editable: own.editable, Derived: own.derive != nil, Required: f.schema.needs[name], Value: f.value(name),
			Set: set && own.derive == nil, Description: own.description, Schema: own.shown,
		})
	}
	return v
}

// AsFieldError gives the refusal in an error; nil for any other error.
func AsFieldError(err error) *FieldError {
	var e *FieldError
	if errors.As(err, &e) {
		return e
	}
	return nil
}
