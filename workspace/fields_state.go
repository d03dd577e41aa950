package workspace

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/messages"
)

// State is all that the fields are, to go on from without the records before. It shares nothing that is written to later.
func (f *Fields) State() *messages.FieldsState {
	s := &messages.FieldsState{By: f.by, Rev: f.rev, Set: valuesOf(f.set), Derived: valuesOf(f.derived)}
	if f.schema != nil {
		s.Schema = f.schema.Text
	}
	for _, id := range f.ids {
		s.Edits = append(s.Edits, f.edits[id])
	}
	for _, e := range f.Pending() {
		s.Effects = append(s.Effects, &messages.FieldsPending{Set: e.Set, Attempts: e.Attempts})
	}
	return s
}

// RestoreFields is the way back.
func RestoreFields(s *messages.FieldsState) *Fields {
	f := &Fields{}
	if s.GetSchema() != "" {
		f.Apply(&messages.FieldsDeclared{Schema: s.GetSchema(), By: s.GetBy()})
	}
	f.rev = s.GetRev()
	for _, v := range s.GetSet() {
		f.put(v.GetField(), v.GetNew())
	}
	f.changed(s.GetDerived())
	for _, e := range s.GetEdits() {
		f.remember(e)
	}
	f.effects = nil // those of old edits have ended, unless it says otherwise
	for _, e := range s.GetEffects() {
		if f.effects == nil {
			f.effects = make(map[uint64]*FieldEffect)
		}
		f.effects[e.GetSet().GetRev()] = &FieldEffect{Name: e.GetSet().GetEffect(), Set: e.GetSet(), Attempts: e.GetAttempts()}
	}
	return f
}

func valuesOf(all map[string]string) []*messages.FieldChange {
	var out []*messages.FieldChange
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, &messages.FieldChange{Field: name, New: all[name]})
	}
	return out
}
