package messages

// ProjectJSON is one project of a listing.
type ProjectJSON struct {
	ID        string         `json:"id"`
	State     string         `json:"state"` // active
	Name      string         `json:"name"`
	Path      string         `json:"path"`
	Variables []VariableJSON `json:"variables"`
}

// VariableJSON is one variable of a project. The value of a secret one goes in, and never out.
type VariableJSON struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Secret bool   `json:"secret,omitempty"`

	Command string `json:"command,omitempty"` // that prints the value for each call, instead of it
}

// SaveProjectJSON makes a project of a folder.
type SaveProjectJSON struct {
	Name string `json:"name,omitempty"` // empty: as the folder is called
	Path string `json:"path"`
}

// SetVariablesJSON changes the variables of a project.
type SetVariablesJSON struct {
	Set   []VariableJSON `json:"set,omitempty"`
	Unset []string       `json:"unset,omitempty"`
}

// JSON is the project in its wire form.
func (x *Project) JSON() ProjectJSON {
	return ProjectJSON{
		ID: x.GetId(), State: "active", Name: x.GetName(), Path: x.GetPath(),
		Variables: append([]VariableJSON{}, convert(x.GetVariables(), (*Variable).JSON)...),
	}
}

// Proto is the way back.
func (j ProjectJSON) Proto() *Project {
	return &Project{Id: j.ID, Name: j.Name, Path: j.Path, Variables: convert(j.Variables, VariableJSON.Proto)}
}

// JSON is the variable in its wire form.
func (x *Variable) JSON() VariableJSON {
	return VariableJSON{Name: x.GetName(), Value: x.GetValue(), Secret: x.GetSecret(), Command: x.GetCommand()}
}

// Proto is the way back.
func (j VariableJSON) Proto() *Variable {
	return &Variable{Name: j.Name, Value: j.Value, Secret: j.Secret, Command: j.Command}
}

// JSON is the list in its wire form, never null.
func (x *Projects) JSON() []ProjectJSON {
	return append([]ProjectJSON{}, convert(x.GetProjects(), (*Project).JSON)...)
}

// Proto is the change that is asked for.
func (j *SetVariablesJSON) Proto(project string) *SetVariables {
	return &SetVariables{Project: project, Set: convert(j.Set, VariableJSON.Proto), Unset: j.Unset}
}

// SetVariablesFrom is the body that changes the variables of a project.
func SetVariablesFrom(m *SetVariables) SetVariablesJSON {
	return SetVariablesJSON{Set: convert(m.GetSet(), (*Variable).JSON), Unset: m.GetUnset()}
}
