package messages

// ForkJSON asks for a session that goes on from a record of another one.
type ForkJSON struct {
	At    *uint64 `json:"at,omitempty"` // session cursor, from 1; left out: the newest
	Model string  `json:"model,omitempty"`
	By    string  `json:"by,omitempty"` // who asks; a token's name counts more
}

// ForkedJSON is the new session.
type ForkedJSON struct {
	ID          string      `json:"id"`
	State       string      `json:"state"`
	Origin      OriginJSON  `json:"origin"`
	ClosedCalls int32       `json:"closed_calls"` // that were open there
	ClosedTurns int32       `json:"closed_turns"`
	Staged      int32       `json:"staged"` // inputs that wait, and run when it is opened
	Damage      string      `json:"damage,omitempty"`
	Session     SessionJSON `json:"session"`
}

// OriginJSON says where a session comes from.
type OriginJSON struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"`
}

// ImportedJSON is a session that was brought in.
type ImportedJSON struct {
	ID          string      `json:"id"`
	State       string      `json:"state"`
	Origin      string      `json:"origin"` // id in the file
	Records     uint64      `json:"records"`
	Identical   bool        `json:"identical"` // it was here already, just so
	ClosedCalls int32       `json:"closed_calls"`
	ClosedTurns int32       `json:"closed_turns"`
	Staged      int32       `json:"staged"`
	Restricted  bool        `json:"restricted"` // it was more trusted where it comes from
	Modes       []ModeJSON  `json:"modes,omitempty"`
	Session     SessionJSON `json:"session"`
}

// ModeJSON says of a workspace that came from a file where its commands run here, when that is not as the file says, or not as configured.
type ModeJSON struct {
	Workspace string `json:"workspace"`
	Mode      string `json:"mode"`
	InsteadOf string `json:"instead_of"`
}

// Proto is what is asked for.
func (j *ForkJSON) Proto(session string) (*ForkSession, error) {
	m := &ForkSession{SessionId: session, Model: j.Model, By: j.By}
	if j.At != nil {
		if *j.At == 0 {
			return nil, Fail(CodeBadRequest, "record 0 cannot be forked: records are counted from 1", "leave it out for the newest")
		}
		m.At = *j.At
	}
	return m, nil
}

// ForkFrom is the body that asks for a fork.
func ForkFrom(m *ForkSession) ForkJSON {
	j := ForkJSON{Model: m.GetModel(), By: m.GetBy()}
	if at := m.GetAt(); at != 0 {
		j.At = &at
	}
	return j
}

// JSON is the fork in its wire form.
func (x *Forked) JSON() ForkedJSON {
	return ForkedJSON{
		ID: x.GetSession().GetId(), State: x.GetSession().GetState(), Origin: OriginJSON{x.GetOrigin(), x.GetAt()}, ClosedCalls: x.GetClosedCalls(),
		ClosedTurns: x.GetClosedTurns(), Staged: x.GetStaged(), Damage: x.GetDamage(), Session: x.GetSession().JSON(),
	}
}

// Proto is the way back.
func (j ForkedJSON) Proto() *Forked {
	return &Forked{
		Session: j.Session.Proto(), Origin: j.Origin.Session, At: j.Origin.Seq, ClosedCalls: j.ClosedCalls, ClosedTurns: j.ClosedTurns,
		Staged: j.Staged, Damage: j.Damage,
	}
}

// JSON is the import in its wire form.
func (x *Imported) JSON() ImportedJSON {
	var modes []ModeJSON
	for _, m := range x.GetModes() {
		modes = append(modes, ModeJSON{m.GetWorkspace(), m.GetMode(), m.GetInsteadOf()})
	}
	return ImportedJSON{
		Modes: modes,
		ID:    x.GetSession().GetId(), State: x.GetSession().GetState(), Origin: x.GetOrigin(), Records: x.GetRecords(), Identical: x.GetIdentical(),
		ClosedCalls: x.GetClosedCalls(), ClosedTurns: x.GetClosedTurns(), Staged: x.GetStaged(), Restricted: x.GetRestricted(), Session: x.GetSession().JSON(),
	}
}

// Proto is the way back.
func (j ImportedJSON) Proto() *Imported {
	var modes []*ModeSettled
	for _, m := range j.Modes {
		modes = append(modes, &ModeSettled{Workspace: m.Workspace, Mode: m.Mode, InsteadOf: m.InsteadOf})
	}
	return &Imported{
		Modes:   modes,
		Session: j.Session.Proto(), Origin: j.Origin, Records: j.Records, Identical: j.Identical, ClosedCalls: j.ClosedCalls,
		ClosedTurns: j.ClosedTurns, Staged: j.Staged, Restricted: j.Restricted,
	}
}
