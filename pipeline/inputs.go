package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// check holds a value against the type of the input, and gives it as expressions see it.
func (in *Input) check(v any) (any, error) {
	v, err := plain(v)
	if err != nil {
		return nil, fmt.Errorf("input %s: %w", in.Name, err)
	}
	ok := false
	switch in.Type {
	case "string", "path", "file":
		_, ok = v.(string)
	case "integer":
		_, ok = v.(int)
	case "number":
		_, whole := v.(int)
		_, broken := v.(float64)
		ok = whole || broken
	case "boolean":
		_, ok = v.(bool)
	case "list":
		_, ok = v.([]any)
	case "object":
		_, ok = v.(map[string]any)
	}
	if !ok {
		return nil, fmt.Errorf("input %s is of type %s, and %s is none", in.Name, in.Type, clip(Show(v)))
	}
	return v, nil
}

// clip shortens what is shown in an error.
func clip(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	if s == "" {
		return "nothing"
	}
	return strconv.Quote(s)
}

// read turns a text of a command line into a value.
func (in *Input) read(text string) (any, error) {
	switch in.Type {
	case "string", "path", "file":
		return text, nil
	}
	v, err := decodeJSON(text)
	if whole := json.Valid([]byte(text)); whole && err != nil {
		return nil, fmt.Errorf("input %s: %w", in.Name, err)
	} else if !whole || v == nil {
		return nil, fmt.Errorf("input %s is of type %s, and %s is none: write it as JSON", in.Name, in.Type, clip(text))
	}
	return v, nil
}

// Set reads the k=v of a command line. The values of files are paths still.
func (f *File) Set(words []string) (map[string]any, error) {
	out := make(map[string]any)
	for _, w := range words {
		name, text, ok := strings.Cut(w, "=")
		in := f.input(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("--set %s: no = in it; write --set NAME=VALUE", clip(w))
		case in == nil:
			return nil, fmt.Errorf("--set %s: the pipeline has no such input; %s", clip(name), yamldoc.DidYouMean(name, f.inputNames()))
		}
		if !utf8.ValidString(text) { // JSON has no other texts: its bytes would become others without a word
			return nil, fmt.Errorf("--set %s: the value is not UTF-8; give the bytes encoded, for instance with base64", name)
		}
		v, err := in.read(text)
		if err != nil {
			return nil, fmt.Errorf("--set %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

func (f *File) input(name string) *Input {
	i := slices.IndexFunc(f.Inputs, func(in *Input) bool { return in.Name == name })
	if i < 0 {
		return nil
	}
	return f.Inputs[i]
}

func (f *File) inputNames() (out []string) {
	for _, in := range f.Inputs {
		out = append(out, in.Name)
	}
	return out
}

// Fill checks the inputs of a run, and adds the defaults. load reads the text of inputs of type file, nil leaves them as they are.
func (f *File) Fill(given map[string]any, load func(path string) (string, error)) (map[string]any, error) {
	for name := range given {
		if f.input(name) == nil {
			return nil, fmt.Errorf("pipeline %s has no input %q; %s", f.Name, name, yamldoc.DidYouMean(name, f.inputNames()))
		}
	}
	out := make(map[string]any)
	for _, in := range f.Inputs {
		v, ok := given[in.Name]
		if !ok || v == nil {
			v = in.Default
		}
		if v == nil {
			if in.Required {
				return nil, fmt.Errorf("input %s of pipeline %s is missing: give it with --set %s=VALUE", in.Name, f.Name, in.Name)
			}
			continue
		}
		v, err := in.check(v)
		if err != nil {
			return nil, err
		}
		if in.Type == "file" && load != nil {
			if v, err = load(v.(string)); err != nil { //nolint:forcetypeassert // checked
				return nil, fmt.Errorf("input %s: %w", in.Name, err)
			}
		}
		out[in.Name] = v
	}
	return out, nil
}

// Refill checks what a run was given against a changed file: inputs that it has no more are nothing, those that are new need a default.
func (f *File) Refill(given map[string]any) (map[string]any, error) {
	known := make(map[string]any, len(given))
	for name, v := range given {
		if f.input(name) != nil {
			known[name] = v
		}
	}
	for _, in := range f.Inputs {
		if known[in.Name] == nil && in.Required && in.Default == nil {
			return nil, fmt.Errorf("input %s of pipeline %s is new, and a run keeps what it was given: write a default", in.Name, f.Name)
		}
	}
	return f.Fill(known, nil)
}

// refill is Refill of what fits; what does not stays as it was.
func (f *File) refill(given map[string]any) map[string]any {
	filled, err := f.Refill(given)
	if err != nil {
		return given
	}
	return filled
}
