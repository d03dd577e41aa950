package messages

import "encoding/json"

// FieldsJSON is what a workspace holds besides its files, as every surface shows it.
type FieldsJSON struct {
	Workspace string          `json:"workspace"` // canonical address
	Rev       uint64          `json:"rev"`
	Schema    json.RawMessage `json:"schema,omitempty"`
	Fields    []FieldJSON     `json:"fields"`
}

// FieldJSON is one field. A value that is unset is null.
type FieldJSON struct {
	Name        string          `json:"name"`
	Editable    bool            `json:"editable"`
	Derived     bool            `json:"derived,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Value       json.RawMessage `json:"value"`
	Set         bool            `json:"set"` // by somebody: not a default
	Description string          `json:"description,omitempty"`
	Takes       json.RawMessage `json:"takes,omitempty"` // what values: a JSON schema
}

// SetFieldJSON sets a field. A value of null clears it.
type SetFieldJSON struct {
	Value     json.RawMessage `json:"value"`
	Rev       uint64          `json:"rev,omitempty"`       // refused with 409 if the fields are of another revision
	Workspace string          `json:"workspace,omitempty"` // id, name or address; empty: the primary one
	EditID    string          `json:"edit_id,omitempty"`   // the same id again is the same edit
	By        string          `json:"by,omitempty"`
}

// DeclareFieldsJSON says which fields a workspace has.
type DeclareFieldsJSON struct {
	Schema    json.RawMessage `json:"schema"` // an object, or a text that holds one
	Workspace string          `json:"workspace,omitempty"`
	By        string          `json:"by,omitempty"`
}

// Proto is the edit that is asked for.
func (j *SetFieldJSON) Proto(field string) (*SetField, error) {
	if j.Value == nil {
		return nil, Fail(CodeBadRequest, "the value of the field is missing", "null clears it")
	}
	if err := CheckInputID(j.EditID); err != nil {
		return nil, err
	}
	return &SetField{Workspace: j.Workspace, Field: field, Value: string(j.Value), IfRev: j.Rev, ExecId: j.EditID, By: j.By}, nil
}

// SetFieldFrom is the body that sets a field.
func SetFieldFrom(m *SetField) SetFieldJSON {
	return SetFieldJSON{Value: fieldValue(m.GetValue()), Rev: m.GetIfRev(), Workspace: m.GetWorkspace(), EditID: m.GetExecId(), By: m.GetBy()}
}

// Proto is the declaration that is asked for. The schema is an object, or a text that holds one: then it is kept to the byte.
func (j *DeclareFieldsJSON) Proto() *DeclareFields {
	return &DeclareFields{Workspace: j.Workspace, Schema: schemaText(j.Schema), By: j.By}
}

func schemaText(schema json.RawMessage) string {
	text := ""
	if json.Unmarshal(schema, &text) != nil {
		text = string(schema)
	}
	return text
}

// DeclareFieldsFrom is the body that declares fields.
func DeclareFieldsFrom(m *DeclareFields) (DeclareFieldsJSON, error) {
	text, err := json.Marshal(m.GetSchema())
	return DeclareFieldsJSON{Schema: text, Workspace: m.GetWorkspace(), By: m.GetBy()}, err
}

// FieldUpdatedJSON is an edit that is durable.
type FieldUpdatedJSON struct {
	Workspace string            `json:"workspace"`
	Field     string            `json:"field"`
	Old       json.RawMessage   `json:"old"`
	New       json.RawMessage   `json:"new"`
	Rev       uint64            `json:"rev"`
	By        string            `json:"by,omitempty"`
	EditID    string            `json:"edit_id,omitempty"`
	Derived   []FieldChangeJSON `json:"derived,omitempty"` // what followed
	Duplicate bool              `json:"duplicate,omitempty"`
}

// FieldChangeJSON is a field that followed from another.
type FieldChangeJSON struct {
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old"`
	New   json.RawMessage `json:"new"`
}

// fieldValue writes a value; null when there is none.
func fieldValue(v string) json.RawMessage {
	if v == "" || !json.Valid([]byte(v)) {
		return json.RawMessage("null")
	}
	return json.RawMessage(v)
}

// fieldText is the way back.
func fieldText(v json.RawMessage) string {
	if string(v) == "null" {
		return ""
	}
	return string(v)
}

// JSON is the form that every surface shows.
func (x *FieldsView) JSON() FieldsJSON {
	j := FieldsJSON{Workspace: x.GetWorkspace(), Rev: x.GetRev(), Schema: raw(x.GetSchema()), Fields: []FieldJSON{}}
	for _, f := range x.GetFields() {
		j.Fields = append(j.Fields, FieldJSON{
			Name: f.GetName(), Editable: f.GetEditable(), Derived: f.GetDerived(), Required: f.GetRequired(), Value: fieldValue(f.GetValue()),
			Set: f.GetSet(), Description: f.GetDescription(), Takes: raw(f.GetSchema()),
		})
	}
	return j
}

// Proto is the way back, for clients.
func (j FieldsJSON) Proto() *FieldsView {
	v := &FieldsView{Workspace: j.Workspace, Rev: j.Rev, Schema: string(j.Schema)}
	for _, f := range j.Fields {
		v.Fields = append(v.Fields, &FieldView{
			Name: f.Name, Editable: f.Editable, Derived: f.Derived, Required: f.Required, Value: fieldText(f.Value), Set: f.Set,
			Description: f.Description, Schema: string(f.Takes),
		})
	}
	return v
}

// JSON is the form that every surface shows.
func (x *FieldUpdated) JSON() FieldUpdatedJSON {
	j := x.GetSet().json(x.GetWorkspace())
	j.Duplicate = x.GetDuplicate()
	return j
}

func (x *FieldSet) json(workspace string) FieldUpdatedJSON {
	j := FieldUpdatedJSON{
		Workspace: workspace, Field: x.GetField(), Old: fieldValue(x.GetOld()), New: fieldValue(x.GetNew()), Rev: x.GetRev(), By: x.GetBy(), EditID: x.GetExecId(),
	}
	for _, d := range x.GetDerived() {
		j.Derived = append(j.Derived, FieldChangeJSON{d.GetField(), fieldValue(d.GetOld()), fieldValue(d.GetNew())})
	}
	return j
}

// Proto is the way back, for clients.
func (j FieldUpdatedJSON) Proto() *FieldUpdated {
	set := &FieldSet{Field: j.Field, Old: fieldText(j.Old), New: fieldText(j.New), Rev: j.Rev, By: j.By, ExecId: j.EditID}
	for _, d := range j.Derived {
		set.Derived = append(set.Derived, &FieldChange{Field: d.Field, Old: fieldText(d.Old), New: fieldText(d.New)})
	}
	return &FieldUpdated{Workspace: j.Workspace, Set: set, Duplicate: j.Duplicate}
}

// DetailsJSON is what an event says of an edit.
func (x *FieldNoted) DetailsJSON() string {
	b, err := json.Marshal(x.GetSet().json(x.GetWorkspace()))
	if err != nil {
		return ""
	}
	return string(b)
}
