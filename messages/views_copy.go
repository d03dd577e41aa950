package messages

// ChangesJSON is what was changed in a working copy.
type ChangesJSON struct {
	Folder  string           `json:"folder"` // address that the copy was made of
	Copy    string           `json:"copy"`   // path of the copy
	Files   []FileChangeJSON `json:"files"`
	Applied bool             `json:"applied,omitempty"`
}

// FileChangeJSON is one file of them.
type FileChangeJSON struct {
	Path     string `json:"path"`
	State    string `json:"state"` // added | changed | deleted
	Diff     string `json:"diff,omitempty"`
	Conflict string `json:"conflict,omitempty"` // why it cannot be applied
	Merged   bool   `json:"merged,omitempty"`   // it was changed in both, in different places
}

// ApplyJSON brings the changes of a copy back.
type ApplyJSON struct {
	By     string `json:"by,omitempty"`
	Worker string `json:"worker,omitempty"` // whose copy; empty: the session's
}

// JSON is the list in its wire form.
func (x *Changes) JSON() ChangesJSON {
	return ChangesJSON{
		Folder: x.GetFolder(), Copy: x.GetCopy(), Applied: x.GetApplied(), Files: append([]FileChangeJSON{}, convert(x.GetFiles(), (*FileChange).JSON)...),
	}
}

// Proto is the way back.
func (j ChangesJSON) Proto() *Changes {
	return &Changes{Folder: j.Folder, Copy: j.Copy, Applied: j.Applied, Files: convert(j.Files, FileChangeJSON.Proto)}
}

// JSON is the file in its wire form.
func (x *FileChange) JSON() FileChangeJSON {
	return FileChangeJSON{Path: x.GetPath(), State: x.GetState(), Diff: x.GetDiff(), Conflict: x.GetConflict(), Merged: x.GetMerged()}
}

// Proto is the way back.
func (j FileChangeJSON) Proto() *FileChange {
	return &FileChange{Path: j.Path, State: j.State, Diff: j.Diff, Conflict: j.Conflict, Merged: j.Merged}
}
