package troupe

import (
	"errors"
	"sync/atomic"

	"github.com/troupe-dev/troupe/model"
)

// oneModel answers every name with the same model.
type oneModel struct {
	m         Model
	providers []string
	last      atomic.Pointer[ResolvedModel] // mostly it is the one that is asked for next
}

func (o *oneModel) Resolve(name string) (*ResolvedModel, error) {
	if o.m == nil {
		return nil, errors.New("no model is configured")
	}
	if last := o.last.Load(); last != nil && last.Name == name {
		return last, nil
	}
	r := &ResolvedModel{Model: o.m, Provider: o.providers[0], Name: name, Context: model.Window(name)}
	o.last.Store(r)
	return r, nil
}

func (o *oneModel) Providers() []string { return o.providers }
