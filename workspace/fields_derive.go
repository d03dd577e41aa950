package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// derivation says how a field follows from others: a text with their values in it, or the first case that holds.
type derivation struct {
	template string
	cases    []deriveCase
	other    string // canonical; "": unset
}

type deriveCase struct{ field, equals, value string }

// derivationJSON is x-derive as it is written.
type derivationJSON struct {
	Template *string `json:"template"`
	Cases    []struct {
		Field  string          `json:"field"`
		Equals json.RawMessage `json:"equals"`
		Value  json.RawMessage `json:"value"`
	} `json:"cases"`
	Else json.RawMessage `json:"else"`
}

var placeholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_-]*\}`)

func parseDerivation(raw json.RawMessage, f *field) (*derivation, error) {
	var j derivationJSON
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	switch {
	case j.Template != nil && (j.Cases != nil || j.Else != nil):
		return nil, errors.New("it has both a template and cases")
	case j.Template == nil && len(j.Cases) == 0:
		return nil, errors.New(`it has neither "template" nor "cases"`)
	case j.Template != nil:
		return &derivation{template: *j.Template}, nil
	}
	out := &derivation{}
	var err error
	if out.other, err = f.constant("else", j.Else); err != nil {
		return nil, err
	}
	for i, c := range j.Cases {
		one := deriveCase{field: c.Field}
		if len(c.Equals) > 0 && string(c.Equals) != "null" { // null: it is unset
			if one.equals, err = CanonicalField(string(c.Equals)); err != nil {
				return nil, fmt.Errorf("case %d: equals: %w", i+1, err)
			}
		}
		if one.value, err = f.constant("value", c.Value); err != nil {
			return nil, fmt.Errorf("case %d: %w", i+1, err)
		}
		out.cases = append(out.cases, one)
	}
	return out, nil
}

// from names the fields that a derivation reads.
func (d *derivation) from() []string {
	var out []string
	for _, c := range d.cases {
		out = append(out, c.field)
	}
	for _, p := range placeholder.FindAllString(d.template, -1) {
		out = append(out, strings.Trim(p, "{}"))
	}
	return out
}

// value works a field out. read gives the value of another one, "" when it is unset.
func (d *derivation) value(read func(string) string) (string, error) {
	if d.cases == nil {
		long := 0 // one value may stand in it thousands of times
		text := placeholder.ReplaceAllStringFunc(d.template, func(p string) string {
			if long > MaxFieldValue {
				return ""
			}
			v := read(strings.Trim(p, "{}"))
			var s string
			if json.Unmarshal([]byte(v), &s) == nil {
				v = s
			}
			long += len(v)
			return v
		})
		if len(text) > MaxFieldValue {
			return "", fmt.Errorf("it is longer than the %d bytes that are taken", MaxFieldValue)
		}
		b, err := json.Marshal(text)
		if err != nil {
			return "", err
		}
		return CanonicalField(string(b))
	}
	for _, c := range d.cases {
		if read(c.field) == c.equals {
			return c.value, nil
		}
	}
	return d.other, nil
}

// arrange finds an order for the derived fields, and refuses circles: each is then worked out once.
func (s *FieldSchema) arrange() error {
	done, open := make(map[string]bool), []string(nil)
	var visit func(name string) error
	visit = func(name string) error {
		f := s.fields[name]
		if f.derive == nil || done[name] {
			return nil
		}
		if at := slices.Index(open, name); at >= 0 {
			return fmt.Errorf("fields follow from each other in a circle: %s", strings.Join(append(open[at:], name), " -> "))
		}
		open = append(open, name)
		for _, other := range f.derive.from() {
			if s.fields[other] == nil {
				return fmt.Errorf("field %s: x-derive: there is no field %q", name, clipped(other))
			}
			if err := visit(other); err != nil {
				return err
			}
		}
		open = open[:len(open)-1]
		done[name] = true
		s.derived = append(s.derived, name)
		return nil
	}
	for _, name := range s.names {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}
