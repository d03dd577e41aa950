package messages

import (
	"fmt"
	"strings"
)

// ResolveJSON is a person's word on a call in doubt.
type ResolveJSON struct {
	Resolution string `json:"resolution"`     // retry | done | fail
	Note       string `json:"note,omitempty"` // for the model
	By         string `json:"by,omitempty"`
}

// Proto is the word on the call with an exec id.
func (j *ResolveJSON) Proto(execID string) (*ResolveCall, error) {
	r, ok := ResolutionNamed(j.Resolution)
	if !ok {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("resolution %q is not known", j.Resolution), "one of retry, done, fail")
	}
	return &ResolveCall{ExecId: execID, Resolution: r, Note: j.Note, By: j.By}, nil
}

// ResolveFrom is the way back, for clients. The server finds the worker.
func ResolveFrom(m *ResolveCall) *ResolveJSON {
	return &ResolveJSON{Resolution: strings.ToLower(m.GetResolution().String()), Note: m.GetNote(), By: m.GetBy()}
}

// ResolutionNamed reads retry, done or fail.
func ResolutionNamed(word string) (CallResolved_Resolution, bool) {
	r, ok := CallResolved_Resolution_value[strings.ToUpper(word)]
	return CallResolved_Resolution(r), ok && r != 0 && word == strings.ToLower(word)
}
