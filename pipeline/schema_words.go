package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// A validator takes words that it does not know for remarks, and a type that there is not for one that nothing fits. In a schema that people write both are slips.

// schemaTypes are the types of JSON Schema.
func schemaTypes() []string {
	return []string{"array", "boolean", "integer", "null", "number", "object", "string"}
}

// schemaWords are its keywords, and of which kind of schemas their values are.
func schemaWords() map[string]byte {
	words := map[string]byte{ // 'o'ne schema, a 'l'ist of them, a 'm'ap; 0: something else
		"items": 'o', "contains": 'o', "additionalProperties": 'o', "propertyNames": 'o', "not": 'o', "if": 'o', "then": 'o', "else": 'o',
		"unevaluatedItems": 'o', "unevaluatedProperties": 'o', "additionalItems": 'o', "contentSchema": 'o',
		"allOf": 'l', "anyOf": 'l', "oneOf": 'l', "prefixItems": 'l',
		"properties": 'm', "patternProperties": 'm', "dependentSchemas": 'm', "$defs": 'm', "definitions": 'm',
	}
	for _, word := range []string{
		"type", "enum", "const", "required", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "pattern",
		"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minContains",
		"maxContains", "minProperties", "maxProperties", "dependentRequired", "dependencies", "contentEncoding", "contentMediaType", "$id", "$schema", "$ref",
		"$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment",
	} {
		words[word] = 0
	}
	return words
}

// slips finds words of a schema, and of those in it, that nearly are others. Words that are like none are remarks.
func slips(schema any, at string) error {
	m, ok := schema.(map[string]any)
	if !ok {
		return nil // true, false, or what is refused elsewhere
	}
	words := schemaWords()
	for _, key := range slices.Sorted(maps.Keys(m)) {
		kind, known := words[key]
		if !known {
			if near := yamldoc.Near(key, slices.Collect(maps.Keys(words))); len(near) > 0 {
				return fmt.Errorf("%sthere is no word %q; did you mean %s?", at, key, yamldoc.QuoteAll(near, " or "))
			}
			continue
		}
		if err := slipsBelow(kind, m[key], at+key); err != nil {
			return err
		}
	}
	types, ok := m["type"].([]any)
	if t, one := m["type"].(string); one {
		types, ok = []any{t}, true
	}
	for _, t := range types {
		if name, _ := t.(string); ok && !slices.Contains(schemaTypes(), name) {
			return fmt.Errorf("%stype: there is no type %q; %s", at, name, yamldoc.DidYouMean(name, schemaTypes()))
		}
	}
	return nil
}

func slipsBelow(kind byte, v any, at string) error {
	switch kind {
	case 'o':
		return slips(v, at+": ")
	case 'l':
		list, _ := v.([]any)
		for i, sub := range list {
			if err := slips(sub, fmt.Sprintf("%s[%d]: ", at, i)); err != nil {
				return err
			}
		}
	case 'm':
		m, _ := v.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if err := slips(m[name], strings.TrimSuffix(at, ": ")+"."+name+": "); err != nil {
				return err
			}
		}
	}
	return nil
}
