package tools

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// schema is the subset of JSON Schema that arguments are checked against: type (one or
// several), properties, required, additionalProperties, items, enum, minimum, maximum,
// minLength, maxLength, minItems, maxItems. Other keywords are for the model's eyes: they are
// not checked here, so a tool that needs them checks for itself.
type schema struct {
	Type        oneOrMany          `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Additional  *additional        `json:"additionalProperties"`
	Items       *schema            `json:"items"`
	Enum        []any              `json:"enum"`
	Minimum     *json.Number       `json:"minimum"`
	Maximum     *json.Number       `json:"maximum"`
	MinLength   *int               `json:"minLength"`
	MaxLength   *int               `json:"maxLength"`
	MinItems    *int               `json:"minItems"`
	MaxItems    *int               `json:"maxItems"`
}

// UnmarshalJSON also reads the schemas true and false, which hold nothing to check here.
func (s *schema) UnmarshalJSON(b []byte) error {
	if string(b) == "true" || string(b) == "false" {
		return nil
	}
	type plain schema // without this method
	return json.Unmarshal(b, (*plain)(s))
}

// oneOrMany is a JSON string or an array of strings.
type oneOrMany []string

func (o *oneOrMany) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(o))
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*o = oneOrMany{one}
	return nil
}

// additional is `additionalProperties`: false, true, or the schema of what may be added.
type additional struct {
	no     bool
	schema *schema
}

func (a *additional) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		return json.Unmarshal(b, &a.schema)
	}
	var yes bool
	if err := json.Unmarshal(b, &yes); err != nil {
		return err
	}
	a.no = !yes
	return nil
}

// parseSchema reads a tool's schema. A schema that cannot be read is the tool's defect.
func parseSchema(spec *Spec) (*schema, error) {
	if spec.compiled != nil {
		return spec.compiled, nil
	}
	s := new(schema)
	if err := json.Unmarshal(spec.Schema, s); err != nil {
		return nil, fmt.Errorf("read the schema of tool %s: %w", spec.Name, err)
	}
	if !slices.Equal(s.Type, []string{"object"}) {
		return nil, fmt.Errorf("read the schema of tool %s: its type is %q, not object", spec.Name, s.Type)
	}
	return s, nil
}

// check validates v and returns it as the program shall see it: optional nulls dropped, whole
// numbers written as integers. at names the place for people: `edits[0].old_string`.
func (s *schema) check(at string, v any) (any, error) {
	if !s.takes(v) {
		return nil, refuse("%s must be %s, not %s", subject(at), s.want(), got(v))
	}
	if len(s.Enum) > 0 && !s.oneOf(v) {
		return nil, refuse("%s must be one of %s, not %s", subject(at), list(s.Enum), got(v))
	}
	switch x := v.(type) {
	case map[string]any:
		return s.checkObject(at, x)
	case []any:
		return s.checkArray(at, x)
	case string:
		return v, s.checkString(at, x)
	case json.Number:
		return s.checkNumber(at, x)
	}
	return v, nil
}

func (s *schema) checkObject(at string, v map[string]any) (any, error) {
	var few [8]string
	for _, name := range appendSorted(few[:0], v) {
		prop, known := s.Properties[name]
		if !known {
			if s.Additional != nil && s.Additional.no {
				return nil, s.unknown(at, name)
			}
			prop = s.extra()
		}
		if prop == nil { // anything goes
			continue
		}
		if v[name] == nil && known && !prop.takes(nil) && !slices.Contains(s.Required, name) {
			delete(v, name) // models write null for "not given"
			continue
		}
		checked, err := prop.check(join(at, name), v[name])
		if err != nil {
			return nil, err
		}
		v[name] = checked
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return nil, s.missing(at, name)
		}
	}
	return v, nil
}

func (s *schema) extra() *schema {
	if s.Additional == nil {
		return nil
	}
	return s.Additional.schema
}

func (s *schema) checkArray(at string, v []any) (any, error) {
	if s.MinItems != nil && len(v) < *s.MinItems {
		return nil, refuse("%s must have at least %d items, not %d", subject(at), *s.MinItems, len(v))
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		return nil, refuse("%s must have at most %d items, not %d", subject(at), *s.MaxItems, len(v))
	}
	if s.Items == nil {
		return v, nil
	}
	for i := range v {
		checked, err := s.Items.check(fmt.Sprintf("%s[%d]", at, i), v[i])
		if err != nil {
			return nil, err
		}
		v[i] = checked
	}
	return v, nil
}

func (s *schema) checkString(at, v string) error {
	n := utf8.RuneCountInString(v)
	if s.MinLength != nil && n < *s.MinLength {
		if n == 0 {
			return refuse("%s must not be empty", subject(at))
		}
		return refuse("%s must have at least %d characters, not %d", subject(at), *s.MinLength, n)
	}
	if s.MaxLength != nil && n > *s.MaxLength {
		return refuse("%s must have at most %d characters, not %d", subject(at), *s.MaxLength, n)
	}
	return nil
}

func (s *schema) checkNumber(at string, v json.Number) (any, error) {
	if compare(v, s.Minimum) < 0 {
		return nil, refuse("%s must be at least %s, not %s", subject(at), *s.Minimum, v)
	}
	if compare(v, s.Maximum) > 0 {
		return nil, refuse("%s must be at most %s, not %s", subject(at), *s.Maximum, v)
	}
	if slices.Contains(s.Type, "integer") && !slices.Contains(s.Type, "number") {
		whole, _ := rational(v)
		return json.Number(whole.Num().String()), nil // 10.0 and 1e1 decode as 10
	}
	return v, nil
}

// compare orders v against a bound; without a bound they are equal.
func compare(v json.Number, bound *json.Number) int {
	if bound == nil {
		return 0
	}
	a, okA := rational(v)
	b, okB := rational(*bound)
	if !okA || !okB {
		return 1 // so large that no bound holds it
	}
	return a.Cmp(b)
}

// rational reads a JSON number exactly. Exponents beyond what any argument means are refused,
// since 1e999999999 would fill the memory.
func rational(n json.Number) (*big.Rat, bool) {
	if len(n) > 400 {
		return nil, false
	}
	if i := strings.IndexAny(string(n), "eE"); i >= 0 && len(strings.TrimLeft(string(n[i+1:]), "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

// takes tells whether v has one of the schema's types; no type means any.
func (s *schema) takes(v any) bool {
	if len(s.Type) == 0 {
		return true
	}
	return slices.ContainsFunc(s.Type, func(t string) bool { return isA(v, t) })
}

func isA(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		r, ok := rational(v)
		return ok && (t == "number" || t == "integer" && r.IsInt())
	}
	return false
}

func (s *schema) oneOf(v any) bool {
	if n, ok := v.(json.Number); ok {
		f, err := n.Float64()
		return err == nil && slices.Contains(s.Enum, any(f))
	}
	return slices.ContainsFunc(s.Enum, func(e any) bool { return reflect.DeepEqual(e, v) })
}
