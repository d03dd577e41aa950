package config

import (
	"encoding/json"
	"fmt"
)

// Schema is a JSON Schema (2020-12) of the configuration file, derived from the structs.
// Editors that know YAML schemas complete and check with it.
func Schema() ([]byte, error) {
	doc := describe().schema()
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "troupe configuration"
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the configuration's schema: %w", err)
	}
	return append(out, '\n'), nil
}

func (s *shape) schema() map[string]any {
	out := map[string]any{}
	if s.doc != "" {
		out["description"] = s.doc
	}
	switch s.kind {
	case section:
		props := map[string]any{}
		var required []string
		for _, f := range s.fields {
			props[f.name] = f.schema()
			if f.need {
				required = append(required, f.name)
			}
		}
		out["type"], out["properties"], out["additionalProperties"] = nullable("object"), props, false
		if required != nil {
			out["required"] = required
		}
	case mapping:
		out["type"], out["additionalProperties"] = nullable("object"), s.elem.schema()
	case entries:
		out["type"], out["items"] = nullable("array"), s.elem.schema()
	case list:
		item := map[string]any{"type": "string"}
		if s.enum != nil {
			item["enum"] = s.enum
		}
		out["type"], out["items"] = nullable("array"), item
	default:
		s.scalarSchema(out)
	}
	return out
}

// nullable: a key without a value sets nothing, wherever it stands.
func nullable(types ...string) []string { return append(types, "null") }

func (s *shape) scalarSchema(out map[string]any) {
	switch s.kind {
	case boolean:
		out["type"] = nullable("boolean")
	case integer:
		out["type"], out["minimum"] = nullable("integer"), 0
		for key, bound := range map[string]string{"minimum": s.min, "maximum": s.max} {
			if n, err := parseInteger(bound); err == nil {
				out[key] = n
			}
		}
	case duration:
		out["type"], out["pattern"] = nullable("string", "integer"), `^(0|([0-9.]+(ns|us|µs|ms|s|m|h))+|[0-9]+d)$`
	case size:
		out["type"], out["pattern"] = nullable("string", "integer"), `^[0-9]+ ?([kKmMgG]?[iI]?[bB])?$`
	case usd:
		out["type"], out["pattern"] = nullable("string", "number"), `^\$?[0-9]+(\.[0-9]{1,6})?$`
	case text, secret, section, mapping, entries, list:
		out["type"] = nullable("string")
	}
	if s.enum != nil {
		values := make([]any, 0, len(s.enum)+1)
		for _, e := range s.enum {
			values = append(values, e)
		}
		out["enum"] = append(values, nil)
	}
	if v, err := s.kind.parse(s.def); s.def != "" && err == nil {
		switch v := v.(type) {
		case bool, int64:
			out["default"] = v
		default:
			out["default"] = s.def
		}
	}
}

// Documented is one setting for a reference: dotted path with NAME and [] for what the user
// chooses, type, default and description.
type Documented struct {
	Path, Type, Default, Doc string
	Settable                 bool // a value can be written there, rather than further keys
}

// Reference lists every setting in order.
func Reference() []Documented {
	var out []Documented
	describe().document("", &out)
	return out
}

func (s *shape) document(path string, out *[]Documented) {
	for _, f := range s.fields {
		p := child(path, f.name)
		*out = append(*out, Documented{Path: p, Type: f.kind.String(), Default: f.def, Doc: f.doc, Settable: f.kind.scalar() || f.kind == list})
		switch f.kind {
		case section:
			f.document(p, out)
		case mapping:
			f.elem.document(p+".NAME", out)
		case entries:
			f.elem.document(p+"[]", out)
		case list, text, boolean, integer, duration, size, usd, secret:
		}
	}
}

// EnvName is the variable that sets a setting with a fixed name: data.dir gives TROUPE_DATA.
func EnvName(path string) string {
	for name, p := range alone() {
		if p == path {
			return name
		}
	}
	return envName(path)
}
