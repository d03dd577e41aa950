package tools

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// workspaceIDText describes the argument that calls are routed by.
const workspaceIDText = "Id, name or address of the workspace; without it the session's primary one."

// derived is a schema in the making; its fields are in the order in which people read them.
type derived struct {
	Type        string              `json:"type,omitempty"`
	Description string              `json:"description,omitempty"`
	Enum        []any               `json:"enum,omitempty"`
	Minimum     *json.Number        `json:"minimum,omitempty"`
	Maximum     *json.Number        `json:"maximum,omitempty"`
	Items       *derived            `json:"items,omitempty"`
	Properties  map[string]*derived `json:"properties,omitempty"`
	Additional  any                 `json:"additionalProperties,omitempty"` // false or *derived
	Required    []string            `json:"required,omitempty"`
}

// derive makes the schema of a struct type. Fields are named by their json tag, as encoding/json
// does, and described by `desc`; `enum:"a,b"`, `min` and `max` narrow them. A pointer, and
// `omitempty` or `omitzero`, make one optional.
func derive(t reflect.Type, routed bool) (json.RawMessage, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("derive a schema: the arguments are a %s, not a struct", t)
	}
	s, err := deriveStruct(t, nil)
	if err != nil {
		return nil, fmt.Errorf("derive a schema from %s: %w", t, err)
	}
	if _, own := s.Properties["workspace_id"]; routed && !own {
		s.Properties["workspace_id"] = &derived{Type: "string", Description: workspaceIDText}
	}
	return json.Marshal(s)
}

func deriveStruct(t reflect.Type, outer []reflect.Type) (*derived, error) {
	if slices.Contains(outer, t) {
		return nil, fmt.Errorf("%s contains itself", t)
	}
	outer = append(outer[:len(outer):len(outer)], t)
	s := &derived{Type: "object", Properties: map[string]*derived{}, Additional: false}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" && rest == "" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous {
			return nil, fmt.Errorf("field %s is embedded: name it", f.Name)
		}
		name := tag
		if name == "" {
			name = f.Name
		}
		if _, twice := s.Properties[name]; twice {
			return nil, fmt.Errorf("two fields are named %q", name)
		}
		p, err := deriveType(f.Type, outer)
		if err == nil {
			err = narrow(p, f.Tag)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		s.Properties[name] = p
		options := strings.Split(rest, ",")
		if f.Type.Kind() != reflect.Pointer && !slices.Contains(options, "omitempty") && !slices.Contains(options, "omitzero") {
			s.Required = append(s.Required, name)
		}
	}
	return s, nil
}

func deriveType(t reflect.Type, outer []reflect.Type) (*derived, error) {
	if t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface && t.NumMethod() == 0 {
		return &derived{}, nil // any value
	}
	if t.Kind() == reflect.Pointer {
		return deriveType(t.Elem(), outer)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil, fmt.Errorf("%s decodes itself: its schema is not known", t)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return &derived{Type: "string"}, nil
	}
	switch t.Kind() {
	case reflect.String:
		return &derived{Type: "string"}, nil
	case reflect.Bool:
		return &derived{Type: "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return &derived{Type: "number"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &derived{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		zero := json.Number("0")
		return &derived{Type: "integer", Minimum: &zero}, nil
	case reflect.Slice:
		return deriveList(t, outer)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("the keys of %s are not strings", t)
		}
		value, err := deriveType(t.Elem(), outer)
		return &derived{Type: "object", Additional: value}, err
	case reflect.Struct:
		return deriveStruct(t, outer)
	default:
		return nil, fmt.Errorf("the type %s has no form in JSON", t)
	}
}

func deriveList(t reflect.Type, outer []reflect.Type) (*derived, error) {
	if t.Elem().Kind() == reflect.Uint8 {
		return nil, fmt.Errorf("%s would come as base64: take a string", t)
	}
	items, err := deriveType(t.Elem(), outer)
	return &derived{Type: "array", Items: items}, err
}

// narrow applies a field's tags to its schema.
func narrow(p *derived, tag reflect.StructTag) error {
	p.Description = tag.Get("desc")
	if p.Description == "" {
		return fmt.Errorf("it has no desc tag: models need to know what it is")
	}
	if values, ok := tag.Lookup("enum"); ok {
		if p.Type != "string" {
			return fmt.Errorf("enum is for strings")
		}
		for v := range strings.SplitSeq(values, ",") {
			p.Enum = append(p.Enum, v)
		}
	}
	for name, at := range map[string]**json.Number{"min": &p.Minimum, "max": &p.Maximum} {
		text, ok := tag.Lookup(name)
		if !ok {
			continue
		}
		if p.Type != "integer" && p.Type != "number" {
			return fmt.Errorf("%s is for numbers", name)
		}
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%s %q is no number", name, text)
		}
		n := json.Number(text)
		*at = &n
	}
	return nil
}
