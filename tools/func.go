package tools

import (
	"encoding/json"
	"errors"
	"reflect"
)

// Func makes a tool of a Go function. The schema of its arguments is derived from A, a struct:
//
//	type args struct {
//		City string `json:"city" desc:"Name of the city."`
//		Unit string `json:"unit,omitempty" desc:"Unit of the answer." enum:"C,F"`
//		Days *int   `json:"days" desc:"How many days ahead." min:"1" max:"14"`
//	}
//
// A field is required unless it is a pointer or has omitempty or omitzero. Strings, booleans,
// numbers, slices, maps with string keys, structs, types with UnmarshalText and any are taken;
// each field needs a desc. The argument workspace_id is added unless spec.NoWorkspace. The
// arguments are decoded strictly (see Decode) before fn is called.
//
// It fails when a type has no schema, or the spec is not one that NewRegistry takes.
func Func[A any](spec Spec, fn func(tc *Context, args A) (*Result, error)) (Tool, error) {
	if fn == nil {
		return nil, errors.New("make a tool of a function: it is nil")
	}
	if spec.Schema != nil {
		return nil, errors.New("make a tool of a function: its schema is derived and must not be given")
	}
	var err error
	if spec.Schema, err = derive(reflect.TypeFor[A](), !spec.NoWorkspace); err != nil {
		return nil, err
	}
	if err := checkSpec(&spec); err != nil {
		return nil, err
	}
	return &funcTool[A]{spec: &spec, fn: fn}, nil
}

type funcTool[A any] struct {
	spec *Spec
	fn   func(tc *Context, args A) (*Result, error)
}

// Spec implements Tool.
func (t *funcTool[A]) Spec() *Spec { return t.spec }

// Run implements Tool.
func (t *funcTool[A]) Run(tc *Context, args json.RawMessage) (*Result, error) {
	var a A
	// workspace_id may be no field of A: encoding/json passes over it, and Decode has refused
	// every other name that A does not have.
	if err := Decode(t.spec, args, &a); err != nil {
		return nil, err
	}
	return t.fn(tc, a)
}
