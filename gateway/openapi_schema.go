package gateway

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// schemas are those of the types that were asked about, by their names.
type schemas struct {
	made  described
	names map[reflect.Type]string
}

// of is the schema of a value's type. Types with a name stand once, and are referred to.
func (s *schemas) of(v any) described {
	if all, several := v.(oneOf); several {
		var out []described
		for _, one := range all {
			out = append(out, s.of(one))
		}
		return described{"anyOf": out}
	}
	return s.ofType(reflect.TypeOf(v))
}

func (s *schemas) ofType(t reflect.Type) described {
	if t == reflect.TypeFor[json.RawMessage]() {
		return described{} // any value
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return described{} // its own business
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.ofType(t.Elem())
	case reflect.String:
		return described{"type": "string"}
	case reflect.Bool:
		return described{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return described{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return described{"type": "integer"}
	case reflect.Slice, reflect.Array:
		return described{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Map:
		return described{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Struct:
		return s.named(t)
	default:
		return described{}
	}
}

// named is a reference to the schema of a struct, which is made once.
func (s *schemas) named(t reflect.Type) described {
	name := strings.TrimSuffix(t.Name(), "JSON")
	if name == "" {
		return s.structure(t)
	}
	if known := s.names[t]; known != "" {
		return described{"$ref": "#/components/schemas/" + known}
	}
	if name = strings.ToUpper(name[:1]) + name[1:]; s.made[name] != nil {
		name += "Part" // one that is not exported, of the same name
	}
	s.names[t], s.made[name] = name, described{} // it may refer to itself
	s.made[name] = s.structure(t)
	return described{"$ref": "#/components/schemas/" + name}
}

func (s *schemas) structure(t reflect.Type) described {
	properties, required := described{}, []string{}
	s.fields(t, properties, &required)
	out := described{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	return out
}

// fields adds those of a struct as encoding/json has them. What may be left out is not required.
func (s *schemas) fields(t reflect.Type, properties described, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
			continue
		case name == "":
			name = f.Name
		}
		properties[name] = among(s.ofType(f.Type), f.Tag.Get("enum"))
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, name)
		}
	}
}

// among says which words a text is one of, or each of a list of texts.
func among(of described, words string) described {
	if words == "" {
		return of
	}
	if items, list := of["items"].(described); list {
		items["enum"] = strings.Split(words, ",")
	} else {
		of["enum"] = strings.Split(words, ",")
	}
	return of
}
