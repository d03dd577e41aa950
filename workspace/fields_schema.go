package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Bounds of what a workspace's fields may be.
const (
	MaxFieldSchema = 64 << 10 // bytes of a schema
	MaxFields      = 64       // in one workspace
	MaxFieldValue  = 16 << 10 // bytes of one value, as JSON
	maxFieldDepth  = 24       // nesting of a schema, and of a value
)

// FieldSchema is a declaration of fields: a JSON schema of an object whose properties they are. A property says with
// `x-editable: true` that agents and people may set it, with `x-derive` how it follows from others, and with `x-effect` what of
// the program an edit sets off. It refers to nothing outside of itself, nor to its own parts.
type FieldSchema struct {
	Text     string
	names    []string // sorted
	fields   map[string]*field
	derived  []string // in an order in which each follows from earlier ones
	required *jsonschema.Resolved
	needs    map[string]bool
}

// field is one property.
type field struct {
	editable    bool
	derive      *derivation
	effect      string
	description string
	fallback    string // its default, canonical; "": none
	check       *jsonschema.Resolved
	shown       string // what values it takes, for models and people
}

// propertyJSON is what of a property is not the validator's.
type propertyJSON struct {
	Description string          `json:"description"`
	Default     json.RawMessage `json:"default"`
	ReadOnly    bool            `json:"readOnly"`
	Editable    bool            `json:"x-editable"`
	Derive      json.RawMessage `json:"x-derive"`
	Effect      string          `json:"x-effect"`
}

var fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// ParseFieldSchema reads a declaration, and says what is wrong with it.
func ParseFieldSchema(text string) (*FieldSchema, error) {
	if len(text) > MaxFieldSchema {
		return nil, fmt.Errorf("the schema is %d bytes long, at most %d are taken", len(text), MaxFieldSchema)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &top); err != nil {
		return nil, fmt.Errorf("the schema is no JSON object: %w", err)
	}
	var object struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(top)) {
		switch key {
		case "$schema", "title", "description", "type", "properties", "required", "additionalProperties":
		default:
			return nil, fmt.Errorf("the schema has %q: of a schema of fields only type, properties, required, title, description and additionalProperties are taken", clipped(key))
		}
	}
	switch {
	case object.Type != "" && object.Type != "object":
		return nil, fmt.Errorf("the schema is of type %q, and must be one of an object", clipped(object.Type))
	case len(object.Properties) == 0:
		return nil, errors.New("the schema declares no fields: they are its properties")
	case len(object.Properties) > MaxFields:
		return nil, fmt.Errorf("the schema declares %d fields, at most %d are taken", len(object.Properties), MaxFields)
	}
	s := &FieldSchema{Text: text, names: slices.Sorted(maps.Keys(object.Properties)), fields: make(map[string]*field), needs: make(map[string]bool)}
	for _, name := range s.names {
		if !fieldName.MatchString(name) {
			return nil, fmt.Errorf("%q is no name of a field: a letter or _, then up to 63 letters, digits, _ or -", clipped(name))
		}
		f, err := parseField(object.Properties[name])
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		s.fields[name] = f
	}
	return s, s.finish(object.Required)
}

// ownNames refuses fields by which a model would seem to say what only people say. Schemas of journals, which may be older, are
// not held to it: such a field changes nothing but itself.
func (s *FieldSchema) ownNames() error {
	for _, name := range []string{"rootPath", "trust_level"} {
		if f := s.fields[name]; f != nil && f.editable {
			return fmt.Errorf("field %s: it cannot be editable: where a workspace is and how far it is trusted are people's to say; take another name, or x-editable out", name)
		}
	}
	return nil
}

// finish looks at what fields have to do with each other.
func (s *FieldSchema) finish(required []string) error {
	for _, name := range required {
		if s.fields[name] == nil {
			return fmt.Errorf("field %q is required and not declared", clipped(name))
		}
		s.needs[name] = true
	}
	var err error
	if s.required, err = (&jsonschema.Schema{Type: "object", Required: required}).Resolve(nil); err != nil {
		return err
	}
	return s.arrange()
}

func parseField(raw json.RawMessage) (*field, error) {
	var p propertyJSON
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("its schema cannot be read: %w", err)
	}
	if err := plainSchema(raw, 0); err != nil {
		return nil, err
	}
	f := &field{editable: p.Editable, effect: p.Effect, description: p.Description, shown: constraints(raw)}
	switch {
	case p.Editable && p.ReadOnly:
		return nil, errors.New("it is both readOnly and x-editable")
	case p.Editable && p.Derive != nil:
		return nil, errors.New("it is both x-editable and x-derive: what follows from other fields cannot be set")
	case p.Effect != "" && p.Derive != nil:
		return nil, errors.New("x-effect follows an edit, and a field with x-derive is never edited")
	}
	err := guardField(func() (err error) {
		var s jsonschema.Schema
		if err = json.Unmarshal(raw, &s); err != nil {
			return err
		}
		f.check, err = s.Resolve(nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("its schema is not valid: %w", err)
	}
	if f.fallback, err = f.constant("default", p.Default); err != nil {
		return nil, err
	}
	if p.Derive != nil {
		if f.derive, err = parseDerivation(p.Derive, f); err != nil {
			return nil, fmt.Errorf("x-derive: %w", err)
		}
	}
	return f, nil
}

// constant makes a value that stands in the schema canonical; "" for none, or null.
func (f *field) constant(what string, raw json.RawMessage) (string, error) {
	if raw == nil || string(bytes.TrimSpace(raw)) == "null" {
		return "", nil
	}
	v, err := CanonicalField(string(raw))
	if err == nil {
		err = f.takes(v)
	}
	if err != nil {
		return "", fmt.Errorf("its %s: %w", what, err)
	}
	return v, nil
}

// takes holds a canonical value against the field's own schema. The error is the schema's own text.
func (f *field) takes(value string) error {
	var v any
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return err
	}
	return guardField(func() error { return f.check.Validate(v) })
}

// guardField makes a panic of the validator an error: schemas come from anybody.
func guardField(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the schema cannot be applied: %v", r)
		}
	}()
	err = fn()
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "validating root: "), "\n", " ")
	return errors.New(clippedTo(wholeNumbers.ReplaceAllString(text, "$1 $2 $3"), 2000))
}

// wholeNumbers finds the validator's way to write them.
var wholeNumbers = regexp.MustCompile(`^(\w+: -?\d+)/1 (is [a-z ]+?) (-?\d+)\.0+$`)

// plainSchema refuses references: one that leads back to itself would never be done with.
func plainSchema(raw json.RawMessage, depth int) error {
	if depth > maxFieldDepth {
		return fmt.Errorf("it is nested deeper than %d levels", maxFieldDepth)
	}
	var list []json.RawMessage
	var object map[string]json.RawMessage
	if raw = bytes.TrimSpace(raw); len(raw) > 0 {
		switch raw[0] {
		case '[':
			if err := json.Unmarshal(raw, &list); err != nil {
				return err
			}
		case '{':
			if err := json.Unmarshal(raw, &object); err != nil {
				return err
			}
		}
	}
	for _, item := range list {
		if err := plainSchema(item, depth+1); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if strings.HasPrefix(key, "$") {
			return fmt.Errorf("%q is not taken: write out what it refers to", clipped(key))
		}
		if err := plainSchema(object[key], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// constraints is a property's schema without what is shown elsewhere.
func constraints(raw json.RawMessage) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return ""
	}
	for key := range all {
		if strings.HasPrefix(key, "x-") || key == "description" || key == "default" || key == "readOnly" {
			delete(all, key)
		}
	}
	if len(all) == 0 {
		return ""
	}
	b, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	text, err := canonicalField(string(b), MaxFieldSchema)
	if err != nil {
		return ""
	}
	return text
}
