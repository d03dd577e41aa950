package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a call's arguments. A write_file of 5 MiB may take 30 MiB when all is escaped.
const (
	MaxArguments = 32 << 20 // bytes
	maxDepth     = 64       // nested objects and arrays
)

// Decode turns a call's arguments into a value, strictly and once: what is decoded is what is
// approved and what is executed. It refuses, with code invalid_arguments and a text that helps
// a model to mend the call: what is not UTF-8 or not exactly one JSON object, keys given twice
// at any depth, unknown arguments (keys match by every letter, unlike in encoding/json), missing
// ones, and values that the schema excludes. Nothing, and null, are {}; a null given for an
// optional argument is as if it were left out. Any other error is a defect of the tool.
func Decode(spec *Spec, args json.RawMessage, into any) error {
	object, err := parseArguments(args)
	if err != nil {
		return err
	}
	checked, err := conform(spec, object)
	if err != nil {
		return err
	}
	// Every key is now one of the schema's own, so that encoding/json's folding of case and
	// its last-one-wins find nothing to do.
	var clean bytes.Buffer
	if err := appendJSON(&clean, checked); err != nil {
		return err
	}
	if err := json.Unmarshal(clean.Bytes(), into); err != nil {
		return refuseDecoded(err)
	}
	return nil
}

// Check reads a call's arguments as Decode does, and gives them as the schema takes them, numbers
// as json.Number, together with the hash that Canonical gives.
func Check(spec *Spec, args json.RawMessage) (map[string]any, [32]byte, error) {
	object, err := parseArguments(args)
	if err != nil {
		return nil, [32]byte{}, err
	}
	_, hash, err := canonical(object)
	if err != nil {
		return nil, [32]byte{}, err
	}
	checked, err := conform(spec, object)
	return checked, hash, err
}

// conform holds arguments against a schema. It changes them: optional nulls go.
func conform(spec *Spec, object map[string]any) (map[string]any, error) {
	s, err := parseSchema(spec)
	if err != nil {
		return nil, err
	}
	checked, err := s.check("", object)
	if err != nil {
		return nil, err
	}
	object, _ = checked.(map[string]any)
	return object, nil
}

// refuseDecoded explains a value that the schema allows and the Go type does not hold.
func refuseDecoded(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && strings.HasPrefix(wrong.Value, "number") {
		return refuse("%s is out of range: %s", subject(wrong.Field), strings.TrimPrefix(wrong.Value, "number "))
	}
	return fmt.Errorf("decode checked arguments: %w", err)
}

// Canonical returns the one form of arguments that approvals are bound to, and its SHA-256:
// no white space, keys in byte order, strings with the fewest escapes, numbers as they were
// written. Its errors are Decode's.
func Canonical(args json.RawMessage) (json.RawMessage, [32]byte, error) {
	object, err := parseArguments(args)
	if err != nil {
		return nil, [32]byte{}, err
	}
	return canonical(object)
}

func canonical(object map[string]any) (json.RawMessage, [32]byte, error) {
	var b bytes.Buffer
	if err := appendJSON(&b, object); err != nil {
		return nil, [32]byte{}, err
	}
	return b.Bytes(), sha256.Sum256(b.Bytes()), nil
}

// parseArguments reads exactly one JSON object without losing or merging anything.
func parseArguments(args json.RawMessage) (map[string]any, error) {
	if len(args) > MaxArguments {
		return nil, refuse("the arguments are %d bytes long; at most %d are taken", len(args), MaxArguments)
	}
	if !utf8.Valid(args) {
		return nil, refuse("the arguments are not valid UTF-8")
	}
	trimmed := bytes.TrimSpace(args)
	if len(trimmed) == 0 || string(trimmed) == "null" {
		return map[string]any{}, nil
	}
	if object, ok := plainArguments(trimmed); ok {
		return object, nil
	}
	return explainedArguments(trimmed)
}

// explainedArguments reads what plainArguments did not take, and says where and why it cannot be read.
func explainedArguments(trimmed []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	dec.UseNumber()
	v, err := readValue(dec, "", 0)
	if err != nil {
		return nil, explainSyntax(err, trimmed)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, refuse("the arguments must be exactly one JSON object; something follows it at byte %d", dec.InputOffset())
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, refuse("the arguments must be a JSON object, not %s", got(v))
	}
	return object, nil
}

// explainSyntax tells a model where its JSON breaks.
func explainSyntax(err error, args []byte) error {
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		from := max(0, min(int(syntax.Offset)-20, len(args)))
		near := strings.ToValidUTF8(string(args[from:min(len(args), from+40)]), "")
		return refuse("the arguments are not valid JSON: %s at byte %d, near %q", syntax, syntax.Offset, near)
	}
	return refuse("the arguments are not valid JSON: they end too early")
}

// readValue reads one value. It is recursive to at most maxDepth.
func readValue(dec *json.Decoder, at string, depth int) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, isDelim := tok.(json.Delim)
	if !isDelim {
		return tok, nil
	}
	if depth >= maxDepth {
		return nil, refuse("the arguments are nested deeper than %d levels", maxDepth)
	}
	if delim == '{' {
		return readObject(dec, at, depth)
	}
	values := []any{}
	for dec.More() {
		v, err := readValue(dec, at, depth+1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	_, err = dec.Token()
	return values, err
}

func readObject(dec *json.Decoder, at string, depth int) (any, error) {
	object := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := tok.(string)
		if _, twice := object[name]; twice {
			return nil, refuse("%s is given twice", subject(join(at, name)))
		}
		v, err := readValue(dec, join(at, name), depth+1)
		if err != nil {
			return nil, err
		}
		object[name] = v
	}
	_, err := dec.Token()
	return object, err
}

// appendJSON writes a parsed value in canonical form.
func appendJSON(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		var few [8]string
		for i, name := range appendSorted(few[:0], v) {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendText(b, name); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := appendJSON(b, v[name]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case []any:
		b.WriteByte('[')
		for i := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendJSON(b, v[i]); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case json.Number:
		b.WriteString(string(v))
		return nil
	case string:
		return appendText(b, v)
	}
	return appendAny(b, v)
}

func appendText(b *bytes.Buffer, s string) error {
	if !plainText(s) {
		return appendAny(b, s)
	}
	b.WriteByte('"')
	b.WriteString(s)
	b.WriteByte('"')
	return nil
}

// appendAny leaves the rest to the encoder.
func appendAny(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode an argument: %w", err)
	}
	b.Truncate(b.Len() - 1) // the encoder's newline
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	return appendSorted(make([]string, 0, len(m)), m)
}

// appendSorted is sortedKeys in room of the caller's, which holds nothing yet.
func appendSorted[V any](keys []string, m map[string]V) []string {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// got describes a value to the one who sent it, shortly.
func got(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "the boolean " + strconv.FormatBool(v)
	case json.Number:
		return "the number " + clip(string(v))
	case string:
		return "the string " + strconv.Quote(clip(v))
	case []any:
		return "an array"
	}
	return "an object"
}

func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:60], "") + "..."
}
